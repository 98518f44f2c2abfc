"""The command line against a real node, as a person at a terminal uses it."""

from __future__ import annotations

import json
import re
import subprocess
import threading

import pytest

from evermirror.core.schedule import search
from tests.support.defects import RECIPES
from tests.support.node import NodeThread
from tests.support.ports import free_port


@pytest.fixture
def node(tmp_path, upstream):
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h") as node:
        yield node


@pytest.fixture
def cli(run, node):
    def start(*args, env=None, code=0):
        done = run(*args, env={"EVERMIRROR_SERVER": node.url, **(env or {})})
        assert done.returncode == code, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return start


@pytest.fixture
def repo(cli, node, upstream):
    """One that is mirrored."""
    repo = upstream.create("team/x")
    cli("add", repo.url)
    node.until_active(f"{upstream.host}/team/x")
    return repo


@pytest.fixture
def key(upstream):
    return f"{upstream.host}/team/x"


def test_add_says_what_became_of_the_url(cli, upstream):
    url = upstream.create("team/x").url
    assert cli("add", url).stdout == f"added  {url}\n"
    assert cli("add", url).stdout == f"exists  {url}\n"
    assert cli("add", url, "--priority", "high", "--interval", "10m").stdout == f"updated  {url}\n"
    assert json.loads(cli("add", url, "--json").stdout) == {"git_url": url, "status": "exists"}


def test_add_of_a_list_adds_what_can_be_added(cli, node, upstream, tmp_path):
    urls = [upstream.create(f"team/x{n}").url for n in range(2)]
    (tmp_path / "list").write_text(f"# ours\n{urls[0]}\nnonsense\n{urls[1]} # why\n")
    done = cli("add", "--file", str(tmp_path / "list"), "--json", code=1)
    assert [a["status"] for a in json.loads(done.stdout)] == ["added", "refused", "added"]
    assert "nonsense" in done.stderr
    node.until_active(*(f"{upstream.host}/team/x{n}" for n in range(2)))


def test_repos_lists_searches_and_pages(cli, node, upstream):
    first = upstream.create("team/r0")
    for n in (1, 2, 4):
        upstream.copy(first, f"team/r{n}")
    keys = [f"{upstream.host}/team/r{n}" for n in range(5)]
    for key in keys:
        cli("add", f"http://{key}.git")
    node.until_active(*keys[:3], keys[4])
    node.until(lambda: node.status(keys[3]) == "gone")
    listed = json.loads(cli("repos", "--json").stdout)
    assert [i["key"] for i in listed["items"]] == keys
    assert listed["next_cursor"] is None
    assert [i["key"] for i in json.loads(cli("repos", "--limit", "2", "--json").stdout)["items"]] == keys[:2]
    table = cli("repos", "--search", "r3").stdout
    assert keys[3] in table
    assert keys[2] not in table
    assert "NOT_FOUND" in table
    assert json.loads(cli("repos", "--status", "auth", "--json").stdout)["items"] == []
    assert len(json.loads(cli("repos", "--all", "--host", upstream.host, "--json").stdout)["items"]) == 5
    cli("repos", "--status", "nonsense", code=2)


def test_sync_and_wait_prints_the_refs_that_moved(cli, repo, key):
    old, new = repo.tip(), repo.commit()
    repo.branch("feature/a")
    done = cli("sync", key, "--wait", "30")
    assert f"{key}: 2 refs moved" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["refs/heads/main", old[:12], new[:12]] in lines
    assert ["refs/heads/feature/a", "–", new[:12], "new"] in lines
    assert re.search(r"2 refs moved \(1 commit, \d+B, in [\d.]+ m?s, by \S+\)", lines_of_one(done.stdout))
    assert "nothing had changed" in cli("sync", repo.url, "--wait").stdout


def lines_of_one(text):
    """As one line: a narrow screen breaks long ones."""
    return " ".join(text.split())


