"""Who may speak for a forge: each scheme by the numbers of its documentation, and every way to be wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from urllib.parse import quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.hooks import signatures
from evermirror.core.hooks.secrets import Secrets, lines_of
from evermirror.core.hooks.signatures import is_signed
from evermirror.model.forge import Forge
from evermirror.model.repo import RepoKey

NOW = 1_794_830_400.0
BODY = json.dumps({"a": "é", "b": [1, 2]}).encode()
SECRET, OTHER = "It's a Secret to Everybody", "another one"
SIGNING = "whsec_" + base64.b64encode(b"k" * 32).decode()
SIGNING_OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()


def hmac_hex(secret, body):
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def gitee(secret, at):
    signed = hmac.new(secret.encode(), f"{at}\n{secret}".encode(), hashlib.sha256).digest()
    return {"x-gitee-token": base64.b64encode(signed).decode(), "x-gitee-timestamp": str(at)}


def standard(secret, body, at=int(NOW), number="msg_1"):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = hmac.new(key, f"{number}.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": number,
        "webhook-timestamp": str(at),
        "webhook-signature": "v1," + base64.b64encode(signed).decode(),
    }


SCHEMES = {
    "github": (Forge.GITHUB, lambda s, b: {"x-hub-signature-256": "sha256=" + hmac_hex(s, b)}),
    "gitea": (Forge.GITEA, lambda s, b: {"x-gitea-signature": hmac_hex(s, b)}),
    "forgejo": (Forge.GITEA, lambda s, b: {"x-forgejo-signature": hmac_hex(s, b)}),
    "gitea, as github": (Forge.GITEA, lambda s, b: {"x-hub-signature-256": "sha256=" + hmac_hex(s, b)}),
    "gitlab token": (Forge.GITLAB, lambda s, b: {"x-gitlab-token": s}),
    "gitee password": (Forge.GITEE, lambda s, b: {"x-gitee-token": s}),
    "gitee signed": (Forge.GITEE, lambda s, b: gitee(s, int(NOW * 1000))),
}
OVER_THE_BODY = {"github", "gitea", "forgejo", "gitea, as github"}


def test_githubs_own_example():
    """The numbers of its page about validating deliveries."""
    headers = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }
    assert is_signed(Forge.GITHUB, headers, b"Hello, World!", [SECRET], NOW)
    assert not is_signed(Forge.GITHUB, headers, b"Hello, World?", [SECRET], NOW)


def test_the_example_of_standard_webhooks():
    """The numbers of its specification's reference tests."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    assert is_signed(Forge.GITLAB, headers, body, [secret], 1_614_265_330.0)
    assert not is_signed(Forge.GITLAB, headers, body + b" ", [secret], 1_614_265_330.0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_takes_its_own_and_nothing_else(scheme):
    forge, sign = SCHEMES[scheme]
    headers = sign(SECRET, BODY)
    assert is_signed(forge, headers, BODY, [SECRET], NOW)
    assert not is_signed(forge, headers, BODY, [OTHER], NOW)
    assert not is_signed(forge, headers, BODY, [], NOW)
    assert not is_signed(forge, {}, BODY, [SECRET], NOW)
    assert not is_signed(forge, dict.fromkeys(headers, ""), BODY, [SECRET], NOW)
    for cut in (1, 10):
        assert not is_signed(forge, {k: v[:-cut] for k, v in headers.items()}, BODY, [SECRET], NOW)


@pytest.mark.parametrize("scheme", sorted(OVER_THE_BODY))
def test_one_other_byte_is_another_body(scheme):
    forge, sign = SCHEMES[scheme]
    headers = sign(SECRET, BODY)
    assert not is_signed(forge, headers, BODY + b"\n", [SECRET], NOW)
    assert not is_signed(forge, headers, BODY.replace(b"1", b"3"), [SECRET], NOW)
    same_json = json.dumps(json.loads(BODY), indent=1).encode()
    assert not is_signed(forge, headers, same_json, [SECRET], NOW), "it is about bytes, not about values"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_while_a_secret_is_changed_the_old_and_the_new_are_good(scheme):
    forge, sign = SCHEMES[scheme]
    both = ["the new one", SECRET]
    assert is_signed(forge, sign("the new one", BODY), BODY, both, NOW)
    assert is_signed(forge, sign(SECRET, BODY), BODY, both, NOW)
    assert not is_signed(forge, sign(SECRET, BODY), BODY, ["the new one"], NOW)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_forges_signature_is_no_good_at_another_forge(scheme):
    forge, sign = SCHEMES[scheme]
    headers = sign(SECRET, BODY)
    others = set(Forge) - {forge, Forge.GITEA if "x-hub-signature-256" in headers else forge}
    if scheme == "gitea, as github":
        others -= {Forge.GITHUB}
    for other in others:
        assert not is_signed(other, headers, BODY, [SECRET], NOW), other


def test_sha1_is_not_taken():
    old = hmac.new(SECRET.encode(), BODY, hashlib.sha1).hexdigest()
    for headers in ({"x-hub-signature": f"sha1={old}"}, {"x-hub-signature-256": f"sha1={old}"}):
        assert not is_signed(Forge.GITHUB, headers, BODY, [SECRET], NOW)


def test_gitea_signs_the_json_inside_a_form_and_github_the_form():
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = urlencode({"payload": BODY.decode()}).encode()
    gitea = form | {"x-gitea-signature": hmac_hex(SECRET, BODY)}
    assert is_signed(Forge.GITEA, gitea, body, [SECRET], NOW)
    assert not is_signed(Forge.GITEA, gitea, body.replace(b"payload", b"payloas"), [SECRET], NOW)
    whole = form | {"x-hub-signature-256": "sha256=" + hmac_hex(SECRET, body)}
    assert is_signed(Forge.GITHUB, whole, body, [SECRET], NOW)
    inner = form | {"x-hub-signature-256": "sha256=" + hmac_hex(SECRET, BODY)}
    assert not is_signed(Forge.GITHUB, inner, body, [SECRET], NOW)


# GitLab's signing token


def test_a_signing_token_signs_id_time_and_body():
    headers = standard(SIGNING, BODY)
    assert is_signed(Forge.GITLAB, headers, BODY, [SIGNING], NOW)
    assert is_signed(Forge.GITLAB, headers, BODY, ["plain", SIGNING_OTHER, SIGNING], NOW)
    assert not is_signed(Forge.GITLAB, headers, BODY, [SIGNING_OTHER], NOW)
    for name, value in (("webhook-id", "msg_2"), ("webhook-timestamp", str(int(NOW) + 1))):
        assert not is_signed(Forge.GITLAB, headers | {name: value}, BODY, [SIGNING], NOW), name
    assert not is_signed(Forge.GITLAB, headers, BODY + b" ", [SIGNING], NOW)


def test_one_good_signature_of_several_is_enough():
    good = standard(SIGNING, BODY)["webhook-signature"]
    headers = standard(SIGNING, BODY) | {"webhook-signature": f"v1,AAAA v2,xyz {good}"}
    assert is_signed(Forge.GITLAB, headers, BODY, [SIGNING], NOW)
    many = standard(SIGNING, BODY) | {"webhook-signature": "v1,AAAA " * 1000 + good}
    assert not is_signed(Forge.GITLAB, many, BODY, [SIGNING], NOW), "only so many are looked at"


def test_a_signing_token_that_is_no_base64_is_good_for_nothing():
    headers = standard(SIGNING, BODY)
    assert not is_signed(Forge.GITLAB, headers, BODY, ["whsec_%%%"], NOW)
    assert is_signed(Forge.GITLAB, headers, BODY, ["whsec_%%%", SIGNING], NOW)


def test_a_gitlab_with_both_is_believed_by_either():
    """A person may know only one of the two here."""
    headers = standard(SIGNING, BODY) | {"x-gitlab-token": SECRET}
    assert is_signed(Forge.GITLAB, headers, BODY, [SECRET], NOW)
    assert is_signed(Forge.GITLAB, headers, BODY, [SIGNING], NOW)


# Times


@pytest.mark.parametrize(
    ("off_s", "good"), [(0, True), (-3_599, True), (3_599, True), (-3_601, False), (3_601, False)]
)
def test_a_signature_with_a_time_is_good_for_an_hour(off_s, good):
    at = int(NOW) + off_s
    assert is_signed(Forge.GITLAB, standard(SIGNING, BODY, at), BODY, [SIGNING], NOW) is good
    assert is_signed(Forge.GITEE, gitee(SECRET, at * 1000), BODY, [SECRET], NOW) is good


@pytest.mark.parametrize("at", ["", "-1", "1e9", "now", "٣", "9" * 30, " 1", "0x1", str(int(NOW))])
def test_a_time_that_is_none_is_never_fresh(at):
    """The last one: Gitee's are milliseconds."""
    assert not is_signed(Forge.GITEE, gitee(SECRET, at), BODY, [SECRET], NOW)
    if at != str(int(NOW)):
        assert not is_signed(Forge.GITLAB, standard(SIGNING, BODY, at), BODY, [SIGNING], NOW)


def test_gitees_signature_comes_plain_or_percent_encoded():
    for number in range(40):  # until one has both + and /
        headers = gitee(SECRET, int(NOW * 1000) + number)
        assert is_signed(Forge.GITEE, headers, BODY, [SECRET], NOW)
        quoted = headers | {"x-gitee-token": quote_plus(headers["x-gitee-token"])}
        assert is_signed(Forge.GITEE, quoted, BODY, [SECRET], NOW)


# Whatever comes


@given(
    st.sampled_from(list(Forge)),
    st.dictionaries(
        st.sampled_from(
            [
                "x-hub-signature-256", "x-gitea-signature", "x-forgejo-signature", "x-gitlab-token",
                "webhook-id", "webhook-timestamp", "webhook-signature", "x-gitee-token", "x-gitee-timestamp",
                "content-type",
            ]
        ),
        st.text(max_size=100),
    ),
    st.binary(max_size=100),
    st.lists(st.text(min_size=1, max_size=40).map(lambda s: s + "ₓ"), max_size=3),
)  # fmt: skip
def test_nothing_that_comes_is_an_error_and_nothing_random_is_good(forge, headers, body, secrets):
    assert not is_signed(forge, headers, body, secrets, NOW)


@pytest.mark.parametrize("secret", ["пароль", "密码 with spaces", "é"])
def test_a_secret_that_is_not_ascii_is_compared_as_the_bytes_that_came(secret):
    as_received = secret.encode().decode("latin-1")
    assert is_signed(Forge.GITLAB, {"x-gitlab-token": as_received}, BODY, [secret], NOW)
    assert not is_signed(Forge.GITLAB, {"x-gitlab-token": as_received[:-1]}, BODY, [secret], NOW)


@pytest.mark.parametrize("scheme", [*SCHEMES, "gitlab signed"])
def test_every_comparison_takes_constant_time_and_every_secret_is_tried(scheme, monkeypatch):
    compared = []
    compare = hmac.compare_digest

    def spy(given, own):
        compared.append(given)
        return compare(given, own)

    monkeypatch.setattr(signatures.hmac, "compare_digest", spy)
    if scheme == "gitlab signed":
        forge, headers, secrets = Forge.GITLAB, standard(SIGNING, BODY), [SIGNING, SIGNING_OTHER]
    else:
        forge, sign = SCHEMES[scheme]
        headers, secrets = sign(SECRET, BODY), [SECRET, OTHER]
    assert is_signed(forge, headers, BODY, secrets, NOW)
    of_two = len(compared)
    compared.clear()
    assert is_signed(forge, headers, BODY, secrets[:1], NOW)
    assert of_two == 2 * len(compared) > 0, "the second is looked at also after the first was good"
    compared.clear()
    assert not is_signed(forge, headers, BODY, [], NOW)
    assert compared, "that there is no secret does not show in the time"


# Which secrets

KEY = RepoKey("git.example.org/team/tools")


def test_the_most_specific_level_is_the_only_one_that_counts():
    secrets = Secrets(
        {KEY: ("repo", "repo before"), "git.example.org": ("host",)},
        {Forge.GITLAB: ("forge",)},
    )
    assert secrets.of(Forge.GITLAB, KEY, "git.example.org") == ("repo", "repo before")
    assert secrets.of(Forge.GITLAB, RepoKey("git.example.org/team/x"), "git.example.org") == ("host",)
    assert secrets.of(Forge.GITLAB, None, "GIT.example.org") == ("host",)
    assert secrets.of(Forge.GITLAB, RepoKey("h.example/a"), "h.example") == ("forge",)
    assert secrets.of(Forge.GITLAB, None, "") == ("forge",)
    assert secrets.of(Forge.GITHUB, RepoKey("h.example/a"), "h.example") == ()


def test_the_first_is_the_one_to_register():
    secrets = Secrets({KEY: ("new", "old")}, {Forge.GITEA: ("a", "b")})
    assert secrets.current(Forge.GITEA, KEY, "git.example.org") == "new"
    assert secrets.current(Forge.GITEA, None, "h.example") == "a"
    assert secrets.current(Forge.GITHUB, None, "h.example") is None


def test_secrets_are_one_a_line():
    assert lines_of(" new \n\nold\r\nnew\n") == ("new", "old")
    assert lines_of(" \n ") == ()


def test_secrets_are_not_shown():
    assert "hidden" not in repr(Secrets({"h": ("hidden",)}, {Forge.GITHUB: ("hidden",)}))
