"""The dashboard at a million repos: how soon it shows its figures, and what 200 open ones cost the server.

The server is a real coordinator on a database with a million repos, in every state, and with workers that
send heartbeats; some repos are added each second, so that there is something to tell. What a page asks for
when it is opened is what Chromium asked for. The cost is the server's CPU with them, less the same without.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial

import httpx2

from bench.measure import Bench, Context, Line, Sense
from bench.worlds.coordinator_process import ADMIN, CoordinatorProcess, settle_workers
from bench.worlds.crowd import crowd, more_files
from bench.worlds.dashboards import STREAM, dashboards
from bench.worlds.many_repos import STORE, make_store
from evermirror.edge.rpc.pki import open_ca

OPEN = 200
WORKERS = 20
HEARTBEAT_S = 5.0
WATCHED_S = 10.0  # while they are opened, while they are open, and without them
CLOSED_S = 1.0  # after the last was closed
CHANGES_PER_S = 2.0
REST_S = 30.0  # the longest that its rest is waited for
QUIET_SHARE = 0.15  # of a core
COUNTED_S = 1.1  # between two looks: figures are counted anew
SHOWN_MS = 60_000

# When the figures are there, in milliseconds since the navigation began.
_SHOWN = """window.shown = new Promise((done, failed) => {
  setTimeout(() => failed(new Error("no figures")), %d);
  new MutationObserver((_, seen) => {
    const view = document.getElementById("view");
    if (!view?.querySelector(".figures dd") || !view.textContent.includes(%r)) return;
    seen.disconnect();
    done(performance.now());
  }).observe(document, {childList: true, subtree: true, characterData: true});
})"""


class World:
    """A coordinator that knows ``repos``."""

    def __init__(self, context: Context, repos: int, workers: int) -> None:
        catalog = context.folder / "catalog.txt"
        catalog.touch()
        self.coordinator = CoordinatorProcess(context.folder / "node", catalog, HEARTBEAT_S)
        self.repos = repos
        self.url = f"http://127.0.0.1:{self.coordinator.http_port}"
        self.client = httpx2.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60
        )
        self.coordinator.data.mkdir(parents=True)
        open_ca(self.coordinator.data / "pki")
        store = context.shared.made(f"store-{repos}", partial(make_store, n=repos))
        shutil.copyfile(store / STORE, self.coordinator.database)
        settle_workers(self.coordinator.database, workers)

    def answer_s(self) -> float:
        time.sleep(COUNTED_S)
        began = time.perf_counter()
        found = self.client.get("/api/overview")
        took = time.perf_counter() - began
        assert found.json()["total_repos"] >= self.repos, found.text[:500]
        return took

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Repos are added, and cloned, as long as the block lasts."""
        over = threading.Event()

        def add() -> None:
            number = 0
            while not over.wait(1 / CHANGES_PER_S):
                number += 1
                url = f"https://forge-1.example/new/{time.monotonic_ns()}-{number}"
                self.client.post("/api/git_urls", json={"git_url": url}).raise_for_status()

        thread = threading.Thread(target=add, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)

    def rest(self) -> None:
        """Until what followed from the workers' coming is over."""
        end = time.monotonic() + REST_S
        while self.spent(2.0) > QUIET_SHARE and time.monotonic() < end:
            continue

    def spent(self, seconds: float) -> float:
        """The server's share of a core while so much time goes by."""
        cpu_s, began = self.coordinator.cpu_s(), time.monotonic()
        time.sleep(seconds)
        return (self.coordinator.cpu_s() - cpu_s) / (time.monotonic() - began)


# A browser


def _opened(world: World, rounds: int) -> tuple[list[float], list[str]]:
    """Seconds until the figures were shown, each time in a browser that knows nothing yet; what it
    asked. Where there is no browser, only what is asked."""
    from tests.browser.browsing import CHROMIUM, Browsing, Contexts, chromium

    if not CHROMIUM.exists():
        return [], ["/", "/api/me", "/api/overview", "/api/overview/course?hours=24"]
    shown_s, paths = [], []
    with chromium() as browser:
        for _ in range(rounds):
            time.sleep(COUNTED_S)
            browsing = Browsing(Contexts(browser), world.url, {"admin": ADMIN})
            page = browsing.open("/healthz")
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url.removeprefix(world.url)))
            page.add_init_script(_SHOWN % (SHOWN_MS, f"{world.repos:,}"))
            page.goto("/")
            shown_s.append(page.evaluate("window.shown") / 1000)
            page.wait_for_timeout(500)  # what it asks for after that
            paths = [path for path in dict.fromkeys(asked) if not path.startswith("/api/events")]
            browsing.check()
            browsing.close()
    return shown_s, paths


# All together


def _run_all(context: Context) -> list[Line]:
    more_files()
    repos, workers = context.size(1_000_000, 5_000), context.size(WORKERS, 2)
    count, watched_s = context.size(OPEN, 10), context.seconds or context.size(int(WATCHED_S), 1)
    rounds = context.repeats(3)
    world = World(context, repos, workers)
    with world.coordinator.running():
        answers = [world.answer_s() for _ in range(rounds)]
        shown, paths = _opened(world, rounds)
        with crowd(world.coordinator, workers):
            world.rest()
            with world.changing():
                cpu_s, began = world.coordinator.cpu_s(), time.monotonic()
                with dashboards(world.url, ADMIN, paths, count, watched_s) as pages:
                    opening = (world.coordinator.cpu_s() - cpu_s) / (time.monotonic() - began)
                    pages.seen()
                    open_ = world.spent(watched_s)
                    seen = pages.seen()
                time.sleep(CLOSED_S)
                without = world.spent(watched_s)
    assert seen.streams == count, f"only {seen.streams} of {count} streams of {STREAM} are open"
    assert seen.frames, "nothing was told"
    frames = (seen.frames / count / watched_s, seen.overviews / count / watched_s)
    return [
        _at_most(
            f"{repos:,} repos: GET /api/overview, counted anew", "s wall", answers, 1.0, "dashboard-overview"
        ),
        *(
            [
                _at_most(
                    "from navigation to the figures, in Chromium", "s wall", shown, 1.0, "dashboard-overview"
                )
            ]
            if shown
            else []
        ),
        Line("what it asks for to open", "requests", (float(len(paths)),), sense=Sense.AT_MOST),
        _at_most(
            f"{count} open dashboards", "% of a core", [(open_ - without) * 100], 20.0, "dashboard-crowd"
        ),
        _at_most("while they are opened", "% of a core", [(opening - without) * 100]),
        _at_most("the same server without them", "% of a core", [without * 100]),
        Line("frames told to each", "per s", (frames[0],), sense=Sense.AT_LEAST),
        Line("overviews of these", "per s", (frames[1],), sense=Sense.AT_LEAST),
        _at_most("each frame", "bytes", [seen.received_bytes / seen.frames]),
    ]


def _at_most(
    what: str, unit: str, samples: list[float], goal: float | None = None, promise: str = ""
) -> Line:
    return Line(what, unit, tuple(samples), sense=Sense.AT_MOST, goal=goal, promise=promise)


BENCH = Bench(
    name="dashboard",
    measures="the overview of a million repos in a browser, and 200 open dashboards",
    alternative="the same server while nobody looks",
    run=_run_all,
    order=75,
    takes_s=98,
)
