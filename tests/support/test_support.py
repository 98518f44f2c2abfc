"""The test support itself: what the other tests rely on must be true."""

from __future__ import annotations

import gzip
import http.client
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.gitrepo import clean_git_env, read_refs, run_git
from tests.support.ports import free_port
from tests.support.processes import (
    BACKGROUND,
    children_of_me,
    let_children_be_signalled,
    wait_for_no_children,
)
from tests.support.upstream import UpstreamServer

ROOT = Path(__file__).parents[2]


def ls_remote(url: str, *extra: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *extra, "ls-remote", url],
        env={**clean_git_env(home), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_real_git_clones_over_http_and_sees_every_ref(upstream, tmp_path):
    repo = upstream.create("team/x")
    repo.tag("v1", annotated=True)
    repo.branch("dev")
    repo.hidden_ref()
    run_git(tmp_path, "clone", "--quiet", "--mirror", repo.url, "copy.git")
    assert read_refs(tmp_path / "copy.git") == repo.refs()
    assert {r.headers.get("git-protocol") for r in upstream.requests} == {"version=2"}
    assert upstream.connections == 1
    assert wait_for_no_children() == []


def test_real_git_verifies_the_certificate(upstream_tls, tmp_path):
    repo = upstream_tls.create("team/x")
    assert ls_remote(repo.url, home=tmp_path).returncode != 0
    for url in (repo.url, upstream_tls.url("team/x.git", host="localhost")):
        done = ls_remote(url, home=tmp_path, GIT_SSL_CAINFO=str(upstream_tls.ca_file))
        assert done.returncode == 0, done.stderr
        assert repo.tip() in done.stdout


def test_an_old_server_answers_in_v0(tmp_path):
    with UpstreamServer(tmp_path / "up", protocol_v2=False) as server:
        repo = server.create("x")
        done = ls_remote(repo.url, home=tmp_path, GIT_TRACE_PACKET="1")
        assert repo.tip() in done.stdout
        assert "version 2" not in done.stderr


def test_a_dumb_server_is_served_from_files(upstream, tmp_path):
    repo = upstream.create("x")
    upstream.make_dumb(repo)
    assert repo.tip() in ls_remote(repo.url, home=tmp_path).stdout
    assert [r.method for r in upstream.requests if r.method == "POST"] == []


def test_gzipped_and_chunked_requests_arrive(upstream):
    repo = upstream.create("x")
    ask = b"0014command=ls-refs\n0001" + b"0019ref-prefix refs/heads" * 5000 + b"0000"
    headers = {
        "Content-Type": "application/x-git-upload-pack-request",
        "Git-Protocol": "version=2",
        "Content-Encoding": "gzip",
    }
    client = http.client.HTTPConnection("127.0.0.1", upstream.port)
    packed = gzip.compress(ask)
    parts = [packed[i : i + 50] for i in range(0, len(packed), 50)]
    for body in (packed, iter(parts)):
        client.request("POST", "/x.git/git-upload-pack", body, headers, encode_chunked=body is not packed)
        answer = client.getresponse()
        assert answer.status == 200
        assert repo.tip().encode() in answer.read()
    client.close()
    assert [r.headers.get("transfer-encoding") for r in upstream.requests] == [None, "chunked"]
    assert upstream.connections == 1


def test_faults_are_switched_on_and_off_while_it_runs(upstream, tmp_path):
    repo = upstream.create("x")
    upstream.fail_with(503, {"Retry-After": "7"}, "busy", times=1)
    assert "503" in ls_remote(repo.url, home=tmp_path).stderr
    assert ls_remote(repo.url, home=tmp_path).returncode == 0
    upstream.require_basic("me", "secret")
    assert ls_remote(repo.url, home=tmp_path).returncode != 0
    assert ls_remote(repo.url.replace("//", "//me:secret@"), home=tmp_path).returncode == 0
    upstream.heal()
    upstream.drop_connection = True
    assert ls_remote(repo.url, home=tmp_path).returncode != 0
    upstream.drop_connection = False
    upstream.drop_after_bytes = 20
    assert ls_remote(repo.url, home=tmp_path).returncode != 0
    upstream.heal()
    upstream.redirect("/old/x.git", repo.url)
    assert ls_remote(upstream.url("old/x.git"), home=tmp_path).returncode == 0
    assert ls_remote(upstream.url("none.git"), home=tmp_path).returncode != 0


def test_a_stalled_answer_goes_on_when_the_stall_ends(upstream, tmp_path):
    repo = upstream.create("x")
    upstream.stall_after_bytes = 10
    threading.Timer(0.5, lambda: setattr(upstream, "stall_after_bytes", None)).start()
    assert ls_remote(repo.url, home=tmp_path).returncode == 0


def test_closing_ends_stalled_and_idle_connections(tmp_path):
    server = UpstreamServer(tmp_path / "up", tls=True)
    repo = server.create("x")
    server.stall_after_bytes = 10
    env = {**clean_git_env(tmp_path), "GIT_SSL_CAINFO": str(server.ca_file)}
    client = subprocess.Popen(["git", "ls-remote", repo.url], env=env, stderr=subprocess.DEVNULL)
    while not server.requests:
        os.sched_yield()
    server.close()
    assert client.wait(20) != 0
    assert not [t for t in threading.enumerate() if "process_request" in t.name]


def test_repo_helpers_change_what_they_say(upstream):
    repo = upstream.create("x", commits=2)
    first = repo.tip()
    second = repo.commit(when=1_600_000_000)
    assert repo.git("rev-list", "--parents", "-n", "1", second) == f"{second} {first}"
    assert repo.git("log", "-1", "--format=%ct", second) == "1600000000"
    third = repo.force_push()
    assert repo.git("rev-list", "--parents", "-n", "1", third) == f"{third} {first}"
    assert repo.commit("new", {"a/b": b"\0x"}) == repo.tip("new")
    assert repo.git("cat-file", "-s", "refs/heads/new:a/b") == "2"
    repo.delete_branch("new")
    repo.set_head("dev")
    assert repo.head() == "refs/heads/dev"
    repo.tag("light")
    assert repo.git("cat-file", "-t", repo.tag("heavy", annotated=True)) == "tag"
    repo.delete_tag("light")
    repo.bulk_refs(5)
    assert len(repo.refs()) == 1 + 1 + 5
    repo.bulk_commits(10)
    repo.big_blob(100_000)
    assert repo.git("rev-list", "--count", "main") == "14"
    twin = upstream.copy(repo, "y")
    assert twin.refs() == repo.refs()


def test_a_sha256_repository_can_be_served(upstream, tmp_path):
    repo = upstream.create("x", object_format="sha256")
    assert len(repo.tip()) == 64
    assert repo.tip() in ls_remote(repo.url, home=tmp_path).stdout


def test_children_are_seen_until_they_are_waited_for():
    child = subprocess.Popen(["sleep", "60"])
    assert child.pid in [c.pid for c in children_of_me()]
    child.kill()
    child.wait()
    assert child.pid not in [c.pid for c in children_of_me()]


def test_a_port_is_given_to_one_process_only():
    script = f"from tests.support import ports; print(ports._reserve({free_port()}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("number", BACKGROUND)
def test_a_signal_that_is_ignored_here_ends_children_all_the_same(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        let_children_be_signalled()
        os.kill(os.getpid(), number)
        child = subprocess.Popen(["sleep", "60"])
    finally:
        signal.signal(number, before)
    child.send_signal(number)
    assert child.wait() == -number


def test_real_git_reads_over_ssh_with_the_key_and_not_without(upstream_ssh, tmp_path):
    repo = upstream_ssh.create("team/x")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(upstream_ssh.known_hosts_line)
    ssh = f"ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o UserKnownHostsFile={known_hosts}"
    done = ls_remote(repo.url, home=tmp_path, GIT_SSH_COMMAND=f"{ssh} -i {upstream_ssh.key_file}")
    assert repo.tip() in done.stdout, done.stderr
    assert ls_remote(repo.url, home=tmp_path, GIT_SSH_COMMAND=f"{ssh} -i /dev/null").returncode != 0


async def test_each_test_gets_its_own_database(postgres_database, postgres_url):
    asyncpg = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(postgres_database)
    await connection.execute("CREATE TABLE t (x int)")
    assert postgres_database != postgres_url
    await connection.close()
    assert children_of_me() == []
