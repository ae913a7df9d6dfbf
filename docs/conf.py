"""Settings of the documentation site: `make docs` builds it into docs/_build.

It loads nothing from other servers, except for the streets of the map in a tutorial when the map is scrolled into view.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / folder) for folder in ("", "agents", "examples"))]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[1:3])  # for the kernels that run the pages' cells

import directives  # noqa: E402
import environment_pages  # noqa: E402

import routing_gym  # noqa: E402
from playground import build as playground  # noqa: E402
from routing_gym.problems import LISTED  # noqa: E402

project = "routing-gym"
version = release = routing_gym.__version__
author = "The routing-gym developers"
copyright = author  # noqa: A001
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
MOVED = {  # addresses of earlier versions, and the new addresses of the pages
    "get-started": "tutorials/get-started",
    "own-data": "how-to/own-data",
    "stable-baselines3": "how-to/stable-baselines3",
    "cleanrl": "how-to/cleanrl",
    "torchrl": "how-to/torchrl",
    "rllib": "how-to/rllib",
    "tianshou": "how-to/tianshou",
    "jax": "how-to/jax",
    "multi-agent-rllib": "how-to/multi-agent-rllib",
    "multi-agent-torchrl": "how-to/multi-agent-torchrl",
    "onnx": "how-to/onnx",
    "multi-agent": "explanation/multi-agent",
    "pointer-networks": "explanation/pointer-networks",
    "attention-model": "explanation/attention-model",
    "design": "explanation/design",
    "agents": "reference/trained-models",
    "environments": "reference/environments",
    "solvers": "reference/solvers",
    "wrappers": "reference/wrappers",
    "results": "reference/results",
    "performance": "reference/performance",
    "parity": "reference/parity",
    "api/data": "reference/api/data",
    "api/generators": "reference/api/generators",
    "api/integrations": "reference/api/integrations",
    "api/routing_agents": "reference/api/routing_agents",
    "api/routing_gym": "reference/api/routing_gym",
    "api/solvers": "reference/api/solvers",
    "api/testing": "reference/api/testing",
    "api/wrappers": "reference/api/wrappers",
}
for name in map(str.lower, LISTED):
    if within := environment_pages.folder(name.upper()):
        MOVED[f"environments/{name}"] = f"environments/{within}{name}"
html_theme = "furo"
html_title = f"routing-gym {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_copy_source = True  # for the link to a page's source; generated pages have one too
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#4453e0", "color-brand-content": "#4453e0"},
    "dark_css_variables": {"color-brand-primary": "#98a4ff", "color-brand-content": "#98a4ff"},
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "native"
default_role = "code"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds, for a cell on a busy machine
if only := os.environ.get("RUN_CELLS_OF"):  # tests/site sets two pages: tests/test_docs.py runs all Python
    nb_execution_excludepatterns = [f"**/{path.name}" for path in HERE.rglob("*.md") if path.stem not in only.split()]
    suppress_warnings = ["myst-nb.lexer"]  # the kernel names the language of a page that it runs
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = [
    name
    for name in ("jax", "ray", "tianshou", "torchrl", "tensordict", "pettingzoo", "stable_baselines3", "sb3_contrib")
    if find_spec(name) is None
]
napoleon_use_ivar = True


def link_into_the_site(app, name, source):
    """Replace links to CONTRIBUTING.md by links to its page in the site."""
    source[0] = source[0].replace("](../../CONTRIBUTING.md", "](/contributing.md")


def keep_tables(app, what, name, obj, options, lines):
    """Convert the Markdown tables of docstrings to literal blocks, because reStructuredText would misread them."""
    shown = []
    for line in lines:
        starts = line.lstrip().startswith("|")
        if starts and not (shown and shown[-1].lstrip().startswith("|")):
            shown += ["", "::", ""]
        elif not starts and shown and shown[-1].lstrip().startswith("|"):
            shown.append("")
        shown.append(f"    {line}" if starts else line)
    lines[:] = shown


def write_pages(app):
    """Write the generated pages: those of the environments, with their animations."""
    environment_pages.main(HERE / "environments")


def copy_playground(app, error):
    """Copy the playground to the site, and write its weights."""
    if error is None and app.builder.format == "html":
        address = os.environ.get("SITE_ADDRESS")  # set by the workflow that publishes the site
        playground.publish(Path(app.outdir) / "playground", address and f"{address.rstrip('/')}/playground/")


def redirect(app, error):
    """Write a redirect to the new address of a page at each address of earlier versions."""
    if error is not None or app.builder.format != "html":
        return
    for old, new in MOVED.items():
        target = f"{'../' * old.count('/')}{new}.html"
        page = Path(app.outdir) / f"{old}.html"
        page.parent.mkdir(exist_ok=True)
        refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
        page.write_text(f'<!doctype html>{refresh}<a href="{target}">This page has moved</a>')


def list_versions(app, error):
    """Write a page with links to all versions, which the site's workflow unpacks into folders such as v0.2.0."""
    if error is None and app.builder.format == "html":
        out = Path(app.outdir)
        names = sorted((path.parent.name for path in out.glob("v*/index.html")), reverse=True)
        links = [("index.html", f"{release} (this version)"), *((f"{name}/index.html", name) for name in names)]
        items = "".join(f'<li><a href="{address}">{text}</a></li>' for address, text in links)
        (out / "versions.html").write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Versions · routing-gym</title>'
            f"<h1>Documentation by version</h1><ul>{items}</ul></html>"
        )


def visit_math(self, node):
    """Write a formula as MathML, which browsers draw themselves."""
    self.body.append(convert(node.astext()))
    raise SkipNode


def visit_math_block(self, node):
    """Write a formula that stands alone as MathML."""
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    """Connect the functions above to Sphinx."""
    app.add_directive("command-help", directives.CommandHelp)
    app.add_directive("layers", directives.Layers)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", keep_tables)
    app.connect("source-read", link_into_the_site)
    app.connect("build-finished", copy_playground)
    app.connect("build-finished", redirect)
    app.connect("build-finished", list_versions)


html_math_renderer = "mathml"
