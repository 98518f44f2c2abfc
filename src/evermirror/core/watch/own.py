"""The alerts of the book itself: a channel that is down, and too many alerts."""

from __future__ import annotations

from evermirror.core.watch.kinds import ALERTS_OVERFLOW, CHANNEL_DOWN
from evermirror.model.alert import Alert, ChannelState, Level

EVERYTHING = "all"  # what an overflow is about


def down(state: ChannelState, *, since: float | None = None) -> Alert:
    """``since``: it was, from then on, and is no longer."""
    text = f"channel {state.name} does not take messages: {state.error}"
    if since is not None:
        took_some = state.sent_at is not None and state.sent_at >= since
        end = "takes messages again" if took_some else "has nothing left to send"
        text = f"channel {state.name} {end}"
    facts = {"reason": state.error}
    return Alert(CHANNEL_DOWN, state.name, text, since is not None, Level.ERROR, facts)


def overflow(standing_max: int, *, over: bool) -> Alert:
    text = f"{standing_max} alerts stand; more are not kept until some of them are over"
    if over:
        text = "there is room for alerts again"
    facts = {"standing_max": str(standing_max)}
    return Alert(ALERTS_OVERFLOW, EVERYTHING, text, over, Level.ERROR, facts)