def test_sync_marks_refs_that_were_rewritten_and_deleted(cli, repo, key):
    repo.branch("gone")
    cli("sync", key, "--wait", "30")
    repo.delete_branch("gone")
    tip = repo.force_push()
    lines = [line.split() for line in cli("sync", key, "--wait", "30").stdout.splitlines()]
    (main,) = [line for line in lines if line and line[0] == "refs/heads/main"]
    assert main[2:] == [tip[:12], "rewritten"]
    (gone,) = [line for line in lines if line and line[0] == "refs/heads/gone"]
    assert gone[2:] == ["–", "deleted"]


def test_sync_waits_for_a_commit_that_is_not_there_yet(cli, repo, key, monkeypatch):
    monkeypatch.setattr(search, "ANSWER_S", 18.0)  # for the last look, which a busy machine is slow with
    monkeypatch.setattr(search, "ANSWER_SHARE", 0.9)
    repo.branch("later")
    coming = repo.commit(branch="later")
    repo.delete_branch("later")
    done = cli("sync", key, "--wait", "20s", "--min-commit", coming, code=1)
    assert "NOT_FOUND" in done.stderr
    assert f"do not contain commit {coming}" in lines_of_one(done.stderr)
    pushing = threading.Timer(1.5, repo.git, ("branch", "later", coming))
    pushing.start()
    done = cli("sync", key, "--wait", "30", "--min-commit", coming.upper(), "--priority", "critical")
    pushing.join()
    assert ["refs/heads/later", "–", coming[:12], "new"] in [
        line.split() for line in done.stdout.splitlines()
    ]


def test_sync_in_json_is_the_whole_task(cli, repo, key):
    old, new = repo.tip(), repo.commit()
    task = json.loads(cli("sync", key, "--wait", "30", "--json").stdout)
    assert task["status"] == "success"
    assert task["result"]["changes"] == [{"ref": "refs/heads/main", "old": old, "new": new}]


def test_sync_without_wait_names_the_task_and_goes_on(cli, node, repo, key):
    tip = repo.commit()
    assert cli("sync", key).stdout.startswith("task ")
    node.until(lambda: node.client.get(f"/api/repos/{key}").json()["head_commit"] == tip)


def test_sync_that_fails_says_why_and_ends_with_one(cli, upstream, repo, key):
    upstream.delete(repo)
    done = cli("sync", key, "--wait", "30", code=1)
    assert "NOT_FOUND" in done.stderr
    done = cli("sync", key, "--wait", "30", "--json", code=1)
    assert json.loads(done.stdout)["status"] == "failure"


def test_sync_that_takes_longer_than_the_wait_ends_with_one_and_names_the_task(cli, upstream, repo, key):
    upstream.delay_s = 5.0
    done = cli("sync", key, "--wait", "0.5", code=1)
    assert "has not ended after 0.5 s" in done.stderr
    assert "goes on as task" in done.stderr
    upstream.delay_s = 0.0


def test_status_of_everything(cli, node, repo, key):
    node.until(lambda: node.client.get("/api/overview").json()["polls_total"] >= 1)
    shown = cli("status").stdout
    assert "1 active" in shown
    assert "fresh" in shown
    fields = json.loads(cli("status", "--json").stdout)
    assert (fields["total_repos"], fields["by_status"]["active"]) == (1, 1)


def test_status_of_one(cli, repo, key):
    shown = cli("status", key).stdout
    for words in (key, repo.url, "active", repo.tip(), "next look"):
        assert words in shown
    fields = json.loads(cli("status", repo.url, "--json").stdout)
    assert (fields["key"], fields["head_commit"]) == (key, repo.tip())


