"""A browser, and the playground as it is published; skipped, saying so, where there is no browser."""

import functools
import http.server
import importlib.util
import os
import shutil
import threading

import pytest

from helpers import ROOT

PLAYGROUND = ROOT / "playground"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def load_script(path):
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The playground with its weights, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site") / "playground"
    load_script(PLAYGROUND / "build.py").publish(folder)
    return folder


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[docs]'")
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=executable, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(site):
    """The address of the playground over HTTP."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/index.html"
        httpd.shutdown()
        thread.join()


@pytest.fixture
def open_page(browser, site):
    """Open the playground; what it asks for elsewhere, and errors in its console, fail the test."""
    contexts, faults = [], []

    def open_page(hash_="", address=None, motion="reduce", **options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": motion, **options}
        )
        contexts.append(context)
        page = context.new_page()
        address = address or (site / "index.html").as_uri()
        base = address.rsplit("/", 1)[0]
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith((base, "blob:", "data:")) else faults.append(request.url),
        )
        page.set_default_timeout(60_000)
        page.goto(address + hash_)
        page.wait_for_selector("#loading", state="hidden")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
