"""Repository URLs: what is one repository, what is fetched, and what is refused."""

import re
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from evermirror.errors import InvalidUrl, InvalidValue
from evermirror.model.address import AllowList, forbidden_reason
from evermirror.model.host import as_address
from evermirror.model.url import URL_MAX_BYTES, RepoUrl, UrlRules, _parse, check_alias, parse_url, plain_key

PUBLIC = UrlRules()
OPEN = UrlRules(frozenset({"https", "http", "ssh"}), AllowList(), userinfo=True, local=True)


@pytest.mark.parametrize(
    ("given_as", "text", "key"),
    [
        ("https://github.com/a/b", "https://github.com/a/b", "github.com/a/b"),
        ("https://github.com/a/b.git", "https://github.com/a/b.git", "github.com/a/b"),
        ("https://github.com/a/b/", "https://github.com/a/b", "github.com/a/b"),
        ("https://github.com/a/b.git///", "https://github.com/a/b.git", "github.com/a/b"),
        ("HTTPS://GitHub.COM:443/A/b", "https://github.com/A/b", "github.com/A/b"),
        ("http://github.com:80/a/b", "http://github.com/a/b", "github.com/a/b"),
        ("http://github.com:443/a/b", "http://github.com:443/a/b", "github.com:443/a/b"),
        ("https://h.example:8443/x", "https://h.example:8443/x", "h.example:8443/x"),
        ("https://8.8.8.8/x", "https://8.8.8.8/x", "8.8.8.8/x"),
        ("https://[2606:4700:0::1]:444/x", "https://[2606:4700::1]:444/x", "[2606:4700::1]:444/x"),
        ("https://bücher.example/x", "https://xn--bcher-kva.example/x", "xn--bcher-kva.example/x"),
        ("https://h.example/%7euser/%41.git", "https://h.example/~user/A.git", "h.example/~user/A"),
        ("https://h.example/a%c3%bc", "https://h.example/a%C3%BC", "h.example/a%C3%BC"),
        ("https://h.example/aü", "https://h.example/a%C3%BC", "h.example/a%C3%BC"),
        ("https://h.example/a%20b", "https://h.example/a%20b", "h.example/a%20b"),
        ("https://h.example/a%252e%252e", "https://h.example/a%252e%252e", "h.example/a%252e%252e"),
        ("https://h.example/%252e%252e/x", "https://h.example/%252e%252e/x", "h.example/%252e%252e/x"),
        ("https://h.example/a%2egit", "https://h.example/a.git", "h.example/a"),
        ("https://h.example/a/.git", "https://h.example/a/.git", "h.example/a"),
        ("https://h.example/.dot/x", "https://h.example/.dot/x", "h.example/.dot/x"),
        ("https://h.example/a.git/b", "https://h.example/a.git/b", "h.example/a.git/b"),
        ("https://h.example/a|b<c>", "https://h.example/a%7Cb%3Cc%3E", "h.example/a%7Cb%3Cc%3E"),
        ("https://h.example/a@b:c+d;e=f", "https://h.example/a@b:c+d;e=f", "h.example/a@b:c+d;e=f"),
        ("https://h.example/...", "https://h.example/...", "h.example/..."),
        ("https://h.example/a/-x", "https://h.example/a/-x", "h.example/a/-x"),
        ("ssh://git@h.example/a/b.git", "ssh://git@h.example/a/b.git", "h.example/a/b"),
        ("ssh://h.example:22/a", "ssh://h.example/a", "h.example/a"),
        ("ssh://u.s_e-r@h.example:2222/a", "ssh://u.s_e-r@h.example:2222/a", "h.example:2222/a"),
        ("git@github.com:a/b.git", "ssh://git@github.com/a/b.git", "github.com/a/b"),
        ("git@github.com:/a/b", "ssh://git@github.com/a/b", "github.com/a/b"),
        ("git@h.example:a%20b", "ssh://git@h.example/a%2520b", "h.example/a%2520b"),
        ("git@[2606:4700::1]:a/b", "ssh://git@[2606:4700::1]/a/b", "[2606:4700::1]/a/b"),
        ("a+b@h.example:x", "ssh://a+b@h.example/x", "h.example/x"),
        ("/srv/git/x.git", "/srv/git/x.git", "local:/srv/git/x"),
        ("/srv/git/x/.git/", "/srv/git/x/.git", "local:/srv/git/x"),
        ("/srv/ü%41?#", "/srv/ü%41?#", "local:/srv/%C3%BC%2541%3F%23"),
    ],
)
def test_spelling_and_identity(given_as, text, key):
    url = parse_url(given_as, OPEN)
    assert (url.text, url.key) == (text, key)
    assert parse_url(url.text, OPEN) == url