def test_an_alias_is_as_good_as_a_key(cli, node, upstream):
    url = upstream.create("team/y").url
    cli("add", url, "--alias", "kernel/linux")
    node.until_active(f"{upstream.host}/team/y")
    assert json.loads(cli("status", "kernel/linux", "--json").stdout)["alias"] == "kernel/linux"
    cli("sync", "kernel/linux", "--wait", "30")
    cli("remove", "kernel/linux", "--yes")
    cli("status", "kernel/linux", code=5)
    assert cli("restore", "kernel/linux").stdout == f"restored  {url}\n"
    assert json.loads(cli("status", "kernel/linux", "--json").stdout)["git_url"] == url
    assert "is in the catalog" in cli("restore", "kernel/linux", code=1).stderr


def test_a_repository_is_found_by_owner_and_name_where_one_ends_so(cli, node, upstream, key, repo):
    short = "team/x"
    assert json.loads(cli("status", short, "--json").stdout)["key"] == key
    assert f"{short}: nothing had changed" in cli("sync", short, "--wait", "30").stdout
    assert cli("pause", short).stdout == f"paused  {repo.url}\n"
    assert cli("resume", f"{short}.git").stdout == f"resumed  {repo.url}\n"
    assert f"Did you mean {key}?" in cli("status", "x", code=5).stderr
    cli("status", "eam/x", code=5)
    other = upstream.create("more/team/x")
    cli("add", other.url)
    done = cli("remove", short, "--yes", code=5)
    assert f"Did you mean {upstream.host}/more/team/x, {key}?" in done.stderr
    assert node.status(key) == "active"


def test_a_paused_repository_says_so_until_it_is_resumed(cli, node, repo, key):
    assert cli("pause", key).stdout == f"paused  {repo.url}\n"
    assert "inactive (paused)" in cli("status", key).stdout
    assert "1 inactive" in cli("status").stdout
    listed = json.loads(cli("repos", "--status", "inactive", "--json").stdout)["items"]
    assert [r["key"] for r in listed] == [key]
    done = cli("sync", key, "--wait", code=2)
    assert "is paused" in done.stderr
    assert "evermirror resume" in done.stderr
    cli("pause", key)  # once more changes nothing
    assert cli("resume", key).stdout == f"resumed  {repo.url}\n"
    tip = repo.commit()
    assert tip[:12] in cli("sync", key, "--wait", "30").stdout
    assert cli("pause", "github.com/no/such", code=5).stdout == ""
    audit = json.loads(cli("audit", "--data", str(node.node.config.data.dir), "--json").stdout)
    assert [a["action"] for a in audit if a["subject"] == key] == [
        "repo.resumed",
        "repo.paused",
        "repo.added",
    ]


def test_a_paused_repository_is_not_looked_at(run, tmp_path, upstream):
    paused, other = upstream.create("team/paused"), upstream.create("team/other")

    def looks(repo):
        return sum(r.path.startswith(f"/{repo.name}") for r in list(upstream.requests))

    def some_looks(node, repo):
        before = looks(repo)
        node.until(lambda: looks(repo) > before + 3)

    with NodeThread(tmp_path, upstream.host, schedule__min_gap="100ms", schedule__max_gap="1s") as node:
        for repo in (paused, other):
            node.add(repo.url)
            some_looks(node, repo)
        assert run("pause", "team/paused", env={"EVERMIRROR_SERVER": node.url}).returncode == 0
        some_looks(node, other)  # what was under way has ended
        before = looks(paused)
        some_looks(node, other)
        assert looks(paused) == before
        assert run("resume", "team/paused", env={"EVERMIRROR_SERVER": node.url}).returncode == 0
        some_looks(node, paused)


def test_what_was_never_fetched_never_changed(cli, node, upstream):
    cli("add", upstream.url("team/none.git"))
    node.until(lambda: node.status(f"{upstream.host}/team/none") == "gone")
    row = cli("repos").stdout.splitlines()[1].split()
    assert row[3:5] == ["–", "–"]
    (changed,) = [
        line for line in cli("status", "team/none").stdout.splitlines() if line.startswith("changed")
    ]
    assert changed.split() == ["changed", "–"]


