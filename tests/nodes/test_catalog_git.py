"""A running all-in-one that follows catalogs in git, over real repositories and a real server."""

import pytest

from evermirror.core.catalog.formats import parse_file
from evermirror.errors import EvermirrorError
from evermirror.nodes.all_in_one import UpOptions
from evermirror.nodes.coordinator.catalog.catalog_state import APPLIED
from evermirror.nodes.service import RepoFilter
from tests.support.gitrepo import UpstreamRepo

WATCHED = {"interval": "1h"}  # looks are asked for


@pytest.fixture
def catalog(upstream):
    return upstream.create("team/catalog", commits=0)


@pytest.fixture
def made(upstream):
    """URLs of ``n`` small upstreams."""
    seed = upstream.create("r/0", commits=1)
    more = [upstream.copy(seed, f"r/{n}") for n in range(1, 14)]
    return [seed.url, *(repo.url for repo in more)]


def settings(*sources, **more):
    return {"catalog": {"sources": list(sources), **WATCHED, **more}}


async def total(up):
    return len(await up.node.coordinator.list_repos(RepoFilter(limit=1000)))


async def until_total(up, count):
    async def holds():
        return await total(up) == count

    await up.until(holds)


def first_look(up):
    """The look that every start makes is over."""
    watch = up.node.catalog
    (at_load,) = [source.looked_at for source in watch.state().sources]

    async def holds():
        return watch.state().sources[0].looked_at != at_load and not watch._looking.locked()

    return holds


