"""Why a repository is looked at then, step by step, in the reader's language."""

from __future__ import annotations

from evermirror.faces.cli.client import Fields
from evermirror.faces.cli.output import age, span
from evermirror.faces.cli.pull.labels import is_chinese
from evermirror.model.plan import StepCode

_WORDS: dict[str, tuple[str, str]] = {
    StepCode.ASKED: ("somebody asked for it", "有人请求同步"),
    StepCode.RUNNING: ("is being looked at or synced", "正在检查或同步"),
    StepCode.SLOT: ("changed; waits for a git slot", "有变化，等待 git 名额"),
    StepCode.ON_REQUEST: ("looked at when it is asked for", "仅在请求时检查"),
    StepCode.DISABLED: ("disabled", "已停用"),
    StepCode.NOT_PLACED: ("no worker that is there has it", "没有可用的工作节点"),
    StepCode.PUSHES: ("a push is expected every", "预计的推送间隔"),
    StepCode.AGE: ("age of the last commit", "距最近一次提交"),
    StepCode.INTERVAL: ("its fixed interval", "固定间隔"),
    StepCode.POLICY_GAP: ("its share of the polls", "按策略分得的间隔"),
    StepCode.PROJECT: ("interval of its project", "项目的拉取间隔"),
    StepCode.PEAK: ("stretched while its source is under load", "源站负载高，间隔延长"),
    StepCode.HOOKED: ("hooks are reliable: an eighth as often", "webhook 可靠，检查频率降为八分之一"),
    StepCode.MAX_GAP: ("cut to the max gap", "缩短为最大间隔"),
    StepCode.MIN_GAP: ("raised to the min gap", "延长为最小间隔"),
    StepCode.DETOUR: ("asked at another address", "改用备用地址"),
    StepCode.LAST_POLL: ("last look", "上次检查"),
    StepCode.DUE: ("its interval is over", "间隔已到"),
    StepCode.TURN: ("its turn in the queue", "排队轮到"),
    StepCode.OVERDUE: ("the max gap is over before", "最大间隔先到"),
    StepCode.REST: ("left alone until the min gap is over", "最小间隔内不再检查"),
    StepCode.BACKOFF: ("waits after failures", "失败后等待"),
    StepCode.WEATHER: ("its host fails for all: next probe", "主机整体故障，下次探测"),
    StepCode.LIMITED: ("its host asked us to wait", "主机要求等待"),
    StepCode.BUDGET: ("no poll is left before, by the rate", "速率额度用尽"),
    StepCode.WINDOW: ("its class is not pulled in peak hours", "高峰时段不拉取该优先级"),
}
_HEADS = (["why then", "gap or wait", "next look"], ["原因", "时长", "下次检查"])


def plan_table(plan: Fields, now: float) -> tuple[list[str], list[list[object]]] | None:
    """Heads and rows; None where its worker does not say."""
    told = plan.get("steps")
    steps = [step for step in told if isinstance(step, dict)] if isinstance(told, list) else []
    if not steps:
        return None
    return _HEADS[is_chinese()], [_row(step, now) for step in steps]


def _row(step: Fields, now: float) -> list[object]:
    seconds, at = step.get("s"), step.get("at")
    return [
        step_words(step),
        span(float(seconds)) if isinstance(seconds, int | float) else "",
        age(at, now) if at is not None else "",
    ]


def step_words(step: Fields) -> str:
    """A step of a later version in its own words."""
    known = _WORDS.get(str(step.get("code")))
    return known[is_chinese()] if known is not None else str(step.get("detail") or step.get("code"))
