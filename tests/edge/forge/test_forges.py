"""What all clients promise, each against its own forge's stand-in: real HTTP, real repositories."""

from __future__ import annotations

import asyncio

import pytest

from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge, NewTarget, Visibility
from tests.edge.forge.forge_world import FOLLOWED, TOKEN, client, list_all, start
from tests.support.gitrepo import run_git


@pytest.fixture(params=FOLLOWED, ids=lambda f: f.value)
def forge(request):
    return request.param


@pytest.fixture
def server(forge, tmp_path):
    with start(forge, tmp_path) as made:
        yield made


@pytest.fixture
async def api(forge, server):
    made = client(forge, server)
    yield made
    await made.close()


def new(path="team/x", **more):
    wanted = {"visibility": Visibility.PRIVATE, "description": "what it is", "default_branch": None} | more
    return NewTarget(path, path.rpartition("/")[2], **wanted)


# As a source


async def test_a_group_is_found_by_its_path_and_by_its_id_after_a_rename(server, api):
    server.add_project("team/x")
    group = await api.find_group("team")
    assert group is not None
    assert group.path == "team"
    server.rename_group("team", "crew")
    again = await api.find_group(group.id)
    assert again is not None
    assert (again.id, again.path) == (group.id, "crew")
    assert await api.find_group("nobody") is None


async def test_every_project_is_listed_once_with_what_is_known_of_it(server, api, forge):
    server.add_project("team/full", commits=1, visibility="public", description="line one\nline two")
    server.add_project("team/empty", visibility="private")
    server.add_project("other/x")
    group = await api.find_group("team")
    full, empty = await list_all(api, group)
    row = server.project_at("team/full")
    assert (full.id, full.path, full.default_branch) == (str(row.id), "team/full", "main")
    assert (full.http_url, full.ssh_url) == (server.url("team/full.git"), server.ssh_url("team/full"))
    assert (full.visibility, full.description) == (Visibility.PUBLIC, "line one\nline two")
    assert (full.empty, full.archived) == (False, False)
    assert (empty.path, empty.visibility, empty.empty) == ("team/empty", Visibility.PRIVATE, True)


async def test_many_pages_in_one_order(server, api):
    made = [f"team/p{i:03d}" for i in range(130)]
    for path in made:
        server.add_project(path)
    group = await api.find_group("team")
    assert [p.path for p in await list_all(api, group)] == made
    first = await api.projects(group, subgroups=True, archived=False)
    assert first.total in (130, None)
    assert first.total == 130 or api.forge is Forge.GITHUB


async def test_what_is_removed_or_made_while_pages_are_read_shifts_nothing(server, forge):
    api = client(forge, server, page_size=10)
    made = [f"team/p{i:03d}" for i in range(55)]
    for path in made:
        server.add_project(path)
    removed = []

    def change(pages):
        for _ in range(3 if pages <= 6 else 0):
            path = made[len(removed)]
            server.remove_project(path)
            removed.append(path)
        if pages <= 6:
            server.add_project(f"team/new{pages}")

    group = await api.find_group("team")
    paths = [p.path for p in await list_all(api, group, between=change)]
    assert len(removed) >= 12
    assert len(paths) == len(set(paths)), "told twice"
    assert set(made) - set(removed) <= set(paths), "left out"
    await api.close()


async def test_a_listing_goes_on_in_another_process_after_long(server, forge, api):
    for i in range(12):
        server.add_project(f"team/p{i:02d}")
    group = await api.find_group("team")
    early = client(forge, server, page_size=5)
    first = await early.projects(group, subgroups=True, archived=False)
    await early.close()
    late = client(forge, server, page_size=5)
    second = await late.projects(group, subgroups=True, archived=False, after=first.next)
    await late.close()
    paths = [p.path for p in first.items + second.items]
    assert paths == [f"team/p{i:02d}" for i in range(len(paths))]
    assert 8 <= len(paths) <= 10


async def test_archived_ones_are_listed_where_they_are_wanted(server, api):
    for name in ("a", "b", "c"):
        server.add_project(f"team/{name}")
    server.archive("team/b")
    group = await api.find_group("team")
    assert [p.path for p in await list_all(api, group)] == ["team/a", "team/c"]
    wanted = await list_all(api, group, archived=True)
    assert [(p.path, p.archived) for p in wanted] == [("team/a", False), ("team/b", True), ("team/c", False)]


