"""What the clients of forges do alike: of all, or of those that have no groups within groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from evermirror.edge.forge import words
from evermirror.edge.forge.http import ForgeHttp, UnclearError, was_moved
from evermirror.edge.forge.words import Row
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import NewTarget, TargetProject, Visibility

OWN_REPOS = "/user/repos"  # of whoever asks


async def look_up(http: ForgeHttp, path: str, query: Mapping[str, str | int] | None = None) -> Row | None:
    """None: there is none that we may see. What was moved is neither: a person says which is meant."""
    try:
        answer = await http.get(path, query)
    except FailureError as error:
        if error.failure.kind is FailureKind.NOT_FOUND:
            return None
        if was_moved(error):
            raise conflict(f"it was renamed or moved there: {error.failure.message}") from error
        raise
    return words.as_row(words.parse(answer.data))


def may_be_done(error: FailureError) -> bool:
    """Of a write: the answer is missing, or cannot be read."""
    return isinstance(error, UnclearError) or error.failure.kind is FailureKind.UNKNOWN


def refuse_appeared(made: TargetProject, new: NewTarget) -> TargetProject:
    """After a creation whose answer is unclear: ours where it is empty and as we wanted it."""
    if made.empty and is_as_wished(made, new.description, new.visibility):
        return made
    raise conflict(f"{new.path!r} has appeared at the target meanwhile, and not by us")


def is_as_wished(project: TargetProject, description: str | None, visibility: Visibility | None) -> bool:
    """A forge may have cut the description, and made one line of it."""
    told, wished = "".join(project.description.split()), "".join((description or "").split())
    same_words = description is None or (wished.startswith(told) and bool(wished) == bool(told))
    return same_words and visibility in (None, project.visibility)


async def remove_each(
    http: ForgeHttp, path: str, names: Sequence[str], still_there: Callable[[], Awaitable[Sequence[str]]]
) -> None:
    """Each of these below ``path``; one that somebody else removed is no trouble."""
    for name in names:
        try:
            await http.write("DELETE", f"{path}/{quote(name, safe='')}")
        except UnclearError:
            if name in await still_there():
                raise
        except FailureError as error:
            if error.failure.kind is not FailureKind.NOT_FOUND:
                raise


async def is_me(http: ForgeHttp, owner: str) -> bool:
    """Whether the token is this person's."""
    me = await look_up(http, "/user")
    return me is not None and words.text(me, "login").lower() == owner.lower()


async def place_of(http: ForgeHttp, owner: str) -> str:
    """Where projects of an owner are made: an organisation's, or our own."""
    name = quote(owner, safe="")
    if await look_up(http, f"/orgs/{name}") is not None:
        return f"/orgs/{name}/repos"
    if await is_me(http, owner):
        return OWN_REPOS
    raise absent(f"there is no organisation {owner!r} at the target")


def repo_path(path: str) -> str:
    owner, name = owner_and_name(path)
    return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"


def owner_and_name(path: str) -> tuple[str, str]:
    """Of a forge without groups in groups."""
    owner, _, name = path.partition("/")
    if not owner or not name or "/" in name:
        raise conflict(f"{path!r}: this forge has no groups within groups; its paths are owner/name")
    return owner, name


def conflict(said: str) -> FailureError:
    return FailureError(Failure(FailureKind.CONFLICT, said))


def absent(said: str) -> FailureError:
    return FailureError(Failure(FailureKind.NOT_FOUND, said))