async def test_a_catalog_in_git_is_mirrored_and_its_commits_are_followed(stage, catalog, made):
    catalog.commit(files={"urls/1.txt": f"{made[0]} priority=high\nbad line\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await up.until_status("r/0", "active")
        record = await up.repo("r/0")
        assert (record.spec.priority.value, record.source) == ("high", "catalog")
        state = (await up.client.get("/api/catalog")).json()
        assert state["sources"][0]["commit"] == catalog.tip()
        assert (state["problems_total"], state["problems"][0]["line"]) == (1, 2)
        assert any(f"{catalog.url}:urls/1.txt:2" in w for w in up.node.catalog.warnings)
        catalog.commit(
            files={"urls/1.txt": f"{made[0]}\n", "more.yaml": f"- git_url: {made[1]}\n  workers: [w1]\n"}
        )
        up.node.catalog.look_now()
        await up.until_status("r/1", "active")
        assert (await up.repo("r/1")).pins == ("w1",)
        assert (await up.repo("r/0")).spec.priority.value == "normal"
        assert up.node.catalog.warnings == ()
        catalog.git("update-ref", "-d", "refs/heads/main")
        catalog.commit(files={"x": f"{made[1]}\n"})
        up.node.catalog.look_now()
        await until_total(up, 1)


async def test_a_restart_reads_nothing_while_the_commit_is_the_same(stage, catalog, made, monkeypatch):
    catalog.commit(files={"x": f"{made[0]}\nbad\n", "y": f"{made[1]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 2)
    read = []
    monkeypatch.setattr("evermirror.edge.catalog.reader.parse_file", lambda *a: read.append(a))
    async with stage.up(**settings(catalog.url)) as up:
        await up.node.catalog.look()
        assert read == []
        assert await total(up) == 2
        assert any("problems" in w for w in up.node.catalog.warnings), "remembered"
        monkeypatch.undo()
        catalog.commit(files={"x": f"{made[2]}\n"})
        up.node.catalog.look_now()
        await up.until_status("r/2", "active")
        assert await total(up) == 2


async def test_after_a_restart_a_commit_is_followed_without_reading_other_files(
    stage, catalog, made, monkeypatch
):
    catalog.commit(files={"x": f"{made[0]}\n{made[2]}\n", "y": f"{made[1]}\n", "z": f"{made[2]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 3)
    read = []

    def note(path, *rest):
        read.append(path)
        return parse_file(path, *rest)

    monkeypatch.setattr("evermirror.edge.catalog.reader.parse_file", note)
    catalog.commit(files={"x": f"{made[0]}\n{made[3]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 4)
        assert set(read) == {"x", "z"}, "the changed file, and the other one that names what it lost"
        assert await total(up) == 4
    (stage.data / "catalog" / "index").write_bytes(b"damaged")
    read.clear()
    catalog.commit(files={"x": f"{made[0]}\n", "z": ""})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 2)
        assert {"x", "y", "z"} <= set(read), "all of it was read again"


async def test_what_came_while_it_was_stopped_is_acted_on_at_start(stage, catalog, made):
    catalog.commit(files={"x": f"{made[0]}\n{made[1]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 2)
    catalog.commit(files={"x": f"{made[1]}\n{made[2]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await up.until_status("r/2", "active")
        assert (await up.client.get(f"/api/repos/{up.key('r/0')}")).status_code == 404


async def test_a_fetch_that_fails_keeps_the_last_good_catalog_also_over_a_restart(
    stage, upstream, catalog, made
):
    catalog.commit(files={"x": f"{made[0]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await up.until_status("r/0", "active")
        upstream.fail_with(503, path="/team/catalog")
        await up.node.catalog.look()
        assert any("the last good one stays" in w for w in up.node.catalog.warnings)
        assert await total(up) == 1
    async with stage.up(**settings(catalog.url)) as up:
        await up.node.catalog.look()
        assert await total(up) == 1
        assert (await up.client.get("/readyz")).status_code == 200
        upstream.heal()
        catalog.commit(files={"x": f"{made[0]}\n{made[1]}\n"})
        up.node.catalog.look_now()
        await until_total(up, 2)
        assert up.node.catalog.warnings == ()


async def test_a_first_start_without_any_catalog_says_so(stage, upstream, catalog):
    upstream.fail_with(503, path="/team/catalog")
    with pytest.raises(EvermirrorError, match="the catalog cannot be read"):
        async with stage.up(**settings(catalog.url)):
            pass


async def test_a_commit_that_removes_too_much_waits_as_a_whole_until_confirmed(stage, catalog, made):
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 12)
        assert (await up.client.post("/api/catalog/confirm", json={})).status_code == 409
        catalog.commit(files={"x": f"{made[0]}\n{made[13]}\n"})
        await up.node.catalog.look()
        held = (await up.client.get("/api/catalog")).json()["held"]
        assert (held[0]["removed"], held[0]["total"], held[0]["commit"]) == (11, 12, catalog.tip())
        assert await total(up) == 12
        assert any("held back" in w for w in up.node.catalog.warnings)
    async with stage.up(**settings(catalog.url)) as up:  # a restart confirms nothing
        await up.node.catalog.look()
        assert await total(up) == 12
        answer = await up.client.post("/api/catalog/confirm", json={})
        assert answer.json() == {"removed": 11}
        assert await total(up) == 2
        assert up.node.catalog.warnings == ()


async def test_a_held_commit_that_is_taken_back_needs_no_word(stage, catalog, made):
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url)) as up:
        catalog.commit(files={"x": ""})
        await up.node.catalog.look()
        assert up.node.catalog.warnings
        catalog.commit(files={"x": "\n".join(made[:13])})
        await up.node.catalog.look()
        await until_total(up, 13)
        assert up.node.catalog.warnings == ()


async def test_what_came_after_the_held_change_is_not_confirmed_with_it(stage, catalog, made):
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url)) as up:
        await up.until(first_look(up))
        catalog.commit(files={"x": "\n".join(made[:2])})
        await up.node.catalog.look()
        catalog.commit(files={"x": ""})
        assert (await up.client.post("/api/catalog/confirm", json={})).json() == {"removed": 0}
        assert await total(up) == 12
        assert (await up.client.post("/api/catalog/confirm", json={})).json() == {"removed": 12}


async def test_the_share_that_may_go_is_a_setting(stage, catalog, made):
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url, max_removed_share=1.0)) as up:
        catalog.commit(files={"x": ""})
        up.node.catalog.look_now()
        await until_total(up, 0)


async def test_a_broken_file_keeps_its_repos_also_over_a_restart(stage, catalog, made):
    good = f"- git_url: {made[0]}\n- git_url: {made[1]}\n"
    catalog.commit(files={"x.yaml": good, "y": f"{made[2]}\n"})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 3)
        catalog.commit(files={"x.yaml": "- git_url: &a [*a\n"})
        await up.node.catalog.look()
        assert await total(up) == 3
    async with stage.up(**settings(catalog.url)) as up:
        assert await total(up) == 3
        catalog.commit(files={"x.yaml": f"- git_url: {made[1]}\n"})
        up.node.catalog.look_now()
        await until_total(up, 2)


async def test_a_source_that_is_no_longer_configured_takes_its_repos_along(
    stage, upstream, catalog, made, tmp_path
):
    catalog.commit(files={"x": f"{made[0]}\n"})
    file = tmp_path / "urls.txt"
    file.write_text(f"{made[1]}\n")
    async with stage.up(**settings(str(file), catalog.url)) as up:
        assert await total(up) == 2
    async with stage.up(**settings(catalog.url)) as up:
        assert await total(up) == 1


async def test_two_sources_that_name_one_repo_need_both_to_lose_it(stage, upstream, catalog, made):
    other = upstream.create("team/other", commits=0)
    catalog.commit(files={"x": f"{made[0]} priority=high\n"})
    other.commit(files={"x": f"{made[0]} priority=low\n"})
    async with stage.up(**settings(catalog.url, other.url)) as up:
        assert (await up.repo("r/0")).spec.priority.value == "high"
        catalog.commit(files={"x": ""})
        await up.node.catalog.look()
        assert (await up.repo("r/0")).spec.priority.value == "low"
        other.commit(files={"x": ""})
        await up.node.catalog.look()
        assert await total(up) == 0


async def test_a_change_of_nearly_everything_is_read_anew_and_guarded(stage, catalog, made, monkeypatch):
    monkeypatch.setattr("evermirror.edge.catalog.reader.CHANGE_MAX_BYTES", 100)
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url)) as up:
        catalog.git("update-ref", "-d", "refs/heads/main")
        catalog.commit(files={"y": f"{made[13]}\n"})
        await up.node.catalog.look()
        assert await total(up) == 13, "what is new is there, what is gone waits"
        assert (await up.client.post("/api/catalog/confirm", json={})).json() == {"removed": 12}
        assert await total(up) == 1


async def test_what_is_read_again_unchanged_is_not_told_again(stage, catalog, made, monkeypatch):
    monkeypatch.setattr("evermirror.edge.catalog.reader.CHANGE_MAX_BYTES", 100)
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url)) as up:
        await up.until(first_look(up))
        told, assign = [], up.node.coordinator.assign

        async def note(records):
            told.extend(record.spec.url for record in records)
            await assign(records)

        monkeypatch.setattr(up.node.coordinator, "assign", note)
        catalog.commit(files={"x": "\n".join([f"{made[0]} priority=high", *made[1:13]])})
        await up.node.catalog.look()
        assert sorted(told) == sorted([made[0], made[12]]), "one changed, one is new"
        assert await total(up) == 13


async def test_aliases_may_be_passed_on_in_one_commit(stage, catalog, made):
    catalog.commit(files={"x": f"{made[0]} alias=one\n{made[1]} alias=two\n"})
    async with stage.up(**settings(catalog.url)) as up:
        catalog.commit(files={"x": f"{made[0]} alias=two\n{made[1]} alias=one\n"})
        await up.node.catalog.look()
        assert [(await up.repo(f"r/{n}")).alias for n in (0, 1)] == ["two", "one"]
        assert up.node.catalog.warnings == ()


# What the API adds


async def pushed(up, repo, text):
    async def holds():
        return text in repo.git("log", "-p", "-1", "--format=", "main")

    await up.until(holds)


async def test_what_the_api_adds_and_removes_is_committed_and_pushed(stage, catalog, made):
    catalog.git("config", "http.receivepack", "true")
    catalog.commit(files={"x": f"{made[0]}\n"})
    source = {"url": catalog.url, "writable": True}
    async with stage.up(**settings(source)) as up:
        await up.add(made[1], priority="high", alias="team/one")
        await pushed(up, catalog, f"+{made[1]} priority=high alias=team/one")
        await up.node.catalog.look()
        assert (await up.repo("r/1")).source == "api"
        assert await total(up) == 2
        answer = await up.client.delete(f"/api/git_urls/{up.key('r/1')}")
        assert answer.status_code == 200, answer.text
        await pushed(up, catalog, f"-{made[1]}")
        await up.node.catalog.look()
        assert await total(up) == 1
    async with stage.up(**settings(source)) as up:
        assert await total(up) == 1


async def test_what_could_not_be_pushed_is_told_and_pushed_later(stage, upstream, catalog, made, monkeypatch):
    monkeypatch.setattr("evermirror.nodes.coordinator.catalog.catalog_publish.RETRY_MAX_S", 0.2)
    catalog.commit(files={"x": f"{made[0]}\n"})
    source = {"url": catalog.url, "writable": True}
    async with stage.up(**settings(source)) as up:  # the server takes no pushes yet
        await up.add(made[1])

        async def told():
            return any("are not in" in w for w in (await up.client.get("/api/overview")).json()["warnings"])

        await up.until(told)
        catalog.commit(files={"y": f"{made[2]}\n"})  # and somebody else was first
        catalog.git("config", "http.receivepack", "true")
        await pushed(up, catalog, f"+{made[1]}")
        assert catalog.git("show", "main:y") == made[2]


async def test_a_new_database_takes_what_the_api_had_published(stage, catalog, made, tmp_path):
    catalog.git("config", "http.receivepack", "true")
    catalog.commit(files={"evermirror/api.txt": f"{made[1]}\n", "x": f"{made[0]}\n"})
    async with stage.up(**settings({"url": catalog.url, "writable": True})) as up:
        await until_total(up, 2)
        await up.add(made[2])
        await pushed(up, catalog, f"+{made[2]}")
        assert made[1] in catalog.git("show", "main:evermirror/api.txt")


async def test_a_repository_on_this_machine_is_a_source_too(stage, made, tmp_path):
    repo = UpstreamRepo.init(tmp_path / "here.git", "here", str(tmp_path / "here.git"))
    repo.commit(files={"x": f"{made[0]}\n"})
    async with stage.up(**settings(repo.url)) as up:
        await up.until_status("r/0", "active")


async def test_removals_may_be_accepted_beforehand(stage, catalog, made):
    catalog.commit(files={"x": "\n".join(made[:12])})
    async with stage.up(**settings(catalog.url)) as up:
        await until_total(up, 12)
        applied = await up.node.catalog._store.get_setting(APPLIED)
        assert applied["versions"] == [catalog.tip()]
    catalog.commit(files={"x": ""})
    async with stage.up(UpOptions(accept_removals=True), **settings(catalog.url)) as up:
        await until_total(up, 0)