REFUSED = {
    "empty": ["https://" + "a" * 2041, "https://h.example/" + "a" * URL_MAX_BYTES,
              "https://h.example/" + "ü" * 1000, ""],
    "control|invisible|white space": [
        "https://h.example/a\0b", "https://h.example/a\nb", "https://h.example/a b", " https://h.example/a",
        "https://h.example/a\t", "https://h.example/a\x7f", "https://h.example/a\x85",
        "https://h.example/a\u202eb",
        "https://h.exa\rmple/a", "https://h.example/a\u00a0", "https://h.example/a\u2028",
        "https://h.example/a\u200b",
        "https://h.example/a%00b", "https://h.example/a%0ab", "https://h.example/a%7F", "/srv/a b",
        "/srv/a\n",
    ],
    "backslash": ["https://h.example/a\\b", "https:\\\\h.example\\a", "https://h.example/a%5cb",
                  "https://h.example\\@x/a"],
    "slash": ["https://h.example/a%2fb", "https://h.example/a%2Fb", "https://h.example/..%2f..%2fetc"],
    r"\. or \.\.": [
        "https://h.example/../a", "https://h.example/a/..", "https://h.example/a/./b",
        "https://h.example/a/%2e%2e/b",
        "https://h.example/%2E./b", "https://h.example/.%2e", "https://h.example/.",
        "https://h.example/a/.%2e/",
        "https://h.example/a/..git", "https://h.example/a/...git", "git@h.example:../a", "/srv/../etc",
        "/srv/./x",
    ],
    "empty segment": ["https://h.example//a", "https://h.example/a//b", "//h.example/a", "/srv//x",
                      "https://h.example//.git"],
    "segment -": ["https://gitlab.example/a/b/-/tree/main", "https://h.example/-",
                  "https://h.example/a/-.git"],
    r"\.git twice": ["https://h.example/a.git.git", "https://h.example/a.git/.git",
    "https://h.example/a.git.git/"],
    "%": ["https://h.example/a%", "https://h.example/a%2", "https://h.example/a%zz",
          "https://h.example/%%41"],
    "no path": ["https://h.example", "https://h.example/", "https://h.example///", "ssh://git@h.example/",
                "/", "/.git",
                "https://h.example/.git"],
    "no host": ["https:///a", "https://:443/a", "ssh:///a"],
    "query or a fragment": ["https://h.example/a?b", "https://h.example/a?", "https://h.example/a#b",
                            "https://h.example?/a",
                            "git@h.example:a?b"],
    "starts with -": ["-", "--upload-pack=x", "-oProxyCommand=x@h.example:a", "-https://h.example/a"],
    "helper": ["ext::sh", "ext::sh%20-c", "fd::17/x", "https::https://h.example/a"],
    "not a supported transport": ["file:///srv/x", "git://h.example/a", "ftp://h.example/a",
                                  "javascript://h.example/a",
                                  "git+ssh://h.example/a", "FILE:///x", "local:///x", "ext://h.example/a"],
    "not a URL": ["github.com/a/b", "h.example:a/b", "https:/h.example/a", "https:h.example/a", "a", "./a",
                  "../a", "~/a",
                  "git@h.example", "git@h.example:", "git@h.example:/", "C:/x", "://h.example/a",
                  "1https://h.example/a"],
    "user name or password": ["https://user@h.example/a", "https://user:hunter2@h.example/a",
                              "https://@h.example/a",
                              "https://hunter2:x@y@h.example/a", "ssh://git:hunter2@h.example/a",
                              "http://:@h.example/a"],
    "user name is not usable": ["ssh://-oProxyCommand@h.example/a", "ssh://a%20b@h.example/a",
                                "ssh://@h.example/a",
                                "-x@h.example:a".replace("-", "ü"), "ssh://$(x)@h.example/a",
                                "ssh://a;b@h.example/a"],
    "port": ["https://h.example:0/a", "https://h.example:65536/a", "https://h.example:/a",
             "https://h.example:x/a",
             "https://h.example:0443/a", "https://h.example:443:443/a", "https://h.example:-1/a",
             "https://h.example:４/a",
             "https://h.example:99999999999/a", "https://hunter2:p/w@h.example/a"],
    "the host|a part of the host": [
        "https://exa%6dple.com/a", "https://127.1/a", "https://2130706433/a", "https://0x7f000001/a",
        "https://0177.0.0.1/a",
        "https://１２７.0.0.1/a", "https://h.example./a", "https://localhost./a", "https://-h.example/a",
        "https://h..example/a",
        "https://" + "x" * 64 + ".example/a", "https://[::1/a", "https://[::1]x/a",
        "https://::1/a".replace("::1", "[::g]"),
        "https://h,example/a", "https://[fe80::1%25eth0]/a", "ssh://-oProxyCommand=x/a",
        "https://127.0.0.1%00.h.example/a",
    ],
    "this machine": ["https://localhost/a", "https://LOCALHOST:8080/a", "https://x.localhost/a",
                     "https://a.b.localhost/x",
                     "https://localhost.localdomain/a", "git@localhost:a"],
    "is internal": [
        "https://127.0.0.1/a", "https://10.0.0.1/a", "https://169.254.169.254/latest", "https://[::1]/a",
        "https://192.0.2.1/a",
        "https://198.18.0.1/a", "https://[2001:db8::1]/a", "https://[::ffff:127.0.0.1]/a",
        "https://[::ffff:7f00:1]/a",
        "https://[64:ff9b::a00:1]/a", "https://[2002:7f00:1::]/a", "https://168.63.129.16/a",
        "https://100.64.0.1/a",
        "https://0.0.0.0/a", "https://[fd00::1]/a", "https://[fe80::1]/a", "https://224.0.0.1/a",
        "git@10.0.0.1:a",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in REFUSED.items() for text in texts]
)
def test_refused_with_a_reason_and_a_hint_and_without_the_secret(reason, text):
    with pytest.raises(InvalidUrl) as refused:
        parse_url(text, OPEN)
    if reason == "empty":
        assert re.search("empty|longer than", refused.value.reason)
    else:
        assert re.search(reason, refused.value.reason), refused.value.reason
    assert refused.value.hint
    assert "hunter2" not in str(refused.value)


