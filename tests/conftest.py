"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from tests.support.failures import watch
from tests.support.gitolite import COMMAND, Gitolite
from tests.support.order import CAMPAIGNS, arranged, asks_for_campaigns, file_of
from tests.support.postgres import PostgresServer, find_bin_dir
from tests.support.processes import let_children_be_signalled
from tests.support.quick_disk import quick_folder
from tests.support.ssh import SshUpstream, find_sshd
from tests.support.upstream import UpstreamServer

# How long one example takes is the machine's load at that moment; what must be quick has tests of its own.
settings.register_profile("evermirror", parent=settings(), deadline=None)
settings.load_profile("evermirror")


def pytest_configure(config: pytest.Config) -> None:
    watch(config)
    if config.getoption("dist", "no") == "no":  # tests run in this process, not in those that it starts
        let_children_be_signalled()
    folder = quick_folder()
    if folder is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))  # read when the first tmp_path is made
    gc.disable()  # until all tests are known: what is made meanwhile stays


@pytest.hookimpl(tryfirst=True)  # before pytest's own look at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if file_of(item.nodeid).startswith(CAMPAIGNS):
            item.add_marker("campaign")
    if not asks_for_campaigns(config.option.markexpr, config.args):
        campaigns = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    if hasattr(config, "workerinput"):  # one of several processes
        items[:] = arranged(items, lambda item: file_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)  # where there are several processes
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.support.sharing import FilesTogether

    return FilesTogether(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _not_installed(what: str, package: str) -> NoReturn:
    """A missing server skips its tests aloud, but never in CI."""
    message = f"{what} is not installed (make needs; or Debian: apt-get install {package})"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session", autouse=True)
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from tests.support.once import one_authority, statements_compiled_once

    with statements_compiled_once(), one_authority(tmp_path_factory.mktemp("once")):
        yield


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[UpstreamServer]:
    """A git server over plain HTTP, empty; its repositories are below tmp_path/upstream."""
    with UpstreamServer(tmp_path / "upstream") as server:
        yield server


@pytest.fixture
def upstream_tls(tmp_path: Path) -> Iterator[UpstreamServer]:
    """The same over TLS; clients trust it by ``ca_file``."""
    with UpstreamServer(tmp_path / "upstream-tls", tls=True) as server:
        yield server


@pytest.fixture
def upstream_ssh(tmp_path: Path) -> Iterator[SshUpstream]:
    """A real sshd with repositories behind it; its ``key_file`` is let in."""
    sshd = find_sshd()
    if sshd is None:
        _not_installed("sshd", "openssh-server")
    server = SshUpstream(tmp_path / "upstream-ssh", sshd)
    yield server
    server.close()


@pytest.fixture
def gitolite(tmp_path: Path) -> Iterator[Gitolite]:
    """A real gitolite behind a real sshd; its ``key_file`` is bob's."""
    sshd = find_sshd()
    if sshd is None:
        _not_installed("sshd", "openssh-server")
    if not Path(COMMAND).exists():
        _not_installed("gitolite", "gitolite3")
    server = Gitolite(tmp_path / "gitolite", sshd)
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One real server for each test process; only started when a test asks."""
    bin_dir = find_bin_dir()
    if bin_dir is None:
        _not_installed("PostgreSQL's server", "postgresql")
    server = PostgresServer(bin_dir)
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The server's own maintenance database: for tests that need no tables of their own."""
    return postgres_server.url()


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty database, dropped afterwards."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)