async def test_without_a_token_public_projects_are_found(server, forge):
    server.add_project("team/seen", visibility="public")
    server.add_project("team/hidden", visibility="private")
    api = client(forge, server, token="")
    assert await api.token() is None
    group = await api.find_group("team")
    assert [p.path for p in await list_all(api, group)] == ["team/seen"]
    await api.close()


# As a target


async def test_a_project_is_made_and_can_be_pushed_to(server, api, tmp_path):
    server.add_group("team", "public")
    source = server.add_project("other/source", commits=2)
    assert await api.find_project("team/x") is None
    made = await api.create_project(new(visibility=Visibility.PUBLIC))
    assert (made.path, made.empty, made.visibility) == ("team/x", True, Visibility.PUBLIC)
    assert made.description == "what it is"
    url = made.http_url.replace("http://", f"http://oauth2:{TOKEN}@")
    run_git(source.path, "push", url, "refs/heads/main:refs/heads/main")
    now = await api.find_project("team/x")
    assert (now.id, now.empty, now.default_branch) == (made.id, False, "main")
    assert server.repo("team/x").refs() == source.refs()


async def test_a_project_that_is_there_is_a_conflict_in_the_forges_words(server, api):
    server.add_project("team/x", commits=1)
    with pytest.raises(FailureError) as raised:
        await api.create_project(new())
    assert raised.value.failure.kind is FailureKind.CONFLICT
    assert "already" in raised.value.failure.message


async def test_a_name_that_is_refused_is_a_conflict_in_the_forges_words(server, api):
    server.add_group("team")
    with pytest.raises(FailureError) as raised:
        await api.create_project(new("team/.."))
    assert raised.value.failure.kind is FailureKind.CONFLICT
    assert len(raised.value.failure.message) > 15
    assert server.project_at("team/..") is None


async def test_a_group_that_is_missing_is_said_so(server, api):
    with pytest.raises(FailureError) as raised:
        await api.create_project(new("nowhere/x"))
    assert raised.value.failure.kind is FailureKind.NOT_FOUND
    assert "nowhere" in raised.value.failure.message


async def test_a_group_is_made_once(server, api, forge):
    if forge is Forge.GITHUB:
        with pytest.raises(FailureError, match="nobody make one"):
            await api.create_group("team", Visibility.PRIVATE)
        server.add_group("team")
    first = await api.create_group("team", Visibility.PRIVATE)
    server.requests.clear()
    assert await api.create_group("team", Visibility.PUBLIC) == first
    assert server.asked("POST") == []


async def test_a_description_longer_than_the_forge_takes_is_cut(server, api):
    server.add_group("team", "public")
    words = "long words\n" * 400
    server.fault("", method="POST", done=True, status=502)
    made = await api.create_project(new(description=words))
    assert words.replace("\n", " ").startswith(made.description.replace("\n", " ")[:300])
    assert 300 < len(made.description) <= 2048
    assert len(server.asked("POST")) == 1


async def test_a_connection_that_the_forge_closed_meanwhile_spoils_no_write(server, api):
    server.add_group("team")
    assert await api.find_project("team/x") is None
    server.end_connections()
    await asyncio.sleep(0.2)
    assert (await api.create_project(new())).path == "team/x"
    assert len(server.asked("POST")) == 1


async def test_protected_branches_are_opened_so_that_a_mirror_can_rewrite_and_delete(server, api):
    server.add_group("team")
    source = server.add_project("other/source", commits=3)
    source.branch("old/one")
    made = await api.create_project(new())
    url = made.http_url.replace("http://", f"http://oauth2:{TOKEN}@")
    run_git(source.path, "push", url, "refs/heads/*:refs/heads/*")
    for name in ("main", "old/one"):
        server.protect("team/x", name)
    source.force_push()
    source.delete_branch("old/one")
    push = ("push", "--prune", url, "+refs/heads/*:refs/heads/*")
    with pytest.raises(AssertionError, match="protected branch"):
        run_git(source.path, *push)
    assert set(await api.open_branches(made)) == {"main", "old/one"}
    run_git(source.path, *push)
    assert server.repo("team/x").refs() == source.refs()
    assert await api.open_branches(made) == ()


async def test_a_target_that_was_renamed_there_needs_a_person(server, api):
    server.add_project("team/x")
    server.rename_project("team/x", "team/y")
    with pytest.raises(FailureError, match="moved") as raised:
        await api.find_project("team/x")
    assert raised.value.failure.kind is FailureKind.CONFLICT
