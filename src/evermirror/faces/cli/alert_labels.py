"""The words of `alerts` in the reader's language: English, or Chinese where the locale says so."""

from __future__ import annotations

from evermirror.faces.cli.pull.labels import is_chinese

_CHINESE = {
    "Alerts": "告警",
    "no alerts stand": "当前没有告警",
    "no alerts": "没有告警",
    "Id": "编号",
    "Level": "级别",
    "Alert": "告警",
    "About": "对象",
    "What": "内容",
    "Since": "发生时间",
    "State": "状态",
    "Kind": "类型",
    "standing": "持续中",
    "standing, silenced": "持续中，已静默",
    "silenced": "已静默",
    "over since {at}": "已于 {at} 恢复",
    "Alert {number}": "告警 {number}",
    "Raised": "发生时间",
    "Last told": "最近更新",
    "How it ended": "恢复说明",
    "Silenced by": "静默编号",
    "Told to": "通知记录",
    "nobody was told": "未通知任何渠道",
    "warning": "警告",
    "error": "错误",
    "critical": "严重",
    "Channel": "渠道",
    "Turn": "事件",
    "Result": "结果",
    "Time": "时间",
    "Tries": "尝试次数",
    "raised": "发生",
    "worse": "升级",
    "over": "恢复",
    "test": "测试",
    "waiting": "等待发送",
    "sent": "已发送",
    "given-up": "已放弃",
    "Channels": "告警渠道",
    "no channels": "没有配置渠道",
    "Type": "渠道类型",
    "Waiting": "待发送",
    "Last sent": "最近成功",
    "Error": "错误信息",
    "fine": "正常",
    "failing since {at}": "自 {at} 起失败",
    "unused": "尚未使用",
    "not sent": "未发送",
    "Silences": "静默规则",
    "no silences": "没有静默规则",
    "Until": "截止时间",
    "By": "创建者",
    "Reason": "原因",
    "silence {number}: {kind} about {about} until {until}": (
        "静默 {number}: {kind}，对象 {about}，至 {until}"
    ),
    "silence {number} ended": "静默 {number} 已结束",
    "{shown} of {total} shown; {option} shows more": "显示 {shown} 条，共 {total} 条；用 {option} 显示更多",
}


def label(text: str, **values: object) -> str:
    """``text`` in the reader's language, with ``values`` put in."""
    told = _CHINESE.get(text, text) if is_chinese() else text
    return told.format(**values) if values else told


def language() -> str:
    """As the API names it."""
    return "zh" if is_chinese() else "en"