def test_lone_surrogates_are_refused():
    with pytest.raises(InvalidUrl, match="not valid Unicode"):
        parse_url("https://h.example/\ud800", OPEN)


@pytest.mark.parametrize(
    "text",
    ["http://h.example/a", "ssh://git@h.example/a", "git@h.example:a", "/srv/git/x", "a+b@h.example:x"],
)
def test_the_public_may_use_https_only(text):
    with pytest.raises(InvalidUrl, match="not allowed here"):
        parse_url(text, PUBLIC)


def test_https_too_is_a_matter_of_the_setting():
    with pytest.raises(InvalidUrl, match="add https to upstreams"):
        parse_url("https://h.example/a", UrlRules(frozenset({"ssh"})))


def test_odd_ssh_users_need_the_operator():
    rules = UrlRules(frozenset({"ssh"}))
    assert parse_url("ssh://git@h.example/a", rules).user == "git"
    with pytest.raises(InvalidUrl, match="user name"):
        parse_url("ssh://a+b@h.example/a", rules)


@pytest.mark.parametrize(
    ("allow", "text"),
    [
        ("localhost", "https://localhost:8080/a"),
        ("127.0.0.1", "https://127.0.0.1:8080/a"),
        ("127.0.0.0/8", "https://127.9.9.9/a"),
        ("127.0.0.1:8080", "https://127.0.0.1:8080/a"),
        ("127.0.0.1:443", "https://127.0.0.1/a"),
        ("*.localhost", "https://git.localhost/a"),
        ("::1", "https://[::1]:9/a"),
    ],
)
def test_internal_hosts_pass_once_the_operator_allows_them(allow, text):
    with pytest.raises(InvalidUrl, match=r"internal|this machine"):
        parse_url(text, PUBLIC)
    assert parse_url(text, UrlRules(allow=AllowList.parse([allow]))).text == text


def test_limits_are_kept_by_host_and_port():
    assert parse_url("https://github.com/a/b", OPEN).host_key == "github.com"
    assert parse_url("http://h.example:8080/a", OPEN).host_key == "h.example:8080"
    assert parse_url("https://[2606:4700::1]/a", OPEN).host_key == "[2606:4700::1]"
    assert parse_url("/srv/x", OPEN).host_key == "local:"


def test_a_local_path_cannot_take_the_key_of_a_host_called_local():
    assert parse_url("/foo", OPEN).key == "local:/foo"
    assert parse_url("https://local/foo", OPEN).key == "local/foo"


LETTERS = "abzABZ019._~-"
segments = st.text(alphabet=LETTERS, min_size=1, max_size=6)
plain_urls = st.builds(
    lambda host, path, end: f"https://{host}/{'/'.join(path)}{end}",
    st.sampled_from(
        ["github.com", "a-b.example", "x.localhost", "localhost", "a.b.c.d", "h.123", "a..b", "0xa.com"]
    ),
    st.lists(segments, min_size=1, max_size=4),
    st.sampled_from(["", ".git", "/", ".git.git", "/.git", "..git"]),
)


@given(plain_urls)
def test_the_short_way_gives_what_the_long_way_gives(text):
    def outcome(parse):
        try:
            return parse(text, PUBLIC)
        except InvalidUrl as error:
            return error.reason

    assert outcome(parse_url) == outcome(_parse)


