# ruff: noqa: E501  (git's lines are long)
"""Each way that a push fails is one kind of failure."""

from __future__ import annotations

import pytest

from evermirror.edge.git.answers import failure_of
from evermirror.edge.git.classify import CAUSE, at_target, classify, classify_push
from evermirror.edge.git.connection import Response
from evermirror.edge.git.progress import ProgressReader
from evermirror.model.failure import FailureKind as K

# Words of forges that cannot be started here, written down from their documents and from memory. What git
# itself says is met for real in test_push_refused.py.
HTTP = "fatal: unable to access 'https://h/x/': The requested URL returned error: %d"
SSH = "\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists."
WORDS = [
    (K.AUTH_FAILED, "fatal: could not read Username for 'https://h': terminal prompts disabled"),
    (K.AUTH_FAILED, "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://h/x.git/'"),
    (K.AUTH_FAILED, "error: RPC failed; HTTP 401 curl 22 The requested URL returned error: 401\nfatal: the remote end hung up unexpectedly"),
    (K.AUTH_FAILED, "git@h: Permission denied (publickey)." + SSH),
    (K.AUTH_FAILED, "Host key verification failed." + SSH),
    (K.PERMISSION_DENIED, HTTP % 403),
    (K.PERMISSION_DENIED, "remote: You are not allowed to push code to this project.\n" + HTTP % 403),
    (K.PERMISSION_DENIED, "remote: Permission to o/r.git denied to robot.\n" + HTTP % 403),
    (K.PERMISSION_DENIED, "remote: This repository was archived so it is read-only.\n" + HTTP % 403),
    (K.PERMISSION_DENIED, "remote: \nremote: ERROR: You are not allowed to push code to this project.\nremote: " + SSH),
    (K.PERMISSION_DENIED, "ERROR: The key you are authenticating with has been marked as read only." + SSH),
    (K.PERMISSION_DENIED, "ERROR: Permission to o/r.git denied to robot." + SSH),
    (K.PERMISSION_DENIED, "remote: Gitea: User permission denied for writing." + SSH),
    (K.PERMISSION_DENIED, "remote: error: insufficient permission for adding an object to repository database ./objects\nremote: fatal: failed to write object\nerror: remote unpack failed: unpack-objects abnormal exit\nerror: failed to push some refs to 'h:x'"),
    (K.PERMISSION_DENIED, "remote: error: object 4b825dc642cb6eb9a060e54bf8d69288fbee4904: missingEmail: invalid author/committer line\nremote: fatal: fsck error in packed object\nerror: remote unpack failed: index-pack abnormal exit"),
    (K.PERMISSION_DENIED, "fatal: the receiving end does not support this repository's hash algorithm"),
    (K.PERMISSION_DENIED, "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413\nfatal: the remote end hung up unexpectedly"),
    (K.PERMISSION_DENIED, "remote: fatal: unable to create file: Read-only file system\nerror: remote unpack failed: index-pack failed"),
    (K.NOT_FOUND, "remote: The project you were looking for could not be found or you don't have permission to view it.\nfatal: repository 'https://h/x/' not found"),
    (K.NOT_FOUND, "remote: ERROR: The project you were looking for could not be found or you don't have permission to view it." + SSH),
    (K.NOT_FOUND, "ERROR: Repository not found." + SSH),
    (K.NOT_FOUND, HTTP % 404),
    (K.RATE_LIMITED, HTTP % 429),
    (K.RATE_LIMITED, "remote: You have exceeded a secondary rate limit.\n" + HTTP % 403),
    (K.NETWORK_TIMEOUT, HTTP % 502),
    (K.NETWORK_TIMEOUT, "send-pack: unexpected disconnect while reading sideband packet\nfatal: the remote end hung up unexpectedly"),
    (K.NETWORK_TIMEOUT, "error: RPC failed; curl 55 Send failure: Broken pipe\nfatal: the remote end hung up unexpectedly"),
    (K.NETWORK_TIMEOUT, "ssh: connect to host h port 22: Connection refused" + SSH),
    (K.NETWORK_TIMEOUT, "remote: fatal: write error: No space left on device\nerror: remote unpack failed: index-pack abnormal exit\nerror: failed to push some refs to 'h:x'"),
    (K.NETWORK_TIMEOUT, "error: unable to write file: No space left on device" + SSH),  # over ssh it is not marked as theirs
    (K.NETWORK_TIMEOUT, "remote: fatal: write error: Disk quota exceeded\nerror: remote unpack failed: index-pack abnormal exit"),
    (K.UNKNOWN, "remote: GitLab: You are not allowed to push code to protected branches on this project."),
    (K.UNKNOWN, "something new"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stderr"), WORDS, ids=[s[:60] for _, s in WORDS])
def test_the_words_of_targets_give_one_kind(kind, stderr):
    failure = classify_push(1, stderr)
    assert failure.kind is kind
    assert failure.kind is not K.DISK_FULL
    assert failure.message
    assert "\n" not in failure.message


def test_damage_here_is_seen_by_a_push_too():
    stderr = "error: inflate: data stream error (incorrect header check)\nfatal: loose object 4b825dc642cb6eb9a060e54bf8d69288fbee4904 (stored in ./objects/4b/825d) is corrupt"
    assert classify_push(1, stderr).corrupt


@pytest.mark.parametrize(
    ("status", "authenticated", "kind"),
    [
        (401, False, K.AUTH_FAILED),
        (401, True, K.AUTH_FAILED),
        (403, False, K.PERMISSION_DENIED),
        (403, True, K.PERMISSION_DENIED),
        (404, True, K.NOT_FOUND),
        (429, True, K.RATE_LIMITED),
        (500, True, K.NETWORK_TIMEOUT),
    ],
)
def test_a_target_that_may_not_even_be_read(status, authenticated, kind):
    """By our own poll, and by git's."""
    response = Response(status, [], b"", 0)
    assert at_target(failure_of(response, authenticated=authenticated, now=0.0)).kind is kind
    by_git = classify(128, HTTP % status, authenticated=authenticated)
    assert by_git.context[CAUSE] == f"http-{status}"
    assert at_target(by_git).kind is kind


def test_the_progress_of_a_push():
    reader = ProgressReader()
    steps = reader.feed(
        b"Enumerating objects: 9, done.\nCounting objects: 100% (9/9), done.\n"
        b"Writing objects:  33% (3/9)\rWriting objects:  66% (6/9), 1.50 MiB | 3.00 MiB/s\r"
        b"Writing objects: 100% (9/9), 2.00 MiB | 3.00 MiB/s, done.\n"
        b"remote: Resolving deltas: 100% (2/2), done.\n"
    )
    assert [s.phase for s in steps] == ["counting", "counting", "pushing", "pushing", "pushing", "resolving"]
    assert [s.percent for s in steps[2:5]] == [33.0, 66.0, 100.0]
    assert (steps[3].received_bytes, reader.received_bytes) == (1_572_864, 2_097_152)
    assert not reader.indexed
