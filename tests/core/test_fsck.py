"""Which malformed objects are accepted."""

from __future__ import annotations

import pytest

from evermirror.core.fsck import (
    BY_ID,
    DEFECTS,
    REF_IDS,
    Verdict,
    check_allowed,
    check_reason,
    harm_of_url,
    severities,
    tells_damage,
)
from evermirror.errors import InvalidValue

# Of git 2.55, whose list grew by these since 2.39. What it calls fatal cannot be turned off.
NEWEST = {"badGpgsig", "badHeaderContinuation", "largePathname"}
FATAL = {"nulInHeader", "unterminatedHeader"}


def test_each_id_has_one_verdict_with_words_for_people():
    assert len(BY_ID) == len(DEFECTS)
    assert set(BY_ID) >= NEWEST
    assert not set(BY_ID) & REF_IDS
    assert all(d.what and d.why and "|" not in d.what + d.why for d in DEFECTS)


def test_git_is_told_what_it_knows_and_never_to_forget_what_it_calls_fatal():
    assert severities([]) == {}
    assert severities(["badDate", "hasDot", "gitmodulesUrl", "ofALaterGit"]) == {
        "badDate": "ignore",
        "gitmodulesUrl": "warn",
    }
    allowed = severities([*BY_ID, "ofALaterGit"], [*BY_ID, "ofALaterGit"])
    assert set(allowed.values()) == {"ignore"}
    unreadable = {d.id for d in DEFECTS if d.verdict is Verdict.UNREADABLE}
    assert set(BY_ID) - set(allowed) == unreadable >= FATAL
    assert severities(["badDate"], ["hasDot"]) == {"badDate": "ignore"}


def test_a_check_for_damage_is_silent_about_what_upstream_may_have():
    assert not [d.id for d in DEFECTS if tells_damage(d.id) != (d.verdict is Verdict.UNREADABLE)]
    assert all(map(tells_damage, REF_IDS))
    assert not tells_damage("ofALaterGit")


def test_ids_are_allowed_in_any_spelling_once():
    assert check_allowed(["HASDOTGIT", "hasDotgit", "ofALaterGit"]) == ("hasDotgit", "ofALaterGit")
    assert check_allowed([]) == ()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("hasDotGitt", "hasDotgit"), ("gitmodulesURLs", "gitmodulesUrl"), ("a b", "objects.md"), ("", "")],
)
def test_what_is_no_id_is_refused_with_what_was_meant(name, hint):
    with pytest.raises(InvalidValue) as caught:
        check_allowed([name])
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "  ", "x" * 501, "a\nb", "a\x1b[31m"])
def test_a_reason_is_a_line_of_words(text):
    with pytest.raises(InvalidValue):
        check_reason(text)
    assert check_reason(" wegen Ticket 7 ") == "wegen Ticket 7"


@pytest.mark.parametrize(
    "url",
    [
        "https:://github.com/eProsima/Fast-RTPS.git",
        "https://github.com:larssmit/vim-getafe.git",
        "https://github.com/:input-output-hk/x.git",
        "http://[::1]/x", "https://user@h.example/x", "http::https://h.example/x",
        "../x.git", "./../x/y", "../../a-b", "git@h.example:x", "https://h.example/a%20b", "/srv/x", "",
        "./bar/baz/foo.git", "http://h.example:80/deeper/foo.git", "http://h.example:test/foo.git",
        "..\\x.git", ".\\..\\x\\y", "https://h.example/\udce9t\udce9",
    ],
)  # fmt: skip
def test_slips_in_submodule_urls_hurt_nobody(url):
    assert harm_of_url(url) == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("-u./payload", "begins with -"),
        ("--upload-pack=touch x", "begins with -"),
        ("https://h.example/%0ahost=github.com", "control character"),
        ("https://h.example/%0D", "control character"),
        ("git://h.example/a\nb", "control character"),
        ("../a%0ab", "control character"),
        ("./%0ahost=h.example/foo.git", "control character"),
        ("https://one.example.com/evil?%0ahost=two.example.com", "control character"),
        ("../\udce9%0ab", "control character"),
        ("../../:x", "climbs"),
        ("./..//h.example/x", "climbs"),
        (".././../:h", "climbs"),
        ("../../..//test/foo.git", "climbs"),
        ("../../../../../:localhost:8080/foo.git", "climbs"),
        ("..\\../.\\../:one.example.com/foo.git", "climbs"),
        ("..\\/evil/x", "climbs"),
        ("..\\\\evil/x", "climbs"),
        (".\\../\\evil/x", "climbs"),
        ("https:///h.example/x", "no host"),
        ("https://", "no host"),
        ("https://user@/x", "no host"),
        ("https::h.example/x", "no host"),
        ("http::/x", "no host"),
        ("http:::example.com/foo.git", "no host"),
        ("ftps:://", "no host"),
    ],
)
def test_submodule_urls_that_attack_a_client_are_found(url, why):
    assert why in harm_of_url(url)
