"""All-in-one: coordinator, worker and HTTP server in one process, over the same messages as in a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass

import structlog

from evermirror.config import Config, split_host_port
from evermirror.edge.git.command import Git
from evermirror.edge.git.serve import GitServer
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import TokenUsed
from evermirror.errors import ConfigError, EnvironmentUnfit, ExitCode
from evermirror.faces.api.app import create_app
from evermirror.faces.api.auth import Auth, AuthSettings
from evermirror.faces.api.context import ApiSettings
from evermirror.faces.api.git_metrics import GitCollector
from evermirror.faces.api.metrics import Metrics
from evermirror.model.repo import RepoKey, RepoStatus
from evermirror.nodes import lifecycle
from evermirror.nodes.catalog_watch import CatalogWatch
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator import Coordinator
from evermirror.nodes.http_server import serving
from evermirror.nodes.link import Link
from evermirror.nodes.playground import playground_running
from evermirror.nodes.served import ServedMirrors
from evermirror.nodes.service import RepoFilter
from evermirror.nodes.wiring import (
    credentials_of,
    git_settings,
    make_catalog,
    make_worker,
    schedule_settings,
    serve_settings,
    url_rules,
    with_absolute_data,
)
from evermirror.nodes.worker import Worker

log = structlog.get_logger(__name__)

DAY_S = 86_400.0
DRAIN_S = 30.0  # how long a stop waits for the database to take the last reports
FIRST_MIRROR_S = 30.0  # how long the greeting waits for something that can be cloned


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What is decided on the command line and is no setting."""

    playground: bool = False
    accept_removals: bool = False


def run(config: Config, options: UpOptions, reload: Callable[[], Config]) -> int:
    """Runs until a signal asks for a stop; returns the process's exit code."""
    return asyncio.run(_main(config, options, reload))


