"""The words of `webhook` in the reader's language: English, or Chinese where the locale says so."""

from __future__ import annotations

from evermirror.faces.cli.output import counted
from evermirror.faces.cli.pull.labels import is_chinese

_CHINESE = {
    "registering hooks": "正在注册 webhook",
    "checking hooks": "正在检查 webhook",
    "removing hooks": "正在删除 webhook",
    "counting": "正在统计",
    "made": "已建立",
    "mended": "已修复",
    "as it should be": "符合要求",
    "removed": "已删除",
    "not there": "不存在",
    "missing": "缺失",
    "drifted": "有偏差",
    "refused": "被拒绝",
    "not asked": "未询问",
    "no forge": "平台未知",
    "hooks": "webhook",
    "hook": "webhook",
    "repositories": "仓库数",
    "repository": "仓库",
    "problem": "问题",
    "no repositories": "没有仓库",
    "{shown} of {total} shown; --json has more, `evermirror webhook list` has all": (
        "显示 {shown} 个，共 {total} 个；--json 显示更多，`evermirror webhook list` 显示全部"
    ),
    "{repos} in {time}": "{repos}，用时 {time}",
    "the order ended early: {error}": "任务提前结束：{error}",
    "Given again it goes on: what is as it should be is only looked at": (
        "再次执行即继续：符合要求的只检查，不改动"
    ),
    "not all hooks are as they should be: {counts}": "并非所有 webhook 都符合要求：{counts}",
    "`evermirror webhook register` mends them": "用 `evermirror webhook register` 修复",
    "`evermirror webhook register` makes them": "用 `evermirror webhook register` 建立",
    "--forge says whose API their hosts have, and --credential how to sign in there": (
        "用 --forge 指定主机的平台，用 --credential 指定登录凭据"
    ),
    "order {number} goes on: `evermirror webhook status {number}` shows it, "
    "`evermirror webhook stop {number}` stops it": (
        "任务 {number} 在后台继续：用 `evermirror webhook status {number}` 查看，"
        "用 `evermirror webhook stop {number}` 停止"
    ),
    "order": "任务",
    "what": "操作",
    "about": "范围",
    "by": "下达者",
    "begun": "开始时间",
    "state": "状态",
    "done": "已完成",
    "register": "注册",
    "check": "检查",
    "remove": "删除",
    "all": "全部",
    "named ones": "指定的仓库",
    "running": "执行中",
    "ended": "已结束",
    "ended early": "提前结束",
    "{done} of {total}": "{done}/{total}",
    "no orders since the server's start": "服务器启动以来没有任务",
    "waits: {what}": "等待：{what}",
    "since": "自",
    "last hook": "最近一次",
    "told": "已告知",
    "missed": "漏报",
    "at the forge": "平台上",
    "unproven": "未验证",
    "reliable": "可靠",
    "silent": "无声",
    "ok": "正常",
    "{shown} shown; --all shows the rest": "显示 {shown} 个；--all 显示其余",
}


def label(text: str, **values: object) -> str:
    """``text`` in the reader's language, with ``values`` put in."""
    told = _CHINESE.get(text, text) if is_chinese() else text
    return told.format(**values) if values else told


def word(value: object) -> object:
    """A word of the API in the reader's language; whatever else as it is."""
    return label(value) if isinstance(value, str) else value


def repositories(count: int) -> str:
    """``8 repositories``, ``8个仓库``."""
    return f"{count}个仓库" if is_chinese() else counted(count, "repository", "repositories")
