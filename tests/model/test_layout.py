"""The layout on disk: readable, reversible, and safe from hostile names."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evermirror.model.layout import PATH_MAX_BYTES, SEGMENT_MAX_BYTES, key_of, mirror_path


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("github.com/a/b", "github.com/a/b.git"),
        ("127.0.0.1:8080/team/x", "127.0.0.1%3A8080/team/x.git"),
        ("[::1]:80/x", "%5B%3A%3A1%5D%3A80/x.git"),
        ("local:/srv/git/x", "local%3A/srv/git/x.git"),
        ("h/~user/x", "h/%7Euser/x.git"),
        ("h/a%20b", "h/a%2520b.git"),
        ("h/a.git/b", "h/a%2Egit/b.git"),
        ("h/a.git", "h/a.git.git"),
        ("h/.git/b", "h/%2Egit/b.git"),
        ("h/.trash", "h/%2Etrash.git"),
        (".incoming/x", "%2Eincoming/x.git"),
        ("h/../../x", "h/%2E%2E/%2E%2E/x.git"),
        ("h/ü", "h/%C3%BC.git"),
        ("h//x", "h/%/x.git"),
        ("h/", "h/%.git"),
        ("", "%.git"),
        ("h/-x", "h/-x.git"),
    ],
)
def test_a_key_has_a_readable_folder_and_is_read_back(key, path):
    assert str(mirror_path(key)) == path
    assert key_of(path) == key
    assert key_of(mirror_path(key)) == key


def test_capitals_are_written_out_for_disks_that_ignore_case():
    assert str(mirror_path("github.com/Ab/C", fold_case=True)) == "github.com/%41b/%43.git"
    assert key_of("github.com/%41b/%43.git", fold_case=True) == "github.com/Ab/C"


@pytest.mark.parametrize(
    "path",
    ["", ".", ".git", "x", "h/x", "h/.git", ".incoming/x.git", ".trash/1/x.git", "h/x.git/objects",
     "h/a.git/b.git", "h/%2e.git",
     "h/%41.git", "h/../x.git", "/h/x.git", "h//x.git", "h/ü.git", "h/%FF.git", "h/%h.git", "h/%%.git",
     "h/x%.git", "h/./x.git"],
)  # fmt: skip
def test_a_path_that_is_no_mirror_of_ours_has_no_key(path):
    assert key_of(path) is None


def test_capitals_or_their_escapes_are_foreign_to_the_other_form():
    assert key_of("h/A.git", fold_case=True) is None
    assert key_of("h/%41.git", fold_case=False) is None


def test_a_very_long_name_is_hashed_and_cannot_be_read_back():
    key = "h/" + "x" * 300
    path = mirror_path(key)
    assert str(path).startswith("h/" + "x" * 100 + "%h")
    assert key_of(path) is None
    assert mirror_path(key + "y") != path


def test_a_very_long_path_keeps_its_host_and_is_hashed():
    key = "github.com/" + "/".join(["y" * 150] * 12)
    path = mirror_path(key)
    assert path.parts[0] == "github.com"
    assert len(path.parts) == 2
    assert path.parts[1].startswith("%t")
    assert key_of(path) is None
    assert mirror_path(key + "y") != path


tricky = st.text(alphabet=st.sampled_from("aAbgit./%2E -_:ü\0\ud800"), max_size=24)
keys = (
    tricky
    | st.text(max_size=20)
    | st.text(alphabet="xY./", min_size=180, max_size=420)
    | st.text("ab/", max_size=1300)
)


def check_safe(path):
    """Relative, inside, and with none of the names that are ours."""
    text = str(path)
    assert text.isascii()
    assert text.isprintable()
    assert not path.is_absolute()
    assert len(text) <= PATH_MAX_BYTES
    assert path.name.endswith(".git")
    for part in path.parts:
        assert part
        assert not part.startswith(".")
        assert len(part) <= SEGMENT_MAX_BYTES + len(".git")
    for folder in path.parts[:-1]:
        assert not folder.endswith(".git")


@given(keys, st.booleans())
@example("h/" + "x" * 96 + "." * 200 + "/" + ".git" * 60, False)
@example("/".join(["a.git"] * 150), False)
def test_no_key_escapes_and_every_path_that_can_be_read_back_is(key, fold_case):
    path = mirror_path(key, fold_case=fold_case)
    check_safe(path)
    back = key_of(path, fold_case=fold_case)
    assert back == key or (back is None and ("%h" in str(path) or "%t" in str(path)))


@given(keys, keys)
@example("h/a", "h/a.git")
@example("h/a.git", "h/a.git/b")
@example("h/a", "h/a/b")
def test_two_keys_share_no_path_and_neither_lies_inside_the_other(one, two):
    if one == two:
        return
    a, b = mirror_path(one), mirror_path(two)
    assert a != b
    assert a not in b.parents
    assert b not in a.parents


@given(keys, keys)
@example("h/A", "h/a")
@example("h/a.GIT/x", "h/a.git/x")
def test_two_keys_share_no_path_on_a_disk_that_ignores_case(one, two):
    if one != two:
        folded = [str(mirror_path(key, fold_case=True)).lower() for key in (one, two)]
        assert folded[0] != folded[1]


@given(st.text(alphabet="ah./%2Egit-A", max_size=20))
def test_a_path_with_a_key_is_the_path_of_that_key(path):
    key = key_of(path)
    if key is not None:
        assert str(mirror_path(key)) == path