def test_times_in_the_result_of_a_task_are_iso(cli, repo, key):
    repo.force_push()
    result = json.loads(cli("sync", key, "--wait", "30", "--json").stdout)["result"]
    for at in (result["verified_at"], result["kept"][0]["at"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at)
    assert isinstance(result["duration_s"], float)


def test_remove_takes_it_out_and_asks_where_nobody_said_yes(cli, node, repo, key):
    done = cli("remove", key, code=2)
    assert "--yes" in done.stderr
    assert node.status(key) == "active"
    done = cli("remove", key, "--yes")
    assert done.stdout == f"removed  {repo.url}\n"
    assert f"undo: `evermirror restore {repo.url}`" in done.stderr
    assert json.loads(cli("repos", "--json").stdout)["items"] == []
    cli("add", repo.url)
    assert json.loads(cli("remove", key, "-y", "--json").stdout) == {
        "git_url": repo.url,
        "status": "removed",
    }


@pytest.mark.parametrize(
    "command", [("status",), ("sync",), ("sync", "--wait"), ("remove", "--yes"), ("status", "--json")]
)
def test_an_unknown_key_ends_with_five(cli, command):
    done = cli(command[0], "github.com/no/such", *command[1:], code=5)
    assert "github.com/no/such" in done.stderr
    assert "hint:" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://h.org/a/b", "http://127.0.0.1:1/a/b", "https://u:p@h.org/a"]
)
def test_a_url_that_is_refused_ends_with_two(cli, url):
    done = cli("add", url, code=2)
    assert done.stderr.startswith("error: ")
    assert "u:p" not in done.stderr
    cli("add", url, "--json", code=2)


def test_wrong_values_end_with_two(cli, upstream):
    url = upstream.url("team/x.git")
    assert "critical, high, normal, low" in cli("add", url, "--priority", "urgent", code=2).stderr
    cli("add", url, "--interval", "soon", code=2)
    cli("add", url, "--alias", "../x", code=2)
    assert json.loads(cli("repos", "--json").stdout)["items"] == []


@pytest.mark.parametrize(
    "command", [("status",), ("repos",), ("add", "https://h.org/a/b"), ("sync", "h.org/a")]
)
def test_no_server_there_ends_with_three(run, command):
    server = f"http://127.0.0.1:{free_port()}"
    done = run(*command, env={"EVERMIRROR_SERVER": server})
    assert done.returncode == 3
    assert server in done.stderr
    assert "evermirror up" in done.stderr


def test_tokens_made_beside_the_running_server_count_within_seconds(cli, node, upstream, key, tmp_path):
    url = upstream.create("team/x").url
    data = ("--data", str(node.data))
    boss = cli("token", "create", "--role", "admin", "--name", "boss", *data).stdout.strip()
    reader = json.loads(cli("token", "create", "--role", "reader", *data, "--json").stdout)["token"]
    node.until(
        lambda: node.client.post("/api/git_urls", json={"git_url": url}).status_code == 401, within_s=5
    )
    assert "token" in cli("add", url, code=4).stderr
    cli("add", url, env={"EVERMIRROR_TOKEN": "em_wrong"}, code=4)
    cli("status", env={"EVERMIRROR_TOKEN": "em_wrong"}, code=4)
    cli("add", url, env={"EVERMIRROR_TOKEN": reader}, code=4)
    (tmp_path / "token").write_text(boss + "\n")
    cli("add", url, "--token-file", str(tmp_path / "token"))
    cli("repos")  # reading is public
    node.until_active(key)
    cli("sync", key, "--wait", env={"EVERMIRROR_TOKEN": reader})
    cli("remove", key, "--yes", env={"EVERMIRROR_TOKEN": reader}, code=4)
    actors = [(a["actor"], a["action"]) for a in json.loads(cli("audit", *data, "--json").stdout)]
    assert ("boss", "repo.added") in actors
    cli("token", "revoke", "boss", *data)
    node.until(
        lambda: (
            node.client.post(
                "/api/git_urls", json={"git_url": url}, headers={"Authorization": f"Bearer {boss}"}
            ).status_code
            == 401
        ),
        within_s=5,
    )
    cli("add", url, env={"EVERMIRROR_TOKEN": boss}, code=4)


