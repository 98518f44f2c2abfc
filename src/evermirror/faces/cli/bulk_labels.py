"""The words of `bulk` in the reader's language: English, or Chinese where the locale says so."""

from __future__ import annotations

from evermirror.faces.cli.output import counted
from evermirror.faces.cli.pull.labels import is_chinese

_CHINESE = {
    "{repos} will be synced now.": "将立即同步{repos}。",
    "Of {repos}, those that fail will be looked at again now.": "{repos}中同步失败的将立即重试。",
    "Of {repos}, the failures will be forgotten, and projects that paused themselves go on.": (
        "将清除{repos}的失败记录，并恢复自动暂停的项目。"
    ),
    "{repos} will be paused: not mirrored until they are resumed.": "将暂停{repos}：恢复之前不再镜像。",
    "{repos} will be resumed.": "将恢复{repos}。",
    "{repos} will get the priority {to}.": "将把{repos}的优先级设为 {to}。",
    "{repos} would be concerned": "将涉及{repos}",
    "Go on?": "是否继续？",
    "no repository matches": "没有匹配的仓库",
    "`evermirror repos` lists them with the same options": "用 `evermirror repos` 加相同选项列出仓库",
    "waiting for {orders} before it": "前面还有 {orders} 个任务",
    "syncing": "正在提交同步",
    "retrying": "正在提交重试",
    "resetting": "正在重置",
    "pausing": "正在暂停",
    "resuming": "正在恢复",
    "setting priorities": "正在设置优先级",
    "{repos} done, of which {unchanged} needed nothing": "{repos}已处理，其中 {unchanged} 个无需改动",
    "{repos} done": "{repos}已处理",
    "the order was stopped after {done} of {matched}": "任务已停止：{matched} 个中已处理 {done} 个",
    "the order was cut short: {error}": "任务中断：{error}",
    "{failed} of {matched} failed; the first: {error}": "{matched} 个中 {failed} 个失败；第一个：{error}",
    "order {number} goes on: `evermirror bulk list` shows it, `evermirror bulk stop {number}` stops it": (
        "任务 {number} 在后台继续：用 `evermirror bulk list` 查看，用 `evermirror bulk stop {number}` 停止"
    ),
    "no orders": "没有任务",
    "order": "任务",
    "what": "操作",
    "about": "范围",
    "by": "下达者",
    "begun": "下达时间",
    "state": "状态",
    "done": "已完成",
    "failed": "失败",
    "sync": "同步",
    "retry": "重试",
    "reset": "重置",
    "pause": "暂停",
    "resume": "恢复",
    "priority": "优先级",
    "all": "全部",
    "named ones": "指定的仓库",
    "running": "执行中",
    "waiting": "排队中",
    "stopped": "已停止",
    "cut short": "已中断",
    "finished": "已结束",
    "{done} of {matched}": "{done}/{matched}",
}


def label(text: str, **values: object) -> str:
    """``text`` in the reader's language, with ``values`` put in."""
    told = _CHINESE.get(text, text) if is_chinese() else text
    return told.format(**values) if values else told


def repositories(count: int) -> str:
    """``8 repositories``, ``8个仓库``."""
    return f"{count}个仓库" if is_chinese() else counted(count, "repository", "repositories")
