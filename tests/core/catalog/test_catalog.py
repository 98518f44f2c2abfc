"""What a change of some files means for the repos, compared with reading everything anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.catalog.catalog import Catalog, FileChange, FileName
from evermirror.core.catalog.formats import Defaults, parse_file
from evermirror.model.url import UrlRules

RULES = UrlRules()


def parse(path, text):
    return parse_file(path, text.encode(), "", RULES, Defaults())


class Twin:
    """The obvious slow version: all files read anew, compared as dictionaries."""

    def __init__(self, files):
        self.said = {}  # what each file said when it was last understood
        self.repos = {}
        self.update(files)

    def update(self, files):
        parsed = {path: parse(path, text) for path, text in files.items()}
        self.said = {p: self.said.get(p, v) if v.broken else v for p, v in parsed.items()}
        new = {}
        for path in sorted(self.said):
            for entry in self.said[path].entries:
                new.setdefault(entry.key, entry)
        for said in self.said.values():
            for key in said.unsure:
                if key in self.repos:
                    new.setdefault(key, self.repos[key])
        self.repos = new


class Fast:
    """The catalog, fed with changed files only; ``repos`` is what somebody who acts on its words has."""

    def __init__(self, files):
        self.catalog = Catalog()
        self.files = dict(files)
        self.repos = {}
        for path in sorted(files):
            found = self.catalog.load(FileName(0, path), parse(path, files[path]))
            self.repos |= {entry.key: entry for entry in found}

    def update(self, files):
        changed = [p for p in self.files.keys() | files.keys() if self.files.get(p) != files.get(p)]
        changes = [
            FileChange(FileName(0, p), *(parse(p, f[p]) if p in f else None for f in (self.files, files)))
            for p in sorted(changed)
        ]
        others = {f: parse(f.path, self.files[f.path]) for f in self.catalog.others(changes)}
        plan = self.catalog.plan(changes, others)
        self.catalog.take(plan)
        for key in plan.diff.removed:
            self.repos.pop(key, None)
        for entry in plan.diff.added + plan.diff.changed:
            self.repos[entry.key] = entry
        self.files = dict(files)
        return plan.diff


LINES = st.sampled_from(
    [f"https://h.example/{name}{more}" for name in "abcd" for more in ("", " priority=high", " privat=true")]
    + ["# nothing", "bad"]
)
LISTS = st.lists(LINES, max_size=4).map("\n".join)
YAMLS = st.sampled_from(
    ["url: https://h.example/a\n", "- git_url: https://h.example/b\n", "url: [\n", "a: &x *x\n"]
)
STATES = st.dictionaries(st.sampled_from(["1", "2", "3.yaml", "4"]), LISTS | YAMLS, max_size=4)


@given(st.lists(STATES, min_size=1, max_size=5))
def test_following_changes_gives_what_reading_everything_anew_gives(states):
    fast, twin = Fast(states[0]), Twin(states[0])
    assert fast.repos == twin.repos
    for state in states[1:]:
        fast.update(state)
        twin.update(state)
        assert fast.repos == twin.repos
        problems = {str(p) for p in fast.catalog.problems()}
        assert problems == {str(p) for p in Fast(state).catalog.problems()} or any(
            parse(p, t).broken for p, t in state.items()
        )


@given(st.lists(STATES, min_size=2, max_size=5))
def test_one_made_from_a_snapshot_goes_on_as_the_other_would_have(states):
    fast, restarted = Fast(states[0]), Fast(states[0])
    for state in states[1:]:
        snapshot = restarted.catalog.snapshot()
        assert (snapshot is None) == bool(restarted.catalog.broken)
        if snapshot is not None:
            restarted.catalog = Catalog.of(snapshot)
        assert restarted.update(state) == fast.update(state)
        assert restarted.catalog.problems() == fast.catalog.problems()
        assert restarted.catalog.total == fast.catalog.total


def test_a_repo_that_another_file_has_too_stays():
    fast = Fast({"1": "https://h.example/a priority=high", "2": "https://h.example/a"})
    assert [p.reason for p in fast.catalog.problems()] == ["repeats 1"]
    diff = fast.update({"2": "https://h.example/a"})
    assert not diff.removed
    assert [e.spec.priority.value for e in diff.changed] == ["normal"]
    assert fast.catalog.problems() == []


def test_nothing_is_said_of_repos_whose_line_only_moved():
    fast = Fast({"1": "https://h.example/a\nhttps://h.example/b", "2": ""})
    assert not fast.update({"1": "https://h.example/b", "2": "https://h.example/a"})


def test_what_a_bad_line_was_about_is_not_removed_until_the_line_is_gone():
    fast = Fast({"1": "https://h.example/a"})
    assert not fast.update({"1": "https://h.example/a privat=true"})
    assert fast.update({"1": ""}).removed == ("h.example/a",)


def test_a_broken_file_says_what_it_said_before_until_it_is_mended():
    fast = Fast({"1.yaml": "- git_url: https://h.example/a\n- git_url: https://h.example/b\n"})
    assert not fast.update({"1.yaml": "- ["})
    assert len(fast.catalog.problems()) == len(fast.catalog.broken) == 1
    assert fast.update({"1.yaml": "- git_url: https://h.example/b\n"}).removed == ("h.example/a",)
    assert fast.catalog.broken == ()


def test_a_plan_that_is_not_taken_changes_nothing():
    fast = Fast({"1": "https://h.example/a"})
    change = FileChange(FileName(0, "1"), parse("1", "https://h.example/a"), None)
    assert fast.catalog.plan([change], {}).diff.removed
    assert fast.catalog.total == 1
    assert fast.catalog.unmentioned(["h.example/a", "h.example/b"]) == ["h.example/b"]


@pytest.mark.parametrize("files", [1, 3])
def test_numbers_of_gone_files_are_used_again(files):
    fast = Fast({})
    for n in range(5):
        fast.update({f"{n}-{i}": f"https://h.example/{n}/{i}" for i in range(files)})
    assert len(fast.catalog._names) <= 2 * files
    assert fast.catalog.total == files
