"""List files: what is read, what is reported, and that no input breaks the reader."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.catalog.attributes import PINS_MAX, TARGETS_MAX
from evermirror.core.catalog.entry import (
    PROBLEMS_PER_FILE_MAX,
    TEXT_SHOWN_CHARS,
    CatalogEntry,
    Problem,
    without_repeats,
)
from evermirror.core.catalog.listfile import LINE_MAX_CHARS, attributes_given, line_of, parse_list
from evermirror.model.address import AllowList
from evermirror.model.pull import TargetSpec
from evermirror.model.repo import INTERVAL_MIN_S, Mode, Priority, RepoSpec
from evermirror.model.url import UrlRules

RULES = UrlRules()


def read(text, rules=RULES):
    parsed = parse_list(text if isinstance(text, bytes) else text.encode(), "urls.txt", rules)
    return list(parsed.entries), list(parsed.problems)


def only_problem(text, rules=RULES):
    entries, problems = read(text, rules)
    assert entries == []
    assert len(problems) == 1
    return problems[0]


def test_one_url_a_line_with_comments_and_blank_lines():
    entries, problems = read("# all\n\nhttps://h.example/a\n  https://h.example/b.git  # why\n\t# more\n")
    assert problems == []
    assert [(e.key, e.spec.url, e.spec.host, e.file, e.line) for e in entries] == [
        ("h.example/a", "https://h.example/a", "h.example", "urls.txt", 3),
        ("h.example/b", "https://h.example/b.git", "h.example", "urls.txt", 4),
    ]


def test_without_attributes_a_repo_has_the_defaults():
    entries, _ = read("https://h.example/a")
    assert entries == [CatalogEntry(RepoSpec("h.example/a", "https://h.example/a", "h.example"))]


def test_all_attributes():
    entries, problems = read(
        "https://h.example/a priority=high interval=1h30m alias=devops/core private=true mode=append-only "
        "credential=corp target=https://t.example/x target=https://t.example/y.git "
        "target_credential=push # note=ignored\n"
    )
    assert problems == []
    spec = RepoSpec(
        "h.example/a",
        "https://h.example/a",
        "h.example",
        Priority.HIGH,
        5400.0,
        Mode.APPEND_ONLY,
        True,
        "corp",
    )
    targets = TargetSpec("https://t.example/x", "push"), TargetSpec("https://t.example/y.git", "push")
    assert entries == [CatalogEntry(spec, "devops/core", targets)]


def test_what_is_allowed_of_objects_is_read_and_written_again():
    allowed = "fsck_allow=HASDOTGIT,gitmodulesPath fsck_allow=ofALaterGit"
    line = f"https://h.example/a {allowed} fsck_reason=ticket_4711"
    (entry,), problems = read(line + "\n")
    assert problems == []
    assert entry.spec.fsck_allow == ("hasDotgit", "gitmodulesPath", "ofALaterGit")
    assert entry.fsck_reason == "ticket_4711"
    assert read(line_of(entry) + "\n")[0] == [entry]
    in_words = replace(entry, fsck_reason="see ticket 4711")
    assert read(line_of(in_words) + "\n")[0][0].fsck_reason == "see_ticket_4711"


@pytest.mark.parametrize(
    ("names", "credentials"),
    [("", [None, None]), ("target_credential=a", ["a", "a"]),
     ("target_credential=a target_credential=b", ["a", "b"])],
)  # fmt: skip
def test_one_credential_is_for_all_targets_and_more_are_for_each_in_order(names, credentials):
    (entry,), problems = read(
        f"https://h.example/a {names} target=https://t.example/x target=https://u.example/x"
    )
    assert problems == []
    assert [t.credential for t in entry.targets] == credentials


def test_an_interval_may_be_as_short_as_the_api_takes_it():
    assert read("https://h.example/a interval=10s")[0][0].spec.interval_s == INTERVAL_MIN_S == 10.0


def test_attributes_are_told_as_they_were_written_without_the_defaults():
    data = b"# x\nhttps://h.example/a\nbad\nhttps://h.example/b priority=normal interval=60m # alias=z\n"
    parsed = parse_list(data, "urls.txt", RULES)
    entries = parsed.entries
    assert len(parsed.problems) == 1
    assert attributes_given(data, entries) == [{}, {"priority": "normal", "interval": "60m"}]


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("yes", True), ("1", True), ("false", False), ("no", False)]
)
def test_flags(text, value):
    assert read(f"https://h.example/a private={text}")[0][0].spec.private is value


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ("priority=hihg", "priority: 'hihg' is not one of critical, high, normal, low"),
        ("interval=10", "interval: '10' is not a duration"),
        ("interval=0", "interval: 0s is shorter than 10s"),
        ("interval=9s", "interval: 9s is shorter than 10s. Polling faster would only burden upstream"),
        ("alias=a/../b", "alias: the project key has .."),
        ("private=treu", "private: 'treu' is not one of"),
        ("mode=both", "mode: 'both' is not one of exact, append-only"),
        ("credential=a/b", "credential: is not the name"),
        ("target=", "'target=' is not an attribute"),
        ("priority", "'priority' is not an attribute: write name=value"),
        ("https://h.example/b", "is not an attribute"),
        ("privte=true", "unknown attribute 'privte': known are priority, interval, alias, private"),
        ("priority=high priority=low", "priority is given twice"),
        ("=x", "unknown attribute ''"),
        ("target=x\u202e", "target: has a control or invisible character"),
        (" ".join(f"target=https://t.example/{n}" for n in range(TARGETS_MAX + 1)), "target: more than 16"),
        ("target=https://t.example/x target=https://t.example/x", "target: the same is given twice"),
        ("target=nonsense", "target: this is not a URL"),
        ("target=git@t.example:y", "target: ssh:// is not allowed here"),
        ("target=https://10.0.0.1/x", "target: the address 10.0.0.1 is internal"),
        ("target=https://u:hunter2@t.example/x", "target: the URL carries a user name or password"),
        ("target_credential=a/b", "target_credential: is not the name"),
        ("fsck_allow=hasDotgit", "fsck_allow needs fsck_reason"),
        ("fsck_allow=hasDotgti fsck_reason=x", "fsck_allow: 'hasDotgti' is no message id of git fsck"),
        (
            "fsck_allow=nulInHeader fsck_reason=x",
            "fsck_allow: nulInHeader cannot be allowed: git calls it fatal",
        ),
        (f"fsck_reason={'x' * 501}", "fsck_reason: must be 1 to 500 printable characters"),
        (
            "target=https://t.example/x target_credential=a target_credential=b",
            "target_credential: give one for all targets, or one for each",
        ),
    ],
)
def test_a_line_with_a_bad_attribute_is_not_taken_and_names_its_repo(attributes, reason):
    problem = only_problem(f"\nhttps://h.example/a {attributes}\n")
    assert reason in problem.reason
    assert (problem.file, problem.line, problem.key) == ("urls.txt", 2, "h.example/a")
    assert str(problem).startswith("urls.txt:2: ")


@pytest.mark.parametrize(
    "line",
    ["github.com/a/b", "http://h.example/a", "https://h.example/../a", "- git_url: x", "https://localhost/a"],
)
def test_a_bad_url_is_reported_with_its_place_and_text_and_the_rest_loads(line):
    entries, problems = read(f"https://h.example/1\n{line}\nhttps://h.example/2\n")
    assert [e.key for e in entries] == ["h.example/1", "h.example/2"]
    assert [(p.line, p.text, p.key) for p in problems] == [(2, line, None)]
    assert problems[0].reason


def test_internal_addresses_need_the_operators_permission_here_too():
    assert "internal" in only_problem("https://10.0.0.1/a").reason
    entries, problems = read("https://10.0.0.1/a", UrlRules(allow=AllowList.parse(["10.0.0.0/8"])))
    assert len(entries) == 1
    assert problems == []


@pytest.mark.parametrize(
    "line",
    [
        "https://user:hunter2@h.example/a",
        "https://hunter2@h.example/a",
        "user:hunter2@h.example/a",
        "https://h.example/a bad target=https://u:hunter2@t.example/x",
        "https://h.example/a target=https://u:hunter2@t.example/x bad",
        "https://u:hunter2/x@h.example/a",
        "https://h.example/a https://u:hunter2@h.example/",
        "https://h.example/a https://u:hunter2@h.example/=x",
    ],
)
def test_passwords_are_not_repeated(line):
    problem = only_problem(line)
    assert "hunter2" not in f"{problem} {problem.text}"
    assert "***@" in problem.text


def test_the_text_shown_is_short_and_printable():
    problem = only_problem("bad\x1b[31m\u202e" + "x" * 1000)
    assert len(problem.text) == TEXT_SHOWN_CHARS
    assert problem.text.isprintable()


def test_of_two_lines_for_one_repo_the_first_counts():
    entries, problems = read(
        "https://h.example/a priority=low\nbad\nhttps://H.example/a.git/\nhttps://h.example/b\n"
    )
    assert [(e.key, e.spec.priority) for e in entries] == [
        ("h.example/a", Priority.LOW),
        ("h.example/b", Priority.NORMAL),
    ]
    assert [(p.line, p.reason) for p in problems][1] == (3, "repeats urls.txt:1")
    assert [p.line for p in problems] == [2, 3]


def test_an_alias_belongs_to_the_first_that_claims_it_and_cannot_hide_a_repo():
    entries, problems = read(
        "https://h.example/a alias=x\nhttps://h.example/b alias=x\nhttps://h.example/c alias=h.example/a\n"
    )
    assert [e.key for e in entries] == ["h.example/a"]
    assert [(p.line, p.reason, p.key) for p in problems] == [
        (2, "its alias is that of urls.txt:1", "h.example/b"),
        (3, "its alias is that of urls.txt:1", "h.example/c"),
    ]


def test_a_repo_may_have_its_own_key_as_alias():
    entries, problems = read("https://h.example/a alias=h.example/a")
    assert len(entries) == 1
    assert problems == []


def test_repeats_are_found_across_files():
    one = parse_list(b"https://h.example/a", "1.txt", RULES)
    two = parse_list(b"https://h.example/b\nhttps://h.example/a", "2.txt", RULES)
    entries, problems = without_repeats(one.entries + two.entries)
    assert [e.key for e in entries] == ["h.example/a", "h.example/b"]
    assert problems == [Problem("2.txt", 2, "https://h.example/a", "repeats 1.txt:1", "h.example/a")]


def test_windows_and_bom_files_are_read():
    entries, problems = read(b"\xef\xbb\xbfhttps://h.example/a\r\nhttps://h.example/b private=true\r\n\r\n")
    assert [e.key for e in entries] == ["h.example/a", "h.example/b"]
    assert problems == []


def test_a_utf16_file_is_one_problem():
    assert "UTF-16" in only_problem("https://h.example/a\n".encode("utf-16")).reason


def test_bytes_that_are_not_utf8_spoil_their_line_only():
    entries, problems = read(
        b"# caf\xe9\nhttps://h.example/a\nhttps://h.example/\xff\nhttps://h.example/b target=\xff\n"
    )
    assert [e.key for e in entries] == ["h.example/a"]
    assert [p.line for p in problems] == [3, 4]


def test_an_endless_line_is_one_problem_and_the_next_is_read():
    entries, problems = read(
        f"https://h.example/{'a' * 10**6}\nhttps://h.example/b\nx {'y' * LINE_MAX_CHARS}"
    )
    assert [e.key for e in entries] == ["h.example/b"]
    assert [p.reason for p in problems] == [f"the line is longer than {LINE_MAX_CHARS} characters"] * 2


def test_problems_are_counted_beyond_a_bound():
    _, problems = read("bad\n" * (PROBLEMS_PER_FILE_MAX + 7))
    assert len(problems) == PROBLEMS_PER_FILE_MAX + 1
    assert problems[-1].reason == "7 more lines have problems"


@given(st.binary(max_size=300) | st.text(alphabet="ahtps:/.#= \n\r\t@ü%", max_size=200).map(str.encode))
def test_no_bytes_break_the_reader(data):
    entries, problems = read(data)
    lines = data.count(b"\n") + 1
    assert len(entries) + len(problems) <= lines
    assert len({e.key for e in entries}) == len(entries)
    for problem in problems:
        assert problem.reason
        assert len(problem.text) <= TEXT_SHOWN_CHARS
        assert problem.text.isprintable()


@given(st.lists(st.sampled_from(["a", "b", "c.git", "c", "D"]), max_size=12))
def test_every_line_is_an_entry_or_a_problem(names):
    entries, problems = read("\n".join(f"https://h.example/{name}" for name in names))
    assert sorted([e.line for e in entries] + [p.line for p in problems]) == list(range(1, len(names) + 1))


def test_workers_pin_and_fallbacks_follow():
    entries, problems = read(
        "https://h.example/a workers=w1,7 workers=w1 fallback=https://m.example/a.git/ fallback=https://n.example/a"
    )
    assert problems == []
    assert entries[0].pins == ("w1", "7")
    assert entries[0].spec.fallbacks == ("https://m.example/a.git", "https://n.example/a")


@pytest.mark.parametrize(
    "word",
    ["workers=", "workers=a,,b", "workers=-x", "workers=" + ",".join(f"w{i}" for i in range(PINS_MAX + 1)),
     "fallback=file:///etc", "fallback=https://u:p@h.example/x"],
)  # fmt: skip
def test_odd_workers_and_fallbacks_are_problems(word):
    assert only_problem(f"https://h.example/a {word}").key == "h.example/a"


def test_what_a_bad_line_was_about_is_remembered_beyond_the_bound_of_problems():
    lines = [f"https://h.example/r{i} privat=true\n" for i in range(PROBLEMS_PER_FILE_MAX + 5)]
    parsed = parse_list("".join(lines).encode(), "urls.txt", RULES)
    assert len(parsed.problems) == PROBLEMS_PER_FILE_MAX + 1
    assert len(parsed.unsure) == PROBLEMS_PER_FILE_MAX + 5


@pytest.mark.parametrize(
    "line",
    ["https://h.example/a", "https://h.example/a.git priority=low interval=1500ms",
     "https://h.example/a alias=x/y private=true mode=append-only credential=c target=https://t.example/a "
     "target_credential=d target=https://t.example/b target_credential=e "
     "workers=w1,w2 fallback=https://m.example/a interval=1234567s"],
)  # fmt: skip
def test_a_line_can_be_written_again_as_it_was_meant(line):
    rules = UrlRules()
    (entry,) = parse_list(line.replace("1500ms", "15s").encode(), "a", rules).entries
    (again,) = parse_list(line_of(entry).encode(), "a", rules).entries
    assert again == entry