@given(plain_urls)
def test_the_shortest_way_gives_the_same_or_nothing(text):
    found = plain_key(text, PUBLIC, {})
    if found is not None:
        url = _parse(text, PUBLIC)
        assert (*found, text) == (url.key, url.host_key, url.text)
    assert plain_key(text, UrlRules(frozenset({"ssh"})), {}) is None


def check_sound(text, rules):
    """What holds for every URL that passes."""
    try:
        url = parse_url(text, rules)
    except InvalidUrl:
        return
    assert parse_url(url.text, rules) == url
    assert isinstance(url, RepoUrl)
    assert len(url.text.encode()) <= URL_MAX_BYTES
    assert url.key.isascii()
    assert url.key.isprintable()
    assert not url.key.endswith((".git", "/"))
    parts = url.key.split("/")
    assert len(parts) > 1
    assert not {"", ".", "..", "-"} & set(parts)
    assert not url.text.startswith("-")
    if url.scheme == "local":
        assert url.text.startswith("/")
        return
    seen = urlsplit(url.text)  # another program's reading of it
    assert (seen.scheme, seen.hostname, seen.path) == (url.scheme, url.host, url.path)
    assert (seen.port, seen.username, seen.password) == (url.port, url.user, None)
    assert not seen.query
    assert not seen.fragment
    assert url.text.isascii()
    if as_address(url.host):
        assert forbidden_reason(url.host) is None
    assert parse_url(f"{url.scheme}://{url.key}", rules).key == url.key


hostile = st.text(
    alphabet=st.sampled_from("ahtpsg:/@.%2eEfF5cC0\\?#[]-_~ \n\0üßΩ１。|'\"$;&`git\u202e\ud800"), max_size=40
)


@given(
    st.builds(
        lambda scheme, user, host, port, path: f"{scheme}{user}{host}{port}{path}",
        st.sampled_from(["https://", "http://", "ssh://", "HTTPS://", "", "/", "ext::", "git@"]),
        st.sampled_from(["", "git@", "user:pw@"]),
        st.sampled_from(["github.com", "8.8.8.8", "[2606:4700::1]", "127.0.0.1", "bücher.example"]) | hostile,
        st.sampled_from(["", ":443", ":80", ":8080", ":0", ":"]),
        st.lists(hostile, max_size=4).map(lambda parts: "/" + "/".join(parts)),
    )
)
@example("https://h.example/a/.git")
@example("https://h.example/.git/.git")
@example("https://h.example/a.git/..git")
def test_what_passes_is_sound_however_hostile_the_input(text):
    check_sound(text, OPEN)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text):
    check_sound(text, OPEN)
    check_sound("https://github.com/" + text, OPEN)
    check_sound("/" + text, OPEN)


@given(
    st.lists(segments, min_size=1, max_size=4).map("/".join),
    st.sampled_from(["", ".git", "/", ".git/", "/.git"]),
)
def test_all_spellings_of_a_repository_share_one_key(path, end):
    try:
        key = parse_url(f"https://h.example/{path}", OPEN).key
    except InvalidUrl:
        assume(False)
    assume(not path.endswith(".git"))
    for start in (
        "https://h.example/",
        "http://h.example:80/",
        "HTTPS://H.EXAMPLE:443/",
        "ssh://git@h.example/",
        "git@h.example:",
    ):
        assert parse_url(start + path + end, OPEN).key == key


@given(segments, segments)
def test_different_paths_are_different_repositories(a, b):
    try:
        one, two = (parse_url(f"https://h.example/{x}", OPEN).key for x in (a, b))
    except InvalidUrl:
        assume(False)
    assert (one == two) == (a.removesuffix(".git") == b.removesuffix(".git"))


@pytest.mark.parametrize(
    "alias",
    [
        "devops/core",
        "a",
        "a.b/c_d-e",
        "组/项目",
        "a/b/c/d",
        "x" * 255,
        "github.com/a/b",
        ".x",
        "10.0.0.1:80/a",
    ],
)
def test_an_alias_is_taken_as_it_is(alias):
    assert check_alias(alias) == alias


@pytest.mark.parametrize(
    "alias",
    ["", "..", "a/../b", "a..b", "/a", "a/", "a//b", "a/./b", ".", "a\nb", "a\0", "a b", "a\\b", "x" * 256,
     "a/-/b", "-x", "a/-b",
     "a.git", "a?b", "a#b", "a%2e", "a\u202eb", "\ud800", "a@b"],
)  # fmt: skip
def test_an_alias_that_could_be_misread_is_refused(alias):
    with pytest.raises(InvalidValue) as refused:
        check_alias(alias)
    assert refused.value.hint
