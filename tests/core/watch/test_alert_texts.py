"""Alerts in words: every kind in both languages, one item for each alert, and what a message is called."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from string import Formatter

import pytest

import evermirror
from evermirror.core.collect.decisions import AlertKind as CollectKind
from evermirror.core.discover.expiry import expiry_alert
from evermirror.core.fleet.decisions import AlertKind as FleetKind
from evermirror.core.pull.outcome import alerts_between, unremarkable
from evermirror.core.pull.settings import PullSettings
from evermirror.core.watch.ends import end_in_chinese
from evermirror.core.watch.events import AlertSettings
from evermirror.core.watch.fleet_kinds import LEVELS, fleet_alert
from evermirror.core.watch.kinds import ALL_KINDS
from evermirror.core.watch.monitoring import Facts, Rules, standing
from evermirror.core.watch.own import down, overflow
from evermirror.core.watch.texts import (
    NOT_SEEN_AGAIN,
    WORDINGS,
    compose,
    compose_test,
    end_of,
    text_of,
    title_of,
)
from evermirror.model.alert import Alert, AlertId, AlertRecord, ChannelState, Level, Notice, NoticeId, Turn
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ClassProgress, KindCount
from tests.core.pull.small import project
from tests.core.watch.small_alerts import BOT, MAIL, NOW, World, alert

CHINESE = re.compile(r"[\u4e00-\u9fff]")
TOLD_IN_CODE = re.compile(r'Alert\(\s*"([a-z-]+)"')


def record(told: Alert, *, ended_at: float | None = None, end_text: str = "", number: int = 1) -> AlertRecord:
    return AlertRecord(AlertId(number), told, NOW, NOW, ended_at, end_text)


# Every kind


def test_every_kind_has_words_and_no_words_are_of_a_kind_that_is_not() -> None:
    assert set(WORDINGS) == ALL_KINDS
    assert {kind.value for kind in (*FleetKind, *CollectKind)} <= ALL_KINDS


def test_every_kind_that_the_code_tells_of_is_known(source_texts: dict[str, str]) -> None:
    told = {kind for text in source_texts.values() for kind in TOLD_IN_CODE.findall(text)}
    assert len(told) >= 8
    assert told <= ALL_KINDS


@pytest.fixture
def source_texts() -> dict[str, str]:
    root = Path(evermirror.__file__).parent
    return {str(path): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}


@pytest.mark.parametrize("kind", sorted(ALL_KINDS))
def test_a_kind_is_told_in_both_languages(kind: str) -> None:
    english, chinese = title_of(kind, "en"), title_of(kind, "zh")
    assert english.isascii()
    assert not english.endswith(".")
    assert CHINESE.search(chinese)
    for template in WORDINGS[kind].zh_texts:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
        told = Alert(kind, "it", "in English", facts={name: f"<{name}>" for name in names})
        text = text_of(told, "zh")
        assert CHINESE.search(text)
        assert text_of(told, "en") == "in English"
    assert WORDINGS[kind].zh_texts


@pytest.mark.parametrize("kind", sorted(kind.value for kind in FleetKind))
def test_the_fleets_alerts_need_no_facts_and_have_a_level(kind: str) -> None:
    told = fleet_alert(FleetKind(kind), "w1", "in English")
    assert (told.kind, told.level) == (kind, LEVELS[FleetKind(kind)])
    assert text_of(told, "zh") != "in English"
    assert fleet_alert(FleetKind(kind), "w1", "well again", over=True).over


def test_facts_that_are_missing_leave_a_plainer_text_or_the_english_one() -> None:
    rich = alert(facts={"project": "a/b", "failures": "3", "reason": "gone {x}"})
    assert text_of(rich, "zh") == "a/b 连续失败 3 次：gone {x}"
    plain = alert(facts={"project": "a/b", "failures": "3"})
    assert text_of(plain, "zh") == "a/b 连续失败 3 次"
    assert text_of(alert(), "zh") == "p fails"


def test_an_unknown_kind_is_called_what_it_is() -> None:
    told = Alert("new-kind", "it", "it happened")
    assert (title_of("new-kind", "zh"), text_of(told, "zh")) == ("new-kind", "it happened")


# Facts where alerts are made


def test_what_the_pull_machine_tells_has_a_chinese_text() -> None:
    before = project()
    failure = Failure(FailureKind.NOT_FOUND, "gone\nfor good")
    after = replace(before, failures=5, paused="not found", last_failure=failure)
    told = list(alerts_between(unremarkable(before), after, PullSettings()))
    assert {a.kind for a in told} == {"project-failing", "project-paused"}
    for each in told:
        assert CHINESE.search(text_of(each, "zh"))
        assert each.facts["reason"] in each.text


def test_what_monitoring_tells_has_a_chinese_text() -> None:
    failing = project()
    failure = Failure(FailureKind.AUTH_FAILED, "who are you")
    failing = replace(failing, failures=4, last_failure=failure, paused="refused")
    errors = {FailureKind.AUTH_FAILED: KindCount(12, 3)}
    progress = ClassProgress(10, 7, 0, 0, 3, 0, None)
    names = ["a/b", "a/c", "a/d"]
    facts = Facts([failing], errors, progress, names, {FailureKind.AUTH_FAILED: names})
    texts = {each.kind: text_of(each, "zh") for each in standing(facts, Rules())}
    assert texts["project-failing"].endswith("连续失败 4 次：AUTH_FAILED, who are you")
    assert texts["error-kind"] == "最近 60 分钟内 AUTH_FAILED 出现 12 次，涉及 3 个项目：a/b, a/c, a/d"
    assert texts["failure-rate"] == (
        "10 个项目中有 3 个失败：30.0%；涉及：a/b, a/c, a/d；最近 60 分钟的错误：AUTH_FAILED 12× (3)"
    )


# Messages


@pytest.mark.parametrize(
    ("turn", "english", "chinese"),
    [
        (Turn.RAISED, "Project fails: p", "项目同步失败：p"),
        (Turn.WORSE, "Worse: Project fails: p", "加重：项目同步失败：p"),
        (Turn.OVER, "Over: Project fails: p", "已结束：项目同步失败：p"),
    ],
)
def test_a_message_of_one_alert_is_called_after_it(turn: Turn, english: str, chinese: str) -> None:
    told = [(Notice(NoticeId(1), "mail", AlertId(1), turn, NOW), record(alert()))]
    assert compose(told, MAIL, AlertSettings(), NOW).title == english
    assert compose(told, BOT, AlertSettings(), NOW).title == chinese


@pytest.mark.parametrize(
    ("turns", "english", "chinese"),
    [
        ("rr", "2 alerts", "2 条告警"),
        ("ro", "1 alert, 1 over", "1 条告警，1 条已结束"),
        ("ooo", "3 over", "3 条已结束"),
    ],
)
def test_a_message_of_many_is_called_after_their_number(turns: str, english: str, chinese: str) -> None:
    told = [
        (
            Notice(NoticeId(n), "mail", AlertId(n), Turn.OVER if turn == "o" else Turn.RAISED, NOW),
            record(alert(f"p{n}"), number=n),
        )
        for n, turn in enumerate(turns)
    ]
    assert compose(told, MAIL, AlertSettings(), NOW).title == english
    assert compose(told, BOT, AlertSettings(), NOW).title == chinese


@pytest.mark.parametrize(
    ("turns", "shown"),
    [
        ({Turn.RAISED, Turn.WORSE}, Turn.RAISED),
        ({Turn.RAISED, Turn.OVER}, Turn.OVER),
        ({Turn.WORSE, Turn.OVER}, Turn.OVER),
    ],
)
def test_several_notices_of_one_alert_are_one_item(turns: set[Turn], shown: Turn) -> None:
    ended_at = NOW + 5 if Turn.OVER in turns else None
    told = [
        (Notice(NoticeId(n), "mail", AlertId(1), turn, NOW), record(alert(), ended_at=ended_at))
        for n, turn in enumerate(turns)
    ]
    [item] = compose(told, MAIL, AlertSettings(), NOW).items
    assert (item.turn, item.raised_at, item.ended_at, item.alert) == (shown, NOW, ended_at, 1)


@pytest.mark.parametrize("turn", [Turn.RAISED, Turn.WORSE])
def test_what_is_over_is_never_told_as_if_it_stood(turn: Turn) -> None:
    told = [(Notice(NoticeId(1), "mail", AlertId(1), turn, NOW), record(alert(), ended_at=NOW + 5))]
    message = compose(told, MAIL, AlertSettings(), NOW)
    assert (message.items[0].turn, message.title) == (Turn.OVER, "Over: Project fails: p")


def test_a_warning_that_stands_comes_before_something_critical_that_is_over() -> None:
    told = [
        (
            Notice(NoticeId(1), "mail", AlertId(1), Turn.OVER, NOW),
            record(alert("a", Level.CRITICAL), number=1),
        ),
        (Notice(NoticeId(2), "mail", AlertId(2), Turn.RAISED, NOW), record(alert("b"), number=2)),
    ]
    message = compose(told, MAIL, AlertSettings(), NOW)
    assert [item.about for item in message.items] == ["b", "a"]
    assert message.level is Level.WARNING


@pytest.mark.parametrize(
    ("end_text", "english", "chinese"),
    [
        ("p is well", "p is well", "已结束：p fails"),
        ("", "no longer: p fails", "已结束：p fails"),
        ("p no longer fails", "p no longer fails", "已恢复正常（此前：p fails）"),
        ("p is called {q} now", "p is called {q} now", "已改名为 {q}（此前：p fails）"),
        (NOT_SEEN_AGAIN, "not seen again since the restart: p fails", "重启后未再出现：p fails"),
    ],
)
def test_an_end_says_how(end_text: str, english: str, chinese: str) -> None:
    ended = record(alert(), ended_at=NOW, end_text=end_text)
    assert (end_of(ended, "en"), end_of(ended, "zh")) == (english, chinese)


def ends_in_code(source_texts: dict[str, str]) -> set[str]:
    """The words of every end that the code tells of, as far as they are constant: ``_`` for a name."""
    found = set()
    for text in source_texts.values():
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(("Alert", "_alert", "_over")):
                over = ast.unparse(call.func) == "weather_over" or any(
                    k.arg == "over" and ast.unparse(k.value) == "True" for k in call.keywords
                )
                words = [ast.unparse(a)[1:].strip("'\"") for a in call.args if isinstance(a, ast.JoinedStr)]
                words += [a.value for a in call.args if isinstance(a, ast.Constant)]
                found |= {re.sub(r"\{[^}]*\}", "_", w) for w in words if over and " " in w}
    return found - {"_ _"}


OTHER_ENDS = (
    "every repo has room",
    "enough workers are back; the rest are given their grace again",
    "worker w no longer holds repos that the catalog never had",
    "aggregator a accuses nobody any more",
    "p is disabled",
    "a/b is called a/c now",
    down(ChannelState("mail", "mail", 0, NOW, None), since=NOW - 9).text,
    down(ChannelState("mail", "mail", 0, None, None), since=NOW - 9).text,
    "its channel is no longer in the settings",
    overflow(10, over=True).text,
)


def test_every_end_is_told_in_chinese_too(source_texts: dict[str, str]) -> None:
    told = ends_in_code(source_texts)
    assert {"_ is no longer paused", "answers again", "is back", "_ is no longer followed"} <= told
    assert [
        words for words in sorted({*told, *OTHER_ENDS}) if not CHINESE.search(end_in_chinese(words))
    ] == []
    assert end_in_chinese("something else") == ""


def test_the_facts_of_the_fleets_alerts_are_in_the_chinese_text() -> None:
    def told(kind: FleetKind, **facts: str) -> str:
        return text_of(fleet_alert(kind, "x", "in English", facts=facts), "zh")

    assert told(FleetKind.NO_ROOM, count="7") == "7 个仓库在等待：没有工作节点能再接收"
    assert told(FleetKind.STRAY, count="9") == "工作节点 x 存有 9 个目录中没有的仓库，保持不动"
    assert told(FleetKind.QUARANTINE, reason="it lies") == "工作节点 x 已被隔离：it lies"
    accused = {"worker": "w1", "reason": "it lies, a/b"}
    assert told(FleetKind.ACCUSATION, **accused, lately="3") == (
        "聚合节点 x 指控工作节点 w1（it lies, a/b），指控被搁置：x 一小时内已使 3 个工作节点被隔离"
    )
    assert told(FleetKind.ACCUSATION, **accused, already="3", workers="9").endswith(
        "指控被搁置：9 个工作节点中已有 3 个被隔离"
    )


def test_a_credential_that_has_expired_is_not_called_one_that_will() -> None:
    gone, soon = (expiry_alert("tok", NOW + days * 86_400.0, NOW) for days in (-1, 5))
    assert gone is not None
    assert soon is not None
    assert text_of(gone, "zh").startswith("凭据 tok 已过期（有效期至 ")
    assert text_of(soon, "zh").startswith("凭据 tok 还有 5 天过期（有效期至 ")
    assert "请在代码托管平台更新" in text_of(gone, "zh")
    assert (title_of(gone.kind, "zh"), title_of(gone.kind, "en")) == ("凭据到期", "Credential expiry")


def test_removals_that_wait_are_told_with_the_command_that_accepts_them() -> None:
    facts = {"gone": "30", "total": "40", "id": "3"}
    assert text_of(Alert("discovery-held", "g", "…", facts=facts), "zh").endswith(
        "等待人工确认：evermirror pull discover run 3 --accept"
    )


def test_a_text_is_one_line_and_bounded() -> None:
    told = Alert("project-failing", "p", "a\nb" + "c" * 9999)
    assert text_of(told, "en").startswith("a bcc")
    assert len(text_of(told, "en")) == 500
    assert len(text_of(Alert("source-weather", "h", "t", facts={"reason": "x" * 9999}), "zh")) == 500


def test_a_test_says_that_it_is_one() -> None:
    settings = AlertSettings((MAIL, BOT), server="eu-1")
    english, chinese = (compose_test(channel, settings, NOW) for channel in (MAIL, BOT))
    assert (english.title, english.server, english.items[0].turn) == ("Test message: mail", "eu-1", Turn.TEST)
    assert CHINESE.search(chinese.items[0].text)


def test_a_message_says_who_speaks_and_in_which_language() -> None:
    world = World(BOT, server="eu-1")
    world.tell(alert(facts={"project": "a/b", "failures": "3"}))
    message = world.under_way["bot"].message
    assert (message.server, message.language, message.at) == ("eu-1", "zh", NOW)
    assert message.items[0].text == "a/b 连续失败 3 次"
