"""YAML catalog files: what is read, what is inherited, and that no input breaks or feeds on the reader."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.catalog.formats import Defaults, Format, format_of, is_catalog_path, parse_file
from evermirror.core.catalog.yamlfile import parse_yaml
from evermirror.model.url import UrlRules

RULES = UrlRules()


def read(text, path="a/b.yaml", **defaults):
    files = [(name.replace("_", "/") + "DEFAULTS", said.encode()) for name, said in defaults.items()]
    files = [(name.removeprefix("top/"), said) for name, said in files]
    return parse_file(
        path, text.encode() if isinstance(text, str) else text, "", RULES, Defaults.of(files, "", RULES)
    )


def test_a_repo_with_fallbacks_and_keys_of_other_programs():
    parsed = read(
        "---\n# mongo\nurl:\n- https://github.com/mongodb/mongo.git\n- https://m.example/mongo\n"
        "priority: high\ninterval: 10m\nprivate: False\nfork_count: 7\nsubmit:\n- {command: x, os: [a, b]}\n"
    )
    assert parsed.problems == ()
    (entry,) = parsed.entries
    assert entry.key == "github.com/mongodb/mongo"
    assert entry.spec.fallbacks == ("https://m.example/mongo",)
    assert (entry.spec.priority.value, entry.spec.interval_s, entry.line) == ("high", 600, 3)


def test_targets_with_a_credential_of_their_own_or_an_inherited_one():
    two = "  targets: [https://t.example/a, https://u.example/a]\n"
    text = (
        f"- url: https://h.example/a\n{two}"
        f"- url: https://h.example/b\n{two}  target_credentials: [x, y]\n"
        "- url: https://h.example/c\n  target: https://t.example/c\n  target_credential: z\n"
        "- url: https://h.example/d\n"
        f"- url: https://h.example/e\n{two}  target_credentials: [x, y, z]\n"
    )
    parsed = read(text, top_="target_credential: corp\n")
    said = {e.key[-1]: [(t.url, t.credential) for t in e.targets] for e in parsed.entries}
    t, u = "https://t.example", "https://u.example"
    assert said == {
        "a": [(f"{t}/a", "corp"), (f"{u}/a", "corp")],
        "b": [(f"{t}/a", "x"), (f"{u}/a", "y")],
        "c": [(f"{t}/c", "z")],
        "d": [],
    }
    (problem,) = parsed.problems
    assert "one for all targets, or one for each" in problem.reason


def test_malformed_objects_are_allowed_of_one_repo_with_a_sentence_why():
    parsed = read(
        "url: https://h.example/a\nfsck_allow: [hasDotgit, gitmodulesPath]\nfsck_reason: Vendored, 4711.\n"
    )
    (entry,) = parsed.entries
    assert entry.spec.fsck_allow == ("hasDotgit", "gitmodulesPath")
    assert entry.fsck_reason == "Vendored, 4711."
    said = "fsck_allow: hasDotgit\nfsck_reason: x\n"
    assert "belongs to one repo" in read("", "DEFAULTS", top_=said).problems[0].reason


def test_the_list_of_the_seeds_with_pins():
    parsed = read(
        "- git_url: https://h.example/a\n  key: val\n  workers: [1, home-2]\n- git_url: https://h.example/b\n"
    )
    assert parsed.problems == ()
    assert [(e.key, e.pins, e.line) for e in parsed.entries] == [
        ("h.example/a", ("1", "home-2"), 1),
        ("h.example/b", (), 4),
    ]


def test_defaults_are_inherited_downward_and_the_nearest_wins():
    said = {"top_": "priority: low\nprivate: true\nother: x", "a_": "priority: high\nworkers: [w1]"}
    (entry,) = read("url: https://h.example/x", "a/b/c", **said).entries
    assert (entry.spec.priority.value, entry.spec.private, entry.pins) == ("high", True, ("w1",))
    (entry,) = read("url: https://h.example/x\nworkers: w2\nprivate: false", "a/x", **said).entries
    assert (entry.spec.private, entry.pins) == (False, ("w2",))
    (entry,) = read("url: https://h.example/x", "z/x", **said).entries
    assert (entry.spec.priority.value, entry.spec.private) == ("low", True)
    (entry,) = read("https://h.example/x", "z/list", **said).entries
    assert not entry.spec.private, "list files inherit nothing"


@pytest.mark.parametrize(
    "said", ["privat: true", "url: https://h.example/x", "- a", "priority: [", "alias: x"]
)
def test_nothing_below_defaults_that_are_not_understood_is_taken(said):
    parsed = read("url: https://h.example/x", "a/x", a_=said)
    assert parsed.broken
    assert "DEFAULTS" in parsed.problems[0].reason
    assert read("", "a/DEFAULTS", a_=said).problems[0].file == "a/DEFAULTS"
    assert read("url: https://h.example/x", "b/x", a_=said).entries


@pytest.mark.parametrize(
    ("text", "reason", "key"),
    [
        ("url: https://h.example/x\nprivat: true", "did you mean private", "h.example/x"),
        ("url: https://h.example/x\nPrivate: true", "did you mean private", "h.example/x"),
        ("- git_url: https://h.example/x\n  priority: urgent", "not one of", "h.example/x"),
        ("- git_url: https://h.example/x\n  <<: {private: true}", "write the keys out", "h.example/x"),
        ("- git_url: https://h.example/x\n  priority: {a: b}", "must be a text", "h.example/x"),
        ("- git_url: https://h.example/x\n  url: https://h.example/y", "given twice", None),
        ("- git_url:", "must be a text", None),
        ("- git_url: [[]]", "must be a text", None),
        ("- name: x", "neither url nor git_url", None),
        ("- [a]", "a list inside the list", None),
        ("- git_url: file:///etc/passwd", "file:// is not", None),
        ("- git_url: https://u:hunter2@h.example/x", "user name or password", None),
        ("url: [https://h.example/x, nonsense]", "fallback", "h.example/x"),
    ],
)  # fmt: skip
def test_a_bad_item_is_told_with_its_line_and_the_rest_loads(text, reason, key):
    if text.startswith("-"):
        text = "- git_url: https://h.example/fine\n" + text
    parsed = read(text)
    assert [e.key for e in parsed.entries] == ["h.example/fine"] * text.startswith(
        "- git_url: https://h.example/fine"
    )
    (problem,) = parsed.problems
    assert reason in problem.reason
    assert problem.key == key
    assert problem.line == (2 if parsed.entries else 1)
    assert "hunter2" not in f"{problem} {problem.text}"
    assert not parsed.broken


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)
)


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (BOMB, "aliases", 2),
        ("a: &a {<<: *a}", "aliases", 1),
        ("[" * 100_000, "nested deeper", 1),
        ("url: " + "x" * 20_000, "longer than", 1),
        ("url: x\n---\nurl: y", "more than one document", 2),
        ("url: x\n\tb: c\n", "not YAML", 2),
        ("url: 'x", "not YAML", 1),
        ("? [a, b]\n: c", "a key is not a text", 1),
        (b"url: \xff\n", "not UTF-8", 1),
        ("url: x\0", "not YAML", 0),
    ],
)  # fmt: skip
def test_a_file_that_is_not_understood_is_one_problem_and_costs_little(text, reason, line):
    began = time.process_time()
    parsed = read(text)
    assert time.process_time() - began < 2
    assert parsed.broken
    assert parsed.entries == ()
    (problem,) = parsed.problems
    assert reason in problem.reason
    assert problem.line == line


def test_tags_make_nothing():
    parsed = read("url: !!python/object/apply:os.system ['https://h.example/x']\n")
    assert [e.key for e in parsed.entries] == ["h.example/x"]


@pytest.mark.parametrize(
    ("path", "text", "format"),
    [
        ("a", "https://h.example/x", Format.LIST), ("a", "# x\n\n  git@h.example:x\n", Format.LIST),
        ("a", "# x\n---\nurl: x", Format.YAML), ("a", "- git_url: x", Format.YAML),
        ("a", "-\n  url: x", Format.YAML),
        ("a", "%YAML 1.1\n---\nurl: x", Format.YAML), ("a.yaml", "https://h.example/x", Format.YAML),
        ("a", "", Format.LIST), ("a.json", "{}", Format.OTHER), ("a.txt", "url:", Format.YAML),
    ],
)  # fmt: skip
def test_formats_are_told_by_name_then_by_the_first_line_that_says_something(path, text, format):
    assert format_of(path, text.encode()) is format


def test_hidden_files_and_prose_are_not_the_catalogs():
    paths = ["a", "x/b.txt", ".git/x", "x/.hidden", "README", "x/README.md", "doc.rst", "DEFAULTS"]
    assert [p for p in paths if is_catalog_path(p)] == ["a", "x/b.txt", "DEFAULTS"]


@given(
    st.binary(max_size=200) | st.text(alphabet="url:git_ -[]{}&*#\n'\"hps/.xa,", max_size=120).map(str.encode)
)
def test_no_bytes_break_the_reader(data):
    parsed = parse_yaml(data, "f", RULES)
    assert not (parsed.broken and parsed.entries)
    for problem in parsed.problems:
        assert problem.reason
        assert problem.text.isprintable()
