"""Orders about hooks at forges: what is made, mended, left alone; refusals, limits, stops and restarts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from evermirror.core.hooks.secrets import Secrets
from evermirror.edge.git.credentials import Credential
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.failure import FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import RegistrationState
from evermirror.nodes.hook_service import RegisterAction
from tests.nodes.registering_house import (
    BASE,
    BY_NAME,
    HOST,
    TOKEN,
    MemoryForge,
    good,
    house,
    record,
    refusal,
    wish,
)

REGISTER, CHECK, REMOVE = RegisterAction.REGISTER, RegisterAction.CHECK, RegisterAction.REMOVE
X = f"{HOST}/team/x"
FOREIGN = replace(good(X, "77"), url="https://ci.example.org/hook?token=hunter2")


@pytest.fixture
async def home(tmp_path):
    async with house(tmp_path) as home:
        yield home


async def test_a_hook_is_made_with_the_secret_for_new_ones_and_written_down(home):
    await home.add(X)
    run = await home.order(REGISTER, X)
    assert (run.counts, run.done, run.total, run.error) == ({"made": 1}, 1, 1, "")
    (hook,) = home.forge.of(X)
    assert hook.url == f"{BASE}/api/webhooks/gitea?repo=git.example.org%2Fteam%2Fx"
    assert home.forge.secrets[hook.id] == "a secret of the forge"
    known = await home.known(X)
    assert (known.state, known.hook_id, known.forge) == (RegistrationState.OK, hook.id, Forge.GITEA)
    assert known.checked_at == home.now[0]
    assert home.expected == [X]
    (note,) = await home.store.list_audit(10)
    assert (note.actor, note.action) == ("ann", "hooks.register")
    assert home.forge.open_now == 0


async def test_the_same_order_again_changes_nothing(home):
    await home.add(X)
    await home.order(REGISTER, X)
    before = dict(home.forge.hooks_of)
    run = await home.order(REGISTER, X)
    assert run.counts == {"as it should be": 1}
    assert home.forge.hooks_of == before
    assert [what for what, _ in home.forge.asked] == ["look", "make", "look"]


async def test_drift_is_told_by_a_check_and_mended_by_an_order_and_others_are_left_alone(home):
    await home.add(X)
    home.forge.put(X, FOREIGN)
    home.forge.put(X, replace(good(X, "5"), active=False))
    home.forge.put(X, replace(good(X, "6"), active=False))
    checked = await home.order(CHECK, X)
    assert checked.counts == {"drifted": 1}
    assert "switched off" in checked.items[0].problem
    assert "ci.example" not in repr(checked)
    assert (await home.known(X)).state is RegistrationState.DRIFTED
    assert len(home.forge.of(X)) == 3
    assert (await home.order(REGISTER, X)).counts == {"mended": 1}
    assert home.forge.of(X) == [FOREIGN, good(X, "5")]
    assert (await home.order(CHECK, X)).counts == {"as it should be": 1}


async def test_what_is_missing_is_told_and_nothing_is_made_by_a_check(home):
    await home.add(X)
    run = await home.order(CHECK, X)
    assert (run.counts, run.items[0].did) == ({"missing": 1}, "missing")
    assert home.forge.of(X) == []
    assert (await home.known(X)).state is RegistrationState.MISSING


async def test_a_hook_with_an_earlier_address_of_ours_is_moved(tmp_path):
    world = MemoryForge()
    async with house(tmp_path, world, base="https://old.example.org:8443") as old:
        await old.add(X)
        await old.order(REGISTER, X)
    async with house(tmp_path, world) as home:
        assert (await home.order(CHECK, X)).counts == {"drifted": 1}
        assert (await home.order(REGISTER, X)).counts == {"mended": 1}
        assert [hook.url for hook in world.of(X)] == [good(X).url]


async def test_ours_are_removed_and_no_others(home):
    await home.add(X)
    home.forge.put(X, FOREIGN)
    await home.order(REGISTER, X)
    assert (await home.order(REMOVE, X)).counts == {"removed": 1}
    assert home.forge.of(X) == [FOREIGN]
    assert (await home.known(X)).state is RegistrationState.REMOVED
    assert home.forgotten == [X]
    assert (await home.order(REMOVE, X)).counts == {"not there": 1}


async def test_where_none_ever_was_none_is_written_down_as_removed(home):
    await home.add(X)
    assert (await home.order(REMOVE, X)).counts == {"not there": 1}
    assert await home.known(X) is None


async def test_after_a_rotation_hooks_are_written_again_where_asked(home):
    await home.add(X)
    await home.order(REGISTER, X)
    home.registering.configure(
        BASE, Secrets(by_forge={Forge.GITEA: ("a new secret", "a secret of the forge")}), BY_NAME
    )
    assert (await home.order(REGISTER, X)).counts == {"as it should be": 1}
    assert (await home.order(REGISTER, X, renew=True)).counts == {"mended": 1}
    assert set(home.forge.secrets.values()) == {"a new secret"}


async def test_a_hook_that_somebody_removes_in_between_is_made_anew(home):
    await home.add(X)
    home.forge.put(X, replace(good(X, "5"), active=False))

    def fault(host, path, what):
        if what == "change":
            home.forge.hooks_of[X].clear()

    home.forge.fault = fault
    assert (await home.order(REGISTER, X)).counts == {"made": 1}
    assert len(home.ours(X)) == 1


async def test_a_hook_that_the_forge_keeps_switched_off_is_not_called_mended(home):
    await home.add(X)
    home.forge.put(X, replace(good(X, "5"), active=False))
    home.forge.keeps_off = "its test was answered 502"
    run = await home.order(REGISTER, X)
    assert run.counts == {"drifted": 1}
    assert run.items[0].problem == "the forge keeps it switched off: its test was answered 502"
    assert (await home.known(X)).state is RegistrationState.DRIFTED
    assert home.expected == []


async def test_a_repo_has_its_own_secret_and_those_without_any_are_refused_by_themselves(tmp_path):
    async with house(tmp_path, secrets=Secrets(by_name={X: ("of x alone",)})) as home:
        await home.add(*(f"{HOST}/team/a{n}" for n in range(20)), X)
        run = await home.order(REGISTER, all_repos=True)
        assert run.counts == {"made": 1, "refused": 20}
        assert home.forge.secrets["1"] == "of x alone"
        assert "webhooks.gitea_secret" in run.items[0].problem
        assert (await home.order(CHECK, all_repos=True)).counts == {"as it should be": 1, "missing": 20}


# Which repos


async def test_a_group_is_what_is_below_it_and_disabled_repos_are_only_removed(home):
    await home.add(X, f"{HOST}/team/sub/y", f"{HOST}/teams/z", f"{HOST}/team")
    await home.add(f"{HOST}/team/off", enabled=False)
    run = await home.order(REGISTER, group=f"https://{HOST}/team/")
    assert run.counts == {"made": 3}
    assert {key for key, hooks in home.forge.hooks_of.items() if hooks} == {
        X,
        f"{HOST}/team/sub/y",
        f"{HOST}/team",
    }
    assert (await home.order(REMOVE, group=f"{HOST}/team")).counts == {"removed": 3, "not there": 1}


async def test_hosts_without_a_forge_are_counted_and_not_asked(home):
    await home.add(X, *(f"plain{n}.example.org/a/b" for n in range(50)))
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"made": 1, "no forge": 50}
    assert (run.total, run.done) == (51, 51)
    assert {key for _, key in home.forge.asked} == {X}
    named = await home.order(REGISTER, "plain1.example.org/a/b")
    assert [(item.key, item.did) for item in named.items] == [("plain1.example.org/a/b", "no forge")]


async def test_a_known_forge_without_a_credential_is_one_problem(home):
    await home.add(*(f"gitlab.com/a/r{n}" for n in range(30)))
    run = await home.order(CHECK, all_repos=True)
    assert run.counts == {"refused": 1, "not asked": 29}
    assert "no credential for the API of gitlab.com" in run.items[0].problem
    assert home.forge.opened == []


async def test_who_is_asked_with_which_credential(home):
    await home.add("github.com/a/b")
    await home.add(X, credential="keyed")  # an ssh key alone opens no API: the one of the host does
    await home.add("lab.example.org/a/b", credential="lab")
    ssh = record("ssh.example.org:2222/a/b", url="ssh://git@ssh.example.org:2222/a/b.git", credential="lab")
    plain = record("in.example.org:8080/a/b", url="http://in.example.org:8080/a/b", credential="lab")
    await home.store.upsert_repos([ssh, plain])
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"made": 5}
    assert set(home.forge.opened) == {
        (Forge.GITHUB, "https://github.com", "hub"),
        (Forge.GITEA, f"https://{HOST}", "example"),
        (Forge.GITLAB, "https://lab.example.org", "lab"),
        (Forge.GITLAB, "https://ssh.example.org", "lab"),
        (Forge.GITLAB, "http://in.example.org:8080", "lab"),
    }


async def test_a_credential_goes_to_no_host_that_nobody_chose_for_it(home):
    await home.add("one.example.org/a/b", "two.example.org/a/b", X)
    with pytest.raises(UsageError, match="would be sent to 3 hosts"):
        await home.order(REGISTER, all_repos=True, credential="lab")
    with pytest.raises(UsageError, match="no credential 'nobody'"):
        await home.order(REGISTER, all_repos=True, credential="nobody")
    bound = await home.order(REGISTER, all_repos=True, credential="example", forge=Forge.GITEA)
    assert bound.counts == {"made": 1, "refused": 2}
    assert "is not for one.example.org" in bound.items[0].problem
    one = await home.order(REGISTER, group="one.example.org", credential="lab")
    assert one.counts == {"made": 1}
    assert {base for _, base, _ in home.forge.opened} == {f"https://{HOST}", "https://one.example.org"}


# Refusals


async def test_a_login_that_is_refused_is_one_problem_and_other_instances_go_on(home):
    await home.add(*(f"{HOST}/team/r{n}" for n in range(40)), *(f"github.com/a/r{n}" for n in range(3)))
    home.forge.fault = lambda host, path, what: (
        refusal(FailureKind.AUTH_FAILED, "HTTP 401") if host == HOST else None
    )
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"made": 3, "refused": 1, "not asked": 39}
    assert "HTTP 401" in run.items[0].problem
    assert "39 more of git.example.org are not asked" in run.items[0].problem
    assert run.total == run.done == 43


async def test_a_token_without_the_right_is_told_ten_times_and_no_more(home):
    await home.add(*(f"{HOST}/team/r{n:03}" for n in range(40)))
    home.forge.fault = lambda host, path, what: refusal(FailureKind.PERMISSION_DENIED, "HTTP 403")
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"refused": 10, "not asked": 30}
    known = await home.known(f"{HOST}/team/r000")
    assert (known.state, known.problem) == (RegistrationState.REFUSED, "HTTP 403: What to do")


async def test_a_token_that_is_good_for_some_repos_is_used_for_all_of_these(home):
    await home.add(*(f"{HOST}/team/r{n:03}" for n in range(45)))
    home.forge.fault = lambda host, path, what: (
        refusal(FailureKind.PERMISSION_DENIED, "HTTP 403") if int(path[-3:]) % 5 else None
    )
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"made": 9, "refused": 36}


async def test_repos_that_are_gone_do_not_keep_others_from_theirs(home):
    await home.add(*(f"{HOST}/team/r{n:03}" for n in range(40)))
    home.forge.fault = lambda host, path, what: (
        refusal(FailureKind.NOT_FOUND, "HTTP 404") if int(path[-1]) % 2 else None
    )
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"made": 20, "refused": 20}


async def test_bad_weather_says_nothing_of_a_hook(home):
    await home.add(*(f"{HOST}/team/r{n}" for n in range(9)))
    await home.order(REGISTER, all_repos=True)
    home.forge.fault = lambda host, path, what: refusal(FailureKind.NETWORK_TIMEOUT, "no answer")
    run = await home.order(CHECK, all_repos=True)
    assert run.counts == {"refused": 3, "not asked": 6}
    assert (await home.known(f"{HOST}/team/r0")).state is RegistrationState.OK


async def test_what_nobody_foresaw_is_that_repos_alone(home):
    await home.add(X, f"{HOST}/team/y")

    def fault(host, path, what):
        if path == "team/x":
            raise ZeroDivisionError

    home.forge.fault = fault
    assert (await home.order(REGISTER, all_repos=True)).counts == {"made": 1, "refused": 1}


async def test_a_rate_limit_is_waited_for_and_told(home):
    await home.add(X, f"{HOST}/team/y")
    left = [3]
    told = []

    def fault(host, path, what):
        if left[0] and path == "team/y":
            left[0] -= 1
            return refusal(FailureKind.RATE_LIMITED, "slow down", 1800.0)
        return None

    home.forge.fault = fault
    begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
    while (run := await home.registering.registering(begun.id)).ended_at is None:
        told += [run.waiting] if run.waiting else []
        await asyncio.sleep(0)
    assert run.counts == {"made": 2}
    assert home.slept == [1800.0] * 3
    assert told
    assert told[0].startswith("rate limit of git.example.org, ")
    assert run.waiting == ""


async def test_a_rate_limit_of_a_day_ends_that_instance(home):
    await home.add(X, f"{HOST}/team/y", "github.com/a/b")
    home.forge.fault = lambda host, path, what: (
        refusal(FailureKind.RATE_LIMITED, "slow down", 80_000.0) if host == HOST else None
    )
    assert (await home.order(REGISTER, all_repos=True)).counts == {"made": 1, "refused": 1, "not asked": 1}


# Life


async def test_one_order_at_a_time_and_it_can_be_stopped(home):
    await home.add(*(f"{HOST}/team/r{n:03}" for n in range(100)))
    home.forge.gate = asyncio.Event()
    begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
    with pytest.raises(Conflict, match=f"order {begun.id} is under way: register, by ann") as refused:
        await home.registering.register(wish(CHECK, all_repos=True), actor="ben")
    assert f"webhook stop {begun.id}" in refused.value.hint
    home.forge.gate.set()
    while not home.forge.numbers:
        await asyncio.sleep(0)
    stopped = await home.registering.cancel(begun.id, actor="ben")
    assert stopped.error == "stopped by ben"
    assert stopped.ended_at is not None
    assert 0 < stopped.done < 100
    assert home.forge.open_now == 0
    known = await home.store.registrations_of(f"{HOST}/team/r{n:03}" for n in range(100))
    assert len(known) == stopped.done  # what was learned is kept
    assert await home.store.get_setting("hooks.order") is None
    again = await home.registering.cancel(begun.id, actor="cleo")
    assert again == stopped
    assert (await home.order(REGISTER, all_repos=True)).done == 100
    with pytest.raises(NotFound):
        await home.registering.registering(12)


async def test_an_order_can_be_stopped_before_it_has_done_anything(home):
    await home.add(X)
    begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
    assert (await home.registering.cancel(begun.id, actor="ann")).ended_at is not None
    assert (await home.order(CHECK, all_repos=True)).done == 1


async def test_orders_close_to_each_other_all_end_on_the_disk(home):
    await home.add(X)
    for _ in range(20):
        await home.order(CHECK, X)
    home.forge.gate = asyncio.Event()
    assert (await home.registering.register(wish(CHECK, X), actor="ann")).ended_at is None
    assert await home.store.get_setting("hooks.order") is not None


async def test_instances_are_asked_side_by_side(home):
    await home.add(X, "github.com/a/b")
    home.forge.gate = asyncio.Event()
    begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
    async with asyncio.timeout(5):
        while home.forge.most_at_once < 2:
            await asyncio.sleep(0.001)
    home.forge.gate.set()
    assert (await home.ended(begun.id)).counts == {"made": 2}


async def test_an_order_that_a_stop_cut_short_goes_on_where_it_was(tmp_path):
    world = MemoryForge()
    keys = [f"{HOST}/team/r{n:03}" for n in range(200)]
    async with house(tmp_path, world) as home:
        await home.add(*keys)
        begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
        while world.numbers < 70:
            await asyncio.sleep(0)
    made = world.numbers
    assert made < 200
    assert world.open_now == 0
    world.asked.clear()
    async with house(tmp_path, world, now=1_000_100.0) as home:
        run = await home.ended(begun.id)
        assert (run.done, run.error, run.actor) == (200, "", "ann")
        assert run.counts["made"] == 200 - made
        assert run.counts["as it should be"] == made
        looked = [key for what, key in world.asked if what == "look"]
        assert len(looked) <= 200 - made + 1  # at most the one that was under way again
        assert await home.store.get_setting("hooks.order") is None
    assert [len(world.of(key)) for key in keys] == [1] * 200


async def test_an_order_that_no_longer_can_be_is_forgotten(tmp_path):
    async with house(tmp_path) as home:
        await home.add(X)
        home.forge.gate = asyncio.Event()
        begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
    async with house(tmp_path, base=None) as home:
        with pytest.raises(NotFound):
            await home.registering.registering(begun.id)
        assert await home.store.get_setting("hooks.order") is None


async def test_an_order_goes_on_with_no_credential_that_would_go_to_more_hosts_by_now(tmp_path):
    async with house(tmp_path) as home:
        await home.add("one.example.org/a/b")
        home.forge.gate = asyncio.Event()
        await home.registering.register(wish(REGISTER, all_repos=True, credential="lab"), actor="ann")
        await home.add("two.example.org/a/b")
    async with house(tmp_path) as home:
        assert await home.store.get_setting("hooks.order") is None
        assert home.forge.opened == []


@pytest.mark.parametrize(
    "left", [{"id": "x"}, [], "order", {"id": 1, "actor": "a", "started_at": 1.0, "wish": {}}]
)
async def test_an_order_that_cannot_be_read_is_no_trouble(tmp_path, left):
    async with house(tmp_path) as home:
        await home.store.put_setting("hooks.order", left)
    async with house(tmp_path) as home:
        await home.add(X)
        assert (await home.order(REGISTER, X)).counts == {"made": 1}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "none of them"),
        ({"group": HOST, "all_repos": True}, "several"),
        ({"repos": (X,), "group": HOST}, "several"),
        ({"repos": tuple(f"{X}{n}" for n in range(1001))}, "more than 1000"),
        ({"group": "///"}, "not the beginning of keys"),
        ({"group": "a\nb"}, "not the beginning of keys"),
        ({"group": "a" * 3000}, "not the beginning of keys"),
    ],
)
async def test_a_wish_that_makes_no_sense_is_refused(home, given, words):
    with pytest.raises(UsageError, match=words):
        await home.registering.register(wish(REGISTER, **given), actor="ann")


async def test_what_is_not_in_the_catalog_is_named_and_nothing_is_done(home):
    await home.add(X)
    with pytest.raises(NotFound, match="'nowhere/a', 'nowhere/b'"):
        await home.order(REGISTER, X, "nowhere/a", "nowhere/b")
    with pytest.raises(NotFound, match="no repo of the catalog is below"):
        await home.order(REGISTER, group=f"{HOST}/none")
    assert home.forge.asked == []


async def test_without_an_address_or_a_secret_nothing_begins(tmp_path):
    async with house(tmp_path, base=None) as home:
        with pytest.raises(UsageError, match=r"webhooks\.url"):
            await home.order(CHECK, all_repos=True)
    async with house(tmp_path, secrets=Secrets()) as home:
        with pytest.raises(UsageError, match="no secret"):
            await home.order(REGISTER, all_repos=True)
        assert (await home.order(CHECK, all_repos=True)).total == 0


async def test_two_thousand_repos_are_quick_and_what_is_shown_is_bounded(home):
    await home.add(*(f"{HOST}/team/r{n:05}" for n in range(2000)))
    begun = time.process_time()  # not the clock: others may need the machine as well
    run = await home.order(REGISTER, all_repos=True)
    assert run.counts == {"made": 2000}
    assert len(run.items) == 100
    checked = await home.order(CHECK, all_repos=True)
    assert checked.counts == {"as it should be": 2000}
    home.forge.hooks_of.clear()
    missing = await home.order(CHECK, all_repos=True)
    assert missing.counts == {"missing": 2000}
    assert len(missing.items) == 900
    assert time.process_time() - begun < 30
    assert len(home.expected) == 2000


async def test_a_database_that_is_away_ends_the_order_with_its_words(home, monkeypatch):
    await home.add(X)

    async def away(*_):
        raise refusal(FailureKind.NETWORK_TIMEOUT, "the database does not answer")

    monkeypatch.setattr(home.store, "hook_page", away)
    put = home.store.put_setting

    async def put_unless_over(key, value):
        await (put(key, value) if value is not None else away())

    monkeypatch.setattr(home.store, "put_setting", put_unless_over)
    run = await home.order(REGISTER, all_repos=True)
    assert run.error == "the database does not answer"
    assert sum(home.slept) >= 3600
    monkeypatch.undo()
    assert (await home.order(REGISTER, all_repos=True)).counts == {"made": 1}


AWAY = refusal(FailureKind.NETWORK_TIMEOUT, "the database does not answer")


@pytest.mark.parametrize("asked", ["put_registrations", "registrations_of", "hook_page"])
async def test_a_database_that_is_away_for_a_moment_costs_a_wait_and_nothing_else(home, monkeypatch, asked):
    keys = [f"{HOST}/team/r{n:03}" for n in range(300)]
    await home.add(*keys, "github.com/a/b", "plain.example.org/a/b")
    there, calls, told = getattr(home.store, asked), [0], []

    async def sometimes(*args):
        calls[0] += 1
        if 2 <= calls[0] <= 5:  # of two instances side by side: each at least twice
            told.append(begun[0] and (await home.registering.registering(begun[0])).waiting)
            raise AWAY
        return await there(*args)

    begun = [0]
    monkeypatch.setattr(home.store, asked, sometimes)
    begun[0] = (await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")).id
    run = await home.ended(begun[0])
    assert calls[0] > 5
    assert (run.counts, run.error, run.waiting) == ({"made": 301, "no forge": 1}, "", "")
    assert told.count("the database: the database does not answer") >= 2
    assert home.slept
    monkeypatch.undo()
    assert len(await home.store.registrations_of(keys)) == 300
    assert sorted(home.expected) == sorted([*keys, "github.com/a/b"])
    assert await home.store.get_setting("hooks.order") is None


async def test_what_a_long_trouble_of_the_database_cut_short_goes_on_with_the_next_start(
    tmp_path, monkeypatch
):
    world = MemoryForge()
    keys = [f"{HOST}/team/r{n:03}" for n in range(120)]
    async with house(tmp_path, world) as home:
        await home.add(*keys)
        there, calls = home.store.put_registrations, [0]

        async def away_after_one(*args):
            calls[0] += 1
            if calls[0] > 1:
                raise AWAY
            await there(*args)

        monkeypatch.setattr(home.store, "put_registrations", away_after_one)
        cut = await home.order(REGISTER, all_repos=True)
        assert (cut.done < 120, cut.error) == (True, "the database does not answer")
    made = world.numbers
    async with house(tmp_path, world, now=1_100_000.0) as home:
        run = await home.ended(cut.id)
        assert (run.done, run.error) == (120, "")
        assert run.counts == {"as it should be": made, "made": 120 - made}
        assert [len(world.of(key)) for key in keys] == [1] * 120
        assert await home.store.get_setting("hooks.order") is None


async def test_what_was_cut_short_and_is_stopped_does_not_go_on(home, monkeypatch):
    await home.add(X)

    async def away(*_):
        raise AWAY

    monkeypatch.setattr(home.store, "hook_page", away)
    cut = await home.order(REGISTER, all_repos=True)
    assert await home.store.get_setting("hooks.order") is not None
    await home.registering.cancel(cut.id, actor="ann")
    assert await home.store.get_setting("hooks.order") is None


async def test_a_token_that_is_changed_is_taken_over_by_the_order_under_way(home):
    await home.add(X, f"{HOST}/team/y")
    home.forge.gate = asyncio.Event()
    begun = await home.registering.register(wish(REGISTER, all_repos=True), actor="ann")
    async with asyncio.timeout(5):
        while not home.forge.asked:
            await asyncio.sleep(0)
    rotated = {**BY_NAME, "example": replace(BY_NAME["example"], token="a-newer-token")}
    home.registering.configure(BASE, Secrets(by_forge={Forge.GITEA: ("another",)}), rotated)
    home.forge.gate.set()
    assert (await home.ended(begun.id)).counts == {"made": 2}
    assert home.forge.tokens == [TOKEN, "a-newer-token"]
    assert home.forge.open_now == 0
    added = {
        **rotated,
        "new": Credential("new", token=TOKEN, hosts=frozenset({"new.example.org"}), forge="gitea"),
    }
    await home.add("new.example.org/a/b")
    assert (await home.order(CHECK, "new.example.org/a/b")).counts == {"no forge": 1}
    home.registering.configure(BASE, Secrets(), added)
    assert (await home.order(CHECK, "new.example.org/a/b")).counts == {"missing": 1}


async def test_orders_are_listed_the_newest_first(home):
    await home.add(X)
    assert await home.registering.registrations() == ()
    first = await home.order(REGISTER, X)
    home.forge.gate = asyncio.Event()
    second = await home.registering.register(wish(CHECK, all_repos=True), actor="ben")
    listed = await home.registering.registrations()
    assert [(run.id, run.ended_at is None) for run in listed] == [(second.id, True), (first.id, False)]
