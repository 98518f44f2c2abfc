"""Targets that refuse, break, fill up or go away: each is one kind of failure, and nothing is lost by it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace

import pytest

from evermirror.edge.git.command import Git
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.probe import Prober, ProbeSettings
from evermirror.edge.git.push import Pusher, PushSettings
from evermirror.edge.net.resolver import Resolver
from evermirror.model.address import AllowList
from evermirror.model.failure import FailureKind
from evermirror.model.push import PushTo, RefOutcome, put_digest
from evermirror.model.url import UrlRules
from tests.edge.git.push_world import LOCAL, RULES, TARGET, PushWorld
from tests.support.defects import RECIPES

MAIN = "refs/heads/main"
RECEIVE = "git-receive-pack"


@pytest.fixture
async def world(tmp_path, upstream):
    made = PushWorld(
        tmp_path, upstream, [Credential("c", "robot", token="good"), Credential("old", token="bad")]
    )
    yield made
    await made.prober.close()


@pytest.fixture
def repo(world):
    repo = world.upstream.create("x", commits=3)
    repo.branch("a")
    repo.branch("b")
    return repo


@pytest.fixture
def target(world):
    return world.target()


def waiting(pushed):
    return {r.name: r.reason for r in pushed.refs if r.outcome in (RefOutcome.REFUSED, RefOutcome.CONFLICT)}


def assert_some_refs_refused(pushed, count):
    """The target says no to these refs; nothing of somebody else's is in their way."""
    failure = pushed.failure
    assert (failure.kind, failure.of_refs) == (FailureKind.PERMISSION_DENIED, True)
    assert pushed.waiting_total == count
    assert {ref.outcome for ref in pushed.refs if ref.name in waiting(pushed)} == {RefOutcome.REFUSED}
    assert "adopt" not in failure.hint
    assert "protected branches" in failure.hint


# One ref


@pytest.mark.parametrize(
    "words",
    [
        "GitLab: You are not allowed to push code to protected branches on this project.",
        "GitLab: You are not allowed to force push code to a protected branch on this project.",
        "Gitea: Not allowed to push to protected branch main",
        "You don't have push access to branch main",
        "error: GH006: Protected branch update failed for refs/heads/main.",
    ],
)
@pytest.mark.parametrize("hook", ["pre-receive", "update"])
async def test_a_protected_branch_is_refused_alone_also_where_it_is_all_that_moved(
    world, repo, target, hook, words
):
    await world.sync_and_push(repo, target)
    repo.commit()
    world.hook(target, hook, f'echo "{words}"; exit 1')
    pushed = await world.sync_and_push(repo, target)
    assert_some_refs_refused(pushed, 1)
    assert words[:30] in waiting(pushed)[MAIN]
    world.unhook(target)
    world.assert_there(repo, target, await world.push(repo, target))


async def test_what_stands_in_the_way_is_told_before_what_is_refused(world, repo, target):
    world.hook(target, "update", 'test "$1" != refs/heads/a || { echo no; exit 1; }')
    target.commit("b")
    pushed = await world.sync_and_push(repo, target)
    assert (pushed.failure.kind, pushed.failure.of_refs) == (FailureKind.CONFLICT, False)
    assert "adopt" in pushed.failure.hint
    assert pushed.failure.message.startswith("2 refs could not be put: refs/heads/b: ")
    outcomes = {r.name: r.outcome for r in pushed.refs if r.name in waiting(pushed)}
    assert outcomes == {"refs/heads/a": RefOutcome.REFUSED, "refs/heads/b": RefOutcome.CONFLICT}


async def test_a_hook_that_refuses_one_ref_does_not_hold_up_the_others(world, repo, target):
    world.hook(target, "update", 'test "$1" != refs/heads/a || { echo no such branches here; exit 1; }')
    pushed = await world.sync_and_push(repo, target)
    assert_some_refs_refused(pushed, 1)
    assert waiting(pushed) == {"refs/heads/a": "hook declined"}
    assert pushed.failure.git_command.startswith("git push --porcelain")
    assert "no such branches here" in pushed.failure.stderr
    assert "[remote rejected] (hook declined)" in pushed.failure.stdout
    assert set(target.refs()) == {MAIN, "refs/heads/b"}
    assert pushed.put == put_digest(target.refs())
    again = await world.push(repo, target)
    assert "no such branches here" in waiting(again)["refs/heads/a"], "alone, with the target's own words"
    world.unhook(target)
    world.assert_there(repo, target, await world.push(repo, target))


