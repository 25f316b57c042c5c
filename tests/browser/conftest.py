"""A real Chromium against the test database served over HTTP, without JavaScript."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application
from django.db import connections

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
NO_CHROMIUM = "No Chromium was found: install it (Debian: apt-get install chromium), or set CHROMIUM to its program."
# The sandbox needs rights that containers lack; the rest keeps it from calling home.
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PASSWORD = "a test's password, known to nobody else"


def find_chromium() -> str:
    """Return the program; fail where there is none: a browser test that does not run proves nothing."""
    for name in (os.environ.get("CHROMIUM", ""), *NAMES):
        found = shutil.which(name) if name else None
        if found:
            return found
    pytest.fail(NO_CHROMIUM)


class QuietHandler(WSGIRequestHandler):
    """Serves without a line per request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it so
        """Print nothing."""


POLICY = "default-src 'self'"
BREAKS_IT = "/a-page-that-breaks-it"


def with_policy(application: Any) -> Any:
    """Answer with a content security policy that allows nothing but the site's own files."""

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == BREAKS_IT:
            start_response("200 OK", [("Content-Type", "text/html"), ("Content-Security-Policy", POLICY)])
            return [b"<body><style>p { color: red }</style><p>inline</p></body>"]

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, ("Content-Security-Policy", POLICY)], *more)

        return application(environ, start)

    return answer


class Site:
    """The test project over HTTP, in a thread of this process, on the test's database."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._server = make_server(
            "127.0.0.1", 0, with_policy(StaticFilesHandler(get_wsgi_application())), handler_class=QuietHandler
        )
        self._thread = threading.Thread(target=self._serve, name="site", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)
        connections.close_all()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class Browser:
    """Chromium in a thread of its own: its driver runs an event loop, beside which Django refuses database work."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.violations: list[str] = []  # of the content security policy, and everything else on the console
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        self._thread.submit(self._start).result(60)

    def _start(self) -> None:
        from playwright.sync_api import sync_playwright  # an extra of its own: other tests are collected without it

        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(executable_path=find_chromium(), args=list(OPTIONS))
        context = self._chromium.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 900})
        self._page = context.new_page()
        self._page.set_default_timeout(20_000)
        self._page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if "favicon.ico" not in message.location.get("url", ""):  # the test project has none
            self.violations.append(message.text)

    def do(self, action: Any) -> Any:
        """Run ``action(page)`` where the page lives and return what it returns."""
        return self._thread.submit(action, self._page).result(90)

    def open(self, path: str) -> str:
        """Go to a path of the site and return the page's text."""

        def go(page: Page) -> str:
            page.goto(self.site.url + path)
            return page.inner_text("body")

        return str(self.do(go))

    def picture(self, path: Path, *, dark: bool = False) -> None:
        """Keep a picture of the whole page."""

        def shoot(page: Page) -> None:
            page.emulate_media(color_scheme="dark" if dark else "light")
            page.screenshot(path=str(path), full_page=True)

        self.do(shoot)

    def close(self) -> None:
        """End Chromium."""

        def end() -> None:
            self._chromium.close()
            self._playwright.stop()

        self._thread.submit(end).result(30)
        self._thread.shutdown()


@pytest.fixture
def site(transactional_db: None) -> Iterator[Site]:
    """The test project, served."""
    started = Site()
    yield started
    started.close()


@pytest.fixture
def browser(site: Site) -> Iterator[Browser]:
    """Chromium."""
    started = Browser(site)
    yield started
    started.close()


@pytest.fixture
def signed_in(browser: Browser) -> Browser:
    """Chromium, signed in to the admin as somebody who may do everything."""
    User.objects.create_superuser("ada", "ada@example.com", PASSWORD)

    def sign_in(page: Page) -> None:
        page.goto(browser.site.url + "/admin/login/?next=/admin/")
        page.fill("#id_username", "ada")
        page.fill("#id_password", PASSWORD)
        page.click("input[type=submit]")

    browser.do(sign_in)
    return browser
