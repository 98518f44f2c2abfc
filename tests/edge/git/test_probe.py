"""Polls of real git servers, and of servers that answer as no git should."""

import asyncio
import email.utils
import ssl
import time

import pytest
import trustme

from evermirror.edge.git import probe_memory
from evermirror.edge.git.command import Git
from evermirror.edge.git.connection import HttpLimits
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.pktline import encode
from evermirror.edge.git.probe import Prober, ProbeSettings, Seen, Unchanged
from evermirror.edge.net.resolver import Resolver
from evermirror.errors import EnvironmentUnfit
from evermirror.model.address import AllowList
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.url import UrlRules, parse_url
from tests.support.gitrepo import run_git
from tests.support.raw_server import always, http, raw_server

LOCAL = AllowList.parse(["127.0.0.0/8"])
RULES = UrlRules(frozenset({"http", "https", "ssh"}), LOCAL, local=True)
OID = "a" * 40
LISTING = encode(f"{OID} HEAD symref-target:refs/heads/main\n".encode()) + encode(
    f"{OID} refs/heads/main\n".encode()
)
LISTING += b"0000"


class GitLsRemote:
    """git itself, without the rest of the runner: counts its calls, and knows no addresses."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.calls = []
        self.fails = False

    async def ls_remote(self, spec, addresses):
        self.calls.append((spec.url, addresses))
        if self.fails:
            raise FailureError(Failure(FailureKind.UNKNOWN, "git does not understand either"))
        if spec.url.startswith("ssh://"):
            return RefSnapshot({"refs/heads/main": OID}, "refs/heads/main")
        lines = (
            await asyncio.to_thread(run_git, self.tmp_path, "ls-remote", "--symref", spec.url)
        ).splitlines()
        pairs = [line.split("\t") for line in lines]
        refs = {
            n: o for o, n in pairs if n.startswith(("refs/heads/", "refs/tags/")) and not n.endswith("^{}")
        }
        return RefSnapshot(
            refs, next((o[5:] for o, n in pairs if o.startswith("ref: ") and n == "HEAD"), None)
        )


class Secrets:
    """One secret for the repos that name it."""

    redactor = Redactor([Credential("c", token="s3cret-token")])

    def authorization(self, spec):
        return None if spec.credential is None else "Basic " + spec.credential


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def spec_of(url, **more):
    parsed = parse_url(url, RULES)
    return RepoSpec(parsed.key, parsed.text, parsed.host_key, **more)


@pytest.fixture
async def make(tmp_path):
    made = []

    def build(*, limits=None, allow=LOCAL, names=None, **settings):
        async def lookup(host, port):
            return (names or {})[host]

        git = GitLsRemote(tmp_path)
        prober = Prober(
            Resolver(allow, lookup=lookup),
            Secrets(),
            git,
            ProbeSettings(http=HttpLimits(**(limits or {})), allow=allow, **settings),
            monotonic=Clock(),
        )
        prober.git, prober.clock = git, prober._monotonic
        made.append(prober)
        return prober

    yield build
    for prober in made:
        await prober.close()


@pytest.fixture
def prober(make):
    return make()


async def failure(awaitable):
    with pytest.raises(FailureError) as e:
        await asyncio.wait_for(awaitable, 20)
    return e.value.failure


def snapshot_of(repo):
    return RefSnapshot(repo.public_refs(), repo.head())


def kinds(server):
    return [r.service for r in server.requests]


# Real servers


async def test_a_poll_is_one_round_trip_and_sees_what_is_there(prober, upstream):
    repo = upstream.create("team/x")
    repo.tag("v1", annotated=True)
    seen = await prober.probe(spec_of(repo.url), None)
    assert (seen.snapshot, seen.url) == (snapshot_of(repo), repo.url)
    assert kinds(upstream) == ["upload-pack"]
    assert await prober.probe(spec_of(repo.url), seen.mark) == Unchanged(seen.mark)
    assert (kinds(upstream), upstream.connections) == (["upload-pack"] * 2, 1)


@pytest.mark.parametrize("way", ["direct", "v0", "git"])
@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.commit(),
        lambda r: r.branch("new"),
        lambda r: r.tag("v2"),
        lambda r: r.tag("old", annotated=True),
        lambda r: r.delete_branch("side"),
        lambda r: r.set_head("side"),
    ],
    ids=["branch moved", "branch made", "tag made", "tag replaced", "branch deleted", "HEAD moved"],
)
async def test_every_change_is_seen_every_way(prober, upstream, change, way):
    repo = upstream.create("x")
    repo.branch("side")
    repo.tag("old")
    upstream.protocol_v2 = way == "direct"
    spec = spec_of(str(repo.path) if way == "git" else repo.url)
    first = await prober.probe(spec, None)
    assert isinstance(await prober.probe(spec, first.mark), Unchanged)
    change(repo)
    second = await prober.probe(spec, first.mark)
    assert second.snapshot == snapshot_of(repo)
    assert second.mark != first.mark


@pytest.mark.parametrize("v2", [True, False])
async def test_hidden_refs_are_not_seen_unless_asked_for(make, upstream, v2):
    upstream.protocol_v2 = v2
    repo = upstream.create("x")
    plain, curious = make(), make(refs_extra=("refs/pull/",))
    spec = spec_of(repo.url)
    before, before_curious = await plain.probe(spec, None), await curious.probe(spec, None)
    repo.hidden_ref("refs/pull/1/head")
    assert isinstance(await plain.probe(spec, before.mark), Unchanged)
    assert (await curious.probe(spec, before_curious.mark)).snapshot.refs == repo.refs()


async def test_a_mark_of_other_prefixes_is_not_taken(make, upstream):
    repo = upstream.create("x")
    mark = (await make().probe(spec_of(repo.url), None)).mark
    assert isinstance(await make(refs_extra=("refs/pull/",)).probe(spec_of(repo.url), mark), Seen)


@pytest.mark.parametrize("v2", [True, False])
async def test_an_empty_repository_is_seen_as_empty(prober, upstream, v2):
    upstream.protocol_v2 = v2
    repo = upstream.create("empty", commits=0)
    seen = await prober.probe(spec_of(repo.url), None)
    assert seen.snapshot == RefSnapshot({}, None)
    assert isinstance(await prober.probe(spec_of(repo.url), seen.mark), Unchanged)
    repo.commit()
    assert (await prober.probe(spec_of(repo.url), seen.mark)).snapshot == snapshot_of(repo)


async def test_sha256_is_learnt_by_a_handshake_and_then_asked_for_directly(prober, upstream):
    other, repo = upstream.create("sha1"), upstream.create("x", object_format="sha256")
    await prober.probe(spec_of(other.url), None)
    seen = await prober.probe(spec_of(repo.url), None)
    assert seen.snapshot == snapshot_of(repo)
    upstream.requests.clear()
    assert isinstance(await prober.probe(spec_of(repo.url), seen.mark), Unchanged)
    assert isinstance(await prober.probe(spec_of(other.url), None), Seen)
    assert kinds(upstream) == ["upload-pack", "upload-pack"]
    assert prober.git.calls == []


async def test_a_v0_server_is_remembered_and_asked_again_directly_after_a_day(prober, upstream):
    upstream.protocol_v2 = False
    repo, other = upstream.create("x"), upstream.create("y")
    seen = await prober.probe(spec_of(repo.url), None)
    assert seen.snapshot == snapshot_of(repo)
    upstream.requests.clear()
    assert isinstance(await prober.probe(spec_of(repo.url), seen.mark), Unchanged)
    assert (await prober.probe(spec_of(other.url), None)).snapshot == snapshot_of(other)
    assert kinds(upstream) == ["advertise", "advertise"]
    upstream.protocol_v2 = True  # upgraded
    upstream.requests.clear()
    prober.clock.now += probe_memory.WAY_KEPT_S + 1
    await prober.probe(spec_of(repo.url), None)
    await prober.probe(spec_of(other.url), None)
    assert kinds(upstream) == ["upload-pack", "upload-pack"]


async def test_a_session_id_in_the_answer_is_no_change(prober, upstream):
    upstream.protocol_v2 = False
    repo = upstream.create("x")
    repo.git("config", "transfer.advertiseSID", "true")
    seen = await prober.probe(spec_of(repo.url), None)
    assert isinstance(await prober.probe(spec_of(repo.url), seen.mark), Unchanged)


async def test_one_odd_repo_does_not_slow_its_host_down(prober, upstream):
    good, odd = upstream.create("good"), upstream.create("odd")
    await prober.probe(spec_of(good.url), None)
    upstream.fail_with(400, path="/odd.git/git-upload-pack", times=1)
    upstream.fail_with(400, path="/odd/git-upload-pack", times=1)
    assert (await prober.probe(spec_of(odd.url), None)).snapshot == snapshot_of(odd)
    upstream.requests.clear()
    await prober.probe(spec_of(odd.url), None)
    await prober.probe(spec_of(good.url), None)
    assert [(r.service, r.path.split("/")[1]) for r in upstream.requests] == [
        ("advertise", "odd.git"),
        ("upload-pack", "odd.git"),
        ("upload-pack", "good.git"),
    ]


async def test_tls_end_to_end(make, upstream_tls):
    repo = upstream_tls.create("x")
    prober = make(ca_file=str(upstream_tls.ca_file), names={"localhost": ["127.0.0.1"]})
    url = upstream_tls.url("x.git")
    seen = await prober.probe(spec_of(url), None)
    assert seen.snapshot == snapshot_of(repo)
    assert isinstance(await prober.probe(spec_of(url), seen.mark), Unchanged)
    assert upstream_tls.connections == 1


async def test_a_wrong_name_in_the_certificate_is_told(make, upstream_tls):
    prober = make(ca_file=str(upstream_tls.ca_file), names={"git.example.com": ["127.0.0.1"]})
    found = await failure(prober.probe(spec_of(upstream_tls.url("x", host="git.example.com")), None))
    assert found.kind is FailureKind.UNKNOWN
    assert found.message.startswith("certificate of git.example.com")
    assert upstream_tls.requests == []


def test_a_missing_ca_file_is_told_at_the_start(make, tmp_path):
    with pytest.raises(EnvironmentUnfit, match=r"upstreams\.ca_file"):
        make(ca_file=str(tmp_path / "none.pem"))


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("keep_alive", [True, False])
async def test_chunks_and_closing_servers_make_no_difference(prober, upstream, chunked, keep_alive):
    upstream.always_chunked, upstream.keep_alive = chunked, keep_alive
    repo = upstream.create("x")
    seen = await prober.probe(spec_of(repo.url), None)
    assert isinstance(await prober.probe(spec_of(repo.url), seen.mark), Unchanged)
    assert upstream.connections == (1 if keep_alive else 2)


async def test_a_restarted_server_costs_a_connection_not_a_failure(prober, upstream):
    repo = upstream.create("x")
    seen = await prober.probe(spec_of(repo.url), None)
    upstream.end_connections()
    assert isinstance(await prober.probe(spec_of(repo.url), seen.mark), Unchanged)


async def test_many_refs_are_read_in_full(prober, upstream):
    repo = upstream.create("x")
    tip = repo.tip()
    lines = [f"{tip} refs/tags/t{i:05}\n" for i in range(12_000)]
    (repo.path / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
    assert (await prober.probe(spec_of(repo.url), None)).snapshot == snapshot_of(repo)


async def test_ssh_goes_through_git_with_the_checked_addresses(make):
    prober = make(names={"git.example.com": ["127.0.0.1"]})
    spec = spec_of("ssh://git@git.example.com:2222/x.git")
    seen = await prober.probe(spec, None)
    assert prober.git.calls == [(spec.url, ("127.0.0.1",))]
    assert await prober.probe(spec, seen.mark) == Unchanged(seen.mark)


async def test_a_forbidden_address_gets_no_packet(make, upstream):
    prober = make(allow=AllowList(), names={"rebind.example.com": ["93.184.216.34", "127.0.0.1"]})
    spec = RepoSpec(RepoKey("k"), f"http://rebind.example.com:{upstream.port}/x", Host("h"))
    await failure(prober.probe(spec, None))
    assert upstream.connections == 0


# Spelling


@pytest.mark.parametrize("status", [404, 401, 405])
async def test_a_server_that_wants_git_at_the_end_is_learnt(prober, upstream, status):
    repo = upstream.create("x")
    upstream.fail_with(status, path="/x/")
    spec = spec_of(repo.url.removesuffix(".git"))
    seen = await prober.probe(spec, None)
    assert (seen.snapshot, seen.url) == (snapshot_of(repo), repo.url)
    upstream.requests.clear()
    assert isinstance(await prober.probe(spec, seen.mark), Unchanged)
    assert [r.path for r in upstream.requests] == ["/x.git/git-upload-pack"]


async def test_a_server_that_refuses_git_at_the_end_is_learnt_and_unlearnt(prober, upstream):
    repo = upstream.create("x")
    upstream.fail_with(404, path="/x.git/")
    seen = await prober.probe(spec_of(repo.url), None)
    assert seen.url == repo.url.removesuffix(".git")
    upstream.heal()
    upstream.fail_with(404, path="/x/")
    assert (await prober.probe(spec_of(repo.url), None)).url == repo.url


@pytest.mark.parametrize("method", ["both", "GET only"])
async def test_a_redirect_to_the_other_spelling_is_obeyed(prober, upstream, method):
    repo = upstream.create("x")
    if method == "GET only":
        upstream.protocol_v2 = False
        upstream.fail_with(405, path="/git-upload-pack")
    upstream.redirect("/x", f"http://127.0.0.1:{upstream.port}/x.git", 301)
    seen = await prober.probe(spec_of(repo.url.removesuffix(".git")), None)
    assert (seen.snapshot, seen.url) == (snapshot_of(repo), repo.url)


# Refusals


async def test_a_repository_that_is_gone_is_not_found_and_never_asked_of_git(prober, upstream):
    repo = upstream.create("x")
    mark = (await prober.probe(spec_of(repo.url), None)).mark
    upstream.delete(repo)
    found = await failure(prober.probe(spec_of(repo.url), mark))
    assert (found.kind, found.message) == (FailureKind.NOT_FOUND, "HTTP 404: not there")
    assert prober.git.calls == []


async def test_a_failed_look_tells_the_command_that_shows_the_same_and_what_was_answered(prober, upstream):
    repo = upstream.create("x")
    upstream.fail_with(404, body="<h1>Gone</h1> you are s3cret-token" + "x" * 1000)
    found = await failure(prober.probe(spec_of(repo.url), None))
    assert found.git_command == f"git ls-remote --symref {repo.url} HEAD 'refs/heads/*' 'refs/tags/*'"
    assert found.context["http_status"] == "404"
    assert found.context["http_body"].startswith("<h1>Gone</h1> you are ***xxx"), "secrets stay out"
    assert len(found.context["http_body"]) <= 500


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("<h1>You may not read tools/rate-limiter</h1>", FailureKind.AUTH_FAILED),
        ("tools/rate-limiter: rate limit exceeded", FailureKind.RATE_LIMITED),
    ],
)
async def test_the_name_of_a_repository_is_no_rate_limit(prober, upstream, page, kind):
    repo = upstream.create("tools/rate-limiter")
    upstream.fail_with(403, body=page)
    assert (await failure(prober.probe(spec_of(repo.url), None))).kind is kind


async def test_an_err_line_with_the_name_of_the_repository_is_no_rate_limit(prober, upstream):
    repo = upstream.create("tools/rate-limiter")
    said = b"ERR tools/rate-limiter: access denied"
    body = b"%04x%b" % (len(said) + 4, said)
    upstream.fail_with(200, {"Content-Type": "application/x-git-upload-pack-result"}, body.decode())
    assert (await failure(prober.probe(spec_of(repo.url), None))).kind is FailureKind.NOT_FOUND


@pytest.mark.parametrize("before", range(484, 502))
async def test_a_secret_is_removed_from_an_answer_before_it_is_cut(prober, upstream, before):
    upstream.fail_with(404, body="x" * before + "s3cret-token" + "y" * 1000)
    told = (await failure(prober.probe(spec_of(upstream.create("x").url), None))).context["http_body"]
    assert told == ("x" * before + "***" + "y" * 1000)[:500]


async def test_a_secret_is_removed_from_a_redirect_before_it_is_cut(prober, upstream):
    path = "x" * (200 - len("http://elsewhere.example/") - 5)
    upstream.redirect("/x.git", f"http://elsewhere.example/{path}s3cret-token/y.git", 301)
    found = await failure(prober.probe(spec_of(upstream.create("x").url), None))
    assert found.message == f"moved to http://elsewhere.example/{path}***/y"


@pytest.mark.parametrize("trouble", ["page", "redirect", "login", "nobody"])
async def test_no_failed_look_is_without_its_command(prober, upstream, trouble):
    repo = upstream.create("x")
    match trouble:
        case "page":
            upstream.fail_with(200, {"Content-Type": "text/html"}, "<html>")
        case "redirect":
            upstream.redirect("/x.git", "http://elsewhere.example/y.git", 301)
        case "login":
            upstream.require_basic("a", "b")
        case "nobody":
            upstream.close()
    found = await failure(prober.probe(spec_of(repo.url), None))
    assert found.git_command.startswith(f"git ls-remote --symref {repo.url} ")
    assert ("http_status" in found.context) is (trouble != "nobody")


async def test_a_stranger_says_not_found_to_the_question_that_git_asks(prober, upstream):
    assert (
        await failure(prober.probe(spec_of(upstream.url("none.git")), None))
    ).kind is FailureKind.NOT_FOUND
    assert kinds(upstream) == ["upload-pack", "upload-pack", "advertise"]


@pytest.mark.parametrize(
    ("status", "headers", "body", "credential", "kind"),
    [
        (401, {}, "", None, FailureKind.NOT_FOUND),
        (401, {}, "", "s3cret", FailureKind.AUTH_FAILED),
        (403, {}, "", None, FailureKind.AUTH_FAILED),
        (403, {}, "", "s3cret", FailureKind.AUTH_FAILED),
        (403, {"X-RateLimit-Remaining": "0"}, "", None, FailureKind.RATE_LIMITED),
        (403, {"X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "30"}, "", None, FailureKind.AUTH_FAILED),
        (403, {"Retry-After": "7"}, "", "s3cret", FailureKind.RATE_LIMITED),
        (403, {}, "You have exceeded a secondary rate limit", None, FailureKind.RATE_LIMITED),
        (404, {}, "", None, FailureKind.NOT_FOUND),
        (410, {}, "", None, FailureKind.NOT_FOUND),
        (451, {}, "", None, FailureKind.NOT_FOUND),
        (429, {}, "", None, FailureKind.RATE_LIMITED),
        (503, {"Retry-After": "7"}, "", None, FailureKind.RATE_LIMITED),
        (408, {}, "", None, FailureKind.NETWORK_TIMEOUT),
        (500, {}, "", None, FailureKind.NETWORK_TIMEOUT),
        (502, {}, "", None, FailureKind.NETWORK_TIMEOUT),
        (503, {}, "", None, FailureKind.NETWORK_TIMEOUT),
        (418, {}, "", None, FailureKind.UNKNOWN),
    ],
)
async def test_each_status_has_its_kind(prober, upstream, status, headers, body, credential, kind):
    upstream.fail_with(status, headers, body)
    found = await failure(prober.probe(spec_of(upstream.url("x.git"), credential=credential), None))
    assert found.kind is kind
    assert f"HTTP {status}" in found.message
    assert "s3cret" not in repr(found)


async def test_how_long_to_stay_away_is_read_in_every_form(prober, upstream):
    now = time.time()
    date = email.utils.formatdate(now + 120, usegmt=True)
    for headers, expected in [
        ({"Retry-After": "90"}, 90),
        ({"Retry-After": date}, 120),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(now + 300))}, 300),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, 30),
        ({"Retry-After": "99999999"}, 86_400),
        ({"Retry-After": "9" * 400}, 86_400),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
    ]:
        upstream.heal()
        upstream.fail_with(429, headers)
        found = await failure(prober.probe(spec_of(upstream.url("x.git")), None))
        assert found.retry_after_s == pytest.approx(expected, abs=5), headers
    for rubbish in ("soon", "-5", "Thu, 99 Foo 2026", "²"):
        upstream.heal()
        upstream.fail_with(429, {"Retry-After": rubbish.encode().decode("latin-1")})
        assert (await failure(prober.probe(spec_of(upstream.url("x.git")), None))).retry_after_s is None


async def test_a_rate_limited_host_is_asked_once(prober, upstream):
    upstream.fail_with(429)
    await failure(prober.probe(spec_of(upstream.url("x.git")), None))
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_renamed_upstream_is_told_with_its_new_place_and_not_followed(prober, upstream, status):
    repo = upstream.create("new")
    upstream.redirect("/old", repo.url.removesuffix(".git"), status)
    found = await failure(prober.probe(spec_of(upstream.url("old")), None))
    assert found.kind is FailureKind.NOT_FOUND
    assert found.message == f"moved to {repo.url.removesuffix('.git')}"
    assert all("/old" in r.path for r in upstream.requests)


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:{port}/x.git.git",
        "file:///etc/passwd",
        "//evil.example/x",
        "https://user:s3cret@evil.example/x?token=s3cret",
        "http://[::1",
        "",
        "http://evil.example:99999/x",
        "x\x1b[31m",
    ],
)
async def test_a_redirect_elsewhere_is_refused_and_leaks_nothing(prober, location):
    target = location.encode("latin-1")

    async def talk(c):
        while True:
            await c.request()
            await c.say(b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n")

    async with raw_server(talk) as server:
        target = location.replace("{port}", str(server.port)).encode("latin-1")
        found = await failure(prober.probe(spec_of(f"http://127.0.0.1:{server.port}/x"), None))
        assert found.kind in (FailureKind.NOT_FOUND, FailureKind.UNKNOWN)
        assert "s3cret" not in repr(found)
        assert found.message.isprintable()
        assert server.connections == 1
        assert prober.git.calls == []


async def test_a_redirect_loop_between_spellings_ends(prober, upstream):
    upstream.redirect("/x", upstream.url("x.git"), 301)
    upstream.redirect("/x.git", upstream.url("x"), 301)
    found = await failure(prober.probe(spec_of(upstream.url("x")), None))
    assert found.kind is FailureKind.NOT_FOUND
    assert len(upstream.requests) <= 4


async def test_a_redirect_to_a_login_page_is_told_as_one(prober, upstream):
    upstream.redirect("/", "https://git.example/users/sign_in")
    upstream.redirect("/x", "https://git.example/users/sign_in")
    found = await failure(prober.probe(spec_of(upstream.url("x")), None))
    assert found.message.startswith("sent to a login page: https://git.example/users/sign_in")


@pytest.mark.parametrize(
    ("credential", "kind"), [(None, FailureKind.NOT_FOUND), ("c", FailureKind.AUTH_FAILED)]
)
async def test_a_web_page_is_no_repository(prober, upstream, credential, kind):
    upstream.fail_with(200, {"Content-Type": "text/html; charset=utf-8"}, "<html>Please log in</html>")
    found = await failure(prober.probe(spec_of(upstream.url("x.git"), credential=credential), None))
    assert (found.kind, found.message) == (kind, "a web page instead of a git repository")
    assert prober.git.calls == []


async def test_the_dumb_protocol_is_refused_clearly(prober, upstream):
    repo = upstream.create("x")
    upstream.make_dumb(repo)
    found = await failure(prober.probe(spec_of(repo.url), None))
    assert found.kind is FailureKind.UNKNOWN
    assert "dumb http protocol" in found.message
    assert found.hint


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "", "application/octet-stream"])
@pytest.mark.parametrize("body", [b'{"error":"maintenance"}', b"ok", b"ok\n", b"", b"0000", b"00000000"])
async def test_a_text_with_http_200_is_no_empty_repository(prober, upstream, kind, body):
    """A repo that was polled before, and one that never was."""
    repo = upstream.create("x")
    before = await prober.probe(spec_of(repo.url), None)
    for spec, mark in ((spec_of(repo.url), before.mark), (spec_of(upstream.url("new")), None)):
        upstream.fail_with(200, {"Content-Type": kind}, body.decode())
        found = await failure(prober.probe(spec, mark))
        assert found.kind is FailureKind.UNKNOWN
        assert found.message.startswith(("HTTP 200, but not from git", "only the dumb http protocol"))
        assert found.hint
        assert prober.git.calls == []  # git takes such a text for an empty repository
    upstream.heal()
    assert isinstance(await prober.probe(spec_of(repo.url), before.mark), Unchanged)


async def test_a_foreign_text_is_shown_in_part_and_without_secrets(prober, upstream):
    upstream.fail_with(200, {"Content-Type": "text/plain"}, "down: s3cret-token\n" + "x" * 5000)
    found = await failure(prober.probe(spec_of(upstream.url("x")), None))
    assert found.message.startswith("HTTP 200, but not from git (text/plain): down: ")
    assert "s3cret" not in found.message
    assert len(found.message) < 300


@pytest.mark.parametrize("body", [b"", b"0000", b"001e# service=git-upload-pack\n0000", b"ok"])
async def test_an_incomplete_list_of_a_smart_server_is_no_empty_repository(make, tmp_path, body):
    """Nobody understands it, git neither."""
    prober = make()
    prober._git = Git(GitSettings(tmp_path, schemes=frozenset({"http"})))
    answer = http(body, kind="application/x-git-upload-pack-advertisement")

    async def talk(c):
        while asked := await c.request():
            await c.say(answer if asked.startswith(b"GET") else http(b"", status=400))

    async with raw_server(talk) as server:
        spec = spec_of(f"http://127.0.0.1:{server.port}/x")
        assert (await failure(prober.probe(spec, None))).kind is not FailureKind.NOT_FOUND


async def test_a_closed_port_is_the_networks_fault(prober, upstream):
    upstream.close()
    found = await failure(prober.probe(spec_of(upstream.url("x")), None))
    assert found.kind is FailureKind.NETWORK_TIMEOUT


# Credentials


async def test_a_credential_opens_a_private_repository(prober, upstream):
    repo = upstream.create("x")
    upstream.require_basic("me", "pw")
    spec = spec_of(repo.url, credential="bWU6cHc=")
    seen = await prober.probe(spec, None)
    assert seen.snapshot == snapshot_of(repo)
    assert isinstance(await prober.probe(spec, seen.mark), Unchanged)
    assert (await failure(prober.probe(spec_of(repo.url), None))).kind is FailureKind.NOT_FOUND


async def test_a_credential_is_not_sent_over_plain_http_to_a_public_host(make):
    prober = make(names={"git.example.com": ["93.184.216.34"]})
    found = await failure(prober.probe(spec_of("http://git.example.com/x", credential="c"), None))
    assert (found.kind, found.message) == (
        FailureKind.AUTH_FAILED,
        "a credential is not sent over plain http",
    )
    assert prober.stats.requests == 0


# Lies and oddities


def err(text):
    return encode(b"ERR " + text.encode())


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (
            encode(f"{OID} refs/heads/../../x\n".encode()) + b"0000",
            FailureKind.UNKNOWN,
            "malformed answer: ref name",
        ),
        (LISTING[:-4] + LISTING, FailureKind.UNKNOWN, "malformed answer: HEAD twice"),
        (encode(b"0000 refs/heads/x\n") + b"0000", FailureKind.UNKNOWN, "malformed answer: object id"),
        (err("Repository not found."), FailureKind.NOT_FOUND, "Repository not found."),
        (err("access denied"), FailureKind.NOT_FOUND, "access denied"),
        (err("rate limit exceeded"), FailureKind.RATE_LIMITED, "rate limit"),
        (err("the moon is full"), FailureKind.UNKNOWN, "the moon is full"),
    ],
)
async def test_a_lying_or_refusing_git_is_believed_in_nothing(prober, body, kind, says):
    async with raw_server(always(http(body))) as server:
        found = await failure(prober.probe(spec_of(f"http://127.0.0.1:{server.port}/x"), None))
        assert found.kind is kind
        assert found.message.startswith(says)
        assert prober.git.calls == []


async def test_what_only_git_understands_is_asked_through_git_and_remembered(prober, upstream):
    repo = upstream.create("x")
    real = GitLsRemote(prober.git.tmp_path)
    async with raw_server(always(http(b"klingon", status=400))) as server:
        spec = spec_of(f"http://127.0.0.1:{server.port}/x")

        async def through_git(asked, addresses):
            prober.git.calls.append((asked.url, addresses))
            return await real.ls_remote(spec_of(repo.url), addresses)

        prober._git.ls_remote = through_git
        seen = await prober.probe(spec, None)
        assert seen.snapshot == snapshot_of(repo)
        before = prober.stats.requests
        assert await prober.probe(spec, seen.mark) == Unchanged(seen.mark)
        assert prober.stats.requests == before
        assert prober.git.calls == [(spec.url, ("127.0.0.1",))] * 2


async def test_a_remembered_way_that_fails_is_forgotten(prober, upstream):
    upstream.protocol_v2 = False
    repo = upstream.create("x")
    await prober.probe(spec_of(repo.url), None)
    prober.git.fails = True
    upstream.fail_with(400, path="info/refs", times=2)
    await failure(prober.probe(spec_of(repo.url), None))
    upstream.protocol_v2 = True
    upstream.requests.clear()
    await prober.probe(spec_of(repo.url), None)
    assert kinds(upstream) == ["upload-pack"]


async def test_weather_does_not_make_a_host_slow(prober, upstream):
    repo = upstream.create("x")
    mark = (await prober.probe(spec_of(repo.url), None)).mark
    upstream.fail_with(500, times=1)
    upstream.fail_with(503, times=1)
    for _ in range(2):
        assert (await failure(prober.probe(spec_of(repo.url), mark))).kind is FailureKind.NETWORK_TIMEOUT
    upstream.requests.clear()
    assert isinstance(await prober.probe(spec_of(repo.url), mark), Unchanged)
    assert kinds(upstream) == ["upload-pack"]


async def test_an_answer_cut_in_the_middle_is_never_fewer_refs(prober, upstream):
    repo = upstream.create("x")
    upstream.drop_after_bytes = 60
    assert (await failure(prober.probe(spec_of(repo.url), None))).kind is FailureKind.NETWORK_TIMEOUT


@pytest.mark.parametrize("cut", [1, 4, 20, len(LISTING) - 1])
async def test_a_body_without_a_length_that_ends_early_is_never_fewer_refs(prober, cut):
    async def talk(c):
        await c.request()
        await c.say(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\n\r\n" + LISTING[:-cut]
        )

    prober.git.fails = True
    async with raw_server(talk) as server:
        found = await failure(prober.probe(spec_of(f"http://127.0.0.1:{server.port}/x"), None))
        assert found.kind is FailureKind.UNKNOWN


async def test_an_endless_and_a_silent_upstream_end_in_their_bounds(make, upstream):
    prober = make(limits={"answer_bytes": 200_000, "answer_s": 1.0})

    async def endless(c):
        await c.request()
        await c.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\n\r\n")
        while True:
            await c.say(encode(f"{OID} refs/heads/main\n".encode()) * 100)

    async with raw_server(endless) as server:
        found = await failure(prober.probe(spec_of(f"http://127.0.0.1:{server.port}/x"), None))
        assert (found.kind, found.message) == (FailureKind.UNKNOWN, "answer larger than 200000 bytes")
    repo = upstream.create("x")
    upstream.stall_after_bytes = 10
    found = await failure(prober.probe(spec_of(repo.url), None))
    assert (found.kind, found.message) == (FailureKind.NETWORK_TIMEOUT, "no complete answer in 1 s")


async def test_what_is_learnt_stays_bounded(make, monkeypatch):
    monkeypatch.setattr(probe_memory, "SERVERS_MAX", 3)
    monkeypatch.setattr(probe_memory, "REPOS_MAX", 5)
    prober = make(names={f"h{i}.example.com": ["127.0.0.1"] for i in range(10)})

    async def wants_git(c):
        while True:
            path = (await c.request()).split()[1]
            await c.say(http(LISTING) if b".git/" in path else http(b"", status=404))

    async with raw_server(wants_git) as server:
        for i in range(10):
            for j in range(3):
                seen = await prober.probe(spec_of(f"http://h{i}.example.com:{server.port}/r{j}"), None)
                assert seen.url.endswith(".git")
    assert len(prober._memory._servers._items) == 3
    assert len(prober._memory._repos._items) == 5


async def test_stats_tell_what_was_done(prober, upstream):
    repo = upstream.create("x")
    seen = await prober.probe(spec_of(repo.url), None)
    await prober.probe(spec_of(repo.url), seen.mark)
    stats = prober.stats
    assert (stats.polls, stats.unchanged, stats.requests, stats.git_calls) == (2, 1, 2, 0)
    assert (stats.connections_opened, stats.connections_reused, stats.connections_idle) == (1, 1, 1)
    assert stats.received_bytes == 2 * seen.received_bytes


async def test_ipv6_hosts_are_asked_by_their_bracketed_name(make):
    allow = AllowList.parse(["::1"])
    prober = make(allow=allow)
    heard = []

    async def talk(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http(LISTING))
        await reader.read()
        writer.close()

    try:
        server = await asyncio.start_server(talk, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    port = server.sockets[0].getsockname()[1]
    async with server:
        rules = UrlRules(frozenset({"http"}), allow)
        parsed = parse_url(f"http://[::1]:{port}/x", rules)
        await prober.probe(RepoSpec(parsed.key, parsed.text, parsed.host_key), None)
        await prober.close()
    assert f"Host: [::1]:{port}\r\n".encode() in heard[0]


async def test_unchanged_polls_open_nothing_and_grow_nothing(make, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    prober = make(ca_file=str(tmp_path / "ca.pem"))
    async with raw_server(always(http(LISTING)), context) as server:
        specs = [spec_of(f"https://127.0.0.1:{server.port}/r{i}") for i in range(50)]
        mark = (await prober.probe(specs[0], None)).mark
        for _ in range(4):
            for spec in specs:
                assert isinstance(await prober.probe(spec, mark), Unchanged)
        assert server.connections == 1
        assert len(prober._memory._repos._items) == 0