async def test_a_hook_that_refuses_a_whole_push_for_one_ref_does_not_hold_up_the_others(world, repo, target):
    """As GitLab protects branches."""
    for i in range(40):
        repo.branch(f"many/{i}")
    script = "while read old new ref; do case $ref in refs/heads/many/7|refs/heads/a)"
    script += (
        " echo GitLab: You are not allowed to push code to protected branches on this project.; exit 1;;"
    )
    world.hook(target, "pre-receive", f"{script} esac; done")
    pushed = await world.sync_and_push(repo, target)
    assert_some_refs_refused(pushed, 2)
    refused = waiting(pushed)
    assert refused.keys() == {"refs/heads/many/7", "refs/heads/a"}
    assert all("pre-receive hook declined: GitLab: You are not allowed" in r for r in refused.values())
    assert pushed.failure.git_command.startswith("git push --porcelain")
    assert "GitLab: You are not allowed" in pushed.failure.stderr
    assert "pre-receive hook declined" in pushed.failure.stdout
    assert target.refs().keys() == repo.public_refs().keys() - refused.keys()


async def test_looking_for_the_ref_that_a_hook_means_is_bounded(world, repo, target):
    for i in range(20):
        repo.branch(f"many/{i}")
    world.hook(target, "pre-receive", "echo nothing is good enough; exit 1")
    pushed = await world.sync_and_push(repo, target, pusher=world.make_pusher(splits_max=5))
    assert pushed.waiting_total == 23
    assert target.refs() == {}
    assert sum(RECEIVE in r.path and r.method == "POST" for r in world.upstream.requests) <= 2 * (1 + 2 * 5)


def commands(world):
    """With something in them: git asks first with an empty one where it has much to send."""
    return sum(RECEIVE in r.path and r.method == "POST" for r in world.upstream.requests)


async def test_what_was_sent_in_vain_is_not_sent_again_until_it_moves_or_a_person_says_so(
    world, repo, target
):
    large = world.make_pusher(in_vain_bytes=50_000)
    await world.sync_and_push(repo, target)
    repo.big_blob(200_000)
    repo.commit("b")
    world.hook(target, "update", 'test "$1" != refs/heads/main || { echo too large; exit 1; }')
    for _ in range(2):  # main goes alone at the second time, and is remembered
        pushed = await world.sync_and_push(repo, target, pusher=large)
    assert pushed.sent_bytes > 50_000
    before = commands(world)
    pushed = await world.push(repo, target, pusher=large)
    assert (commands(world), pushed.sent_bytes) == (before, 0)
    assert_some_refs_refused(pushed, 1)
    assert pushed.refs[0].outcome is RefOutcome.REFUSED
    assert "too large" in waiting(pushed)[MAIN]
    assert "when forced" in waiting(pushed)[MAIN]
    pushed = await world.push(repo, target, pusher=large, force=True)
    assert pushed.sent_bytes > 50_000
    repo.commit()
    pushed = await world.sync_and_push(repo, target, pusher=large)
    assert pushed.sent_bytes > 50_000, "another value"
    world.unhook(target)
    world.assert_there(repo, target, await world.push(repo, target, pusher=large, force=True))
    assert world.record(repo, target).last.refused == {}


async def test_a_hook_that_takes_nothing_is_not_asked_again_and_again_with_much(world, repo, target):
    for i in range(62):
        repo.branch(f"many/{i}")
    repo.big_blob(200_000)
    for i in range(62):
        repo.branch(f"many/{i}")
    world.hook(target, "pre-receive", "echo nothing is good enough; exit 1")
    large = world.make_pusher(in_vain_bytes=50_000)
    pushed = await world.sync_and_push(repo, target, pusher=large)
    assert pushed.waiting_total == 65
    assert pushed.sent_bytes > 200_000
    first = commands(world)
    assert first <= 2 * 15, "down to one ref, and its twin"
    await world.push(repo, target, pusher=large)
    assert commands(world) - first <= 2, "only what was small"


