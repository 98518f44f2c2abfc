"""How alerts end, in Chinese: whoever tells of an end does so in English words, and these are known here."""

from __future__ import annotations

import re

# The first that is found in the words; names may stand around it.
_ENDS = tuple(
    (re.compile(rf"(?<!\w){words}(?!\w)"), chinese)
    for words, chinese in (
        # Pull mirroring
        ("no longer fails", "已恢复正常"),
        ("is disabled", "项目已停用"),
        ("is no longer paused", "已不再暂停"),
        ("has no conflict any more", "冲突已消除"),
        ("is as visible as its source, or less", "可见范围已不大于源"),
        ("takes every ref again", "已接受所有引用"),
        ("nobody is kept out of", "所有工作节点都能登录"),
        ("is no longer a target", "已不再是推送目标"),
        ("is called (?P<name>.+) now", "已改名为 {name}"),
        ("answers again", "已恢复响应"),
        ("has no projects any more", "已没有项目"),
        # Discovery
        ("are followed again", "已恢复跟踪"),
        ("no removals of .+ wait any more", "已没有等待确认的移除"),
        ("is no longer followed", "已不再跟踪"),
        ("is asked for clones again", "重新接收克隆任务"),
        ("is reached by a relay again", "中继已重新连接"),
        # The fleet
        ("every repo has room", "所有仓库都有空间"),
        ("enough workers are back", "足够多的工作节点已恢复，其余的重新计时"),
        ("is back", "已恢复"),
        ("is retired", "已退役"),
        ("is released", "已解除隔离"),
        ("no longer holds repos", "已没有未知仓库"),
        ("accuses nobody any more", "已不再指控"),
        # Events
        ("takes events again", "已恢复送达"),
        ("is switched off", "已停用"),
        # The book itself
        ("takes messages again", "已恢复发送"),
        ("has nothing left to send", "已没有等待发送的消息"),
        ("no longer in the settings", "已从设置中移除"),
        ("there is room for alerts again", "已能记录新的告警"),
    )
)


def end_in_chinese(words: str) -> str:
    """Empty for words that are not known, or none."""
    for pattern, chinese in _ENDS:
        if found := pattern.search(words):
            return chinese.format(**found.groupdict())
    return ""
