"""A browser as a test uses it: pages that know nothing of each other, watched for what a page must never do.

A page must log no error, throw none, break no rule of its Content-Security-Policy and ask no other server for
anything; ``Browsing.check`` fails where one did. ``allow`` names what a test brings about on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
WITHIN_MS = 20_000  # for what a test waits for; a busy machine is slow
HEIGHT = 800
NOT_ASKED = ("data:", "blob:", "about:")

# A token as after signing in; once, so that signing out lasts.
_SIGNED_IN = """(() => {
  if (location.protocol === "about:" || sessionStorage.getItem("test-signed-in")) return;
  sessionStorage.setItem("test-signed-in", "1");
  sessionStorage.setItem("token", %r);
})()"""
_VIOLATIONS = (
    'addEventListener("securitypolicyviolation",'
    " (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's; nothing is downloaded."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Contexts:
    """Of one browser, by how they are set. They are kept: a page begins with nothing of the one before, but
    files that never change come from their cache."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._made: dict[str, BrowserContext] = {}

    def get(self, scripts: list[str], options: dict[str, Any]) -> BrowserContext:
        name = repr((scripts, options))
        if name not in self._made:
            self._made[name] = self.fresh(scripts, options)
        return self._made[name]

    def fresh(self, scripts: list[str], options: dict[str, Any]) -> BrowserContext:
        """One that is not kept."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(WITHIN_MS)
        for script in scripts:
            context.add_init_script(script)
        return context


class Browsing:
    """Pages of the house at ``url``; ``tokens`` by role."""

    def __init__(self, contexts: Contexts, url: str, tokens: dict[str, str]) -> None:
        self.url = url
        self._contexts = contexts
        self._tokens = tokens
        self.pages: list[Page] = []
        self._alone: list[BrowserContext] = []
        self._faults: list[str] = []
        self._allowed: list[re.Pattern[str]] = []

    def open(
        self,
        path: str = "/",
        *,
        role: str | None = "admin",
        locale: str = "en-US",
        dark: bool = False,
        width: int = 1280,
        height: int = HEIGHT,
        reduced_motion: bool = True,
        url: str | None = None,
        before: Callable[[Page], object] | None = None,
    ) -> Page:
        """A page as somebody new opens it; ``role`` None is the public. ``before`` is called before it asks
        for anything, and may set its clock: such a page has a context of its own."""
        home = url or self.url
        options = {
            "base_url": home,
            "locale": locale,
            "color_scheme": "dark" if dark else "light",
            "viewport": {"width": width, "height": height},
            "device_scale_factor": 1,
            "reduced_motion": "reduce" if reduced_motion else "no-preference",
            "timezone_id": "UTC",
        }
        scripts = [_VIOLATIONS, *([_SIGNED_IN % self._tokens[role]] if role is not None else [])]
        if before is None:
            page = self._contexts.get(scripts, options).new_page()
        else:
            context = self._contexts.fresh(scripts, options)
            self._alone.append(context)
            page = context.new_page()
            before(page)
        self._watch(page, home)
        page.goto(path)
        return page

    def allow(self, *patterns: str) -> None:
        """What is brought about on purpose, as regular expressions."""
        self._allowed += [re.compile(pattern) for pattern in patterns]

    @property
    def faults(self) -> list[str]:
        return [fault for fault in self._faults if not any(p.search(fault) for p in self._allowed)]

    def check(self) -> None:
        assert not self.faults, "\n".join(self.faults)

    def close(self) -> None:
        for page in self.pages:
            page.close()
        for context in self._alone:
            context.close()

    def shot(self, page: Page, name: str, **options: Any) -> Path:
        """A picture for people, kept below build/screenshots."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        file = SHOTS / f"{name}.png"
        page.screenshot(path=file, animations="disabled", caret="hide", **options)
        return file

    # Watching

    def _watch(self, page: Page, home: str) -> None:
        self.pages.append(page)
        page.on("popup", lambda other: self._watch(other, home))
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self._faults.append(f"uncaught: {error}"))
        page.on("request", lambda request: self._asked(request, home))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._faults.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Request, home: str) -> None:
        if not request.url.startswith((f"{home}/", *NOT_ASKED)):
            self._faults.append(f"another server was asked: {request.url}")
