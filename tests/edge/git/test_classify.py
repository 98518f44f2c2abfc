# ruff: noqa: E501  (git's lines are long)
"""Each way that git fails is one kind of failure; what upstream says about us is not believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.git.classify import BROKEN_PACK, CAUSE, UPSTREAM_MOVED, classify, classify_push
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

UNREAD = "\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists."
# Worded as these servers do; gitolite, git-shell and sshd are met for real in test_ssh_servers.py.
SERVERS = [
    ("gitolite", K.AUTH_FAILED, "FATAL: R any team/x ann DENIED by fallthru\n(or you mis-spelled the reponame)"),
    ("gitolite", K.AUTH_FAILED, "FATAL: R any team/x ann DENIED by refs/.*"),
    ("gitolite", K.NOT_FOUND, "FATAL: invalid repo name: 'team/../x'"),
    ("gitlab-shell", K.NOT_FOUND, "remote: \nremote: ========================================================================\nremote: \nremote: ERROR: The project you were looking for could not be found or you don't have permission to view it.\nremote: \nremote: ========================================================================\nremote: "),
    ("gitlab-shell", K.AUTH_FAILED, "remote: \nremote: ERROR: Your account has been blocked.\nremote: "),
    ("gitlab-shell", K.AUTH_FAILED, "remote: \nremote: ERROR: You are not allowed to download code from this project.\nremote: "),
    ("gitlab-shell", K.AUTH_FAILED, "remote: ERROR: Git access over SSH is not allowed"),
    ("gitlab-shell", K.AUTH_FAILED, "remote: ERROR: OTP verification is required to access the repository."),
    ("gitlab-shell", K.AUTH_FAILED, "remote: ERROR: Your SSH key has expired."),
    ("gitlab-shell", K.NETWORK_TIMEOUT, "remote: ERROR: Internal API unreachable"),
    ("gitlab-shell", K.NETWORK_TIMEOUT, "GitLab: Internal API error (502)"),
    ("gitlab-shell", K.RATE_LIMITED, "remote: ERROR: This endpoint has been requested too many times. Try again later."),
    ("gitea", K.AUTH_FAILED, "Gitea: Unauthorized\nUser: 2:ann with Key: 3:laptop is not authorized to read team/x."),
    ("gitea", K.AUTH_FAILED, "remote: Public (Deploy) Key: 3:ci is not authorized to read team/x."),
    ("gitea", K.NOT_FOUND, "Gitea: Cannot find repository: team/x"),
    ("gitea", K.AUTH_FAILED, "Forgejo: Your account is disabled."),
    ("gitea", K.NETWORK_TIMEOUT, "Gitea: Internal Server Error"),
    ("gogs", K.NOT_FOUND, "Gogs: Repository does not exist or you do not have access"),
    ("gerrit", K.NOT_FOUND, "fatal: project team/x not found"),
    ("gerrit", K.AUTH_FAILED, "fatal: upload-pack not permitted on this server"),
    ("gerrit", K.AUTH_FAILED, "Permission denied (publickey)."),
    ("github", K.NOT_FOUND, "ERROR: Repository not found."),
    ("github", K.AUTH_FAILED, "ERROR: Permission to team/x.git denied to ann."),
    ("github", K.AUTH_FAILED, "ERROR: Your account is suspended. Please check your email for details."),
    ("github", K.AUTH_FAILED, "ERROR: The `team' organization has enabled or enforced SAML SSO."),
    ("github", K.AUTH_FAILED, "ERROR: You're using an RSA key with SHA-1, which is no longer allowed. Please use a newer client or a different key type."),
    ("github", K.AUTH_FAILED, "Hi ann! You've successfully authenticated, but GitHub does not provide shell access."),
    ("github", K.NOT_FOUND, "ERROR: Repository unavailable due to DMCA takedown."),
    ("bitbucket", K.NOT_FOUND, "conq: repository does not exist."),
    ("bitbucket", K.AUTH_FAILED, "repository access denied."),
    ("bitbucket", K.AUTH_FAILED, "Unauthorized"),
    ("bitbucket", K.AUTH_FAILED, "Forbidden"),
    ("bitbucket", K.NOT_FOUND, "Repository not found\nThe requested repository does not exist, or you do not have permission to access it."),
    ("bitbucket", K.RATE_LIMITED, "Rate limit for this resource has been exceeded"),
    ("gitee", K.AUTH_FAILED, "[session-1a2b3c4d] Access denied"),
    ("gitee", K.NOT_FOUND, "[session-1a2b3c4d] 404 not found!"),
    ("gitee", K.AUTH_FAILED, "[session-1a2b3c4d] 你没有权限访问该仓库"),
    ("azure", K.NOT_FOUND, "remote: TF401019: The Git repository with name or identifier x does not exist or you do not have permissions for the operation you are attempting."),
    ("azure", K.AUTH_FAILED, "remote: Public key authentication failed."),
    ("gitblit", K.NOT_FOUND, "fatal: 'team/x.git': not a git archive"),
    ("git-shell", K.AUTH_FAILED, "fatal: unrecognized command 'git-upload-pack --x'"),
    ("git-shell", K.AUTH_FAILED, "fatal: Interactive git shell is not enabled."),
    ("sshd", K.NOT_FOUND, "fatal: '/srv/x.git' does not appear to be a git repository"),
    ("sshd", K.NOT_FOUND, "bash: line 1: git-upload-pack: command not found"),
    ("sshd", K.AUTH_FAILED, "This account is currently not available."),
    ("sshd", K.AUTH_FAILED, "fatal: detected dubious ownership in repository at '/srv/x.git'"),
    ("sshd", K.AUTH_FAILED, "Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures\nDisconnected from 192.0.2.1 port 22"),
    ("sshd", K.AUTH_FAILED, "Unable to negotiate with 192.0.2.1 port 22: no matching host key type found. Their offer: ssh-rsa,ssh-dss"),
    ("sshd", K.AUTH_FAILED, "no such identity: /keys/gone: No such file or directory\ngit@h: Permission denied (publickey)."),
    ("sshd", K.AUTH_FAILED, "exec request failed on channel 0"),
    ("sshd", K.RATE_LIMITED, "kex_exchange_identification: read: Connection reset by peer\nNot allowed at this time"),
    ("sshd", K.NETWORK_TIMEOUT, "Connection to h closed by remote host."),
    ("sshd", K.NETWORK_TIMEOUT, "client_loop: send disconnect: Broken pipe"),
    ("sshd", K.NETWORK_TIMEOUT, "Timeout, server h not responding."),
    ("sshd", K.NETWORK_TIMEOUT, "Unauthorized access to this system is prohibited.\nConnection closed by 192.0.2.1 port 22"),
]  # fmt: skip


@pytest.mark.parametrize(("server", "kind", "said"), SERVERS, ids=[f"{n}-{s[-40:]}" for n, _, s in SERVERS])
def test_what_an_ssh_server_says_gives_one_kind_and_is_shown(server, kind, said):
    failure = classify(128, said + UNREAD)
    assert failure.kind is kind
    assert "Could not read from remote repository" not in failure.message
    assert failure.message in said
    assert not failure.corrupt
    if kind in (K.AUTH_FAILED, K.NOT_FOUND):
        assert failure.hint


@pytest.mark.parametrize("said", ["Unauthorized access is prohibited.", "Welcome!", ""])
def test_a_server_that_does_not_say_why_is_unknown(said):
    failure = classify(128, said + UNREAD)
    assert failure.kind is K.UNKNOWN
    assert failure.message == (said or "the server closed the connection without a word")


@pytest.mark.parametrize(
    "said", ["fatal: write error: No space left on device", "fatal: bad object refs/heads/main"]
)
def test_a_server_over_ssh_cannot_talk_us_into_damage_or_a_full_disk(said):
    failure = classify(128, said + UNREAD)
    assert (failure.kind, failure.corrupt) == (K.UNKNOWN, False)


# What a server repeats of the URL that it is asked for: whoever may submit one chooses it.
GIT_SAYS = "fatal: '%s' does not appear to be a git repository"
NAMED = [
    ("Host%20key%20verification%20failed", K.NOT_FOUND, GIT_SAYS % "/Host key verification failed"),
    ("Host%20key%20verification%20failed.", K.NOT_FOUND, GIT_SAYS % "Host key verification failed."),
    ("REMOTE%20HOST%20IDENTIFICATION%20HAS%20CHANGED!", K.NOT_FOUND, GIT_SAYS % "REMOTE HOST IDENTIFICATION HAS CHANGED!"),
    ("x/No%20rsa%20host%20key%20is%20known%20for", K.NOT_FOUND, "ERROR: x/No rsa host key is known for not found"),
    ("Unable%20to%20negotiate%20with", K.NOT_FOUND, "Gitea: Cannot find repository: Unable to negotiate with"),
    ("Too%20many%20authentication%20failures", K.NOT_FOUND, "conq: Too many authentication failures: repository does not exist."),
    ("a/Connection%20refused", K.NOT_FOUND, GIT_SAYS % "/srv/git/a/Connection refused.git"),
    ("a/timed%20out'x", K.NOT_FOUND, GIT_SAYS % "/a/timed out'x"),
    ("a'%20rate%20limit%20'b", K.NOT_FOUND, GIT_SAYS % "/a' rate limit 'b"),
    ("tools/rate-limiter.git", K.AUTH_FAILED, "FATAL: R any tools/rate-limiter mirror DENIED by fallthru"),
    ("ops/maintenance", K.AUTH_FAILED, "FATAL: R any ops/maintenance mirror DENIED by fallthru"),
    ("unavailable", K.AUTH_FAILED, "FATAL: R any unavailable mirror DENIED by fallthru"),
    ("Abuse/X", K.NOT_FOUND, "remote: ERROR: project abuse/x could not be found"),
    ("team/timeout", K.AUTH_FAILED, "User: 2:ann with Key: 3:laptop is not authorized to read team/timeout."),
    ("a/no%20such", K.AUTH_FAILED, "ERROR: Permission to a/no such.git denied to ann."),
    ("denied", K.NOT_FOUND, "fatal: project denied not found"),
    ("denied", K.AUTH_FAILED, "FATAL: R any denied mirror DENIED by fallthru"),
    ("git/git", K.NOT_FOUND, GIT_SAYS % "/git/git"),
    ("found", K.NOT_FOUND, "ERROR: Repository not found."),
    ("x", K.NETWORK_TIMEOUT, "Gitea: Internal call timed out"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "said"), NAMED, ids=[s[-40:] for _, _, s in NAMED])
@pytest.mark.parametrize("marked", ["", "remote: "])
def test_no_name_of_a_repository_decides_what_kind_of_failure_it_is(path, kind, said, marked):
    url = f"ssh://git@h.example/{path}"
    failure = classify(128, marked + said + UNREAD, url=url)
    assert (failure.kind, failure.host_wide, failure.corrupt) == (kind, False, False)
    assert failure.message in said, "it is shown as it was said"
    at_target = {K.AUTH_FAILED: K.PERMISSION_DENIED}.get(kind, kind)
    assert classify_push(128, marked + said + UNREAD, url=url).kind is at_target


@pytest.mark.parametrize("said", [GIT_SAYS % "Host key verification failed", GIT_SAYS % "a rate limit"])
def test_what_is_quoted_decides_nothing_either(said):
    assert classify(128, said + UNREAD).kind is K.NOT_FOUND


@pytest.mark.parametrize(
    ("path", "kind", "stderr"),
    [
        ("REMOTE%20HOST%20IDENTIFICATION%20HAS%20CHANGED", K.NOT_FOUND, "fatal: repository 'https://h/{}/' not found"),
        ("not%20a%20git%20repository", K.NETWORK_TIMEOUT, "fatal: unable to access 'https://h/{}/': Failed to connect to h port 443"),
        ("returned%20error:%20429", K.NETWORK_TIMEOUT, "fatal: unable to access 'https://h/{}/': The requested URL returned error: 500"),
        ("tools/rate-limiter", K.AUTH_FAILED, "remote: You may not read tools/rate-limiter.\nfatal: unable to access 'https://h/{}/': The requested URL returned error: 403"),
    ],
)  # fmt: skip
def test_no_name_decides_over_http(path, kind, stderr):
    for spelled in (path, path.replace("%20", " ")):
        failure = classify(128, stderr.format(spelled), url=f"https://h/{path}")
        assert (failure.kind, failure.host_wide, failure.corrupt) == (kind, False, False)
        assert spelled in failure.message


def test_no_name_of_a_host_decides():
    said = "ssh: connect to host rate-limit.example port 22: Connection refused"
    failure = classify(128, said + UNREAD, url="ssh://git@rate-limit.example/x")
    assert (failure.kind, failure.message) == (K.NETWORK_TIMEOUT, said)


@pytest.mark.parametrize(
    "said",
    [
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\nHost key verification failed.\r",
        "No ED25519 host key is known for [h.example]:2222 and you have requested strict checking.\r\nHost key verification failed.\r",
        "Unable to negotiate with 192.0.2.1 port 22: no matching key exchange method found. Their offer: x",
    ],
)
def test_what_ssh_says_of_a_host_is_about_all_of_it_unless_the_server_says_so(said):
    assert classify(128, said + UNREAD).host_wide
    theirs = "\n".join(f"remote: {line}" for line in said.split("\r\n"))
    assert not classify(128, theirs + UNREAD).host_wide


DEATHS = [
    ("unable to read 75c26cb57f50b852a0be0097e3bf8fbc7db9ade9", "remote: fatal: unable to read 75c26cb57f50b852a0be0097e3bf8fbc7db9ade9        \nremote: aborting due to possible repository corruption on the remote side. \nfatal: early EOF\nfatal: fetch-pack: invalid index-pack output"),
    ("Out of memory, malloc failed", "remote: Enumerating objects: 12, done.\rremote: fatal: Out of memory, malloc failed\nfetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF"),
    ("/bin/pack died of signal 9", "error: /bin/pack died of signal 9\nerror: git upload-pack: git-pack-objects died with error.\nremote: aborting due to possible repository corruption on the remote side. \nfatal: early EOF\nfatal: fetch-pack: invalid index-pack output"),
    ("aborting due to possible repository corruption on the remote side.", "remote: aborting due to possible repository corruption on the remote side.\nfatal: early EOF"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "stderr"), DEATHS, ids=[w for w, _ in DEATHS])
def test_an_upstream_whose_git_dies_is_shown_with_its_own_words(words, stderr):
    failure = classify(128, stderr)
    assert (failure.kind, failure.corrupt) == (K.UNKNOWN, False)
    assert failure.message == f"upstream's git failed: {words}"
    assert "operator" in failure.hint
    assert classify_push(128, stderr).message == f"the target's git failed: {words}"


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
