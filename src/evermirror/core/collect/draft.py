"""A decision in the making: each repo's row is written once, as it is in the end."""

from __future__ import annotations

from evermirror.core.collect.decisions import (
    NOTHING,
    Action,
    AskHolders,
    Decision,
    DistrustWord,
    DropRow,
    PutRow,
    Write,
)
from evermirror.core.collect.rows import Row
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

ASK_MAX = 500  # keys in one question to the coordinator


class Draft:
    """Collects what one event leads to."""

    __slots__ = ("_actions", "_asks", "_distrusted", "_rows")

    def __init__(self) -> None:
        self._rows: dict[RepoKey, Write] = {}
        self._distrusted: list[Write] = []
        self._actions: list[Action] = []
        self._asks: list[RepoKey] = []

    def put(self, row: Row) -> None:
        self._rows[row.key] = PutRow(row)

    def drop(self, key: RepoKey) -> None:
        self._rows[key] = DropRow(key)

    def distrust(self, node: NodeId, place: float) -> None:
        """Comes before the rows, which know of it already."""
        self._distrusted.append(DistrustWord(node, place))

    def act(self, action: Action) -> None:
        self._actions.append(action)

    def ask(self, key: RepoKey) -> None:
        self._asks.append(key)

    def decision(self) -> Decision:
        if not (self._rows or self._distrusted or self._actions or self._asks):
            return NOTHING
        asks = (self._asks[i : i + ASK_MAX] for i in range(0, len(self._asks), ASK_MAX))
        actions = (*self._actions, *(AskHolders(tuple(keys)) for keys in asks))
        return Decision((*self._distrusted, *self._rows.values()), actions)
