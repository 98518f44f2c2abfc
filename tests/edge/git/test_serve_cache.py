"""Answers are given again while the mirror is the same, never after; many who ask the same cost one git."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from evermirror.edge.git import serve
from evermirror.edge.git.pktline import PktError
from evermirror.edge.git.refs import OWN_NAMESPACE
from evermirror.edge.git.serve import BadRequest, GitServer, ServerBusy, ServeSettings
from evermirror.edge.git.serve_cache import PACKS_MAX, Packs
from evermirror.edge.git.serve_damage import damage_met, failed
from evermirror.edge.git.serve_request import RequestScan
from evermirror.edge.git.serve_state import SETTLED_S, States
from evermirror.model.failure import FailureError
from tests.edge.git.mirror_world import World
from tests.support.gitrepo import read_refs, run_git
from tests.support.processes import wait_for_no_children

LS_REFS = b"0014command=ls-refs\n%b0001000csymrefs\n0000"


def pkt(line: str) -> bytes:
    return f"{len(line) + 4:04x}{line}".encode()


def clone(*oids, who="git/2.39.5"):
    caps = f" side-band-64k no-progress agent={who} session-id={who[-3:]}"
    wants = b"".join(pkt(f"want {oid}{caps if i == 0 else ''}\n") for i, oid in enumerate(oids))
    return wants + b"0000" + pkt("done\n")


def clone_v2(*oids, who="git/2.39.5"):
    head = pkt("command=fetch") + pkt(f"agent={who}") + pkt("object-format=sha1") + b"0001"
    return (
        head + pkt("no-progress") + b"".join(pkt(f"want {oid}\n") for oid in oids) + pkt("done\n") + b"0000"
    )


async def once(body):
    yield body


async def gather(stream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def settle():
    await asyncio.sleep(2 * SETTLED_S)


@pytest.fixture
async def world(tmp_path, upstream):
    return World(tmp_path, upstream)


@pytest.fixture
async def repo(world, upstream):
    repo = upstream.create("x", commits=5)
    repo.big_blob(3_000_000)
    await world.sync(repo)
    await settle()
    return repo


@pytest.fixture
def server(world, tmp_path):
    return GitServer(world.git, ServeSettings(cache_folder=tmp_path / "cache"))


def counted(server, service):
    figures = server.figures().requests
    return figures.get((service, False), 0), figures.get((service, True), 0)


async def test_the_same_clone_is_packed_once_whoever_asks(world, repo, server):
    path = world.path(repo)
    first = await gather(server.upload_pack(path, once(clone(repo.tip()))))
    again = await gather(server.upload_pack(path, once(clone(repo.tip(), who="JGit/6.1"))))
    assert first == again
    assert counted(server, "pack") == (1, 1)
    figures = server.figures()
    assert (figures.cache_packs, figures.sent_bytes) == (1, 2 * len(first))


async def test_many_at_once_share_one_git_also_when_they_come_late(world, repo, server):
    path = world.path(repo)
    answers = [server.upload_pack(path, once(clone_v2(repo.tip())), "version=2") for _ in range(8)]
    early = await anext(answers[0])
    rest = await asyncio.gather(gather(answers[0]), *(gather(a) for a in answers[1:]))
    assert {early + rest[0], *rest[1:]} == {rest[1]}
    assert counted(server, "pack") == (1, 7)


async def test_refs_are_listed_once_for_each_state(world, repo, server):
    path = world.path(repo)
    asked = [LS_REFS % pkt(f"agent=git/{n}") for n in range(3)]
    listings = [await gather(server.upload_pack(path, once(b), "version=2")) for b in asked]
    assert len(set(listings)) == 1
    assert counted(server, "refs") == (1, 2)
    for protocol in ("", "version=1", "version=2"):
        twice = [await gather(server.advertise(path, protocol)) for _ in range(2)]
        assert twice[0] == twice[1]
    assert counted(server, "refs") == (4, 5)


@pytest.mark.parametrize("change", ["push", "nested", "deleted", "head", "packed", "replaced"])
async def test_no_answer_outlives_a_change(world, repo, server, change):
    path = world.path(repo)
    repo.branch("deep/er/branch")
    await world.sync(repo)
    await settle()

    async def listed():
        return await gather(server.upload_pack(path, once(LS_REFS % b""), "version=2"))

    before = await listed()
    assert await listed() == before
    match change:
        case "push":
            repo.commit()
        case "nested":
            repo.commit("deep/er/branch")
        case "deleted":
            repo.delete_branch("deep/er/branch")
        case "head":
            repo.set_head("deep/er/branch")
        case "packed":
            run_git(path, "pack-refs", "--all")
            assert await listed() == before
            await settle()
            repo.commit()
        case "replaced":
            assert await listed() == before
            await world.mirrors.discard(world.spec(repo).key)
            repo.commit()
    await world.sync(repo)
    after = await listed()  # at once: nothing has settled
    assert after != before
    assert {line.split(b" ")[0][4:].decode() for line in after.splitlines() if b"refs/heads" in line} <= {
        *read_refs(path).values()
    }


async def test_a_pack_of_the_old_tip_is_dropped_when_the_mirror_moves(world, repo, server, tmp_path):
    path = world.path(repo)
    await gather(server.upload_pack(path, once(clone(repo.tip()))))
    repo.commit()
    await world.sync(repo)
    await settle()
    await gather(server.upload_pack(path, once(clone(repo.tip()))))
    assert server.figures().cache_packs == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


async def test_a_pack_is_read_to_its_end_though_it_was_dropped(world, repo, server, tmp_path):
    path = world.path(repo)
    whole = await gather(server.upload_pack(path, once(clone(repo.tip()))))
    reader = server.upload_pack(path, once(clone(repo.tip())))
    got = await anext(reader)
    repo.commit()
    await world.sync(repo)
    await settle()
    await gather(server.upload_pack(path, once(clone(repo.tip()))))  # the old one goes
    await world.mirrors.discard(world.spec(repo).key)
    assert got + await gather(reader) == whole


async def test_a_pack_that_nobody_waits_for_any_more_is_not_finished(world, repo, server, tmp_path):
    repo.big_blob(30_000_000)
    await world.sync(repo)
    await settle()
    path = world.path(repo)
    reader = server.upload_pack(path, once(clone(repo.tip())))
    await anext(reader)
    await reader.aclose()
    assert await asyncio.to_thread(wait_for_no_children, 10, "upload-pack") == []
    await asyncio.sleep(0.1)
    assert server.figures().cache_packs == 0
    async with asyncio.timeout(10):
        while list((tmp_path / "cache").iterdir()):  # removed once its git is gone
            await asyncio.sleep(0.01)
    assert len(await gather(server.upload_pack(path, once(clone(repo.tip()))))) > 30_000_000


async def test_the_first_who_leaves_does_not_take_the_pack_from_the_second(world, repo, server):
    path = world.path(repo)
    first = server.upload_pack(path, once(clone(repo.tip())))
    got = await anext(first)
    second = server.upload_pack(path, once(clone(repo.tip())))
    other = await anext(second)
    assert other[:100] == got[:100]
    await first.aclose()
    whole = other + await gather(second)
    assert whole == await gather(server.upload_pack(path, once(clone(repo.tip()))))


@contextlib.asynccontextmanager
async def all_places_of(client, gate):
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.suppress(ServerBusy):
            while True:
                await stack.enter_async_context(gate.hold(client))
        yield


@pytest.mark.parametrize("asked_for", ["pack", "small list", "large list"])
async def test_who_asks_the_same_as_a_client_without_a_place_is_served(
    world, repo, tmp_path, monkeypatch, asked_for
):
    if asked_for == "large list":
        monkeypatch.setattr(serve, "SMALL_ANSWER_BYTES_MAX", 10)
    path, limits = world.path(repo), ServeSettings(cache_folder=tmp_path / "c", queue_wait_s=1.0)
    server = GitServer(world.git, limits)
    gate = server._packing if asked_for == "pack" else server._listing

    def ask(client):
        if asked_for == "pack":
            return gather(server.upload_pack(path, once(clone(repo.tip())), client=client))
        return gather(server.advertise(path, client=client))

    async with all_places_of("greedy", gate):
        refused = asyncio.create_task(ask("greedy"))
        async with asyncio.timeout(10):
            while not server.figures().waiting:
                await asyncio.sleep(0.01)
        others = await asyncio.gather(
            *(ask(client) for client in ("greedy", "b", "c")), return_exceptions=True
        )
        with pytest.raises(ServerBusy):
            await refused
        assert isinstance(others[0], ServerBusy)
        assert others[1] == others[2] == await ask("d")
    assert counted(server, "pack" if asked_for == "pack" else "refs") == (1, 4)


async def test_a_ref_without_an_object_is_found_in_a_large_list_too(world, repo, server, tmp_path):
    path, tip = world.path(repo), repo.tip()
    lines = [f"{tip} refs/tags/{'x' * 60}-{n:05}\n" for n in range(11_000)]  # more than memory holds
    lines.append(f"{'0' * 40} refs/tags/{'y' * 60}\n")
    (path / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
    await settle()
    damage = []
    for _ in range(2):
        told = bytearray()
        with contextlib.suppress(FailureError):
            async for chunk in server.advertise(path, on_damage=damage.append):
                told += chunk
        assert b"x" * 60 in told
        assert b"0" * 40 not in told
        assert server.figures().cache_packs == 0
    assert [failure.corrupt for failure in damage] == [True, True]


async def test_a_large_list_that_nobody_can_find_again_goes_with_its_last_reader(
    world, repo, server, tmp_path, monkeypatch
):
    monkeypatch.setattr(serve, "SMALL_ANSWER_BYTES_MAX", 10)
    monkeypatch.setattr(server._states, "read", lambda repo: None)  # the mirror moves all the time
    for _ in range(2):
        assert await gather(server.advertise(world.path(repo)))
        assert (server.figures().cache_packs, list((tmp_path / "cache").iterdir())) == (0, [])


async def begun(packs, repo, client, expected=None):
    """As many files as ``client`` can have begun at a time."""
    count = 0
    while packs.share(b"%b %d" % (client.encode(), count), repo, "state", never, expected, client):
        count += 1
    return count


async def never(pack):
    await asyncio.Event().wait()


async def test_no_client_pins_the_whole_cache_and_lists_leave_half_of_it_to_packs(tmp_path):
    packs, large = Packs(tmp_path / "c", 2_000_000_000), Packs(tmp_path / "d", 100_000_000)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    try:
        assert await begun(packs, mirror, "a", expected=1_000_000) == PACKS_MAX // 2
        assert await begun(packs, mirror, "b", expected=1_000_000) == 0
        assert [await begun(packs, mirror, client) for client in "bc"] == [PACKS_MAX // 4, PACKS_MAX // 8]
        assert await begun(large, mirror, "a", expected=16_000_000) == 3
        assert await begun(large, mirror, "a") > 0
    finally:
        for task in (*packs._writers, *large._writers):
            task.cancel()
        await asyncio.sleep(0)


async def test_the_cache_keeps_within_its_bytes(world, upstream, tmp_path):
    repos = [upstream.create(f"r{i}", commits=1) for i in range(4)]
    for repo in repos:
        repo.big_blob(1_000_000)
        await world.sync(repo)
    await settle()
    server = GitServer(world.git, ServeSettings(cache_folder=tmp_path / "c", cache_bytes=2_500_000))
    for _ in range(2):
        for repo in repos:
            answer = await gather(server.upload_pack(world.path(repo), once(clone(repo.tip()))))
            assert len(answer) > 1_000_000
            held = sum(f.stat().st_size for f in (tmp_path / "c").iterdir())
            assert held <= 2_500_000
    assert server.figures().cache_packs == 2
    small = GitServer(world.git, ServeSettings(cache_folder=tmp_path / "d", cache_bytes=1_000_000))
    for _ in range(2):
        assert await gather(small.upload_pack(world.path(repo), once(clone(repo.tip()))))
    assert counted(small, "pack") == (2, 0)


async def test_two_mirrors_with_the_same_objects_share_no_answer(world, upstream, server):
    one, two = upstream.create("one", commits=2), upstream.create("two", commits=2)
    two.git("fetch", "-q", str(one.path), "+refs/*:refs/*")
    for repo in (one, two):
        await world.sync(repo)
    await settle()
    assert one.tip() == two.tip()
    for repo in (one, two):
        await gather(server.upload_pack(world.path(repo), once(clone(repo.tip()))))
    assert counted(server, "pack") == (2, 0)


async def test_an_answer_of_failure_is_not_kept(world, repo, server):
    path, absent = world.path(repo), "1" * 40
    for _ in range(2):
        assert b"not our ref" in await gather(server.upload_pack(path, once(clone_v2(absent)), "version=2"))
    broken = repo.tip()
    for pack in path.glob("objects/pack/*.pack"):
        os.truncate(pack, 4096)
    damage = []
    for _ in range(2):
        with pytest.raises(FailureError, match="damaged"):
            await gather(server.upload_pack(path, once(clone(broken)), on_damage=damage.append))
    assert [failure.corrupt for failure in damage] == [True, True]
    assert counted(server, "pack") == (4, 0)
    assert server.figures().cache_packs == 0


async def test_what_a_client_has_makes_the_answer_its_own(world, repo, server):
    path = world.path(repo)
    old = repo.git("rev-parse", "main~1")
    body = clone(repo.tip())[:-13] + b"0000" + pkt(f"have {old}\n") + pkt("done\n")
    for _ in range(2):
        assert b"PACK" in await gather(server.upload_pack(path, once(body)))
    assert counted(server, "pack") == (2, 0)


async def test_kept_tips_cannot_be_wanted_unless_public_refs_reach_them(world, repo, server):
    path = world.path(repo)
    lost = repo.commit("gone")
    merged = repo.git("rev-parse", "main~2")
    await world.sync(repo)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/gone", lost)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/merged", merged)
    run_git(path, "tag", "-a", "-m", "secret", "t", merged)
    tag = run_git(path, "rev-parse", "refs/tags/t")
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/tag", tag)
    run_git(path, "update-ref", "-d", "refs/tags/t")
    run_git(path, "update-ref", "-d", "refs/heads/gone")
    for pause in (False, True):
        if pause:
            await settle()
        for protocol, body in (("version=2", clone_v2), ("", clone)):
            for oid in (lost, tag, lost.upper()):
                answer = await gather(server.upload_pack(path, once(body(oid)), protocol))
                assert b"not our ref" in answer
                assert b"PACK" not in answer
            assert b"PACK" in await gather(server.upload_pack(path, once(body(merged)), protocol))


async def test_kept_tips_are_found_behind_a_million_bytes_of_request_too(world, repo, server):
    path = world.path(repo)
    lost = repo.commit("gone")
    await world.sync(repo)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/gone", lost)
    run_git(path, "update-ref", "-d", "refs/heads/gone")
    body = clone_v2(*([repo.tip()] * 30_000), lost)

    async def in_pieces():
        for at in range(0, len(body), 50_001):
            yield body[at : at + 50_001]

    answer = await gather(server.upload_pack(path, in_pieces(), "version=2"))
    assert b"not our ref" in answer
    assert b"PACK" not in answer


@pytest.mark.parametrize("disguise", ["{}x", "{}\0", "{}\t", "{}" + "0" * 24, "listed"])
async def test_kept_tips_are_found_in_whatever_disguise_git_would_see_through(world, repo, server, disguise):
    path = world.path(repo)
    lost = repo.commit("gone")
    await world.sync(repo)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/gone", lost)
    run_git(path, "update-ref", "-d", "refs/heads/gone")
    body = clone_v2(lost) + pkt("command=ls-refs")  # git reads one command, and ends
    if disguise != "listed":
        body = clone_v2(disguise.format(lost))
    try:
        answer = await gather(server.upload_pack(path, once(body), "version=2"))
    except BadRequest:
        return
    assert b"not our ref" in answer
    assert b"PACK" not in answer


async def test_object_info_is_neither_offered_nor_answered(world, repo, server):
    """It would tell of every object whether it is here, and how large: of kept tips too."""
    path = world.path(repo)
    offered = await gather(server.advertise(path, "version=2"))
    assert offered.startswith(pkt("version 2\n"))
    assert b"object-info" not in offered
    assert offered.endswith(b"0000")
    asked = pkt("object-format=sha1\n") + b"0001" + pkt("size\n") + pkt(f"oid {repo.tip()}\n") + b"0000"
    for command in ("object-info\n", "object-info", "object-info\0", "bundle-uri", "ls-refs\0", ""):
        for before in (b"", pkt(f"agent={'x' * 40}\n") * 25_000):
            body = in_pieces(before + pkt(f"command={command}") + asked)
            with pytest.raises(BadRequest, match="not served here"):
                await gather(server.upload_pack(path, body, "version=2"))


async def in_pieces(body):
    for at in range(0, len(body), 50_001):
        yield body[at : at + 50_001]


async def test_a_hidden_ref_bounds_no_shallow_clone_so_nobody_learns_its_name(world, repo, server):
    """git looks for the ref of deepen-not among hidden ones too."""
    path = world.path(repo)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/gone", "refs/heads/main~1")
    told = set()
    for name in ("refs/evermirror/kept/1/gone", "evermirror/kept/1/gone", "refs/evermirror/kept/1/other"):
        for protocol, body in (("version=2", clone_v2(repo.tip())), ("", clone(repo.tip()))):
            asked = body.replace(pkt("done\n"), pkt(f"deepen-not {name}\n") + pkt("done\n"))
            with pytest.raises(BadRequest) as refused:
                await gather(server.upload_pack(path, once(asked), protocol))
            told.add(refused.value.message.replace(name, "NAME"))
    assert len(told) == 1
    fine = clone_v2(repo.tip()).replace(pkt("done\n"), pkt("deepen-not refs/tags/v1\n") + pkt("done\n"))
    run_git(path, "update-ref", "refs/tags/v1", "refs/heads/main~1")
    assert b"PACK" in await gather(server.upload_pack(path, once(fine), "version=2"))


async def test_hidden_refs_cannot_be_wanted_by_their_names(world, repo, server):
    path = world.path(repo)
    run_git(path, "update-ref", OWN_NAMESPACE + "kept/1/gone", "refs/heads/main")
    want = pkt(f"want-ref {OWN_NAMESPACE}kept/1/gone\n")
    body = clone_v2(repo.tip()).replace(pkt("done\n"), want + pkt("done\n"))
    with pytest.raises(FailureError):
        await gather(server.upload_pack(path, once(body), "version=2"))


WORDS_OF_DAMAGE = [
    "possible repository corruption",
    "fatal: git upload-pack: aborting due to possible repository corruption on the remote side.",
    "reference broken",
    "not a git repository",
]


@pytest.mark.parametrize("words", WORDS_OF_DAMAGE)
async def test_no_client_can_talk_us_into_damage(world, repo, server, words):
    path, tip, damage, asked = world.path(repo), repo.tip(), [], []
    for form in ("{}", "deepen-not {}", "x\n{}", "have {}", "shallow {}", "want-ref {}"):
        line = pkt(form.format(words))
        asked += [
            (clone_v2(tip).replace(pkt("done\n"), line + pkt("done\n")), "version=2"),
            (line + clone_v2(tip), "version=2"),
            (clone(tip).replace(b"0000", line + b"0000"), ""),
            (LS_REFS % line, "version=2"),
        ]
    for body, protocol in asked:
        with contextlib.suppress(BadRequest, FailureError):
            await gather(server.upload_pack(path, once(body), protocol, on_damage=damage.append))
    assert damage == []


@pytest.mark.parametrize("words", [*WORDS_OF_DAMAGE, "not our ref " + "a" * 40])
@pytest.mark.parametrize(
    "said",
    [
        "unexpected line: '{}'",
        "unknown capability '{}'",
        "git upload-pack: deepen-not is not a ref: {}",
        "git upload-pack: protocol error, expected to get oid, not 'want {}'",
        "invalid shallow line: shallow \u2028{}",
    ],
)
def test_what_git_repeats_of_a_client_is_no_sign_of_damage(tmp_path, said, words):
    run_git(tmp_path, "init", "-q", "--bare", "r.git")
    stderr = f"fatal: {said.format(words)}\n"
    assert damage_met(tmp_path / "r.git", stderr, {b"a" * 40}) is None
    assert not failed(stderr.encode()).failure.corrupt


def test_git_own_words_are_signs_of_damage(tmp_path):
    run_git(tmp_path, "init", "-q", "--bare", "r.git")
    for words in (WORDS_OF_DAMAGE[1], f"fatal: '{tmp_path}' does not appear to be a git repository"):
        assert damage_met(tmp_path / "r.git", f"error: x\n{words}\n").corrupt


def test_what_changed_a_moment_ago_has_no_fingerprint(tmp_path):
    run_git(tmp_path, "init", "-q", "--bare", "r.git")
    (tmp_path / "r.git" / "HEAD").touch()
    now = (tmp_path / "r.git" / "HEAD").stat().st_mtime  # git may have ended some time ago by now
    states = States(lambda: now)
    assert states.read(tmp_path / "r.git") is None
    now += 1
    state = states.read(tmp_path / "r.git")
    assert state is not None
    assert states.read(tmp_path / "r.git") == state
    assert states.read(tmp_path / "absent") is None


@pytest.mark.parametrize("body", [b"zzzz", b"0003", b"fffff" + bytes(70_000), b"+123", b" 123"])
def test_what_git_would_not_read_is_refused(body):
    with pytest.raises(PktError):
        RequestScan().feed(body)


def test_requests_are_the_same_in_whatever_pieces_they_come():
    body = clone_v2("a" * 40, "b" * 40)
    whole, pieces = RequestScan(), RequestScan()
    whole.feed(body)
    for i in range(len(body)):
        pieces.feed(body[i : i + 1])
    assert whole.fingerprint() == pieces.fingerprint()
    assert whole.wants == pieces.wants == {b"a" * 40, b"b" * 40}
    assert whole.cacheable
    other = RequestScan()
    other.feed(clone_v2("a" * 40, "c" * 40))
    assert other.fingerprint() != whole.fingerprint()