def test_history_shows_what_upstream_threw_away_and_restore_brings_it_back(cli, repo, key, tmp_path):
    assert "nothing was thrown away" in cli("history", key).stdout
    old, new = repo.tip(), repo.force_push()
    cli("sync", key, "--wait")
    (item,) = json.loads(cli("history", key, "--json").stdout)["items"]
    assert (item["old"], item["new"]) == (old, new)
    table = cli("history", key).stdout
    assert all(word in table for word in (item["date"], "refs/heads/main", "rewritten", old, new))
    done = cli("restore", key, f"main@{item['date'][:16]}", "--as", "mine").stdout.splitlines()
    assert done[0] == f"restored {old} as refs/restored/mine"
    assert done[1].split()[:2] == ["git", "fetch"]
    subprocess.run(["git", "init", "-q", tmp_path / "clone"], check=True)
    subprocess.run(done[1].split(), cwd=tmp_path / "clone", check=True, capture_output=True)
    head = subprocess.check_output(["git", "rev-parse", "FETCH_HEAD"], cwd=tmp_path / "clone", text=True)
    assert head.strip() == old


def test_a_restore_of_what_is_not_kept_says_where_to_look(cli, repo, key):
    done = cli("restore", key, "nope@2026", code=5)
    assert "nothing is kept of 'nope'" in done.stderr
    assert "history" in done.stderr
    assert cli("restore", key, "@2026", code=2).stdout == ""
    assert cli("restore", key, "--as", "x", code=2).stdout == ""
    assert cli("history", "nobody/knows", code=5).stdout == ""


def test_a_removed_repository_comes_back(cli, node, repo, key):
    cli("restore", key, code=1)  # it is there
    cli("remove", key, "--yes")
    assert cli("restore", key).stdout == f"restored  {repo.url}\n"
    node.until_active(key)
    cli("restore", "github.com/no/body", code=5)


def test_a_held_change_is_shown_and_confirmed(cli, repo, key):
    cli("confirm", key, code=1)  # nothing is held
    repo.delete_branch("main")
    assert "CONFLICT" in cli("sync", key, "--wait", code=1).stderr
    assert "emptied" in cli("status", key).stdout
    assert "1 ref moved" in cli("confirm", key).stdout
    assert "emptied" not in cli("status", key).stdout


def test_malformed_objects_are_refused_allowed_shown_and_refused_again(cli, node, upstream, key):
    repo = upstream.create("team/x")
    RECIPES["gitmodulesPath"]().put_into(repo)
    cli("add", repo.url)
    node.until(lambda: node.status(key) == "failing")
    command = f"evermirror allow {key} gitmodulesPath --reason WHY"
    assert command in cli("status", key).stdout
    assert command in cli("sync", key, "--wait", code=1).stderr
    assert "nothing is allowed" in cli("allow", key).stdout
    assert "go together" in cli("allow", key, "gitmodulesPath", code=2).stderr
    assert "cannot be allowed" in cli("allow", key, "nulInHeader", "--reason", "x", code=2).stderr
    said = cli("allow", key, "gitmodulesPath", "--reason", "a fixture").stdout
    assert said == f"{key}: gitmodulesPath allowed: a fixture\n"
    cli("sync", key, "--wait")
    assert "gitmodulesPath" in cli("status", key).stdout
    cli("allow", key, "hasDot", "--reason", "more of it")
    shown = json.loads(cli("allow", key, "--json").stdout)
    assert shown == {"key": key, "fsck_allow": ["gitmodulesPath", "hasDot"], "fsck_reason": "more of it"}
    assert "nothing is allowed" in cli("allow", key, "--none").stdout
    cli("allow", key, "--none", "--reason", "x", code=2)
