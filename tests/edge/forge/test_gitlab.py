"""GitLab: our client beside python-gitlab, an independent one, against the same stand-in."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import gitlab
import pytest

from evermirror.edge.forge.pages import read_cursor
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge, Identity, NewTarget, Visibility
from tests.edge.forge.forge_world import TOKEN, client, list_all, start


@pytest.fixture
def server(tmp_path):
    with start(Forge.GITLAB, tmp_path, tls=True) as made:
        yield made


@pytest.fixture
async def api(server):
    made = client(Forge.GITLAB, server)
    yield made
    await made.close()


@pytest.fixture
def oracle(server):
    with gitlab.Gitlab(server.base_url, private_token=TOKEN, ssl_verify=str(server.ca_file)) as made:
        yield made


def new(path="mirrors/x", visibility=Visibility.PRIVATE, **more):
    return NewTarget(path, path.rpartition("/")[2], visibility, more.get("description", ""), None)


def listed(oracle, group, **more):
    """What python-gitlab lists, by offset pages."""
    found = oracle.groups.get(group).projects.list(
        iterator=True, order_by="id", sort="asc", per_page=7, **more
    )
    return [
        (str(p.id), p.path_with_namespace, p.http_url_to_repo, p.ssh_url_to_repo, p.visibility) for p in found
    ]


def ours(found):
    return [(p.id, p.path, p.http_url, p.ssh_url, p.visibility.value) for p in found]


async def test_the_same_projects_as_another_client_lists(server, api, oracle):
    for i in range(23):
        server.add_project(f"devops/{'tools/' if i % 2 else ''}{'deep/er/' if i % 5 == 0 else ''}p{i}")
    server.add_project("devops2/x")
    server.archive("devops/tools/p1")
    group = await api.find_group("devops")
    for subgroups in (True, False):
        for archived in (True, False):
            more = {} if archived else {"archived": False}
            theirs = await asyncio.to_thread(listed, oracle, "devops", include_subgroups=subgroups, **more)
            assert ours(await list_all(api, group, subgroups=subgroups, archived=archived)) == theirs
            assert theirs
    everything = oracle.projects.list(
        iterator=True, pagination="keyset", order_by="id", sort="asc", per_page=5
    )
    assert len(await asyncio.to_thread(list, everything)) == 24


async def test_what_we_make_is_what_another_client_sees(server, api, oracle):
    made_group = await api.create_group("mirrors/devops/tools", Visibility.INTERNAL)
    made = await api.create_project(
        new("mirrors/devops/tools/core", Visibility.INTERNAL, description="words")
    )
    group = await asyncio.to_thread(oracle.groups.get, "mirrors/devops/tools")
    assert (f"id:{group.id}", group.visibility) == (made_group.id, "internal")
    project = await asyncio.to_thread(oracle.projects.get, "mirrors/devops/tools/core")
    assert (str(project.id), project.description, project.visibility) == (made.id, "words", "internal")
    assert [g.path for g in server.groups.values()] == ["mirrors", "mirrors/devops", "mirrors/devops/tools"]


@pytest.mark.parametrize("id_after", [True, False])
async def test_pages_by_what_comes_after_and_by_number_where_that_is_not_known(server, id_after):
    server.id_after = id_after
    api = client(Forge.GITLAB, server, page_size=10)
    for i in range(45):
        server.add_project(f"team/p{i:02d}")
    group = await api.find_group("team")
    server.requests.clear()
    assert [p.path for p in await list_all(api, group)] == [f"team/p{i:02d}" for i in range(45)]
    assert len(server.asked()) <= (5 if id_after else 9)
    page = await api.projects(group, subgroups=True, archived=False)
    second = await api.projects(group, subgroups=True, archived=False, after=page.next)
    assert read_cursor(second.next, key=int).numbered is not id_after
    assert (page.total, second.total) == (45, 45)
    await api.close()


@pytest.mark.parametrize("id_after", [True, False])
async def test_projects_that_go_meanwhile_leave_none_out(server, id_after):
    server.id_after = id_after
    api = client(Forge.GITLAB, server, page_size=10)
    for i in range(60):
        server.add_project(f"team/p{i:02d}")
    group = await api.find_group("team")

    def change(pages):
        if pages <= 3:
            for i in range(4):
                server.remove_project(f"team/p{(pages - 1) * 4 + i:02d}")

    paths = [p.path for p in await list_all(api, group, between=change)]
    assert paths == [f"team/p{i:02d}" for i in range(60)][: len(paths)]
    assert len(paths) == 60
    await api.close()


async def test_a_project_that_is_to_be_deleted_is_no_longer_found(server, api):
    for name in ("a", "b", "c"):
        server.add_project(f"team/{name}")
    server.schedule_deletion("team/b")
    group = await api.find_group("team")
    assert [p.path for p in await list_all(api, group)] == ["team/a", "team/c"]


async def test_a_group_that_is_to_be_deleted_is_no_longer_there(server, api):
    server.add_project("team/tools/a")
    known = await api.find_group("team")
    server.schedule_group_deletion("team")
    assert await api.find_group(known.id) is None
    assert await api.find_group("team") is None
    deeper = server.group_at(f"{known.path}-deletion_scheduled-{known.id.removeprefix('id:')}/tools")
    assert deeper.doomed is None
    assert await api.find_group(f"id:{deeper.id}") is None, "inside one that is to be deleted"


async def test_projects_of_a_subgroup_that_is_to_be_deleted_are_no_longer_found(server, api):
    for path in ("team/a", "team/tools/b", "team/tools/deep/c"):
        server.add_project(path)
    server.schedule_group_deletion("team/tools")
    group = await api.find_group("team")
    assert [p.path for p in await list_all(api, group)] == ["team/a"]


async def test_a_path_of_digits_is_not_taken_for_another_groups_number(server, api):
    server.add_project("victim/payroll")
    number = str(server.group_at("victim").id)
    assert await api.find_group(number) is None
    server.add_project(f"{number}/wanted")
    server.add_project(f"x{number}/else")
    group = await api.find_group(number)
    assert (group.path, group.id) == (number, f"id:{server.group_at(number).id}")
    assert [p.path for p in await list_all(api, group)] == [f"{number}/wanted"]
    assert (await api.find_group(f"id:{number}")).path == "victim"


async def test_nothing_is_made_in_a_group_whose_number_is_the_path(server, api):
    server.add_group("victim")
    number = str(server.group_at("victim").id)
    with pytest.raises(FailureError, match="there is no group"):
        await api.create_project(new(f"{number}/payroll"))
    assert (await api.create_group(number, Visibility.PRIVATE)).path == number
    assert (await api.create_project(new(f"{number}/payroll"))).path == f"{number}/payroll"
    assert [p.path for p in server.projects.values()] == [f"{number}/payroll"]


async def test_a_person_whose_name_is_a_number_is_a_target(server, api):
    server.add_group("victim")
    name = str(server.group_at("victim").id)
    server.add_group(name, kind="user")
    assert (await api.create_project(new(f"{name}/x"))).path == f"{name}/x"


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ("group", '{"id": 101, "full_path": "other/x", "name": "x", "visibility": "public"}'),
        ("project", '{"id": 101, "path_with_namespace": "other/x", "visibility": "public"}'),
    ],
)
async def test_an_answer_about_something_else_is_refused(server, api, asked, body):
    server.fault(f"/{asked}s/", body=body)
    find = api.find_group if asked == "group" else api.find_project
    with pytest.raises(FailureError, match="answers with 'other/x'") as raised:
        await find("team" if asked == "group" else "team/x")
    assert raised.value.failure.kind is FailureKind.CONFLICT


async def test_a_group_is_looked_up_once_for_all_projects_made_in_it(server, api):
    await api.create_group("mirrors", Visibility.PRIVATE)
    server.requests.clear()
    for name in "abc":
        await api.create_project(new(f"mirrors/{name}"))
    assert len(server.asked("GET")) <= 1
    assert len(server.asked("POST")) == 3


async def test_a_project_is_no_more_visible_than_its_group(server, api):
    server.add_group("mirrors", "private")
    with pytest.raises(FailureError, match="public is not allowed in a private group") as raised:
        await api.create_project(new(visibility=Visibility.PUBLIC))
    assert raised.value.failure.kind is FailureKind.CONFLICT
    with pytest.raises(FailureError, match="parent group"):
        await api.create_group("mirrors/sub", Visibility.PUBLIC)


@pytest.mark.parametrize("name", ["-x", "x.git", "x.atom", "x..y", "ü", "x y", ".", "wikis", "x-", "y" * 256])
async def test_names_that_gitlab_refuses(server, api, name):
    server.add_group("mirrors")
    with pytest.raises(FailureError) as raised:
        await api.create_project(new(f"mirrors/{name}"))
    assert raised.value.failure.kind is FailureKind.CONFLICT
    assert raised.value.failure.message.startswith("HTTP 400: ")
    assert len(raised.value.failure.message) > 25


async def test_a_group_that_somebody_makes_meanwhile_is_taken(server, api):
    server.fault(
        "/groups", method="POST", done=True, status=400, body='{"message": "has already been taken"}'
    )
    made = await api.create_group("mirrors", Visibility.PRIVATE)
    assert made.id == f"id:{server.group_at('mirrors').id}"
    server.fault("/groups", method="POST", done=True, status=502)
    deeper = await api.create_group("mirrors/a", Visibility.PRIVATE)
    assert deeper.path == "mirrors/a"
    assert len(server.asked("POST")) == 2


async def test_a_persons_own_namespace_is_a_target_too(server, api):
    server.add_group("alice", kind="user")
    made = await api.create_project(new("alice/x", Visibility.PUBLIC))
    assert (made.path, made.visibility) == ("alice/x", Visibility.PUBLIC)
    assert (await api.create_group("alice", Visibility.PRIVATE)).path == "alice"


async def test_what_is_known_of_a_token(server):
    server.add_token("t1", name="mirror robot", scopes=("api", "read_user"), expires="2999-12-01")
    server.add_token("t2", scopes=("read_api",))
    api = client(Forge.GITLAB, server, token="t1")
    facts = await api.token()
    assert (facts.name, facts.scopes) == ("mirror robot", frozenset({"api", "read_user"}))
    assert facts.expires_at == datetime(2999, 12, 1, tzinfo=UTC).timestamp()
    assert facts.identity == Identity("1", "mirror robot", ("api", "read_user"))
    await api.close()
    api = client(Forge.GITLAB, server, token="t2")
    assert (await api.token()).expires_at is None
    old = {"status": 404, "body": '{"error": "404 Not Found"}'}
    server.fault("/personal_access_tokens", **old)
    assert (await api.token()).identity == Identity("1", "robot"), "an old GitLab still says whose it is"
    server.fault("/personal_access_tokens", **old)
    server.fault("/user", status=403, body='{"error": "insufficient_scope"}')
    assert await api.token() is None
    server.fault("/personal_access_tokens", body='{"name": "x", "expires_at": "soon"}')
    with pytest.raises(FailureError, match="not a date"):
        await api.token()
    await api.close()


async def test_a_protection_of_the_groups_own_stays(server, api):
    server.add_project("mirrors/x", commits=1)
    project = await api.find_project("mirrors/x")
    rules = '[{"name": "main", "inherited": true}, {"name": "old", "inherited": false}]'
    server.fault("/protected_branches", method="GET", body=rules)
    assert await api.open_branches(project) == ("old",)
    assert server.asked("DELETE") == [f"/api/v4/projects/{project.id}/protected_branches/old"]
