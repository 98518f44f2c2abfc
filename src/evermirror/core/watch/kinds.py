"""Every kind of alert there is, by who tells of it."""

from __future__ import annotations

from evermirror.core.collect.decisions import AlertKind as CollectKind
from evermirror.core.fleet.decisions import AlertKind as FleetKind
from evermirror.core.watch.silent_hooks import HOOKS_SILENT

# Of the book itself
CHANNEL_DOWN = "channel-down"
ALERTS_OVERFLOW = "alerts-overflow"

# Told by the pull machine from the state of projects: after a restart they follow from it again
PROJECT_KINDS = frozenset(
    {
        "project-failing",
        "project-paused",
        "target-paused",
        "target-conflict",
        "target-refused",
        "visibility",
        "target-credential",
    }
)
PULL_KINDS = PROJECT_KINDS | {"source-weather"}
MONITORING_KINDS = frozenset({"project-failing", "error-kind", "failure-rate"})
FLEET_KINDS = frozenset(kind.value for kind in FleetKind)
COLLECT_KINDS = frozenset(kind.value for kind in CollectKind)
REPO_KINDS = frozenset({"repo-held"})
RENAME_KINDS = frozenset({"repo-renamed"})  # told by hooks
HOOK_KINDS = frozenset({HOOKS_SILENT})
DISCOVERY_KINDS = frozenset({"discovery-failed", "discovery-held"})
CREDENTIAL_KINDS = frozenset({"credential-expiring", "credential-refused"})
EVENT_HOOK_FAILING = "event-hook-failing"  # told by deliveries
EVENT_KINDS = frozenset({EVENT_HOOK_FAILING})
PART_FAILING = "part-failing"  # told by the supervisor of the coordinator's background parts
PART_KINDS = frozenset({PART_FAILING})
BOOK_KINDS = frozenset({CHANNEL_DOWN, ALERTS_OVERFLOW})

ALL_KINDS = (
    PULL_KINDS
    | MONITORING_KINDS
    | FLEET_KINDS
    | COLLECT_KINDS
    | REPO_KINDS
    | RENAME_KINDS
    | HOOK_KINDS
    | DISCOVERY_KINDS
    | CREDENTIAL_KINDS
    | EVENT_KINDS
    | PART_KINDS
    | BOOK_KINDS
)