@pytest.mark.parametrize(
    ("setting", "change", "reason"),
    [
        ("receive.denyDeletes", lambda repo: repo.delete_branch("a"), "deletion prohibited"),
        ("receive.denyNonFastForwards", lambda repo: repo.force_push("a"), "non-fast-forward"),
    ],
)
async def test_what_the_targets_settings_forbid(world, repo, target, setting, change, reason):
    await world.sync_and_push(repo, target)
    target.git("config", setting, "true")
    change(repo)
    repo.commit()
    pushed = await world.sync_and_push(repo, target)
    assert_some_refs_refused(pushed, 1)
    assert reason in waiting(pushed)["refs/heads/a"]
    assert target.tip() == repo.tip()
    target.git("config", setting, "false")
    world.assert_there(repo, target, await world.push(repo, target))


async def test_a_branch_that_the_target_hides_is_refused_and_its_own_hidden_refs_stay(world, repo, target):
    target.git("config", "receive.hideRefs", "refs/heads/a")
    target.git("config", "--add", "receive.hideRefs", "refs/merge-requests")
    target.hidden_ref("refs/merge-requests/1/head")
    pushed = await world.sync_and_push(repo, target)
    assert "hidden ref" in waiting(pushed)["refs/heads/a"]
    assert set(target.refs()) == {MAIN, "refs/heads/b", "refs/merge-requests/1/head"}


async def test_the_default_branch_that_a_target_does_not_give_up(world, repo, target):
    await world.sync_and_push(repo, target)
    repo.commit("trunk")
    repo.set_head("trunk")
    repo.delete_branch("main")
    pushed = await world.sync_and_push(repo, target)
    assert "current branch" in waiting(pushed)[MAIN]
    assert target.tip("trunk") == repo.tip("trunk")
    target.set_head("trunk")
    world.assert_there(repo, target, await world.push(repo, target))


# The whole push


async def test_a_server_that_takes_no_pushes(world, repo, target):
    target.git("config", "http.receivepack", "false")
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.PERMISSION_DENIED
    assert "may push" in pushed.failure.hint
    assert pushed.put == put_digest({}), "nothing of ours is there, and we know it"


async def test_a_hook_that_says_that_we_may_not_push_at_all(world, repo, target):
    world.hook(
        target, "pre-receive", "echo GitLab: You are not allowed to push code to this project.; exit 1"
    )
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.PERMISSION_DENIED
    assert "not allowed to push" in pushed.failure.message
    assert sum(RECEIVE in r.path and r.method == "POST" for r in world.upstream.requests) == 1


@pytest.mark.parametrize("credential", [None, "old"])
@pytest.mark.parametrize("only_writing", [False, True])
async def test_credentials_that_are_missing_or_wrong(world, repo, target, credential, only_writing):
    if only_writing:
        world.upstream.fail_with(401, {"WWW-Authenticate": 'Basic realm="git"'}, path=RECEIVE)
    else:
        world.upstream.require_basic("robot", "good", "/target")
    pushed = await world.sync_and_push(repo, target, credential=credential)
    assert pushed.failure.kind is FailureKind.AUTH_FAILED
    assert "credential that may push" in pushed.failure.hint
    assert target.refs() == {}
    world.upstream.heal()
    world.upstream.require_basic("robot", "good", "/target")
    pushed = await world.push(repo, target, credential="c")
    world.assert_there(repo, target, pushed)


async def test_a_credential_that_nobody_here_knows(world, repo, target):
    pushed = await world.sync_and_push(repo, target, credential="nobody")
    assert pushed.failure.kind is FailureKind.AUTH_FAILED
    assert "nobody" in pushed.failure.message


async def test_a_token_that_expires_in_the_middle(world, repo, target):
    repo.bulk_refs(120)
    world.upstream.require_basic("robot", "good", "/target")

    def expire_before_the_second_batch():
        if len(target.refs()) == 50:
            world.upstream.require_basic("robot", "another", "/target")
        return True

    pushed = await world.sync_and_push(
        repo,
        target,
        credential="c",
        may_push=expire_before_the_second_batch,
        pusher=world.make_pusher(batch_refs=50),
    )
    assert pushed.failure.kind is FailureKind.AUTH_FAILED
    there = target.refs()
    assert len(there) == 50
    assert pushed.put is None, "what became of the second batch cannot be seen"
    last = world.record(repo, target).last
    assert (last.refs, len(last.pending)) == (there, 50)
    world.upstream.require_basic("robot", "good", "/target")
    world.assert_there(repo, target, await world.push(repo, target, credential="c"))


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (403, {}, FailureKind.PERMISSION_DENIED),
        (404, {}, FailureKind.NOT_FOUND),
        (413, {}, FailureKind.PERMISSION_DENIED),
        (429, {"Retry-After": "30"}, FailureKind.RATE_LIMITED),
        (500, {}, FailureKind.NETWORK_TIMEOUT),
        (503, {}, FailureKind.NETWORK_TIMEOUT),
    ],
)
@pytest.mark.parametrize("where", [RECEIVE, "/target", "-upload-pack"])
async def test_answers_of_http(world, repo, target, status, headers, kind, where):
    await world.sync(repo)
    world.upstream.fail_with(status, headers, path=where)
    failure = (await world.push(repo, target)).failure
    assert failure.kind is kind, failure
    assert target.refs() == {}
    world.upstream.heal()
    world.assert_there(repo, target, await world.push(repo, target))


