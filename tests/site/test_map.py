"""The map of a plan as a person uses it: from a file, without a network, and in the page of a notebook."""

from __future__ import annotations

import base64
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

import routing_agents
from helpers import ROOT

# A transparent pixel
TILE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
LISBON = ROOT / "examples" / "lisbon"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def plan():
    pytest.importorskip("pyproj")
    return routing_agents.solve(LISBON / "stops.csv", vehicles=LISBON / "vans.csv", solver="search", seconds=1.0)


@pytest.fixture
def open_map(browser):
    """Open a page from a file; what it asks for, and errors in its console, fail the test."""
    contexts, faults = [], []

    def open_map(path):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "about:")) else faults.append(request.url),
        )
        page.goto(path.as_uri())
        return page

    yield open_map
    for context in contexts:
        context.close()
    assert faults == []


def test_routes_and_times_are_seen_without_a_network(plan, open_map, tmp_path):
    plan.to_html(tmp_path / "map.html")
    page = open_map(tmp_path / "map.html")
    lines = page.locator("#picture .route .line")
    assert lines.count() == len(plan.routes)
    colours = {line.evaluate("one => getComputedStyle(one).stroke") for line in lines.all()}
    assert len(colours) == len(plan.routes)
    assert all(line.evaluate("one => one.getTotalLength()") > 100 for line in lines.all())
    assert page.locator("#picture .spot.stop").count() == sum(len(route.stops) for route in plan.routes)
    visit = plan.routes[0].stops[0]
    page.locator("#picture .spot.stop").first.dispatch_event("mousemove")  # another stop may lie over it
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert visit.name in tip.inner_text()
    assert f"arrives {plan.task.at(visit.arrival)}, leaves {plan.task.at(visit.departure)}" in tip.inner_text()
    page.locator("#legend input").first.uncheck()
    assert not lines.first.is_visible()
    assert page.locator(".gantt g").count() >= sum(len(route.stops) for route in plan.routes)


@pytest.mark.parametrize("in_frame", [False, True])
def test_streets_are_asked_for_with_a_referer(plan, browser, tmp_path, in_frame):
    """A page from a web server, and the frame of a notebook, ask for tiles and send a Referer."""
    (tmp_path / "map.html").write_text(f"<!doctype html>{plan._repr_html_()}" if in_frame else plan.to_html())
    handler = partial(QuietHandler, directory=tmp_path)
    senders = []

    def tile(route):
        senders.append(route.request.all_headers().get("referer"))
        route.fulfill(status=200, content_type="image/png", body=TILE)

    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        context = browser.new_context()
        context.route("https://tile.openstreetmap.org/**", tile)
        page = context.new_page()
        page.goto(f"{address}map.html")
        inside = page.frame_locator("iframe") if in_frame else page
        inside.locator("#credit").wait_for()  # appears with the first tile
        context.close()
        server.shutdown()
    assert senders
    assert set(senders) == {address}


def test_text_of_the_table_is_text(open_map, tmp_path):
    """A name that is a script is shown, and not run; it has no effect in the frame of a notebook either."""
    script, image = "<script>document.title='run'</script>", '"><img src=x onerror=alert(1)>'
    stops = {"name": ["depot", script, image], "lat": [38.7, 38.71, 38.72], "lon": [-9.1] * 3}
    plan = routing_agents.solve(stops, vehicles={"count": 1}, solver="search", seconds=0.1)
    frame = tmp_path / "frame.html"
    frame.write_text(f"<!doctype html><meta charset=utf-8><title>notebook</title>{plan._repr_html_()}")
    page = open_map(frame)
    inside = page.frame_locator("iframe")
    inside.locator("#picture .spot").nth(0).wait_for()
    assert inside.locator("img").count() == 0
    assert page.title() == "notebook"
    labels = [spot.get_attribute("aria-label") for spot in inside.locator("#picture .spot").all()]
    assert any(script in label for label in labels)


def test_streets_are_drawn_if_they_are_given(plan, open_map, tmp_path):
    """A detour of three corners instead of the stops' straight lines."""
    line = {"type": "LineString", "coordinates": [[-9.12, 38.78], [-9.10, 38.75], [-9.20, 38.70]]}
    route = {"code": "Ok", "routes": [{"geometry": line}]}
    plan.with_geometry({plan.routes[0].vehicle: route}).to_html(tmp_path / "map.html")
    page = open_map(tmp_path / "map.html")
    assert len(page.locator("#picture .line").first.get_attribute("points").split()) == 3
