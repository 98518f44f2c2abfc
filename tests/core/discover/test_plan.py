"""What a run does: tables of cases, and properties over histories of a group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.discover.here import Known, place_of
from evermirror.core.discover.plan import Plan
from evermirror.core.discover.rows import sees_less, still_known
from evermirror.model.discovery import BoundState, StepKind
from evermirror.model.forge import Identity
from evermirror.model.repo import RepoKey
from tests.core.discover.small import CHANGES, TARGET, World, a_discovery, a_project, kinds

A, B, C = (a_project(n, f"devops/{name}") for n, name in enumerate("abc", 1))
HOST = "gitlab.example.com"


def changes(made: Plan) -> set[str]:
    return {p.step.path for p in made.steps if p.step.kind in CHANGES}


def moved(project, path):  # type: ignore[no-untyped-def]
    return replace(project, path=path)


def test_what_is_found_is_made_and_then_kept() -> None:
    world = World()
    assert kinds(world.do(A, B)) == {"devops/a": "create", "devops/b": "create"}
    assert kinds(world.do(A, B, C)) == {"devops/a": "keep", "devops/b": "keep", "devops/c": "create"}
    assert {k.name for k in world.pushing().values()} == {"devops/a", "devops/b", "devops/c"}


def test_what_is_gone_is_paused_once_and_resumed_when_it_returns() -> None:
    world = World()
    world.do(A, B)
    made = world.do(A)
    (pause,) = [p for p in made.steps if p.step.kind is StepKind.PAUSE]
    assert (pause.step.path, pause.pauses) == ("devops/b", RepoKey(f"{HOST}/devops/b"))
    assert "no longer in devops at https://gitlab.example.com" in pause.step.why
    assert kinds(world.do(A)) == {"devops/a": "keep"}
    assert kinds(world.do(A, B)) == {"devops/a": "keep", "devops/b": "resume"}
    assert not world.left


def test_nothing_is_gone_by_a_listing_that_is_not_complete() -> None:
    world = World()
    world.do(A, B)
    assert kinds(world.plan(A, complete=False)) == {"devops/a": "keep"}
    assert kinds(world.plan(A)) == {"devops/a": "keep", "devops/b": "pause"}


def test_a_rename_is_a_new_project_with_the_same_target_and_the_old_one_is_paused() -> None:
    world = World()
    world.do(A)
    made = world.do(moved(A, "devops/tools/new"))
    (step,) = made.steps
    assert (step.step.kind, step.step.was) == (StepKind.RENAME, "devops/a")
    assert step.step.target_url == "https://gitlab.other.org/mirrors/a.git"
    assert step.pauses == RepoKey(f"{HOST}/devops/a")
    assert step.target_path == ""  # nothing is made at the target
    assert world.state("devops/a") is BoundState.RENAMED
    assert [k.name for k in world.pushing().values()] == ["devops/tools/new"]
    back = world.do(A)
    assert kinds(back) == {"devops/a": "rename"}
    assert [k.name for k in world.pushing().values()] == ["devops/a"]


def test_a_renamed_group_renames_all_and_keeps_their_targets() -> None:
    world = World()
    world.do(A, B)
    targets = {row.target_url for row in world.rows.values()}
    made = world.do(moved(A, "platform/a"), moved(B, "platform/b"), group="platform")
    assert kinds(made) == {"platform/a": "rename", "platform/b": "rename"}
    assert {p.after.target_url for p in made.steps} == targets


@pytest.mark.parametrize("at_once", [True, False])
def test_a_project_at_the_path_of_a_renamed_one_gets_a_target_of_its_own(at_once: bool) -> None:
    world = World()
    world.do(A)
    now = (moved(A, "devops/z"), moved(B, "devops/a"))
    if not at_once:
        world.do(now[0])
    made = world.do(*now)
    assert kinds(made) == {"devops/z": "rename" if at_once else "keep", "devops/a": "create"}
    (new,) = [p for p in made.steps if p.step.kind is StepKind.CREATE]
    assert new.step.why == "mirrors/a is the target of devops/z since before"
    assert (new.target_path, new.step.target_url) == ("mirrors/a-2", f"{TARGET}/a-2.git")
    assert new.turns  # its project here pushed to the other one's target until now
    assert world.rows["1", "devops/z"].target_url == f"{TARGET}/a.git"
    assert {known.name: set(known.targets) for known in world.pushing().values()} == {
        "devops/z": {place_of(f"{TARGET}/a.git")},
        "devops/a": {place_of(f"{TARGET}/a-2.git")},
    }
    assert set(kinds(world.do(*now)).values()) == {"keep"}
    assert kinds(world.do(now[1]))["devops/z"] == "pause"
    assert set(kinds(world.do(*now)).values()) == {"keep", "resume"}


def test_a_rename_goes_on_from_the_old_project_also_where_another_has_its_path() -> None:
    world = World()
    world.do(A)
    made = world.plan(moved(A, "devops/z"), moved(B, "devops/a"))
    (rename,) = [p for p in made.steps if p.step.kind is StepKind.RENAME]
    assert (rename.like, rename.pauses) == (RepoKey(f"{HOST}/devops/a"), None)


def test_what_a_cut_short_run_paused_is_resumed_where_it_is_found_again() -> None:
    world = World()
    world.do(A, B)
    world.left.add(RepoKey(f"{HOST}/devops/a"))  # and nothing was noted
    assert kinds(world.do(A, B)) == {"devops/a": "resume", "devops/b": "keep"}
    assert not world.left


def test_a_project_that_a_person_removed_is_not_made_again_by_a_rename() -> None:
    world = World()
    world.do(A, B)
    del world.projects[RepoKey(f"{HOST}/devops/a")]
    for path in ("devops/a2", "devops/a2", "devops/a3"):
        assert kinds(world.do(moved(A, path), B)) == {path: "keep", "devops/b": "keep"}
        assert {known.name for known in world.projects.values()} == {"devops/b"}
        assert world.rows["1", path].state is BoundState.ACTIVE
    assert world.rows["1", "devops/a"].state is BoundState.RENAMED


def test_a_project_that_was_deleted_and_made_anew_goes_on() -> None:
    """Another id at the same path: the same address, so the same project here."""
    world = World()
    world.do(A)
    made = world.do(moved(B, "devops/a"))
    assert kinds(made) == {"devops/a": "create"}
    assert not world.left
    assert world.rows["1", "devops/a"].state is BoundState.GONE
    assert kinds(world.do(moved(B, "devops/a"))) == {"devops/a": "keep"}


@pytest.mark.parametrize("target", ["https://gitlab.other.org/mirrors", None])
def test_two_that_swap_their_paths_never_push_to_each_others_targets(target: str | None) -> None:
    world = World(a_discovery(target_url=target))
    world.do(A, B)
    before = {key: known.targets for key, known in world.projects.items()}
    made = world.do(moved(A, "devops/b"), moved(B, "devops/a"))
    if target is None:  # two mirrors, each of its address: nothing is wrong with them
        assert kinds(made) == {"devops/a": "rename", "devops/b": "rename"}
        assert not world.left
    else:
        assert Counter(p.step.kind for p in made.steps) == {StepKind.PAUSE: 2, StepKind.CLASH: 2}
        assert not world.pushing()
    assert {key: known.targets for key, known in world.projects.items()} == before


def test_a_key_that_belongs_to_another_source_clashes_and_others_go_on() -> None:
    world = World()
    other = RepoKey("gitlab.other-source.net/devops/a")
    world.projects[other] = Known(other, "devops/a")
    made = world.do(A, B)
    assert kinds(made) == {"devops/a": "clash", "devops/b": "create"}
    (clash,) = [p for p in made.steps if p.step.kind is StepKind.CLASH]
    assert other in clash.step.why
    assert "prefix" in clash.step.why
    del world.projects[other]
    assert kinds(world.do(A, B)) == {"devops/a": "create", "devops/b": "keep"}


def test_a_source_or_a_target_that_is_somebodys_clashes() -> None:
    world = World()
    mine = RepoKey(f"{HOST}/devops/a")
    world.projects[mine] = Known(mine, "my-own-name", False)
    else_ = RepoKey("elsewhere.net/x")
    world.projects[else_] = Known(
        else_, "x", True, frozenset({place_of("ssh://git@gitlab.other.org/Mirrors/B.git")})
    )
    made = world.do(A, B)
    whys = {p.step.path: p.step.why for p in made.steps}
    assert "my-own-name" in whys["devops/a"]
    assert "belongs to x" in whys["devops/b"]


def test_what_a_crash_left_unnoted_is_taken_for_what_it_is() -> None:
    world = World()
    world.do(A)
    world.rows.clear()
    assert kinds(world.do(A)) == {"devops/a": "create"}
    assert len(world.projects) == 1
    assert kinds(world.do(A)) == {"devops/a": "keep"}


def test_a_target_that_was_made_before_a_crash_is_still_ours() -> None:
    world = World()
    (planned,) = world.plan(A).steps
    row = replace(planned.after, state=BoundState.REFUSED, key=None, made_target=True, why="being made")
    world.rows[row.forge_id, row.path] = row
    (again,) = world.plan(A).steps
    assert again.step.kind is StepKind.CREATE
    assert again.after.made_target
    assert again.target_path == "mirrors/a"


def test_names_that_are_refused_do_not_stop_others_and_are_forgotten_when_gone() -> None:
    world = World()
    bad = a_project(9, "devops/a b")
    assert kinds(world.do(A, bad)) == {"devops/a": "create", "devops/a b": "refuse"}
    assert kinds(world.do(A)) == {"devops/a": "keep"}
    assert world.state("devops/a b") is BoundState.GONE


def test_a_rename_to_what_cannot_be_named_pauses_the_old_one() -> None:
    world = World()
    world.do(A)
    made = world.do(moved(A, "devops/a b"))
    assert kinds(made) == {"devops/a": "pause", "devops/a b": "refuse"}
    again = world.do(moved(A, "devops/fine"))
    assert kinds(again) == {"devops/fine": "create"}
    assert world.rows["1", "devops/fine"].target_url == "https://gitlab.other.org/mirrors/a.git"


def test_two_that_would_be_one_at_a_flat_target_are_told_apart() -> None:
    from evermirror.model.forge import Forge

    world = World(a_discovery(target_url="https://x.org/m", target_forge=Forge.GITEA))
    made = world.do(a_project(1, "devops/a/b"), a_project(2, "devops/a-b"))
    assert Counter(kinds(made).values()) == {"create": 1, "clash": 1}


@pytest.mark.parametrize(("total", "gone", "held"), [(1, 1, False), (2, 1, False), (2, 2, True),
                                                     (3, 2, True), (5, 2, False), (5, 5, True),
                                                     (12, 6, False), (12, 10, True), (12, 11, True),
                                                     (22, 10, False), (22, 11, True),
                                                     (100, 20, False), (100, 21, True)])  # fmt: skip
def test_many_removals_at_once_wait_for_a_person(total: int, gone: int, held: bool) -> None:
    world = World()
    group = [a_project(n, f"devops/p{n:03}") for n in range(total)]
    world.do(*group)
    made = world.plan(*group[gone:])
    assert made.count(StepKind.HOLD) == (gone if held else 0)
    assert made.count(StepKind.PAUSE) == (0 if held else gone)
    accepted = world.plan(*group[gone:], accept=True)
    assert accepted.count(StepKind.PAUSE) == gone
    world.do(*group[gone:])
    assert len(world.left) == (0 if held else gone)


def test_what_is_held_is_not_let_go_by_others_that_come() -> None:
    world = World()
    world.do(A, B)
    others = [a_project(n, f"devops/p{n}") for n in range(10, 40)]
    assert kinds(world.do(*others))["devops/a"] == "hold"
    for _ in range(2):
        assert {kinds(world.do(*others))[path] for path in ("devops/a", "devops/b")} == {"hold"}
    assert kinds(world.do(A, *others))["devops/a"] == "keep"
    assert kinds(world.do(*others))["devops/a"] == "pause", "one of many"
    assert kinds(world.do(*others, accept=True))["devops/b"] == "pause"


def test_what_is_no_longer_chosen_goes_by_the_word_of_who_chose() -> None:
    """The guard is against forges that do not show what they have."""
    world = World()
    world.do(A, B, C)
    world.discovery = a_discovery(include=("devops/a",))
    assert kinds(world.plan(A, B, C)) == {"devops/a": "keep", "devops/b": "pause", "devops/c": "pause"}
    assert kinds(world.plan(A)) == {"devops/a": "keep", "devops/b": "hold", "devops/c": "hold"}


# Histories

PATHS = st.sampled_from(["devops/a", "devops/b", "devops/t/a", "devops/t-a", "devops/A", "devops/bad name"])
IDS = st.sampled_from("1234")
# An id has one path. Two may tell of one path, as pages of different moments do.
GROUPS = st.lists(st.dictionaries(IDS, PATHS, max_size=4), min_size=1, max_size=6)
# At one moment a path is one project's.
MOMENTS = st.lists(
    st.lists(st.tuples(IDS, PATHS), max_size=4, unique_by=(lambda p: p[0], lambda p: p[1])).map(dict),
    min_size=1,
    max_size=6,
)
TARGETS = st.sampled_from(["https://gitlab.other.org/mirrors", None])


@given(GROUPS, TARGETS, st.data())
def test_over_any_history_no_two_have_one_key_or_push_to_one_place(
    history: list[dict[str, str]], target: str | None, data: st.DataObject
) -> None:
    world = World(a_discovery(target_url=target))
    for group in history:
        complete = data.draw(st.booleans())
        made = world.do(*(a_project(id_, path) for id_, path in group.items()), complete=complete)
        creating = [p.after for p in made.steps if p.step.kind in (StepKind.CREATE, StepKind.RENAME)]
        assert len({row.key for row in creating}) == len(creating)
        assert len({row.project_key for row in creating}) == len(creating)
        places = Counter(place for known in world.pushing().values() for place in known.targets)
        assert all(count == 1 for count in places.values()), places
        names = Counter(known.name for known in world.projects.values())
        assert all(count == 1 for count in names.values())
        if not complete:
            assert not [p for p in made.steps if p.step.kind is StepKind.PAUSE and "no longer" in p.step.why]
        paused = {p.pauses for p in made.steps} - {None}
        lively = (StepKind.CREATE, StepKind.RENAME, StepKind.KEEP, StepKind.RESUME)
        assert not paused & {p.after.key for p in made.steps if p.step.kind in lively}


@given(MOMENTS, TARGETS)
def test_a_second_run_does_only_what_clashed_before_and_soon_none_finds_more_to_do(
    history: list[dict[str, str]], target: str | None
) -> None:
    """What one run frees (a target that a project in turn gave up) the next one may give to another."""
    world = World(a_discovery(target_url=target))
    for group in history:
        found = [a_project(id_, path) for id_, path in group.items()]
        made = world.do(*found)
        clashed = {p.step.path for p in made.steps if p.step.kind is StepKind.CLASH}
        assert changes(world.plan(*found)) <= clashed
        for _ in clashed:
            world.do(*found)
        assert changes(world.plan(*found)) == set()


def test_a_project_at_the_path_of_one_that_is_gone_and_had_it_from_a_renamed_one_is_made_at_once() -> None:
    world = World()
    world.do(A)
    renamed = moved(A, "devops/b")
    world.do(renamed, moved(B, "devops/a"))
    made = world.do(renamed, moved(C, "devops/a"))
    assert kinds(made) == {"devops/a": "create", "devops/b": "keep"}
    assert {known.name: set(known.targets) for known in world.pushing().values()} == {
        "devops/b": {place_of(f"{TARGET}/a.git")},
        "devops/a": {place_of(f"{TARGET}/a-3.git")},
    }
    assert world.rows["2", "devops/a"].key is None


def test_what_comes_back_after_another_took_its_place_is_new() -> None:
    world = World()
    world.do(A)
    world.do(moved(B, "devops/a"))
    made = world.do(moved(B, "devops/b"), moved(A, "devops/t/a"))
    assert kinds(made) == {"devops/b": "rename", "devops/t/a": "create"}
    assert {known.name: set(known.targets) for known in world.pushing().values()} == {
        "devops/b": {place_of(f"{TARGET}/a.git")},
        "devops/t/a": {place_of(f"{TARGET}/t/a.git")},
    }


@given(GROUPS)
def test_what_is_found_has_one_row_that_speaks_for_it(history: list[dict[str, str]]) -> None:
    world = World()
    for group in history:
        world.do(*(a_project(id_, path) for id_, path in group.items()))
        live = Counter(r.forge_id for r in world.rows.values() if r.state is BoundState.ACTIVE)
        assert all(count == 1 for count in live.values())
        for id_, path in group.items():
            states = {r.state for r in world.rows.values() if r.forge_id == id_ and r.path == path}
            assert states & {BoundState.ACTIVE, BoundState.CLASH, BoundState.REFUSED}


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (None, None, ""),
        (None, Identity("1", "a"), ""),
        (Identity("1", "a"), Identity("1", "renamed"), ""),
        (Identity("1", "a"), None, "does not say now who we are"),
        (Identity("1", "a"), Identity("2", "b"), "takes us for b (user 2) now, and took us for a (user 1)"),
        (Identity("1", "a", ("api",)), Identity("1", "a", ("api", "read_user")), ""),
        (Identity("1", "a", ("api", "x")), Identity("1", "a", ("x",)), "lost scopes: api"),
        (Identity("1", "a", ("api",)), Identity("1", "a"), ""),
        (Identity("1", "a"), Identity("1", "a", ("api",)), ""),
    ],
)
def test_who_may_see_less_than_before(before: Identity | None, now: Identity | None, words: str) -> None:
    told = sees_less(before, now)
    assert words in told
    assert bool(told) == bool(words)


def test_what_a_forge_does_not_say_this_time_is_still_known():
    known = Identity("1", "a", ("api",))
    assert still_known(None, known) == still_known(known, None) == known
    assert still_known(known, Identity("1", "renewed")) == Identity("1", "renewed", ("api",))
    for other in (Identity("2", "b"), Identity("1", "a", ("read_api",))):
        assert still_known(known, other) == other


def test_what_a_listing_that_is_not_trusted_lacks_is_held_and_its_place_stays_its_own() -> None:
    world = World()
    many = [a_project(n, f"devops/p{n}") for n in range(9)]
    world.do(*many)
    made = world.do(*many[1:], distrust="another user")
    assert kinds(made)["devops/p0"] == "hold"
    another = a_project(99, "devops/p0")  # what is there now is not known to be all
    made = world.plan(*many[1:], another, distrust="another user")
    assert made.count(StepKind.PAUSE, StepKind.CREATE) == 0
    assert {p.step.kind for p in made.steps if p.step.path == "devops/p0"} == {StepKind.HOLD, StepKind.CLASH}
    assert kinds(world.do(*many[1:], distrust="another user", accept=True))["devops/p0"] == "pause"