async def test_a_target_that_is_gone(world, repo, target):
    await world.sync_and_push(repo, target)
    put = world.put[target.url]
    repo.commit()
    world.upstream.delete(target)
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.NOT_FOUND
    assert "create it at the target" in pushed.failure.hint
    assert pushed.put == put, "what we last put is still known"


async def test_connections_that_break_and_that_fall_silent(world, repo, target):
    await world.sync(repo)
    world.upstream.drop_connection = True
    assert (await world.push(repo, target)).failure.kind is FailureKind.NETWORK_TIMEOUT
    world.upstream.heal()
    world.hook(target, "pre-receive", "sleep 2")
    pushed = await world.push(repo, target, pusher=world.make_pusher(silence_s=0.5))
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "no progress" in pushed.failure.message
    assert "git push" in pushed.failure.git_command
    assert pushed.put is not None, "the target could be read afterwards"
    assert len(world.record(repo, target).last.pending) == 3, "but it may still come"
    world.unhook(target)
    world.assert_there(repo, target, await world.push(repo, target))


async def test_nobody_listens(world, repo, target):
    await world.sync(repo)
    world.upstream.close()
    pushed = await world.push(repo, target)
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT


# Disks


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("NOT SHOWN HERE: a small tmpfs cannot be mounted (needs root)")
    yield path
    subprocess.run(["umount", str(path)], check=True)


async def test_a_target_without_room_is_the_targets_trouble(world, repo, small_disk):
    target = world.target()
    shutil.move(target.path, small_disk / "target.git")
    target.path.symlink_to(small_disk / "target.git")
    await world.sync_and_push(repo, target)
    repo.big_blob(5_000_000)
    pushed = await world.sync_and_push(repo, target)
    assert pushed.failure.kind is FailureKind.NETWORK_TIMEOUT, "tried again later; our own disk is fine"
    assert "the target has no room" in pushed.failure.message
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    world.assert_there(repo, target, await world.push(repo, target))


