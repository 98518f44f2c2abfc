"""Alerts in words, in English and Chinese: titles by kind, and the message that a channel sends.

An alert carries its text in English, and the facts in it. The Chinese text is the first of its kind's
templates whose facts are all there; with none, the English text stands. ``{about}`` is always there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evermirror.core.watch.ends import end_in_chinese
from evermirror.core.watch.events import AlertSettings, Channel
from evermirror.model.alert import Alert, AlertId, AlertRecord, Level, Message, MessageItem, Notice, Turn

EN, ZH = "en", "zh"
NOT_SEEN_AGAIN = "not seen again since the restart"
TEXT_MAX_CHARS = 500  # of one item
_ACCUSES_ZH = "聚合节点 {about} 指控工作节点 {worker}（{reason}），指控被搁置："
_ACCEPT = "evermirror pull discover run {id} --accept"
_RENEW_ZH = "：请在代码托管平台更新，并写入设置"


@dataclass(frozen=True, slots=True)
class Wording:
    """Of one kind. ``zh_texts``: the one that tells most first."""

    en: str
    zh: str
    zh_texts: tuple[str, ...]


WORDINGS: Mapping[str, Wording] = {
    # Pull mirroring
    "project-failing": Wording(
        "Project fails",
        "项目同步失败",
        (
            "{project} 连续失败 {failures} 次：{reason}",
            "{project} 连续失败 {failures} 次",
        ),
    ),
    "project-paused": Wording("Project paused", "项目已暂停", ("{project} 已暂停，等待人工重置：{reason}",)),
    "target-paused": Wording("Target paused", "推送目标已暂停", ("{target} 已暂停：{reason}",)),
    "target-conflict": Wording("Target in conflict", "推送目标冲突", ("{target} 需要人工处理：{reason}",)),
    "target-refused": Wording(
        "Target refuses refs", "推送目标拒绝部分引用", ("{target} 不接受部分引用：{reason}",)
    ),
    "visibility": Wording(
        "Target more visible than source",
        "推送目标比源更公开",
        ("{target} 的可见范围大于源，已停止推送：{reason}",),
    ),
    "target-credential": Wording(
        "Target refuses credential", "推送目标拒绝凭据", ("工作节点无法登录 {target}：{reason}",)
    ),
    "source-weather": Wording("Source fails", "源站访问失败", ("访问 {about} 的所有项目都失败：{reason}",)),
    "error-kind": Wording(
        "Same error again and again",
        "同类错误频发",
        (
            "最近 {minutes} 分钟内 {error} 出现 {count} 次，涉及 {projects} 个项目：{affected}",
            "最近 {minutes} 分钟内 {error} 出现 {count} 次，涉及 {projects} 个项目",
        ),
    ),
    "failure-rate": Wording(
        "Many projects failed",
        "失败率过高",
        (
            "{total} 个项目中有 {failed} 个失败：{percent}；涉及：{affected}；"
            "最近 {minutes} 分钟的错误：{errors}",
            "{total} 个项目中有 {failed} 个失败：{percent}",
        ),
    ),
    # The fleet
    "brake": Wording(
        "Many workers silent",
        "大量工作节点失联",
        ("大量工作节点同时失联：判断为自身网络故障，不判定任何节点下线",),
    ),
    "no-room": Wording(
        "No room for repos",
        "空间不足",
        (
            "{count} 个仓库在等待：没有工作节点能再接收",
            "没有工作节点能再接收仓库，仓库在等待",
        ),
    ),
    "worker-down": Wording("Worker down", "工作节点下线", ("工作节点 {about} 已下线，其仓库转交其他节点",)),
    "aggregator-down": Wording(
        "Aggregator away",
        "聚合节点失联",
        ("聚合节点 {about}（{url}）失联：无法从它克隆", "聚合节点 {about} 失联：无法从它克隆"),
    ),
    "quarantine": Wording(
        "Worker quarantined",
        "工作节点被隔离",
        ("工作节点 {about} 已被隔离：{reason}", "工作节点 {about} 已被隔离，原因见审计日志"),
    ),
    "accusation": Wording(
        "Accusation held back",
        "指控被搁置",
        (
            _ACCUSES_ZH + "{about} 一小时内已使 {lately} 个工作节点被隔离",
            _ACCUSES_ZH + "{workers} 个工作节点中已有 {already} 个被隔离",
            "聚合节点 {about} 的指控被搁置",
        ),
    ),
    "disk-full": Wording(
        "Worker's disk full",
        "工作节点磁盘已满",
        (
            "工作节点 {about} 不再接收新的克隆：磁盘已用 {used}，超过该节点的 fleet.disk_high，或无法写入",
            "工作节点 {about} 不再接收新的克隆：磁盘已满或无法写入",
        ),
    ),
    "stalled": Wording(
        "Work does not move",
        "工作停滞",
        (
            "{about}：{pending} 项工作（{what}）在等待，已有 {minutes} 分钟毫无进展",
            "{about}：有工作在等待，长时间毫无进展",
        ),
    ),
    "slow-clones": Wording(
        "Worker completes no clones",
        "工作节点未完成克隆",
        (
            "工作节点 {about} 在 {minutes} 分钟内没有完成任何首次克隆，这些仓库转交其他节点",
            "工作节点 {about} 没有完成首次克隆，这些仓库转交其他节点",
        ),
    ),
    "unverified": Wording(
        "Repos without a verified copy",
        "仓库没有经过验证的副本",
        (
            "{count} 个仓库只由不受信任的工作节点声称持有，尚未验证：{why}",
            "有仓库只由不受信任的工作节点声称持有，尚未验证",
        ),
    ),
    "unreachable": Wording(
        "No relay reaches a worker",
        "中继无法连接工作节点",
        ("没有中继能连接到工作节点 {about}，它持有的仓库转交其他节点",),
    ),
    "stray": Wording(
        "Unknown repos on a worker",
        "工作节点存有未知仓库",
        (
            "工作节点 {about} 存有 {count} 个目录中没有的仓库，保持不动",
            "工作节点 {about} 存有目录中没有的仓库，保持不动",
        ),
    ),
    "accused": Wording("Worker accused", "工作节点被指控", ("工作节点 {about} 提供了不实的数据",)),
    "split": Wording(
        "Workers and upstream differ",
        "工作节点与上游不一致",
        ("多个运营方的工作节点对 {about} 的引用一致，但与上游所示不同",),
    ),
    "repo-held": Wording(
        "Change held back",
        "仓库变更被搁置",
        ("{about} 的变更被搁置：{reason}", "{about} 的变更被搁置，等待人工确认"),
    ),
    "repo-renamed": Wording(
        "Repository renamed",
        "仓库已改名",
        ("{about} 在代码托管平台上已改名：请添加 {to}，完成镜像后再移除旧名称",),
    ),
    "hooks-silent": Wording(
        "Hooks silent",
        "Webhook 静默",
        (
            "{about} 上 {count} 个仓库（例如 {example}）的 webhook 已静默："
            "轮询发现了没有 webhook 通知的变更，已恢复常规轮询",
        ),
    ),
    # Discovery and credentials
    "discovery-failed": Wording(
        "Discovery fails", "项目发现失败", ("{about} 的项目发现失败：{reason}", "{about} 的项目发现失败")
    ),
    "discovery-held": Wording(
        "Discovery held",
        "项目发现被搁置",
        (
            "{about} 中消失了 {gone} 个项目（共 {total} 个；{why}），等待人工确认：" + _ACCEPT,
            "{about} 中一次消失了 {gone} 个项目（共 {total} 个），等待人工确认：" + _ACCEPT,
            "{about} 中一次消失了 {gone} 个项目（共 {total} 个），等待人工确认",
            "{about} 中一次消失的项目过多，等待人工确认",
        ),
    ),
    "credential-expiring": Wording(
        "Credential expiry",
        "凭据到期",
        (
            "凭据 {about} 还有 {days} 天过期（有效期至 {expires}）" + _RENEW_ZH,
            "凭据 {about} 已过期（有效期至 {expires}）" + _RENEW_ZH,
        ),
    ),
    "credential-refused": Wording(
        "Credential refused", "凭据被拒绝", ("凭据 {about} 被拒绝：{reason}", "凭据 {about} 被拒绝")
    ),
    # Events
    "event-hook-failing": Wording(
        "Event hook fails",
        "事件推送失败",
        (
            "接收方不再接收事件推送 {about}（{gone}），已停止；重新尝试：evermirror events retry {about}",
            "事件推送 {about} 无法送达：{reason}",
            "事件推送 {about} 无法送达",
        ),
    ),
    # The coordinator's own background parts
    "part-failing": Wording(
        "Part of the coordinator fails",
        "协调者部件故障",
        (
            "协调者的部件“{about}”出错（{error}），正在自动重启，详见日志",
            "协调者的部件“{about}”出错，正在自动重启",
        ),
    ),
    # The book itself
    "channel-down": Wording(
        "Alert channel down",
        "告警通道故障",
        ("告警通道 {about} 无法发送：{reason}", "告警通道 {about} 无法发送"),
    ),
    "alerts-overflow": Wording(
        "Too many alerts", "告警过多", ("已有 {standing_max} 条告警未结束，在部分结束之前不再记录新的告警",)
    ),
}

_NO_LONGER = {EN: "no longer: {text}", ZH: "已结束：{text}"}
_NOT_SEEN = {EN: NOT_SEEN_AGAIN + ": {text}", ZH: "重启后未再出现：{text}"}
_ENDED_ZH = "{reason}（此前：{text}）"
_BEFORE_TITLE = {
    EN: {Turn.RAISED: "", Turn.WORSE: "Worse: ", Turn.OVER: "Over: ", Turn.TEST: ""},
    ZH: {Turn.RAISED: "", Turn.WORSE: "加重：", Turn.OVER: "已结束：", Turn.TEST: ""},
}
_BETWEEN = {EN: ": ", ZH: "："}
_TEST_TITLE = {EN: "Test message", ZH: "测试消息"}
_TEST_TEXT = {
    EN: "Somebody tries this channel. Nothing has happened.",
    ZH: "有人在测试此通道，没有发生任何事情。",
}


def title_of(kind: str, language: str) -> str:
    wording = WORDINGS.get(kind)
    if wording is None:
        return kind
    return wording.zh if language == ZH else wording.en


def text_of(alert: Alert, language: str) -> str:
    """What it says while it stands, in one line."""
    wording = WORDINGS.get(alert.kind)
    if language == ZH and wording is not None:
        facts = {**alert.facts, "about": alert.about}
        for template in wording.zh_texts:
            try:
                return _line(template.format_map(facts))
            except KeyError:
                continue
    return _line(alert.text)


def end_of(record: AlertRecord, language: str) -> str:
    """How it ended, in one line."""
    stood, end = text_of(record.alert, language), _line(record.end_text)
    if end == NOT_SEEN_AGAIN:
        return _NOT_SEEN[language].format(text=stood)
    if language == ZH and (reason := end_in_chinese(end)):
        return _ENDED_ZH.format(reason=reason, text=stood)
    return end if end and language == EN else _NO_LONGER[language].format(text=stood)


def compose(
    told: Iterable[tuple[Notice, AlertRecord]], channel: Channel, settings: AlertSettings, now: float
) -> Message:
    """One item for each alert, what stands before what is over, the most serious first."""
    language = channel.language
    turns: dict[AlertId, tuple[AlertRecord, set[Turn]]] = {}
    for notice, record in told:
        turn = notice.turn if record.stands else Turn.OVER  # what is over is not told as if it stood
        turns.setdefault(record.id, (record, set()))[1].add(turn)
    ordered = sorted(turns.values(), key=_urgency)
    items = tuple(_item(record, _turn(of_it), language) for record, of_it in ordered[: settings.items_max])
    over = sum(Turn.OVER in of_it for _, of_it in ordered)
    title = _title(items[0], language) if len(ordered) == 1 else _count(len(ordered) - over, over, language)
    level = ordered[0][0].alert.level
    return Message(title, items, len(ordered) - len(items), level, now, language, settings.server)


def compose_test(channel: Channel, settings: AlertSettings, now: float) -> Message:
    """For a person who tries a channel."""
    language = channel.language
    title, text = _TEST_TITLE[language], _TEST_TEXT[language]
    item = MessageItem("test", channel.name, Level.WARNING, Turn.TEST, title, text, now)
    return Message(_title(item, language), (item,), 0, Level.WARNING, now, language, settings.server)


def _urgency(told: tuple[AlertRecord, set[Turn]]) -> tuple[bool, int, float, int]:
    record, turns = told
    return Turn.OVER in turns, -record.alert.level.rank, record.raised_at, record.id


def _turn(turns: set[Turn]) -> Turn:
    """Of one item for several notices: the end tells all; one that did not know of it does not know worse."""
    return next(turn for turn in (Turn.OVER, Turn.RAISED, Turn.WORSE) if turn in turns)


def _item(record: AlertRecord, turn: Turn, language: str) -> MessageItem:
    alert = record.alert
    return MessageItem(
        alert.kind,
        alert.about,
        alert.level,
        turn,
        title_of(alert.kind, language),
        end_of(record, language) if turn is Turn.OVER else text_of(alert, language),
        record.raised_at,
        record.ended_at,
        record.id,
    )


def _title(item: MessageItem, language: str) -> str:
    return f"{_BEFORE_TITLE[language][item.turn]}{item.title}{_BETWEEN[language]}{item.about}"


def _count(stand: int, over: int, language: str) -> str:
    if language == ZH:
        parts = [f"{stand} 条告警"] * bool(stand) + [f"{over} 条已结束"] * bool(over)
        return "，".join(parts)
    parts = [f"{stand} alert{'s' * (stand != 1)}"] * bool(stand) + [f"{over} over"] * bool(over)
    return ", ".join(parts)


def _line(text: str) -> str:
    return " ".join(text.split())[:TEXT_MAX_CHARS]
