"""git runs with nothing of ours but what it needs, is ended when it must be, and never tells a secret."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from urllib.parse import quote

import pytest

from evermirror.edge.git.command import Git, parse_ls_remote
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.environment import GitSettings, Remote, environment, ssh_command
from evermirror.edge.git.process import Limits, run_process
from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import Host, RepoKey, RepoSpec
from tests.edge.git.mirror_world import World
from tests.support.processes import children_of_me
from tests.support.raw_server import always, http, raw_server

CANARY = "s3cret+canary/äöü=%"


@pytest.fixture
def git(tmp_path):
    return Git(GitSettings(tmp_path, schemes=frozenset({"http", "https", "ssh"})))


def fake_git(folder: Path, script: str) -> str:
    path = folder / "fake-git"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def test_the_version_is_read_and_one_too_old_or_missing_says_what_to_do(git, tmp_path):
    assert await git.version() >= (2, 38)
    old = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, "echo git version 2.30.2")))
    with pytest.raises(EnvironmentUnfit, match=r"2\.30\.2 is too old.*install git 2\.38"):
        await old.version()
    with pytest.raises(EnvironmentUnfit, match="install git"):
        await Git(GitSettings(tmp_path, binary="no-such-git")).version()


async def test_nothing_of_our_environment_is_inherited(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERMIRROR_TEST_LEAK", "1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch pwned")
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, "env")))
    seen = dict(
        line.split("=", 1) for line in (await git.run([])).stdout.decode().splitlines() if "=" in line
    )
    assert not {"EVERMIRROR_TEST_LEAK", "https_proxy", "GIT_DIR", "GIT_SSH_COMMAND"} & seen.keys()
    assert seen["GIT_CONFIG_NOSYSTEM"] == "1"
    assert seen["GIT_TERMINAL_PROMPT"] == "0"
    assert seen["HOME"] == str(tmp_path / "git" / "home")
    assert os.listdir(seen["HOME"]) == []


async def test_the_settings_of_the_trust_rules_are_in_force(git):
    listing = (await git.run(["config", "--list"])).stdout.decode()
    for line in (
        "transfer.fsckobjects=true", "http.followredirects=false", "transfer.credentialsinurl=die",
        "core.hookspath=/dev/null", "fetch.recursesubmodules=no", "transfer.bundleuri=false", "gc.auto=0",
        "maintenance.auto=false", "safe.barerepository=explicit",
        "core.fsync=objects,derived-metadata,reference",
    ):  # fmt: skip
        assert line in listing.splitlines()


async def test_a_silent_process_is_ended_with_its_children(tmp_path):
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, "sleep 300 & sleep 301")))
    remote = Remote.of("http://127.0.0.1/x")
    with pytest.raises(FailureError) as caught:
        await git.run([], remote=remote, no_progress_s=0.3)
    assert caught.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "no progress" in caught.value.failure.message
    assert [c for c in children_of_me() if "sleep 30" in c.command] == []


async def test_progress_keeps_a_slow_process_alive(tmp_path):
    script = "for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.2; done"
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, script)))
    assert (await git.run([], no_progress_s=0.7)).returncode == 0


async def test_a_process_that_ignores_term_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("evermirror.edge.git.process.TERM_GRACE_S", 0.2)
    script = "trap '' TERM; echo ready >&2; while :; do sleep 0.05; done"
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, script)))
    with pytest.raises(FailureError, match="did not end"):
        await git.run([], timeout_s=0.5)
    assert [c for c in children_of_me() if "fake-git" in c.command] == []


async def test_cancelling_ends_and_reaps_the_group(tmp_path):
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, "echo up >&2; sleep 302 & sleep 303")))
    up = asyncio.Event()
    task = asyncio.create_task(git.run([], on_stderr=lambda _: up.set()))
    await up.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [c for c in children_of_me() if "sleep 30" in c.command] == []


async def test_output_is_bounded(tmp_path):
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, "while :; do echo xxxxxxxxxxxxxxxx; done")))
    with pytest.raises(FailureError, match="more than 1000 bytes"):
        await git.run([], stdout_limit=1000)
    loud = Git(
        GitSettings(tmp_path, binary=fake_git(tmp_path, "head -c 1000000 /dev/zero >&2; echo end >&2"))
    )
    assert (await loud.run([])).stderr.endswith("end\n")


async def test_large_input_and_output_pass_at_the_same_time(git):
    data = os.urandom(3_000_000)
    ended = await run_process(
        ["/bin/cat"], env={}, cwd=Path("/"), limits=Limits(stdout_bytes=4_000_000), stdin=data
    )
    assert ended.stdout == data


async def test_git_goes_to_the_checked_address_whatever_the_name_says(tmp_path, upstream):
    repo = upstream.create("x", commits=2)
    world = World(tmp_path, upstream)
    spec = RepoSpec(RepoKey("h/x"), f"http://mirror.invalid:{upstream.port}/x", Host("mirror.invalid"))
    assert (await world.git.ls_remote(spec, ["127.0.0.1"])).refs["refs/heads/main"] == repo.tip()
    with pytest.raises(FailureError) as caught:
        await world.git.ls_remote(spec, [])
    assert caught.value.failure.kind is FailureKind.NETWORK_TIMEOUT


async def test_tls_is_verified_against_the_configured_authorities(tmp_path, upstream_tls):
    repo = upstream_tls.create("x", commits=2)
    world = World(tmp_path, upstream_tls)
    await world.sync(repo)
    world.assert_equal(repo)
    distrustful = Git(GitSettings(tmp_path / "other"))
    with pytest.raises(FailureError) as caught:
        await distrustful.ls_remote(world.spec(repo), ["127.0.0.1"])
    assert "certificate" in caught.value.failure.message


async def test_redirects_are_not_followed(tmp_path, upstream):
    upstream.create("x", commits=2)
    upstream.redirect("/moved", "/x")
    git = Git(GitSettings(tmp_path, schemes=frozenset({"http"})))
    spec = RepoSpec(RepoKey("h/moved"), upstream.url("moved"), Host("h"))
    with pytest.raises(FailureError):
        await git.ls_remote(spec, ["127.0.0.1"])
    assert not any(r.path.startswith("/x") for r in upstream.requests)


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch pwned",
        "-u",
        "ext::sh -c 'touch pwned'",
        "file:///etc",
        "git://127.0.0.1/x",
        "/etc",
    ],
)
async def test_option_like_urls_and_other_transports_do_nothing(tmp_path, git, url, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FailureError):
        await git.ls_remote(RepoSpec(RepoKey("x"), url, Host("x")), [])
    assert list(tmp_path.rglob("pwned")) == []


async def test_hooks_in_a_mirror_never_run(tmp_path, upstream):
    world = World(tmp_path, upstream)
    repo = upstream.create("x", commits=2)
    await world.sync(repo)
    hooks = world.path(repo) / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-update", "update", "pre-auto-gc"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
        (hooks / name).chmod(0o755)
    repo.commit()
    await world.sync(repo)
    assert not (tmp_path / "pwned").exists()


async def test_a_malformed_object_of_upstream_is_refused_and_called_so(tmp_path, upstream):
    world = World(tmp_path, upstream)
    repo = upstream.create("x", commits=1)
    blob = repo.git("hash-object", "-w", "--stdin", stdin="x")
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\t.git\n")
    commit = repo.git("commit-tree", "-m", "bad", tree)
    repo.git("update-ref", "refs/heads/bad", commit)
    with pytest.raises(FailureError) as caught:
        await world.sync(repo)
    assert caught.value.failure.message.startswith("upstream sends a malformed object")
    assert not caught.value.failure.corrupt


async def test_a_canary_secret_works_and_appears_nowhere(tmp_path, upstream, monkeypatch):
    upstream.require_basic("user", CANARY)
    world = World(
        tmp_path, upstream, [Credential("good", "user", CANARY), Credential("bad", "user", CANARY + "x")]
    )
    repo = upstream.create("x", commits=2)
    argvs, texts = set(), []

    async def watch():
        while True:
            for argv in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has ended
                    argvs.add(argv.read_bytes())
            await asyncio.sleep(0.02)

    upstream.delay_s = 0.3  # git waits for each answer long enough to be seen
    watching = asyncio.create_task(watch())
    await world.sync(repo, credential="good")
    watching.cancel()
    upstream.delay_s = 0.0
    world.assert_equal(repo)
    assert any(b"git-remote-http" in argv or b"git\0fetch" in argv for argv in argvs), (
        "looked at the right time"
    )
    with pytest.raises(FailureError) as caught:
        await world.sync(repo, credential="bad")
    assert caught.value.failure.kind is FailureKind.AUTH_FAILED
    texts += [repr(caught.value.failure), str(caught.value), repr(world.credentials)]
    forms = {CANARY, quote(CANARY), quote(CANARY, safe="")}
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and "upstream" not in p.parts]
    for form in forms:
        assert not any(form in text for text in texts)
        assert not any(form.encode() in data for data in [*argvs, *files])


async def test_a_secret_is_removed_from_what_a_failed_git_says(tmp_path):
    credential = Credential("c", "user", CANARY)
    script = f"echo 'fatal: x {CANARY} {quote(CANARY, safe='')} y' >&2; echo '{CANARY}'; exit 1"
    git = Git(GitSettings(tmp_path, binary=fake_git(tmp_path, script)), Credentials([credential]))
    with pytest.raises(FailureError) as caught:
        await git.run(["fetch", CANARY])
    assert CANARY not in repr(caught.value.failure)
    assert quote(CANARY, safe="") not in repr(caught.value.failure)
    assert "***" in caught.value.failure.message


async def test_a_secret_is_removed_from_a_long_output_before_it_is_cut(tmp_path):
    said = f"{'x' * 3000}{CANARY}{'y' * (8192 - len(CANARY) // 2)}"
    (tmp_path / "said").write_text(said)
    script = f"cat {tmp_path}/said; cat {tmp_path}/said >&2; exit 1"
    git = Git(
        GitSettings(tmp_path, binary=fake_git(tmp_path, script)), Credentials([Credential("c", "u", CANARY)])
    )
    with pytest.raises(FailureError) as caught:
        await git.run(["fetch"])
    for told in (caught.value.failure.stdout, caught.value.failure.stderr):
        assert set(told) <= set("*xy")
        assert len(told) == 8192


def test_credentials_go_only_where_they_are_for():
    credentials = Credentials([Credential("c", token="t", hosts=frozenset({"good.example"}))])
    good = RepoSpec(RepoKey("good.example/x"), "https://good.example/x", Host("good.example"), credential="c")
    assert credentials.authorization(good) == "Basic b2F1dGgyOnQ="
    for spec in (
        RepoSpec(RepoKey("evil.example/x"), "https://evil.example/x", Host("evil.example"), credential="c"),
        RepoSpec(
            RepoKey("good.example/x"), "https://good.example/x", Host("good.example"), credential="nobody"
        ),
    ):
        with pytest.raises(FailureError) as caught:
            credentials.authorization(spec)
        assert caught.value.failure.kind is FailureKind.AUTH_FAILED
    assert credentials.authorization(RepoSpec(RepoKey("a/b"), "https://a/b", Host("a"))) is None


async def test_askpass_answers_only_for_its_host(git):
    env = {"EVERMIRROR_HOST": "h:8080", "EVERMIRROR_USERNAME": "u", "EVERMIRROR_SECRET": "p"}

    async def ask(prompt):
        ended = await run_process(
            [str(git.settings.askpass), prompt], env=env, cwd=Path("/"), limits=Limits(stdout_bytes=100)
        )
        return ended.returncode, ended.stdout

    assert await ask("Username for 'https://h:8080': ") == (0, b"u\n")
    assert await ask("Password for 'https://u@h:8080': ") == (0, b"p\n")
    assert (await ask("Password for 'https://u@evil': "))[0] == 1
    assert (await ask("Password for 'https://u@xh:8080': "))[0] == 1
    assert (await ask("Are you sure about 'https://h:8080': "))[0] == 1


def test_ssh_is_pinned_and_takes_nothing_from_the_users_configuration(tmp_path):
    settings = GitSettings(tmp_path / "a folder", schemes=frozenset({"ssh"}))
    key = Credential("k", ssh_key_file=Path("/keys/a b"))
    remote = Remote.of("ssh://git@h.example:2222/x", ["192.0.2.1"], key)
    command = ssh_command(settings, remote)
    for part in (
        "-F /dev/null", "HostName=192.0.2.1", "'HostKeyAlias=[h.example]:2222'", "BatchMode=yes",
        "StrictHostKeyChecking=accept-new", "IdentitiesOnly=yes", "'IdentityFile=\"/keys/a b\"'",
    ):  # fmt: skip
        assert part in command
    assert environment(settings, path="/bin", remote=remote)["GIT_SSH_COMMAND"] == command


def test_ssh_without_a_credential_offers_no_key_of_the_user_we_run_as(tmp_path):
    remote = Remote.of("ssh://git@h.example/x", ["192.0.2.1"])
    assert "IdentityFile=none" in ssh_command(GitSettings(tmp_path), remote)


async def test_a_host_that_is_not_known_is_named_with_what_to_do(tmp_path, upstream_ssh):
    settings = GitSettings(tmp_path / "data", schemes=frozenset({"ssh"}), accept_new_ssh_hosts=False)
    key = Credential("k", ssh_key_file=upstream_ssh.key_file)
    git = Git(settings, Credentials([key]))
    repo = upstream_ssh.create("x")
    spec = RepoSpec(RepoKey("h/x"), repo.url, Host("h"), credential="k")
    with pytest.raises(FailureError) as raised:
        await git.ls_remote(spec, ["127.0.0.1"])
    failure, port = raised.value.failure, upstream_ssh.port
    assert (failure.kind, failure.host_wide) == (FailureKind.AUTH_FAILED, True)
    assert failure.message == f"the ssh host key of [127.0.0.1]:{port} is not known here"
    assert f"ssh-keyscan -p {port} 127.0.0.1 >> git/known_hosts" in failure.hint
    (settings.own_dir / "known_hosts").write_text(upstream_ssh.known_hosts_line, "utf-8")
    assert (await git.ls_remote(spec, ["127.0.0.1"])).refs == repo.public_refs()


async def test_ssh_to_a_port_where_nobody_listens_is_the_network(git):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        spec = RepoSpec(RepoKey("h/x"), f"ssh://git@h.invalid:{port}/x", Host("h.invalid"))
        with pytest.raises(FailureError) as caught:
            await git.ls_remote(spec, ["127.0.0.1"])
    assert caught.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "refused" in caught.value.failure.message


def test_a_listing_of_refs_is_read_without_peeled_tags_and_foreign_refs():
    a, b = "a" * 40, "b" * 40
    output = (
        f"ref: refs/heads/m\tHEAD\n{a}\tHEAD\n{a}\trefs/heads/m\n{b}\trefs/tags/v\n"
        f"{a}\trefs/tags/v^{{}}\n{b}\trefs/pull/refs/heads/1\nnonsense\n"
    )
    seen = parse_ls_remote(output.encode())
    assert seen.refs == {"refs/heads/m": a, "refs/tags/v": b}
    assert seen.head == "refs/heads/m"


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/json", b'{"error":"maintenance"}'), ("text/plain", b"ok"), ("text/plain", b"")],
)
async def test_git_itself_takes_a_text_for_an_empty_repository_and_is_not_believed(git, kind, body):
    async with raw_server(always(http(body, kind=kind))) as server:
        url = f"http://127.0.0.1:{server.port}/x"
        with pytest.raises(FailureError, match="not from git") as error:
            await git.ls_remote(RepoSpec(RepoKey("127.0.0.1/x"), url, Host("127.0.0.1")), ["127.0.0.1"])
        assert error.value.failure.kind is FailureKind.UNKNOWN


@pytest.mark.parametrize("v2", [True, False])
async def test_git_is_believed_that_a_smart_servers_repository_is_empty(git, upstream, v2):
    upstream.protocol_v2 = v2
    repo = upstream.create("empty", commits=0)
    spec = RepoSpec(RepoKey("127.0.0.1/empty"), repo.url, Host("127.0.0.1"))
    assert await git.ls_remote(spec, ["127.0.0.1"]) == RefSnapshot({})
