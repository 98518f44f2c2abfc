# ruff: noqa: E501  (git's lines are long)
"""Each way that git fails is one kind of failure; what upstream says about us is not believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.git.classify import BROKEN_PACK, CAUSE, UPSTREAM_MOVED, classify
from evermirror.model.failure import FailureKind as K

# Worded as git and ssh do, written down from memory and not captured. Those that can be provoked here are met
# for real in test_mirror.py, test_command.py and test_disk.py; the others are not.
HTTP = "fatal: unable to access 'https://h/x/': The requested URL returned error: %d"
WORDS = [
    (K.NETWORK_TIMEOUT, "fatal: unable to access 'https://h.invalid/x/': Could not resolve host: h.invalid"),
    (K.NETWORK_TIMEOUT, "fatal: unable to access 'http://127.0.0.1:1/x/': Failed to connect to 127.0.0.1 port 1 after 0 ms: Couldn't connect to server"),
    (K.NETWORK_TIMEOUT, "fatal: unable to access 'http://h/x/': Connection timed out after 10001 milliseconds"),
    (K.NETWORK_TIMEOUT, "error: RPC failed; curl 56 Recv failure: Connection reset by peer\nerror: 7420 bytes of body are still expected\nfetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF\nfatal: fetch-pack: invalid index-pack output"),
    (K.NETWORK_TIMEOUT, "error: RPC failed; curl 92 HTTP/2 stream 5 was not closed cleanly: CANCEL (err 8)\nfatal: early EOF"),
    (K.NETWORK_TIMEOUT, "fatal: the remote end hung up unexpectedly"),
    (K.NETWORK_TIMEOUT, "ssh: Could not resolve hostname h.invalid: Name or service not known\nfatal: Could not read from remote repository."),
    (K.NETWORK_TIMEOUT, "ssh: connect to host h port 22: Connection refused\nfatal: Could not read from remote repository."),
    (K.NETWORK_TIMEOUT, "kex_exchange_identification: read: Connection reset by peer"),
    (K.NETWORK_TIMEOUT, HTTP % 500),
    (K.NETWORK_TIMEOUT, HTTP % 503),
    (K.NETWORK_TIMEOUT, "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502\nfatal: the remote end hung up unexpectedly"),
    (K.NOT_FOUND, HTTP % 401),
    (K.AUTH_FAILED, HTTP % 403),
    (K.RATE_LIMITED, "remote: API rate limit exceeded for 1.2.3.4.\n" + HTTP % 403),
    (K.NOT_FOUND, "fatal: repository 'https://h/x/' not found"),
    (K.NOT_FOUND, "remote: Repository not found.\nfatal: repository 'https://h/x/' not found"),
    (K.NOT_FOUND, HTTP % 410),
    (K.RATE_LIMITED, HTTP % 429),
    (K.NOT_FOUND, "fatal: could not read Username for 'https://h': terminal prompts disabled"),
    (K.NOT_FOUND, "ERROR: Repository not found.\nfatal: Could not read from remote repository."),
    (K.NOT_FOUND, "fatal: '/srv/x.git' does not appear to be a git repository\nfatal: Could not read from remote repository."),
    (K.AUTH_FAILED, "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository."),
    (K.AUTH_FAILED, "Host key verification failed.\nfatal: Could not read from remote repository."),
    (K.DISK_FULL, "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output"),
    (K.DISK_FULL, "fatal: sha1 file '/mirrors/x/tmp_idx_Ab' write error. Out of diskspace"),
    (K.DISK_FULL, "error: unable to create temporary file: Read-only file system"),
    (K.UNKNOWN, "fatal: Unable to create '/m/x.git/packed-refs.lock': File exists."),
    (K.UNKNOWN, "error: object 4b825dc642cb6eb9a060e54bf8d69288fbee4904: hasDotgit: contains '.git'\nfatal: fsck error in packed object\nfatal: fetch-pack: invalid index-pack output"),
    (K.UNKNOWN, "fatal: unable to access 'https://h/x/': SSL certificate problem: self-signed certificate"),
    (K.UNKNOWN, HTTP % 302),
    (K.UNKNOWN, "something new"),
]  # fmt: skip

CORRUPT = [
    "error: inflate: data stream error (incorrect header check)\nfatal: loose object 4b825dc642cb6eb9a060e54bf8d69288fbee4904 (stored in ./objects/4b/825d) is corrupt",
    "fatal: packed object 4b825dc642cb6eb9a060e54bf8d69288fbee4904 (stored in ./objects/pack/pack-1.pack) is corrupt",
    "error: object file ./objects/4b/825d is empty",
    "fatal: bad object refs/heads/main",
    "error: packfile ./objects/pack/pack-1.pack does not match index",
    "fatal: not a git repository: '/m/x.git'",
    "fatal: cannot lock ref 'refs/heads/main': unable to resolve reference 'refs/heads/main': reference broken",
    "fatal: unexpected line in ./packed-refs: xxx",
]


@pytest.mark.parametrize(("kind", "stderr"), WORDS, ids=[s[-60:] for _, s in WORDS])
def test_the_words_of_git_and_ssh_give_one_kind(kind, stderr):
    failure = classify(128, stderr)
    assert failure.kind is kind
    assert not failure.corrupt
    assert failure.message
    assert "\n" not in failure.message


@pytest.mark.parametrize("stderr", CORRUPT)
def test_damage_here_is_seen(stderr):
    assert classify(128, stderr).corrupt


SENT_BROKEN = [
    "error: inflate: data stream error (invalid block type)\nfatal: pack has bad object at offset 12: inflate returned -3\nfatal: fetch-pack: invalid index-pack output",
    "fatal: pack is corrupted (SHA1 mismatch)\nfatal: fetch-pack: invalid index-pack output",
    "fatal: pack has 3 unresolved deltas\nfatal: fetch-pack: invalid index-pack output",
    "fatal: bad object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nerror: http://127.0.0.1/x did not send all necessary objects",
]


@pytest.mark.parametrize("stderr", SENT_BROKEN)
def test_a_broken_pack_is_told_from_broken_files_here(stderr):
    failure = classify(128, stderr)
    assert (failure.corrupt, failure.context[CAUSE]) == (True, BROKEN_PACK)


@pytest.mark.parametrize("stderr", CORRUPT)
def test_broken_files_here_are_nobody_elses_fault(stderr):
    assert classify(128, stderr).context[CAUSE] == "corrupt"


@pytest.mark.parametrize("stderr", CORRUPT)
@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_never_damage_beside_an_http_refusal(stderr, status):
    assert not classify(128, f"{stderr}\n{HTTP % status}").corrupt


@pytest.mark.parametrize("stderr", [*CORRUPT, "fatal: write error: No space left on device"])
def test_upstream_cannot_talk_us_into_damage_or_a_full_disk(stderr):
    said = "\n".join(f"remote: {line}" for line in stderr.split("\n"))
    for text in (said, f"fatal: remote error: sorry\n{stderr}"):
        failure = classify(128, text)
        assert not failure.corrupt
        assert failure.kind is not K.DISK_FULL


@pytest.mark.parametrize(
    "complaint",
    [
        "fatal: unknown object format '%s' specified by server",
        "fatal: mismatched algorithms: client sha1; server %s",
        "fatal: invalid ls-refs response: %s",
        "fatal: expected 'packfile', received '%s'",
        "fatal: protocol error: unexpected '%s'",
    ],
)
@pytest.mark.parametrize("words", ["No space left on device", "write: No space left on device"])
def test_what_git_repeats_of_upstream_is_no_full_disk(complaint, words):
    assert classify(128, complaint % words).kind is not K.DISK_FULL


@pytest.mark.parametrize(
    "stderr",
    [
        "error: unable to write file ./objects/pack/tmp_pack_x: No space left on device",
        "fatal: sha1 file '/d/objects/pack/tmp_idx' write error: Disk quota exceeded",
        "fatal: cannot store pack file: No space left on device\nerror: index-pack died",
        "error: cannot lock ref 'refs/heads/a': Unable to create '/d/a.lock': No space left on device",
        "fatal: cannot mkdir /d: Read-only file system",
    ],
)
def test_a_write_that_failed_is_a_full_disk(stderr):
    assert classify(128, stderr).kind is K.DISK_FULL


def test_a_refused_credential_is_told_from_a_missing_one():
    assert classify(128, HTTP % 401, authenticated=True).kind is K.AUTH_FAILED
    text = "fatal: Authentication failed for 'https://h/x/'"
    assert classify(128, text, authenticated=True).kind is K.AUTH_FAILED
    assert classify(128, text).kind is K.NOT_FOUND


@pytest.mark.parametrize(
    "stderr",
    [
        "fatal: couldn't find remote ref refs/heads/x",
        "fatal: remote error: upload-pack: not our ref 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "error: Server does not allow request for unadvertised object 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    ],
)
def test_an_upstream_that_moved_meanwhile_is_recognised(stderr):
    assert classify(128, stderr).context[CAUSE] == UPSTREAM_MOVED


def test_a_git_that_was_killed_says_by_what():
    assert "signal 9" in classify(-9, "").message


@given(st.text(max_size=500), st.integers(-64, 255))
def test_any_text_gives_one_failure_with_a_short_message(stderr, code):
    failure = classify(code, stderr)
    assert len(failure.message) < 500
