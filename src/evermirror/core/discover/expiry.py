"""When people are told that a token ends.

| days left   | level    |
|-------------|----------|
| more than 30| nothing  |
| 30 or less  | warning  |
| 7 or less   | error    |
| it is over  | critical |
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from evermirror.model.alert import Alert, Level

EXPIRING = "credential-expiring"
REFUSED = "credential-refused"
KINDS = frozenset({EXPIRING, REFUSED})
DAY_S = 86_400.0
WARNING_DAYS = 30
ERROR_DAYS = 7


def expiry_alert(name: str, expires_at: float, now: float, *, by_settings: bool = False) -> Alert | None:
    """None: there is time. Forges tell the day that it is no longer good on, settings its last good one: the
    date told is the one that people find there."""
    left_s = expires_at - now
    date = datetime.fromtimestamp(expires_at - (DAY_S if by_settings else 0), UTC).date().isoformat()
    if left_s <= 0:
        text = f"the credential {name} expired on {date}: renew it at its forge, and in the settings"
        return Alert(EXPIRING, name, text, level=Level.CRITICAL, facts={"expires": date})
    if left_s > WARNING_DAYS * DAY_S:
        return None
    days = math.ceil(left_s / DAY_S)
    level = Level.ERROR if left_s <= ERROR_DAYS * DAY_S else Level.WARNING
    span = "1 day" if days == 1 else f"{days} days"
    text = f"the credential {name} expires in {span}, on {date}: renew it at its forge, and in the settings"
    return Alert(EXPIRING, name, text, level=level, facts={"days": str(days), "expires": date})


def refused_alert(name: str, reason: str) -> Alert:
    text = f"the credential {name} is refused: {reason}"
    return Alert(REFUSED, name, text, level=Level.ERROR, facts={"reason": reason})
