"""What each forge's hooks tell, and that nothing else than a clear refusal comes of a body that is none."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.hooks.body import BODY_BYTES_MAX, PARTS_MAX, UnreadableHook
from evermirror.core.hooks.reading import read
from evermirror.errors import UsageError
from evermirror.model.forge import Forge
from evermirror.model.hook import HookKind
from tests.core.hooks import bodies
from tests.core.hooks.octokit import examples

FORM = {"content-type": "application/x-www-form-urlencoded"}
DELIVERY = "72d3162e-cc78-11e3-81ab-4c9367dc0958"


def read_sent(sent):
    return read(sent.forge, sent.headers, sent.body)


def github(event, found, **headers):
    known = {**bodies.JSON, "x-github-event": event, "x-github-delivery": DELIVERY}
    return read(Forge.GITHUB, known | headers, json.dumps(found).encode())


# GitHub, by its own examples


@pytest.mark.parametrize("event", ["push", "create", "delete"])
def test_github_tells_that_refs_moved(event):
    found = examples(event)
    assert len(found) >= 4
    for _, body in found:
        hook = github(event, body)
        assert (hook.kind, hook.event, hook.delivery) == (HookKind.MOVED, event, DELIVERY)
        repository = body["repository"]
        assert hook.urls == (repository["clone_url"], repository["html_url"], repository["ssh_url"])
        assert hook.urls[0] == "https://github.com/Codertocat/Hello-World.git"


def test_githubs_ping_is_answered_also_without_a_repository():
    kinds = {(github("ping", body).kind, bool(github("ping", body).urls)) for _, body in examples("ping")}
    assert kinds == {(HookKind.PING, True), (HookKind.PING, False)}


def test_github_tells_a_rename_and_what_it_was_called_before():
    (renamed,) = [body for _, body in examples("repository") if body["action"] == "renamed"]
    body = json.loads(json.dumps(renamed))
    body["changes"]["repository"]["name"]["from"] = "Goodbye"
    hook = github("repository", body)
    assert hook.kind is HookKind.RENAMED
    assert hook.urls[0] == "https://github.com/Octocoders/Hello-World.git"
    assert hook.old_urls == (
        "https://github.com/Octocoders/Goodbye.git",
        "https://github.com/Octocoders/Goodbye",
        "git@github.com:Octocoders/Goodbye.git",
    )


def test_github_tells_a_transfer_and_whose_it_was_before():
    moved = [body for _, body in examples("repository") if body["action"] == "transferred"]
    assert moved
    for body in moved:
        hook = github("repository", body)
        assert hook.kind is HookKind.RENAMED
        assert hook.old_urls[0] == "https://github.com/octocat/Hello-World.git"


def test_another_default_branch_is_a_ref_that_moved_and_other_edits_are_not():
    kinds = {
        tuple(body.get("changes") or {}): github("repository", body).kind
        for _, body in examples("repository")
        if body["action"] == "edited"
    }
    assert kinds == {("default_branch",): HookKind.MOVED, ("description",): HookKind.OTHER}


def test_every_example_of_github_can_be_read():
    told = examples()
    assert len(told) > 300
    relevant = {"push", "create", "delete", "ping", "repository"}
    for event, body in told:
        hook = github(event, body)
        assert hook.kind is HookKind.OTHER or event in relevant, event


# GitLab, Gitee, Gitea, by their documentation


@pytest.mark.parametrize("name", ["GITLAB_PUSH", "GITLAB_TAG", "GITLAB_SYSTEM_PUSH", "GITLAB_UPDATE"])
def test_gitlab_tells_that_refs_moved(name):
    sent = getattr(bodies, name)
    hook = read_sent(sent)
    assert (hook.kind, hook.event) == (HookKind.MOVED, sent.found["event_name"])
    assert hook.urls[0] == "https://git.example.org/team/tools.git"
    assert "git@git.example.org:team/tools.git" in hook.urls
    assert hook.delivery == "f5e57ebe-07fb-43f5-8b3e-6a8b2b7a0a10"


@pytest.mark.parametrize(
    ("name", "now"), [("GITLAB_RENAME", "team/instruments"), ("GITLAB_TRANSFER", "crew/tools")]
)
def test_gitlab_tells_a_rename_by_paths_of_its_instance(name, now):
    hook = read_sent(getattr(bodies, name))
    assert hook.kind is HookKind.RENAMED
    assert hook.urls == (f"https://git.example.org/{now}.git",)
    assert hook.old_urls == ("https://git.example.org/team/tools.git",)


def test_a_rename_without_an_instance_has_no_address_and_is_no_error():
    headers = {k: v for k, v in bodies.GITLAB_RENAME.headers.items() if k != "x-gitlab-instance"}
    hook = read(Forge.GITLAB, headers, bodies.GITLAB_RENAME.body)
    assert (hook.kind, hook.urls, hook.old_urls) == (HookKind.RENAMED, (), ())


def test_gitlabs_number_is_the_signed_one_else_the_key_else_the_events_with_the_body():
    sent = bodies.GITLAB_PUSH
    assert read(Forge.GITLAB, sent.headers | {"webhook-id": "w-1"}, sent.body).delivery == "w-1"
    old = {k: v for k, v in sent.headers.items() if k != "idempotency-key"}
    one = read(Forge.GITLAB, old, sent.body).delivery
    assert one.startswith(sent.headers["x-gitlab-event-uuid"])
    assert read(Forge.GITLAB, old, sent.body).delivery == one
    other = json.dumps(sent.found | {"after": bodies.ZERO}).encode()
    assert read(Forge.GITLAB, old, other).delivery != one, "hooks that follow from one another share the UUID"


@pytest.mark.parametrize("name", ["GITEE_PUSH", "GITEE_TAG"])
def test_gitee_tells_that_refs_moved(name):
    hook = read_sent(getattr(bodies, name))
    assert hook.kind is HookKind.MOVED
    assert hook.urls[0] == "https://gitee.com/team/tools.git"


def test_gitees_hook_is_the_same_only_to_the_millisecond():
    sent = bodies.GITEE_PUSH
    one = read_sent(sent).delivery
    assert one
    assert one == read_sent(sent).delivery
    later = replace(sent, headers=sent.headers | {"x-gitee-timestamp": "1794830400124"})
    assert read_sent(later).delivery != one
    without = {k: v for k, v in sent.headers.items() if k != "x-gitee-timestamp"}
    assert read(Forge.GITEE, without, sent.body).delivery == ""


def test_gitees_test_is_a_ping():
    assert read_sent(bodies.GITEE_PING).kind is HookKind.PING


def test_gitees_hooks_of_long_ago_are_a_form():
    inside = {
        "push_data": {"repository": {"url": "https://gitee.com/team/tools.git"}},
        "hook_name": "push_hooks",
    }
    hook = read(Forge.GITEE, FORM, urlencode({"hook": json.dumps(inside)}).encode())
    assert (hook.kind, hook.urls) == (HookKind.MOVED, ("https://gitee.com/team/tools.git",))


@pytest.mark.parametrize("name", ["GITEA_PUSH", "GITEA_CREATE", "GITEA_DELETE", "FORGEJO_PUSH"])
def test_gitea_and_forgejo_tell_that_refs_moved(name):
    hook = read_sent(getattr(bodies, name))
    assert hook.kind is HookKind.MOVED
    assert hook.urls[0] == "https://gitea.example.org/team/tools.git"
    assert hook.delivery == "f6266f16-1bf3-46a5-9ea4-602e06ead473"


def test_a_forgejo_without_giteas_headers_is_understood():
    sent = bodies._gitea("push", ("forgejo",), ref="refs/heads/main")
    assert read_sent(sent).event == "push"


@pytest.mark.parametrize("name", ["GITLAB_MERGE_REQUEST", "GITLAB_CREATE", "GITEE_ISSUE", "GITEA_ISSUE"])
def test_what_a_mirror_does_not_care_about_is_other_and_names_its_repo(name):
    hook = read_sent(getattr(bodies, name))
    assert hook.kind is HookKind.OTHER
    assert hook.urls


@pytest.mark.parametrize("sent", [bodies.GITEA_PUSH, bodies.GITLAB_PUSH, bodies.GITEE_PUSH], ids=str)
def test_a_form_says_the_same_as_json(sent):
    body = urlencode({"payload": sent.body.decode()}).encode()
    as_form = read(sent.forge, sent.headers | FORM, body)
    assert replace(as_form, delivery="") == replace(read_sent(sent), delivery="")


# Bodies that are none

PUSH = bodies.GITEA_PUSH


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (PUSH.body[:-1], "cut off"),
        (PUSH.body[: len(PUSH.body) // 2], "cut off"),
        (b"push", "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (PUSH.body.replace(b"Writer", b"Wr\xefter"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": 1' + b"0" * 5_000 + b"}", "number"),
        (b'{"a": NaN}', "number"),
        (b"[" + b"{}," * PARTS_MAX + b"1]", "parts"),
        (b" " * (BODY_BYTES_MAX + 1), "larger than"),
        (b"\x1f\x8b\x08\x00", "not UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("forge", list(Forge))
def test_a_body_that_cannot_be_read_is_refused_in_words(forge, body, words):
    with pytest.raises(UnreadableHook, match=words):
        read(forge, PUSH.headers | {"x-gitlab-event": "Push Hook"}, body)


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"content-type": "text/xml"}, b"<a/>", "text/xml"),
        ({"content-type": "application/json; charset=utf-16"}, b"{}", "charset"),
        ({"content-encoding": "gzip"}, b"{}", "compressed"),
        (FORM, b"other=1", "no field 'payload'"),
        (FORM, b"payload=%ff", "UTF-8"),
        (FORM, "payload=é".encode(), "UTF-8"),
        (FORM, b"payload={", "cut off"),
        (FORM, b"&".join(b"a=1" for _ in range(100)), "fields"),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x--", "multipart"),
    ],
)
def test_a_body_of_another_kind_is_refused_in_words(headers, body, words):
    with pytest.raises(UnreadableHook, match=words):
        read(Forge.GITHUB, {"x-github-event": "push"} | headers, body)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "not a JSON object"),
        ("push", "not a JSON object"),
        (None, "not a JSON object"),
        ({}, "no 'repository'"),
        ({"repository": None}, "no 'repository'"),
        ({"repository": []}, "'repository' is not an object"),
        ({"repository": "a/b"}, "'repository' is not an object"),
        ({"repository": {"clone_url": 5}}, "'clone_url' is not text"),
        ({"repository": {"clone_url": ["x"]}}, "'clone_url' is not text"),
        ({"repository": {"clone_url": "\ud800"}}, "cannot be printed"),
        ({"repository": {"clone_url": "https://a/\x00b"}}, "cannot be printed"),
        ({"repository": {"clone_url": "https://a/" + "b" * 3_000}}, "longer than"),
    ],
)
def test_a_body_of_the_wrong_type_is_refused_in_words(found, words):
    with pytest.raises(UsageError, match=words) as refused:
        github("push", found)
    assert not isinstance(refused.value, UnreadableHook)


@pytest.mark.parametrize("forge", list(Forge))
def test_a_hook_of_another_forge_is_told_apart(forge):
    """GitHub's headers are Gitea's too; the others know neither the header nor the fields."""
    with pytest.raises(UsageError):
        read(forge, {**bodies.JSON, "x-something-event": "push"}, b'{"ref": "refs/heads/main"}')


def test_strange_words_and_numbers_become_short_and_printable():
    found = {"repository": {"clone_url": "https://h.example/a/b"}}
    hook = github("x" * 5_000 + "\x1b[31m", found, **{"x-github-delivery": "é" * 300})
    assert len(hook.event) <= 100
    assert hook.event.isprintable()
    assert len(hook.delivery) == 64
    assert hook.delivery.isascii()


# Anything at all

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def mutated(draw):
    """A real body in which one value, somewhere, is another one, or is gone."""
    sent = draw(st.sampled_from(bodies.ALL))
    found = json.loads(sent.body)
    place = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and draw(st.booleans()):
            place = place[key]
            continue
        if draw(st.booleans()):
            place[key] = draw(values)
        else:
            del place[key]
        break
    return sent, json.dumps(found).encode()


def only_a_hook_or_a_refusal(forge, headers, body):
    try:
        hook = read(forge, headers, body)
    except UsageError as refused:
        words = refused.message
    else:
        words = "fine"
        is_bounded(hook, forge)
    assert 0 < len(words) < 500


def is_bounded(hook, forge):
    assert hook.forge is forge
    assert all(isinstance(url, str) and url.isprintable() for url in (*hook.urls, *hook.old_urls))
    assert hook.event
    assert len(hook.event) <= 100
    assert len(hook.delivery) <= 100


@given(mutated(), st.sampled_from(list(Forge)))
def test_a_mutated_body_is_read_or_refused(found, forge):
    sent, body = found
    only_a_hook_or_a_refusal(sent.forge, sent.headers, body)
    only_a_hook_or_a_refusal(forge, sent.headers, body)


@given(st.sampled_from(bodies.ALL), st.data())
def test_flipped_and_missing_bytes_are_read_or_refused(sent, data):
    body = bytearray(sent.body)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    only_a_hook_or_a_refusal(sent.forge, sent.headers, bytes(body[:cut]))


@given(
    st.sampled_from(list(Forge)),
    st.dictionaries(
        st.sampled_from(sorted({name for sent in bodies.ALL for name in sent.headers})), st.text(max_size=200)
    ),
    st.binary(max_size=300),
)
def test_any_headers_and_bytes_are_read_or_refused(forge, headers, body):
    only_a_hook_or_a_refusal(forge, headers, body)
    only_a_hook_or_a_refusal(forge, FORM | headers, b"payload=" + body)
