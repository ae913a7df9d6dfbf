"""The documentation site: built without a warning, whole, and on its own."""

import html
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from helpers import ROOT
from routing_gym.problems import LISTED


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site; warnings are errors, and what a page's cells raise is one too.

    Of two pages only the cells are run: tests/test_docs.py runs the Python of all, and `make docs` that of all here.
    """
    pytest.importorskip("myst_nb", reason="no Sphinx: pip install -e '.[docs]'")
    pytest.importorskip("furo", reason="no furo: pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(out / ".trees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "RUN_CELLS_OF": "attention-model from-a-spreadsheet-to-a-map"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """Collects what a page links to, what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.loads += [found[key] for key in ("src", "data") if key in found]
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(found["href"])


def pages(built):
    return {path: Page(path.read_text()) for path in sorted(built.rglob("*.html"))}


def broken(found):
    """List links to files that are not there, or to anchors that their page does not have."""
    faults = []
    for path, page in found.items():
        for link in page.links + page.loads:
            if re.match(r"[a-z]+:|//", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(html.unescape(file.split("?")[0]))).resolve() if file else path
            if not target.exists() or (
                anchor and target.suffix == ".html" and unquote(anchor) not in found[target].anchors
            ):
                faults.append((path.name, link))
    return faults


def test_links_within_the_site_lead_somewhere(built):
    found = {path.resolve(): page for path, page in pages(built).items()}
    assert sum(len(page.links) for page in found.values()) > 500
    assert broken(found) == []


def test_broken_links_are_found(tmp_path):
    path = tmp_path / "a.html"
    links = '<a href="#here"></a><a href="no.html"></a><a href="#there"></a>'
    path.write_text(f'{links}<img src="x.png"><p id="there">')
    assert broken({path: Page(path.read_text())}) == [("a.html", "#here"), ("a.html", "no.html"), ("a.html", "x.png")]


def test_pages_load_nothing_from_elsewhere(built):
    loads = {load for page in pages(built).values() for load in page.loads}
    assert {load for load in loads if re.match(r"https?:|//", load)} == set()
    for sheet in built.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:|//)", sheet.read_text()), sheet


def moved(path):
    """Return whether a page only leads to another one, its new address."""
    return 'http-equiv="refresh"' in path.read_text()[:200]


def test_every_environment_has_a_page(built):
    for name in LISTED:
        (page,) = (path.read_text() for path in built.glob(f"environments/**/{name.lower()}.html") if not moved(path))
        assert f"routing/{name}-20" in page
        assert "action_mask" in page


@pytest.mark.parametrize("name", LISTED)
def test_code_of_the_environment_pages_runs(name, built):
    (text,) = (path.read_text() for path in (ROOT / "docs" / "environments").rglob(f"{name.lower()}.md"))
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace = {}
    exec(code, namespace)
    assert namespace["terminated"]  # a tour drawn at random may cost 0: one of OP that stays at home


def test_cells_show_what_they_computed(built):
    page = (built / "explanation" / "attention-model.html").read_text()
    assert "the layer itself computes the same: True" in html.unescape(page)
    assert "computes the same: False" not in page
    assert "<math" in page


def test_tutorials_are_notebooks(built):
    page = (built / "tutorials" / "train-a-policy.html").read_text()
    (address,) = re.findall(r'href="([^"]+\.ipynb)"', page)
    notebook = json.loads((built / "tutorials" / address).read_text())
    assert any(
        "nearest neighbour" in "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"
    )


def test_pages_lead_to_their_source(built):
    page = (built / "how-to" / "search.html").read_text()
    assert 'href="../_sources/how-to/search.md.txt"' in page
    assert (built / "_sources" / "how-to" / "search.md.txt").read_text().startswith("# ")


def test_the_api_names_everything_public(built):
    import routing_agents
    import routing_gym
    from routing_gym import data, planning, solvers, testing

    for module in (routing_gym, data, planning, solvers, testing, routing_agents):
        page = (built / "reference" / "api" / f"{module.__name__.removeprefix('routing_gym.')}.html").read_text()
        missing = [name for name in module.__all__ if f'id="{module.__name__}.{name}"' not in page]
        assert set(missing) <= {"SIZES", "MAX_NODES", "SOLVERS", "REFERENCES", "FASTEST"}, missing  # constants


def test_the_playground_is_part_of_it(built):
    assert (built / "playground" / "index.html").exists()
    assert (built / "playground" / "data" / "tsp-20.js").stat().st_size > 1e6


def test_two_pages_lead_to_a_trained_model(built):
    """From opening the site to a trained model: the first page, and the one that it names first."""
    first = (built / "index.html").read_text()
    assert 'href="tutorials/get-started.html"' in first
    assert "make train" in re.sub(r"<[^>]+>", "", (built / "tutorials" / "get-started.html").read_text())


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_animations_stop(motion, built, browser):
    """A button stops all animations of the page, which begin stopped where the system asks for it."""
    context = browser.new_context(reduced_motion=motion)
    page = context.new_page()
    page.goto((built / "index.html").as_uri())
    moves = motion == "no-preference"
    for _ in range(2):
        page.get_by_role("button", name="Stop the animations" if moves else "Play the animations").wait_for()
        assert page.locator('article img[src$=".gif"]').first.is_visible() == moves
        assert page.locator("canvas.still").first.is_hidden() == moves
        page.get_by_role("button", name="animations").click()
        moves = not moves
    context.close()


def test_the_tutorial_shows_the_map_of_its_plan(built, browser):
    """The routes of the plan that the page's text prints, in the frame that the page embeds; Chromium is offline."""
    path = built / "tutorials" / "from-a-spreadsheet-to-a-map.html"
    context = browser.new_context(offline=True)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        page.locator("iframe").first.scroll_into_view_if_needed()
        inside = page.frame_locator("iframe").first
        inside.locator("#picture .line").first.wait_for(state="attached")
        assert inside.locator("#picture .line").count() == len(
            re.findall(r"\nvehicle van \d: ", page.inner_text("body"))
        )
        assert inside.locator("#picture .spot.stop").count() == 40
        inside.locator("#picture .spot.stop").first.dispatch_event("mousemove")  # a hover may miss it
        assert "arrives" in inside.locator("#tip").inner_text()
    finally:
        context.close()