async def _main(config: Config, options: UpOptions, reload: Callable[[], Config]) -> int:
    signals = lifecycle.Signals()
    signals.install()
    config = with_absolute_data(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(lifecycle.claimed(config.data.dir))
        adapt: Callable[[Config], Config] = _as_it_is
        if options.playground:
            adapt = await stack.enter_async_context(playground_running(config))
        node = await stack.enter_async_context(up(adapt(config), options))
        lifecycle.notify("READY=1")
        await _greet(node, options)
        dog = asyncio.create_task(lifecycle.watchdog())
        stack.callback(dog.cancel)
        while not signals.stop.is_set():
            await _first_of(signals.stop.wait(), signals.reload.wait(), node.broken.wait())
            if node.broken.is_set():
                log.error("a part of the process broke: stopping")
                return int(ExitCode.FAILED)
            if signals.reload.is_set():
                signals.reload.clear()
                node.reload(lambda: adapt(reload()))
        lifecycle.notify("STOPPING=1")
        log.info("stopping")
    return int(ExitCode.OK)


@dataclass(slots=True)
class Node:
    """A running all-in-one; ``broken`` is set when one of its tasks ended by a bug."""

    config: Config
    url: str
    coordinator: Coordinator
    worker: Worker
    catalog: CatalogWatch
    link: Link
    broken: asyncio.Event

    def reload(self, load: Callable[[], Config]) -> None:
        """SIGHUP: limits and budgets are taken over, the catalog is read again; the rest needs a restart."""
        try:
            config = load()
        except ConfigError as error:
            log.error("settings not reloaded: they have errors", problems=error.problems)
            return
        self.worker.configure(schedule_settings(config))
        self.catalog.look_now()
        log.info("settings reloaded")


@contextlib.asynccontextmanager
async def up(config: Config, options: UpOptions) -> AsyncIterator[Node]:
    """Everything started and, on leaving, stopped in the order that loses nothing: the worker, then what it
    still had to say, then requests (what they asked for meanwhile is stored, and done after the next start),
    then the database."""
    sock = lifecycle.bind(config.server.listen)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        credentials = credentials_of(config)
        git = Git(git_settings(config), credentials)
        await git.version()
        store = await Store.open(config.store_url)
        stack.push_async_callback(store.close)
        await _check_exposure(config, store)
        recorder = await stack.enter_async_context(Recorder(store))
        link = Link()
        clock = SteadyClock()
        worker = await make_worker(config, git, credentials, link, clock, stack)
        rules = url_rules(config)
        metrics = Metrics()
        coordinator = Coordinator(
            store=store,
            recorder=recorder,
            port=link,
            worker=worker,
            worker_name=config.worker.name or socket.gethostname(),
            rules=rules,
            credentials=frozenset(config.credentials),
            fresh_bound_s=config.schedule.max_gap or DAY_S,
            clock=clock,
            observe=metrics.observe,
        )
        catalog, publisher = make_catalog(
            config, credentials, store, coordinator, clock, accept_removals=options.accept_removals
        )
        coordinator.hold_tasks()
        broken = asyncio.Event()
        await stack.enter_async_context(
            _http(config, sock, coordinator, catalog, store, recorder, worker, git, metrics)
        )
        stack.push_async_callback(_drain, link, coordinator)
        await stack.enter_async_context(_running(coordinator.run, broken))
        await stack.enter_async_context(_running(worker.run, broken))
        await catalog.load()
        await coordinator.resume()
        await stack.enter_async_context(_running(catalog.run, broken))
        if publisher is not None:
            await stack.enter_async_context(_running(publisher.run, broken))
        await stack.enter_async_context(_running(coordinator.keep_house, broken))
        host, port = sock.getsockname()[:2]
        scheme = "https" if config.server.tls_cert else "http"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        yield Node(config, url, coordinator, worker, catalog, link, broken)


@contextlib.asynccontextmanager
async def _http(
    config: Config,
    sock: socket.socket,
    coordinator: Coordinator,
    catalog: CatalogWatch,
    store: Store,
    recorder: Recorder,
    worker: Worker,
    git: Git,
    metrics: Metrics,
) -> AsyncIterator[None]:
    host, _ = split_host_port(config.server.listen)
    auth = Auth(
        store,
        AuthSettings(
            tokens_required=config.auth.tokens_required,
            public_reads=config.auth.public_reads,
            listen_host=host,
            hosts=config.server.names,
        ),
        on_used=lambda token: recorder.put_soon(TokenUsed(token.id, time.time())),
    )
    server = GitServer(git, serve_settings(config))
    metrics.registry.register(GitCollector(server.figures))
    served = ServedMirrors(coordinator, worker, server)
    settings = ApiSettings(git_silence_s=config.serve.silence)
    app = create_app(coordinator, auth, settings, metrics, served, catalog)
    async with serving(app, sock, tls_cert=config.server.tls_cert, tls_key=config.server.tls_key):
        yield


@contextlib.asynccontextmanager
async def _running(
    work: Callable[[], Coroutine[None, None, None]], broken: asyncio.Event
) -> AsyncIterator[None]:
    """A task that lives as long as the block; a bug that ends it is logged and sets ``broken``."""

    async def guarded() -> None:
        try:
            await work()
        except Exception:
            log.exception("a part broke")
            broken.set()

    task = asyncio.create_task(guarded())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _drain(link: Link, coordinator: Coordinator) -> None:
    """What the worker still had to say when it stopped; a database in trouble does not hold the stop up."""
    try:
        async with asyncio.timeout(DRAIN_S):
            while link.reports_waiting():
                await coordinator.take(await link.next_report())
    except TimeoutError:
        log.error("the database does not take writes: reports are lost", reports=link.reports_waiting())


async def _first_of(*waits: Coroutine[None, None, object]) -> None:
    tasks = [asyncio.ensure_future(w) for w in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _check_exposure(config: Config, store: Store) -> None:
    """Without any token everybody who reaches us may write: then only this machine may reach us."""
    host, _ = split_host_port(config.server.listen)
    if host == "localhost" or ipaddress.ip_address(host).is_loopback or await store.any_tokens():
        return
    raise EnvironmentUnfit(
        f"refusing to listen on {config.server.listen} without any token",
        hint="Make one first: evermirror token create --role admin; or listen on 127.0.0.1",
    )


async def _greet(node: Node, options: UpOptions) -> None:
    lines = ["", f"  evermirror is up: {node.url}/", f"  data: {node.config.data.dir}"]
    if options.playground:
        lines.append("  It mirrors small upstreams of its own, which are pushed to now and then.")
        if (key := await _first_mirror(node)) is not None:
            lines.append(f"  Try: git clone {node.url}/git/{key}")
    print("\n".join([*lines, "  Stop with Ctrl-C.", ""]), flush=True)


async def _first_mirror(node: Node) -> RepoKey | None:
    """A repo that can be cloned, once there is one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_MIRROR_S):
            while True:
                active = await node.coordinator.list_repos(RepoFilter(status=RepoStatus.ACTIVE, limit=1))
                if active:
                    return active[0].key
                await asyncio.sleep(0.1)
    return None


def _as_it_is(config: Config) -> Config:
    return config
