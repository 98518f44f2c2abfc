"""The words of `pull` in the reader's language: English, or Chinese where the locale says so."""

from __future__ import annotations

import os
from datetime import datetime

from evermirror.faces.cli.output import NOTHING, as_seconds, counted, span

_CHINESE = {
    # progress
    "All projects": "全局统计",
    "Total projects": "总项目数",
    "Synced": "已同步",
    "Syncing": "同步中",
    "Pending": "等待中",
    "Failed": "失败",
    "Disabled": "已停用",
    "Average delay": "平均延迟",
    "Success rate": "成功率",
    "By priority": "按优先级统计",
    "Priority": "优先级",
    "Projects": "项目数",
    "Tasks": "任务数",
    "Succeeded": "成功",
    "Skipped": "跳过",
    "Commits": "提交数",
    "From {begin} to {end}": "{begin} 至 {end}",
    # projects
    "Project": "项目",
    "Source": "源仓库",
    "Interval": "同步间隔",
    "State": "状态",
    "enabled": "启用",
    "disabled": "停用",
    "paused": "已自动暂停",
    "adaptive": "自适应",
    "Last sync": "最后同步",
    "Next sync": "下次同步",
    "Failures in a row": "连续失败",
    "Failures": "连续失败",
    "Retries": "最大重试",
    "Retry delay": "重试延迟",
    "Set by hand": "手工设置",
    "Targets": "目标",
    "Target": "目标",
    "never": "从未",
    "up to date since {at}": "最近推送 {at}",
    "nothing pushed yet": "尚未推送",
    "failed {count}× in a row: {error}": "连续失败{count}次: {error}",
    "the next push overwrites what is there": "下次推送将覆盖目标上的内容",
    "Recent tasks": "最近任务历史",
    "no tasks yet": "尚无任务",
    "no projects": "没有项目",
    "no projects with a pull configuration": "没有带拉取配置的项目",
    "{shown} of {total} shown; {option} shows more": "显示 {shown} 条，共 {total} 条；用 {option} 显示更多",
    # tasks
    "Task": "任务",
    "Time": "时间",
    "Took": "耗时",
    "Changes": "变更",
    "Trigger": "触发方式",
    "Source commit": "源提交",
    "Target commit": "目标提交",
    "Started": "开始时间",
    "Ended": "完成时间",
    "Scheduled": "调度时间",
    "Progress": "进度",
    "Error": "错误",
    "Hint": "建议",
    "Retry": "重试",
    "Pull task created successfully": "任务创建成功",
    "A pull task was pending already": "已有等待中的任务",
    "{put} put, {deleted} deleted, {waiting} waiting": "推送{put}个，删除{deleted}个，待处理{waiting}个",
    "… and {more} more": "……另有{more}个",
    "{created} created, {skipped} skipped (running)": "成功创建: {created}个，已跳过(运行中): {skipped}个",
    # errors
    "Error type": "错误类型",
    "Count": "发生次数",
    "Projects hit": "影响项目",
    "Errors by type (last {span})": "错误类型统计 (最近{span})",
    "Errors of {key}": "{key} 的错误",
    "Errors of all projects": "所有项目的错误",
    "Failed projects": "失败项目",
    "Last error": "最近错误",
    "Git command": "Git命令",
    # discovery
    "Group": "群组",
    "Every": "检查间隔",
    "once": "仅一次",
    "Last run": "上次运行",
    "Next run": "下次运行",
    "Path": "路径",
    "Step": "操作",
    "Why": "原因",
    "Found": "发现",
    "Chosen": "选中",
    "Created": "新建",
    "Unchanged": "未变",
    "Renamed": "改名",
    "Gone": "已消失（暂停）",
    "Returned": "已恢复",
    "Refused": "被拒绝",
    "Held back": "待确认",
    "Discovery {id}: {group} at {source}": "发现任务 {id}：{source} 的 {group}",
    "Dry run: nothing was changed": "试运行：未做任何更改",
    "no groups are followed": "没有跟踪的群组",
    "stopped": "已停止",
    "running": "运行中",
    "waiting": "等待中",
    "done": "完成",
    "listing": "正在列出项目",
    "planning": "正在制定计划",
    "making": "正在创建",
    "waits {seconds} s for the forge's limit": "因限流等待 {seconds} 秒",
    "active": "正常",
    "gone": "已消失",
    "renamed": "已改名",
    "refused": "被拒绝",
    "clash": "冲突",
    "create": "新建",
    "keep": "保持",
    "rename": "改名",
    "pause": "暂停",
    "resume": "恢复",
    "refuse": "拒绝",
    "hold": "待确认",
    "new": "新建目标",
    "removed": "已移除",
    "Do this, and follow the group?": "执行以上操作并跟踪该群组？",
    "Discovery {id} is forgotten; the projects that it made stay.": "忘记发现任务 {id}；它的项目都会保留。",
    "Remove it?": "移除？",
    "{held} projects are gone at once and wait for your word": "一次消失了 {held} 个项目，等待您确认",
    "discovery {id} was stopped before its run ended": "发现任务 {id} 在运行结束前被停止",
    "`evermirror pull discover start {id}` goes on": "用 `evermirror pull discover start {id}` 继续",
    "next look at {at}": "下次检查时间 {at}",
    # strategy
    "Strategy": "调度策略",
    "Most at once": "最大并发",
    "Peak avoidance": "错峰调度",
    "Peak hours": "高峰时段",
    "Most at once in peak hours": "高峰期最大并发",
    "Most at once off peak": "非高峰期最大并发",
    "Night hours": "夜间时段",
    "Most at once at night": "夜间最大并发",
    "Adaptive": "自适应调整",
    "none": "无",
    "Now": "当前",
    "peak hours": "高峰时段",
    "off peak": "非高峰时段",
    "{running} of {limit} running": "运行中 {running}/{limit}",
    "Expected delay": "预期延迟",
    "up to {usual}": "最多{usual}",
    "; up to {worst} around peak hours": "；遇高峰时段最多{worst}",
    # waiting
    "Waiting": "等待原因",
    "waits until {clock}: only critical and high run in peak hours": (
        "等到 {clock}：高峰时段只运行 critical 和 high"
    ),
    "waits: only critical and high run in peak hours": "等待：高峰时段只运行 critical 和 high",
    "waits while the source is under load": "等待：源站负载过高",
    "waits until {clock}: its source fails for all, or asked us to wait": (
        "等到 {clock}：源站对所有项目都失败，或要求等待"
    ),
    "waits for room": "等待空位",
    "waits for a worker that can do it": "等待可用的工作节点",
    "counts as {priority} after failures": "因连续失败按 {priority} 调度",
    "no pull configuration; `pull config KEY --interval=…` makes it a project": (
        "没有拉取配置；用 `pull config KEY --interval=…` 使其成为项目"
    ),
    "load {level}: {reason}": "负载 {level}: {reason}",
}
_UNITS = {"d": "天", "h": "小时", "min": "分钟", "s": "秒"}


