"""The words of a report, in English and in Chinese, and how its figures are written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from evermirror.faces.cli.output import NOTHING

LANGUAGES = ("en", "zh")

WORDS = {
    "title": ("Pull mirroring report", "拉取镜像报告"),
    "period": ("{begin} to {end}", "{begin} 至 {end}"),
    "period_note": (
        "Days before today: {days}, and today so far, in {zone}. Made {made}.",
        "今天之前 {days} 天及今天至今，时区 {zone}。生成于 {made}。",
    ),
    "clocks_note": (
        "Clocks were changed in this time: the days are of 24 hours, counted back from this midnight.",
        "此期间调整过时钟（夏令时）：每天按 24 小时计，从今天零点向前推算。",
    ),
    "syncs": ("Syncs", "同步次数"),
    "success_rate": ("Success rate", "成功率"),
    "commits": ("Commits", "提交数"),
    "projects_in_time": ("Projects in time", "按时的项目"),
    "lag": ("Average lag", "平均延迟"),
    "equal": ("Verified equal", "校验一致"),
    "looks_per_hour": ("Looks per hour", "每小时检查"),
    "of_projects": (
        "of {projects}; {late} late, {failing} failing",
        "共 {projects} 个；逾期 {late}，失败 {failing}",
    ),
    "failed_of": ("{failed} of {tasks} failed", "{tasks} 次中失败 {failed} 次"),
    "worst": ("worst {worst}", "最长 {worst}"),
    "peak": ("peak {peak}", "峰值 {peak}"),
    "moved": ("{success} brought {commits} commits", "{success} 次有变更，{commits} 个提交"),
    "every_target": ("projects with all targets equal", "所有目标一致的项目"),
    # Days
    "by_day": ("By day", "按天统计"),
    "day": ("Day", "日期"),
    "so_far": ("{date} (so far)", "{date}（至今）"),
    "total": ("Total", "合计"),
    "changed": ("Changed", "有变更"),
    "unchanged": ("Unchanged", "无变更"),
    "failed": ("Failed", "失败"),
    # Classes
    "by_class": ("By class", "按优先级统计"),
    "class": ("Class", "优先级"),
    "projects": ("Projects", "项目数"),
    "in_time": ("In time", "按时"),
    "late": ("Late", "逾期"),
    "failing": ("Failing", "失败中"),
    "lag_average": ("Lag, average", "平均延迟"),
    "lag_worst": ("Lag, worst", "最长延迟"),
    "all": ("All", "全部"),
    "critical": ("critical", "关键 critical"),
    "high": ("high", "高 high"),
    "normal": ("normal", "普通 normal"),
    "low": ("low", "低 low"),
    "lag_chart": ("Average lag, {name}", "平均延迟：{name}"),
    "lag_note": (
        "Lag is the time since the last sync. Projects, in time, late and failing are as of now.",
        "延迟是距上次同步的时间。项目数、按时、逾期和失败中为当前值。",
    ),
    # Errors
    "errors": ("Errors by type", "错误类型"),
    "type": ("Type", "类型"),
    "count": ("Errors", "错误数"),
    "hit": ("Projects hit", "影响项目"),
    "top_failing": ("Projects with most errors", "错误最多的项目"),
    "project": ("Project", "项目"),
    "mostly": ("Mostly", "主要类型"),
    "in_a_row": ("In a row now", "当前连续失败"),
    "paused": ("paused", "已暂停"),
    "no_errors": ("No errors in this time.", "此期间没有错误。"),
    # Pressure
    "pressure": ("Pressure on the source", "源站压力"),
    "limit": ("limit", "并发上限"),
    "running": ("running", "运行中"),
    "load_high": ("load high", "负载高"),
    "limit_chart": ("Pulls at once: limit and running", "并发：上限与运行中"),
    "looks_chart": ("Looks per hour", "每小时检查次数"),
    "figure": ("Figure", "指标"),
    "value": ("Value", "数值"),
    "looks": ("Looks at sources", "对源站的检查"),
    "looks_value": ("{looks}, {average} per hour, {peak} at most", "{looks}，每小时 {average}，最高 {peak}"),
    "source_time": ("Time that sources were asked and read from", "访问与读取源站的时间"),
    "source_time_value": (
        "{time}, {connections} connections at any moment",
        "{time}，平均同时 {connections} 个连接",
    ),
    "received": ("Received from sources", "从源站接收"),
    "limits": ("Limit", "并发上限"),
    "range": ("{least} to {most}", "{least} 至 {most}"),
    "at_once": ("Running at once", "同时运行"),
    "at_once_value": ("{average} on the average, {most} at most", "平均 {average}，最多 {most}"),
    "above_limit": ("Share of the time above the limit", "超过上限的时间占比"),
    "above_limit_note": ("started by hand", "手动触发"),
    "at_limit": ("Share of the time at the limit", "达到上限的时间占比"),
    "load_share": ("Share of the time with high load", "负载高的时间占比"),
    "load_now": ("Load now", "当前负载"),
    "unknown": ("not known", "未知"),
    "level_high": ("high", "高"),
    "level_normal": ("normal", "正常"),
    "level_low": ("low", "低"),
    "no_notes": (
        "Nothing was noted in this time: scheduled_jobs.progress_statistics says when it is.",
        "此期间没有记录：由 scheduled_jobs.progress_statistics 决定何时记录。",
    ),
}  # fmt: skip
_SPANS = (
    (86_400.0, "d", "天"),
    (3_600.0, "h", "小时"),
    (60.0, "min", "分钟"),
    (1.0, "s", "秒"),
)
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True, slots=True)
class Words:
    """One language: ``words("title")``, and figures as its readers write them."""

    language: str

    def __call__(self, name: str, /, **values: object) -> str:
        text = WORDS[name][LANGUAGES.index(self.language)]
        return text.format(**values) if values else text

    def count(self, value: float | None) -> str:
        """``12,345``; one digit behind the point where there are few."""
        if value is None:
            return NOTHING
        whole = value == int(value) or abs(value) >= 100
        return f"{value:,.0f}" if whole else f"{value:,.1f}".removesuffix(".0")

    def share(self, value: float | None) -> str:
        """``97.5%``; what is not all of it is never written as 100%."""
        if value is None:
            return NOTHING
        percent = 100.0 * value
        digits = 2 if 99.9 < percent < 100 else 1
        return f"{min(percent, 99.99) if value < 1 else percent:.{digits}f}".removesuffix(".0") + "%"

    def span(self, seconds: float | None) -> str:
        """``45 s``, ``2.5 h``, ``2.5 小时``."""
        if seconds is None:
            return NOTHING
        for unit_s, short, chinese in _SPANS:
            if abs(seconds) >= unit_s or unit_s == 1.0:
                amount = seconds / unit_s
                text = f"{amount:.1f}".removesuffix(".0") if amount < 10 else f"{amount:,.0f}"
                return f"{text} {chinese if self.language == 'zh' else short}"
        return NOTHING

    def size(self, count: float) -> str:
        """``1.2 GB``."""
        for unit, name in _SIZES:
            if count >= unit:
                return f"{count / unit:.1f} {name}"
        return f"{count:.0f} B"

    def moment(self, at: float) -> str:
        """In the reader's time zone."""
        try:
            return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M %Z")
        except (ValueError, OverflowError, OSError):
            return NOTHING