async def test_no_room_here_for_the_intents_pushes_nothing(tmp_path, upstream, small_disk):
    world = PushWorld(small_disk, upstream)
    repo, target = upstream.create("x", commits=3), world.target()
    await world.sync(repo)
    with (small_disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    pushed = await world.push(repo, target)
    assert pushed.failure.kind is FailureKind.DISK_FULL
    assert target.refs() == {}
    (small_disk / "fill").unlink()
    world.assert_there(repo, target, await world.push(repo, target))
    await world.prober.close()


# Other ways in


async def test_over_ssh(tmp_path, upstream, upstream_ssh):
    known = Credential("key", ssh_key_file=upstream_ssh.key_file)
    world = PushWorld(tmp_path, upstream, [known])
    git = Git(
        GitSettings(tmp_path / "data", schemes=frozenset({"http", "ssh"}), no_progress_s=30),
        Credentials([known]),
    )
    prober = Prober(Resolver(LOCAL), git.credentials, git, ProbeSettings(allow=LOCAL))
    world.pusher = Pusher(git, world.mirrors, prober, world.push_settings, lambda: 1.0)
    repo, target = upstream.create("x", commits=3), upstream_ssh.create("t", commits=0)
    repo.tag("v1", annotated=True)
    world.assert_there(repo, target, await world.sync_and_push(repo, target, credential="key"))
    repo.force_push()
    world.hook(target, "update", "echo never >&2; exit 1")
    pushed = await world.sync_and_push(repo, target, credential="key")
    assert "never" in waiting(pushed)[MAIN]
    world.unhook(target)
    world.assert_there(repo, target, await world.push(repo, target, credential="key"))
    pushed = await world.push(repo, target, force=True)
    assert pushed.failure.kind is FailureKind.AUTH_FAILED, "Permission denied (publickey)"
    gone = PushTo(TARGET, upstream_ssh.url("gone.git"), "key")
    more = {"accept": False, "may_push": lambda: True, "progressed": world.steps.append}
    pushed = await world.pusher.push(world.spec(repo).key, gone, force=True, **more)
    assert pushed.failure.kind is FailureKind.NOT_FOUND
    await prober.close()
    await world.prober.close()


async def test_over_tls_with_a_certificate_of_ones_own(tmp_path, upstream_tls):
    world = PushWorld(tmp_path, upstream_tls)
    repo, target = upstream_tls.create("x", commits=3), world.target()
    world.assert_there(repo, target, await world.sync_and_push(repo, target))
    await world.prober.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ext::sh", "transport helpers"),
        ("file:///etc", "not a supported transport"),
        ("/srv/x.git", "local paths are not allowed"),
        ("https://user:canary@example.com/x", "user name or password"),
        ("http://127.0.0.1/x", "internal"),
        ("https://localhost/x", "this machine itself"),
        ("http://example.com/x", "not allowed here"),
    ],
)
async def test_urls_that_are_no_targets(world, repo, url, words):
    await world.sync(repo)
    pusher = world.make_pusher(rules=UrlRules())
    world.upstream.requests.clear()
    pushed = await pusher.push(
        world.spec(repo).key,
        PushTo(TARGET, url),
        accept=True,
        force=True,
        may_push=lambda: True,
        progressed=world.steps.append,
    )
    assert pushed.failure.kind is FailureKind.UNKNOWN
    assert "canary" not in repr(pushed)
    if "http://" not in url:
        assert words in pushed.failure.message
    assert world.upstream.requests == []
    assert await pusher.behind(world.spec(repo).key, PushTo(TARGET, url))


async def test_a_name_that_leads_to_an_internal_address_is_not_connected_to(world, repo, target):
    async def lookup(host, port):
        return ("127.0.0.1",)

    await world.sync(repo)
    prober = Prober(Resolver(AllowList(), lookup=lookup), world.git.credentials, world.git, ProbeSettings())
    rules = replace(RULES, allow=AllowList())
    pusher = Pusher(world.git, world.mirrors, prober, PushSettings(rules=rules), lambda: 1.0)
    world.upstream.requests.clear()
    to = PushTo(TARGET, target.url.replace("127.0.0.1", "target.example"))
    more = {"accept": False, "may_push": lambda: True, "progressed": world.steps.append}
    pushed = await pusher.push(world.spec(repo).key, to, force=False, **more)
    assert "internal" in pushed.failure.message
    assert world.upstream.requests == []
    await prober.close()


async def test_a_credential_does_not_go_over_plain_http_to_strangers(world, repo, target):
    async def lookup(host, port):
        return ("192.0.2.1", "198.51.100.1")

    class Public:
        async def resolve(self, host, port):
            return await lookup(host, port)

    await world.sync(repo)
    prober = Prober(Public(), world.git.credentials, world.git, ProbeSettings())
    pusher = Pusher(world.git, world.mirrors, prober, world.push_settings, lambda: 1.0)
    to = PushTo(TARGET, "http://target.example/x", "c")
    more = {"accept": False, "may_push": lambda: True, "progressed": world.steps.append}
    pushed = await pusher.push(world.spec(repo).key, to, force=False, **more)
    assert pushed.failure.kind is FailureKind.AUTH_FAILED
    assert "plain http" in pushed.failure.message
    await prober.close()


# Objects


async def test_a_target_that_checks_objects_says_which_it_refuses_and_what_to_set_there(world, repo, target):
    target.git("config", "receive.fsckObjects", "true")
    RECIPES["missingEmail"]().put_into(repo)
    pushed = await world.sync_and_push(repo, target)
    failure = pushed.failure
    assert failure.kind is FailureKind.PERMISSION_DENIED
    assert failure.message.startswith("the target refuses an object of the history that is accepted here")
    assert f"object {repo.tip('odd')}: missingEmail: " in failure.message
    assert "receive.fsck.ID=ignore" in failure.hint
    assert target.refs() == {}
    target.git("config", "receive.fsck.missingEmail", "ignore")
    pushed = await world.push(repo, target)
    assert (pushed.failure, target.refs()) == (None, repo.public_refs())