def is_chinese() -> bool:
    """By the first of these that says anything, as for every program."""
    said = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return next((text for text in said if text), "").lower().startswith("zh")


def label(text: str, **values: object) -> str:
    """``text`` in the reader's language, with ``values`` put in."""
    told = _CHINESE.get(text, text) if is_chinese() else text
    return told.format(**values) if values else told


def spell(seconds: float | None) -> str:
    """``15 min``, ``15分钟``; ``2 h``, ``2小时``."""
    text = span(seconds)
    amount, _, unit = text.partition(" ")
    return f"{amount}{_UNITS[unit]}" if is_chinese() and unit in _UNITS else text


def minutes(value: object) -> str:
    """An amount of minutes as the API has it."""
    return spell(float(value) * 60) if isinstance(value, int | float) else NOTHING


def times(count: object) -> str:
    """``0次`` in Chinese, the number alone in English."""
    return f"{count}次" if is_chinese() else str(count)


def pieces(count: object) -> str:
    """Of commits: ``3个``, ``3``."""
    return f"{count}个" if is_chinese() else str(count)


def projects(count: object) -> str:
    """``8个项目``, ``8 projects``."""
    number = count if isinstance(count, int) else 0
    return f"{number}个项目" if is_chinese() else counted(number, "project")


def clock(at: object) -> str:
    """A moment of the API in the reader's time zone: ``2025-12-13 23:50:00``."""
    moment = _local(at)
    return NOTHING if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def short_clock(at: object, now: float) -> str:
    """``23:50`` today, ``12-13 23:50`` otherwise."""
    moment = _local(at)
    if moment is None:
        return NOTHING
    today = datetime.fromtimestamp(now).date()
    return moment.strftime("%H:%M" if moment.date() == today else "%m-%d %H:%M")


def _local(at: object) -> datetime | None:
    try:
        seconds = as_seconds(at)
        return None if seconds is None else datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):  # the end of time, in this zone
        return None
