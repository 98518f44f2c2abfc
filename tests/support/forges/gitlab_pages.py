"""Pages of GitLab's lists: by number, and by what comes after a key, with the headers that each has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from tests.support.forges.api_server import Ask, GroupRow, ProjectRow, Told

PAGE_MAX = 100
PAGE_DEFAULT = 20
TOTAL_MAX = 10_000  # of more records GitLab does not count them
Row = TypeVar("Row")


def keyset_page(api_url: str, ask: Ask, rows: list[ProjectRow], show: Callable[[ProjectRow], object]) -> Told:
    size = _per_page(ask)
    ascending = ask.query.get("sort", "desc") == "asc"
    rows.sort(key=lambda p: p.id, reverse=not ascending)
    page = rows[:size]
    links = {}
    if page and len(rows) >= size:
        key = {"id_after" if ascending else "id_before": page[-1].id}
        links["Link"] = _link(api_url, ask, "next", **key)
    return Told([show(p) for p in page], 200, links)


def numbered_page(api_url: str, ask: Ask, rows: Sequence[Row], show: Callable[[Row], object]) -> Told:
    size, number = _per_page(ask), int(ask.query.get("page", 1))
    pages = -(-len(rows) // size)
    follows = number < pages
    headers = {
        "X-Page": str(number),
        "X-Per-Page": str(size),
        "X-Next-Page": str(number + 1) if follows else "",
        "X-Prev-Page": str(number - 1) if number > 1 else "",
    }
    links = [_link(api_url, ask, "next", page=number + 1, per_page=size)] if follows else []
    links.append(_link(api_url, ask, "first", page=1, per_page=size))
    if len(rows) <= TOTAL_MAX:
        headers |= {"X-Total": str(len(rows)), "X-Total-Pages": str(pages)}
        links.append(_link(api_url, ask, "last", page=max(1, pages), per_page=size))
    headers["Link"] = ", ".join(links)
    return Told([show(row) for row in rows[(number - 1) * size : number * size]], 200, headers)


def _per_page(ask: Ask) -> int:
    return min(PAGE_MAX, int(ask.query.get("per_page", PAGE_DEFAULT)))


def _link(api_url: str, ask: Ask, rel: str, **query: object) -> str:
    whole = urlencode({**ask.query, **{k: str(v) for k, v in query.items()}})
    return f'<{api_url}{ask.path}?{whole}>; rel="{rel}"'


def namespace_json(row: GroupRow) -> dict[str, object]:
    return {
        "id": row.id,
        "name": row.name,
        "path": row.path.rpartition("/")[2],
        "kind": row.kind,
        "full_path": row.path,
    }


def protected_json(rule: tuple[str, bool]) -> dict[str, object]:
    name, force = rule
    level = [{"id": 1, "access_level": 40, "access_level_description": "Maintainers"}]
    return {
        "id": abs(sum(name.encode())),
        "name": name,
        "push_access_levels": level,
        "merge_access_levels": level,
        "allow_force_push": force,
        "code_owner_approval_required": False,
    }
