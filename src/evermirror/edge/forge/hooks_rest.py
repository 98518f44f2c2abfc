"""Hooks through a REST API, as far as all forges have it alike: a list in pages, and one address for each.

GET    …/hooks?page=1      POST   …/hooks
PATCH  …/hooks/7           DELETE …/hooks/7       (PUT at GitLab)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote, unquote

from evermirror.edge.forge import words
from evermirror.edge.forge.common import conflict, may_be_done, repo_path
from evermirror.edge.forge.http import ForgeHttp, count_in, links_on, was_moved
from evermirror.edge.forge.words import Row
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.hook import ForgeHook, WantedHook
from evermirror.model.printable import one_line

PAGES_MAX = 20  # GitHub allows 20 hooks for each event, GitLab 100 in all
URL_CHARS_MAX = 4_000  # of a hook's; a longer one is not ours


class HookRedactor(Redactor):
    """Knows the secrets of hooks too, as long as they are on their way."""

    def __init__(self, others: Redactor) -> None:
        super().__init__(())
        self._others = others
        self._under_way: list[Redactor] = []

    @contextmanager
    def knowing(self, secret: str) -> Iterator[None]:
        mine = Redactor((Credential("hook", password=secret),))
        self._under_way.append(mine)
        try:
            yield
        finally:
            self._under_way.remove(mine)

    def clean(self, text: str) -> str:
        for redactor in (*self._under_way, self._others):
            text = redactor.clean(text)
        return text


class RestHooks(ABC):
    """See ``ForgeHooks``. What differs from forge to forge is in its subclasses."""

    forge: Forge
    events: frozenset[str]
    rights: str  # what a token needs here
    page_size = 100
    page_word = "per_page"
    change_method = "PATCH"

    def __init__(self, http: ForgeHttp, redactor: HookRedactor) -> None:
        self._http = http
        self._redactor = redactor

    # What a subclass says

    def _repo(self, path: str) -> str:
        return repo_path(path)

    @abstractmethod
    def _body(self, wanted: WantedHook) -> Mapping[str, object]:
        """Of a hook that is made, or changed."""

    @abstractmethod
    def _read(self, row: Row) -> ForgeHook:
        """As its API shows it."""

    async def _settle(self, path: str, row: Row, wanted: WantedHook) -> ForgeHook:
        """After a write: what one request cannot do."""
        return self._read(row)

    # What is asked

    async def close(self) -> None:
        await self._http.close()

    async def hooks(self, path: str) -> tuple[ForgeHook, ...]:
        with self._explained():
            return tuple([self._read(row) for row in await self._rows(path)])

    async def make_hook(self, path: str, wanted: WantedHook) -> ForgeHook:
        with self._redactor.knowing(wanted.secret), self._explained():
            try:
                row = await self._written("POST", self._all(path), self._body(wanted))
                return await self._settle(path, row, wanted)
            except FailureError as error:
                if not may_be_done(error) and error.failure.kind is not FailureKind.CONFLICT:
                    raise
                there = await self._with_url(path, wanted.url)
                if there is None:
                    raise
                return await self._change(path, there.id, wanted)

    async def change_hook(self, path: str, hook_id: str, wanted: WantedHook) -> ForgeHook:
        with self._redactor.knowing(wanted.secret), self._explained():
            return await self._change(path, hook_id, wanted)

    async def remove_hook(self, path: str, hook_id: str) -> None:
        """404 is also what some answer to whom they show nothing: then the list is refused too."""
        with self._explained():
            try:
                await self._http.write("DELETE", self._one(path, hook_id))
            except FailureError as error:
                gone = error.failure.kind is FailureKind.NOT_FOUND
                if not (gone or may_be_done(error)):
                    raise
                if any(self._read(row).id == hook_id for row in await self._rows(path)):
                    raise

    async def _change(self, path: str, hook_id: str, wanted: WantedHook) -> ForgeHook:
        """Nobody can read whether a secret has arrived; to say it again is harmless."""
        try:
            row = await self._written(self.change_method, self._one(path, hook_id), self._body(wanted))
        except FailureError as error:
            if not may_be_done(error) or was_moved(error):
                raise
            row = await self._written(self.change_method, self._one(path, hook_id), self._body(wanted))
        return await self._settle(path, row, wanted)

    async def _written(self, method: str, at: str, body: Mapping[str, object]) -> Row:
        return words.as_row(words.parse((await self._http.write(method, at, body)).data))

    async def _with_url(self, path: str, url: str) -> ForgeHook | None:
        """However the forge writes its signs."""
        hooks = map(self._read, await self._rows(path))
        return next((hook for hook in hooks if unquote(hook.url) == unquote(url)), None)

    async def _rows(self, path: str) -> list[Row]:
        rows: list[Row] = []
        for page in range(1, PAGES_MAX + 1):
            answer = await self._http.get(self._all(path), {"page": page, self.page_word: self.page_size})
            new = words.as_rows(words.parse(answer.data), most=self.page_size)
            rows += new
            more, total = links_on(answer), count_in(answer, "x-total", "x-total-count", "total_count")
            if more is None:
                more = len(rows) < total if total is not None else len(new) >= self.page_size
            if not new or not more:
                return rows
        raise conflict(f"{path!r} has more hooks than {PAGES_MAX} pages hold: remove some")

    def _all(self, path: str) -> str:
        return f"{self._repo(path)}/hooks"

    def _one(self, path: str, hook_id: str) -> str:
        return f"{self._all(path)}/{quote(hook_id, safe='')}"

    def _words(self, said: object) -> str:
        """Of the forge, about deliveries."""
        return one_line(self._redactor.clean(str(said)[: words.SAID_MAX]))[: words.WORDS_MAX]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Refusals name the right that is missing here."""
        try:
            yield
        except FailureError as error:
            if was_moved(error):
                raise conflict(f"it was renamed or moved there: {error.failure.message}") from error
            if error.failure.kind in (FailureKind.PERMISSION_DENIED, FailureKind.NOT_FOUND):
                raise FailureError(replace(error.failure, hint=self.rights)) from error
            raise


def url_in(row: Row, name: str = "url") -> str:
    """Empty: one that cannot be ours."""
    value = row.get(name)
    return value if isinstance(value, str) and len(value) <= URL_CHARS_MAX else ""


def id_in(row: Row) -> str:
    return str(words.number(row, "id"))


def names_in(row: Row, name: str) -> frozenset[str]:
    value = row.get(name)
    return (
        frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
    )
