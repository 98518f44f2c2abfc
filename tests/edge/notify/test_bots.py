"""DingTalk and WeCom: signed, within their bounds, an errcode is a failure, and a name mentions nobody."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import unicodedata
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import example, given, settings

from evermirror.edge.notify.dingtalk import BODY_BYTES_MAX, DingTalk, dingtalk_body, signed_query
from evermirror.edge.notify.sender import NotSent
from evermirror.edge.notify.wecom import CONTENT_BYTES_MAX, WeCom, wecom_body
from evermirror.model.alert import Level, Turn
from tests.edge.notify.messages import CHINESE, ITEM, MESSAGE, OVER, digest, hostile_message, messages
from tests.support.http_sink import HttpSink, Reply, Taken, http_sink

TOKEN = "c4n4ry-t0ken-0123456789"
SECRET = "SECc4n4ry5ecret"
TAKEN = Reply(body=b'{"errcode":0,"errmsg":"ok"}')


def bot_answer(code: object, words: str = "") -> Reply:
    return Reply(body=json.dumps({"errcode": code, "errmsg": words}).encode())


def dingtalk_server(request: Taken) -> Reply:
    """As the documentation of custom robots has it; nothing here is ours."""
    asked = parse_qs(urlsplit(request.target).query, strict_parsing=True)
    if asked["access_token"] != [TOKEN]:
        return bot_answer(300001, "token is not exist")
    at = asked["timestamp"][0]
    if abs(int(at) / 1000 - time.time()) > 3600:
        return bot_answer(310000, "invalid timestamp")
    expected = hmac.digest(SECRET.encode(), (at + "\n" + SECRET).encode(), hashlib.sha256)
    if base64.b64decode(asked["sign"][0], validate=True) != expected:
        return bot_answer(310000, "sign not match")
    told = json.loads(request.body)
    if told["msgtype"] != "markdown" or not (told["markdown"]["title"] and told["markdown"]["text"]):
        return bot_answer(40035, "缺少参数 json")
    if len(request.body) > 20_000:
        return bot_answer(460101, "message too long, exceed 20000 bytes")
    return TAKEN


def wecom_server(request: Taken) -> Reply:
    if parse_qs(urlsplit(request.target).query) != {"key": [TOKEN]}:
        return bot_answer(93000, "invalid webhook url")
    told = json.loads(request.body)
    content = told["markdown"]["content"]
    if told["msgtype"] != "markdown" or not content:
        return bot_answer(40008, "invalid message type")
    if len(content.encode()) > 4096:
        return bot_answer(40058, "markdown.content exceed max length 4096")
    return TAKEN


def dingtalk_at(sink: HttpSink, secret: str = SECRET, **more: object) -> DingTalk:
    return DingTalk(f"{sink.base}/robot/send?access_token={TOKEN}", secret, **more)  # type: ignore[arg-type]


def wecom_at(sink: HttpSink, **more: object) -> WeCom:
    return WeCom(f"{sink.base}/cgi-bin/webhook/send?key={TOKEN}", **more)  # type: ignore[arg-type]


BOTS = {"dingtalk": (dingtalk_at, dingtalk_server), "wecom": (wecom_at, wecom_server)}


@pytest.fixture(params=BOTS)
def bot(request):
    return BOTS[request.param]


def shown(body: bytes) -> str:
    markdown = json.loads(body)["markdown"]
    return markdown.get("text") or markdown["content"]


@pytest.mark.parametrize("message", [MESSAGE, CHINESE, digest(20, 300), hostile_message()])
async def test_a_robot_takes_what_is_sent(bot, message):
    make, server = bot
    with http_sink(server) as sink:
        await make(sink).send(message)
    (request,) = sink.taken
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json; charset=utf-8"


async def test_the_message_says_what_people_need(bot):
    make, server = bot
    over = replace(OVER, about="a/b", alert=None)
    worse = replace(ITEM, turn=Turn.WORSE, level=Level.CRITICAL)
    with http_sink(server) as sink:
        await make(sink).send(replace(MESSAGE, items=(worse, over), more=7))
        await make(sink).send(CHINESE)
    english, chinese = (shown(request.body) for request in sink.taken)
    for part in (MESSAGE.title, "Critical, worse than before", "Project fails: openeuler/kernel", ITEM.text):
        assert part in english
    for part in ("Over", " to 2026-", "and 7 more", "evermirror · mirror-1"):
        assert part in english
    for part in (
        "错误",
        "项目同步失败：openeuler/kernel",
        "连续失败 3 次",
        "自 2026-",
        "evermirror · 北京镜像",
    ):
        assert part in chinese


def test_the_signature_is_that_of_a_value_computed_with_openssl():
    # printf '1577262236757\nthis is secret' | openssl dgst -sha256 -hmac 'this is secret' -binary | base64
    asked = parse_qs(signed_query("this is secret", 1577262236757))
    assert asked["timestamp"] == ["1577262236757"]
    assert asked["sign"] == ["hmPWwU+7lVdm3ZZz0r9tSfx0L4Q26jWOZr9+Gs6EZQM="]


async def test_without_a_secret_nothing_is_signed():
    with http_sink(TAKEN) as sink:
        await dingtalk_at(sink, secret="").send(MESSAGE)
    assert sink.taken[0].target == f"/robot/send?access_token={TOKEN}"


async def test_a_wrong_secret_or_clock_is_a_failure_that_a_person_mends():
    with http_sink(dingtalk_server) as sink:
        with pytest.raises(NotSent, match="errcode 310000: sign not match") as caught:
            await dingtalk_at(sink, secret="SECother").send(MESSAGE)
        assert not caught.value.permanent
        with pytest.raises(NotSent, match="invalid timestamp"):
            await dingtalk_at(sink, clock=lambda: time.time() - 7200).send(MESSAGE)
    with http_sink(wecom_server) as sink, pytest.raises(NotSent, match="errcode 93000") as caught:
        await WeCom(f"{sink.base}/cgi-bin/webhook/send?key=other").send(MESSAGE)
    assert not caught.value.permanent


@pytest.mark.parametrize(
    ("which", "code", "permanent", "retry_after_s"),
    [
        ("dingtalk", 130101, False, 600.0),
        ("dingtalk", 410100, False, 600.0),
        ("dingtalk", 90030, False, 600.0),
        ("dingtalk", 460101, True, None),
        ("dingtalk", 400105, True, None),
        ("dingtalk", 430101, True, None),
        ("dingtalk", 430102, True, None),
        ("dingtalk", 430103, True, None),
        ("dingtalk", 430104, True, None),
        ("dingtalk", 310000, False, None),
        ("dingtalk", -1, False, None),
        ("wecom", 45009, False, 60.0),
        ("wecom", 40058, True, None),
        ("wecom", -1, False, None),
    ],
)
async def test_codes_say_what_to_do(which, code, permanent, retry_after_s):
    with http_sink(bot_answer(code, "words of the bot")) as sink, pytest.raises(NotSent) as caught:
        await BOTS[which][0](sink).send(MESSAGE)
    assert caught.value.reason == f"errcode {code}: words of the bot"
    assert (caught.value.permanent, caught.value.retry_after_s) == (permanent, retry_after_s)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(200, b""), "without errcode"),
        (Reply(200, b"<html>"), "without errcode"),
        (Reply(200, b"[0]"), "without errcode"),
        (Reply(200, b'{"errcode": "0"}'), "without errcode"),
        (Reply(200, b'{"errcode": false}'), "without errcode"),
        (Reply(200, b'{"errmsg": "ok"}'), "without errcode"),
        (Reply(200, b"[" * 60_000), "without errcode"),
        (Reply(200, b" " * 70_000 + b'{"errcode": 0}'), "more than 64000 bytes"),
        (Reply(200, b'{"errcode": 0}', {"Content-Encoding": "gzip"}), ""),
        (Reply(404, b'{"errcode": 0}'), "HTTP 404"),
        (Reply(502, b""), "HTTP 502"),
    ],
)
async def test_what_no_robot_answers_is_a_failure(bot, reply, words):
    make, _ = bot
    with http_sink(reply) as sink:
        if not words:  # the answer is plain whatever its head says: we asked for nothing else
            await make(sink).send(MESSAGE)
            return
        with pytest.raises(NotSent, match=words) as caught:
            await make(sink).send(MESSAGE)
    assert not caught.value.permanent


async def test_too_many_requests_are_told_with_the_time_that_is_wanted(bot):
    make, _ = bot
    with http_sink(Reply(429, b"", {"Retry-After": "37"})) as sink, pytest.raises(NotSent) as caught:
        await make(sink).send(MESSAGE)
    assert caught.value.retry_after_s == 37


BLOCKS = {
    dingtalk_body: re.compile(r"^\*\*[^*]+\*\* ", re.MULTILINE),
    wecom_body: re.compile(r'^> <font color="\w+">[^<]+</font> ', re.MULTILINE),
}


@pytest.mark.parametrize("make_body", BLOCKS)
@given(message=messages)
@settings(max_examples=60, deadline=None)
def test_messages_keep_within_the_bounds_and_nothing_is_left_out_uncounted(make_body, message):
    body = make_body(message)
    text = shown(body)
    if make_body is dingtalk_body:
        assert len(body) <= BODY_BYTES_MAX
    else:
        assert len(text.encode("utf-8")) <= CONTENT_BYTES_MAX
    seen = len(BLOCKS[make_body].findall(text))
    hidden = len(message.items) - seen + message.more
    assert seen >= 1
    told = {"en": f"and {hidden} more: evermirror alerts", "zh": f"另有 {hidden} 条：evermirror alerts"}
    assert (told[message.language] in text) == (hidden > 0)


MARKUP = re.compile(
    r"[*`~<>\[\]|\\]|(?<![A-Za-z0-9])[_@]|@all|@所有人|&#?\w+;|://|\bwww\.|\bmailto:", re.IGNORECASE
)


@given(messages)
@example(hostile_message("x@all所 x@allx &所; &#有0;"))
@settings(max_examples=60, deadline=None)
def test_names_are_no_markup_and_mention_nobody(message):
    told = json.loads(dingtalk_body(message))
    assert told["at"] == {"isAtAll": False}
    ours = re.compile(r"^#### |^\*\*[^*]+\*\* ", re.MULTILINE)
    assert MARKUP.findall(ours.sub("", told["markdown"]["text"])) == []
    content = json.loads(wecom_body(message))["markdown"]["content"]
    ours = re.compile(r'^\*\*|\*\*$|^> |<font color="(?:info|warning|comment)">|</font>', re.MULTILINE)
    assert MARKUP.findall(ours.sub("", content)) == []


@given(messages)
@settings(max_examples=50, deadline=None)
def test_somebodys_text_begins_no_heading_and_no_line_of_its_own(message):
    for text in (shown(dingtalk_body(message)), shown(wecom_body(message))):
        headings = [x for x in text.splitlines() if re.match(r"(> )?(#{1,6} |[-+*] |=+$|\d+[.)] )", x)]
        assert len(headings) <= 1  # ours
        assert not {unicodedata.category(c) for c in text.replace("\n", "")} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize("make_body", BLOCKS)
@pytest.mark.parametrize(
    "text", ["# big", "## big", "- point", "+ point", "1. first", "2) second", "====", "---"]
)
def test_what_begins_a_heading_or_a_list_does_not_at_the_beginning_of_a_line(make_body, text):
    body = make_body(replace(MESSAGE, items=(replace(ITEM, title=text, about=text, text=text),)))
    assert [x for x in shown(body).splitlines() if x.removeprefix("> ").startswith(text)] == []


@pytest.mark.parametrize("letter", ['"', "镜", "x", "*", "\\", "\n"])
def test_a_digest_as_long_as_can_be_keeps_within_the_bounds(letter):
    long = replace(ITEM, title=letter * 3000, about=letter * 3000, text=letter * 3000)
    for short in range(0, 100, 10):  # at every distance from the bound
        items = (long, *(replace(ITEM, text="x" * (200 + short)),) * 99)
        message = replace(MESSAGE, title=letter * 3000, server=letter * 3000, items=items, more=10**9)
        assert 18_000 < len(dingtalk_body(message)) <= 20_000
        assert 3_500 < len(shown(wecom_body(message)).encode()) <= 4096


async def test_names_that_people_have_stay_as_they_are():
    about = "git@host:team/my_repo-1.x"
    body = dingtalk_body(replace(MESSAGE, items=(replace(ITEM, about=about),)))
    assert about in shown(body)


LINKS = {
    "see https://evil.example/x?y=1": "see https：//evil.example/x?y=1",
    "dingtalk://dingtalkclient/page/link": "dingtalk：//dingtalkclient/page/link",
    "at WWW.evil.example, HTTP://x": "at WWW．evil.example, HTTP：//x",
    "mailto:a@evil.example": "mailto：a@evil.example",
    "http://127.0.0.1:8080/a: refused": "http：//127.0.0.1:8080/a: refused",
}


@pytest.mark.parametrize("make_body", BLOCKS)
@pytest.mark.parametrize(("text", "expected"), LINKS.items())
def test_an_address_in_somebodys_text_stays_readable_and_is_no_link(make_body, text, expected):
    item = replace(ITEM, about=text, text=text)
    told = shown(make_body(replace(MESSAGE, title=text, items=(item,), server=text)))
    assert told.count(expected) == 4
    assert text not in told
