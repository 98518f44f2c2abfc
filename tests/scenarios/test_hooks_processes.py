"""Hooks from end to end with real processes: registered from the command line at stand-ins of all forges;
then a real ``git push`` there, and the mirror has it within two seconds, by itself and through a fleet."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from evermirror.core.hooks.trust import NEEDED
from evermirror.model.forge import Forge
from tests.edge.forge.forge_world import TOKEN, start
from tests.support.fleet_processes import FleetProcesses
from tests.support.forges.api_server import ApiServer
from tests.support.forges.sending import HookRow
from tests.support.gitrepo import UpstreamRepo, read_refs, run_git
from tests.support.pull_processes import PullNode

pytestmark = pytest.mark.slow

WITHIN_S = 2.0  # from the end of the push at the forge
SECRET = "a secret that only forges know"
POLLED_LESS = "its hooks have proved reliable: polled less"
POLLED_RARELY = {"EVERMIRROR_SCHEDULE__MIN_GAP": "1h", "EVERMIRROR_SCHEDULE__MAX_GAP": "2h"}


def settings(servers: Mapping[Forge, ApiServer], port: int) -> dict[str, str]:
    """Tokens for each instance, and one secret for each kind of forge."""
    told = {"EVERMIRROR_WEBHOOKS__URL": f"http://127.0.0.1:{port}", **POLLED_RARELY}
    told["EVERMIRROR_UPSTREAMS__ALLOW"] = json.dumps([server.host for server in servers.values()])
    for forge, server in servers.items():
        name = f"EVERMIRROR_CREDENTIALS__{forge.name}__"
        told |= {
            f"{name}TOKEN": TOKEN,
            f"{name}FORGE": forge.value,
            f"{name}HOSTS": json.dumps([server.host]),
        }
        told[f"EVERMIRROR_WEBHOOKS__{forge.name}_SECRET"] = SECRET
    return told


def pushed(folder: Path, server: ApiServer, name: str) -> float:
    """Somebody pushes a commit, a branch and a tag by git; returns when git had ended."""
    clone = UpstreamRepo(folder / f"clone-{time.monotonic_ns()}.git", name, "")
    url = server.url(f"{name}.git").replace("://", f"://oauth2:{TOKEN}@")
    run_git(folder, "clone", "--quiet", "--bare", url, str(clone.path))
    clone.commit()
    clone.branch(f"b{time.monotonic_ns()}")
    clone.tag(f"v{time.monotonic_ns()}")
    clone.git("push", "--quiet", url, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
    return time.monotonic()


def ours(server: ApiServer, name: str) -> list[HookRow]:
    return [row for row in server.hooks_of(name) if "/api/webhooks/" in row.url]


@pytest.fixture
def servers(tmp_path) -> Iterator[dict[Forge, ApiServer]]:
    with contextlib.ExitStack() as stack:
        made = {forge: stack.enter_context(start(forge, tmp_path / "forges")) for forge in Forge}
        for server in made.values():
            server.add_project("team/x", commits=2, visibility="public")
            server.add_hook("team/x", "http://127.0.0.1:9/ci", events={"push"})
        yield made


def test_registered_at_every_forge_pushed_there_and_mirrored_within_two_seconds(tmp_path, servers):
    hub = servers[Forge.GITHUB]
    with contextlib.closing(PullNode(tmp_path / "node", hub, hub)) as up:
        up.node._env.update(settings(servers, up.node.port))
        up.start()
        keys = {forge: f"{server.host}/team/x" for forge, server in servers.items()}
        for forge, server in servers.items():
            answer = up.node.client.post("/api/git_urls", json={"git_url": server.url("team/x.git")})
            assert answer.status_code == 200, answer.text
            up.until(lambda key=keys[forge], s=server: mirrored(up.node.mirror(key), s))
        told = cli(up, "webhook", "register", "--all", "--yes", "--json")
        assert told["counts"] == {"made": 4}, told
        assert cli(up, "webhook", "register", "--all", "--yes", "--json")["counts"] == {"as it should be": 4}
        assert cli(up, "webhook", "check", "--all", "--json")["counts"] == {"as it should be": 4}

        for forge, server in servers.items():
            end = pushed(tmp_path, server, "team/x")
            up.until(lambda key=keys[forge], s=server: mirrored(up.node.mirror(key), s))
            took = time.monotonic() - end
            assert took < WITHIN_S, f"{forge.value}: {took:.2f} s\n{up.node.log()[-4000:]}"
            (row,) = ours(server, "team/x")
            sent = [delivery for delivery in server.wait_sent() if delivery.letter.hook is row]
            assert {delivery.status for delivery in sent} <= {200, 202}, [d.said for d in sent]

        assert cli(up, "webhook", "remove", "--all", "--yes", "--json")["counts"] == {"removed": 4}
        for server in servers.values():
            assert [row.url for row in server.hooks_of("team/x")] == ["http://127.0.0.1:9/ci"]
        assert SECRET not in up.node.log()
        assert TOKEN not in up.node.log()


def test_a_fleet_is_told_by_hooks_and_the_worker_that_has_the_repo_looks_within_two_seconds(tmp_path):
    with (
        start(Forge.GITLAB, tmp_path / "forges") as lab,
        contextlib.closing(FleetProcesses(tmp_path / "fleet", lab, {})) as fleet,
    ):
        names = [f"team/r{n}" for n in range(4)]
        more = {**settings({Forge.GITLAB: lab}, fleet.coordinator.port), "EVERMIRROR_FLEET__MIN_WORKERS": "2"}
        fleet._env.update(more)
        fleet.coordinator._env.update(more)
        for name in names:
            lab.add_project(name, commits=2, visibility="public")
            fleet.repos[f"{lab.host}/{name}"] = lab.repo(name)
        fleet.catalog.write_text("".join(f"{lab.url(name)}.git\n" for name in names))
        fleet.prepare()
        fleet.lead()
        for worker in ("ann", "bob"):
            fleet.join(worker)
        fleet.settle()
        client = fleet.coordinator.client
        answer = client.post("/api/hooks/registrations", json={"action": "register", "all": True})
        assert answer.status_code == 202, answer.text
        address = f"/api/hooks/registrations/{answer.json()['id']}"
        fleet.until(lambda: fleet.get(address)["state"] == "ended")
        assert fleet.get(address)["counts"] == {"made": 4}
        for name in names:
            key = f"{lab.host}/{name}"
            mirror = fleet.workers[fleet.holder(key)].mirror(key)
            end = pushed(tmp_path, lab, name)
            fleet.until(lambda m=mirror, n=name: read_public(m) == lab.repo(n).public_refs())
            took = time.monotonic() - end
            assert took < WITHIN_S, f"{name}: {took:.2f} s\n{fleet.told()}"
        for _ in range(NEEDED - 1):  # the last one's hooks prove themselves, and its worker is told
            lab.push(name, lambda repo: repo.commit())
            fleet.until(lambda m=mirror, n=name: read_public(m) == lab.repo(n).public_refs())
        fleet.until(lambda: fleet.get(f"/api/repos/{key}")["plan"]["reason"].endswith(POLLED_LESS))


def read_public(mirror: Path) -> dict[str, str]:
    refs = read_refs(mirror) if (mirror / "HEAD").exists() else {}
    return {name: oid for name, oid in refs.items() if name.startswith(("refs/heads/", "refs/tags/"))}


def mirrored(mirror: Path, server: ApiServer) -> bool:
    return read_public(mirror) == server.repo("team/x").public_refs()


def cli(up: PullNode, *words: str) -> dict:
    """``evermirror …`` as a person types it."""
    done = subprocess.run(
        [*up.node.program, *words],
        env={**up.node._env, "EVERMIRROR_SERVER": str(up.node.client.base_url)},
        cwd=up.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)
