"""At whose API a repo's hook is registered, and with which credential.

forge        the order's, else that of the host (github.com, gitlab.com, gitee.com), else the credential's
credential   the order's, else the repo's own where it has a token or password, else one that has a token or
             password and names the host in its ``hosts``

API          the credential's ``forge_url``, else at the repo's own host

A token is sent to no host that nobody chose for it: one of an order has ``hosts``, or the order is about the
repos of one host only. Nor to another port than ``hosts`` has, and in the clear only where ``hosts`` has the
host with its port, or it is the repo's own, which goes there with every poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from evermirror.edge.git.credentials import Credential
from evermirror.edge.store.hook_registrations import HookedRepo, Lot
from evermirror.errors import UsageError
from evermirror.model.failure import CREDENTIAL, OURS, Failure, FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.model.repo import Host
from evermirror.nodes.hook_service import RegisterWish

KNOWN_HOSTS: Mapping[str, Forge] = {
    "github.com": Forge.GITHUB,
    "gitlab.com": Forge.GITLAB,
    "gitee.com": Forge.GITEE,
}
HOSTS_NAMED = 5
HOSTS_HINT = "add the host to the credential's hosts"


@dataclass(frozen=True, slots=True)
class Whom:
    forge: Forge
    credential: Credential


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A lot that nobody is asked about; ``problem`` is empty where that is as it should be."""

    did: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """Where an API is asked, and for what."""

    base_url: str
    path: str


def whom_to_ask(lot: Lot, wish: RegisterWish, credentials: Mapping[str, Credential]) -> Whom | LeftOut:
    credential = _credential(lot, wish, credentials)
    forge = wish.forge or KNOWN_HOSTS.get(lot.host) or _forge_of(credential)
    if forge is None:
        return LeftOut("no forge")
    if credential is None:
        return LeftOut(
            "refused",
            f"there is no credential for the API of {lot.host}: name one, or give one in the settings "
            f'hosts = ["{lot.host}"] and forge = "{forge.value}"',
        )
    if credential.hosts and not _may_be_for(credential, lot.host):
        return LeftOut("refused", f"{_not_for(credential, lot.host)}: {HOSTS_HINT}")
    if not credential.secret:
        return LeftOut(
            "refused", f"credential {credential.name!r} has neither a token nor a password for an API"
        )
    if credential.forge and credential.forge != forge.value:
        return LeftOut(
            "refused",
            f"credential {credential.name!r} is for {credential.forge}, and not for {forge.value}, which "
            f"{lot.host} is asked as: name another, or another forge",
        )
    return Whom(forge, credential)


def check_credential(wish: RegisterWish, lots: Iterable[Lot], credentials: Mapping[str, Credential]) -> None:
    """Raises UsageError where the order's credential is not known, or would go to hosts at random."""
    if wish.credential is None:
        return
    credential = credentials.get(wish.credential)
    if credential is None:
        raise UsageError(
            f"there is no credential {wish.credential!r} in this server's settings",
            hint=f"Add [credentials.{wish.credential}] to them, or name another",
        )
    hosts = sorted({lot.host for lot in lots})
    if not credential.hosts and len(hosts) > 1:
        named = ", ".join(hosts[:HOSTS_NAMED]) + (", …" if len(hosts) > HOSTS_NAMED else "")
        raise UsageError(
            f"credential {credential.name!r} would be sent to {len(hosts)} hosts: {named}",
            hint=f"Set credentials.{credential.name}.hosts, or name the repos of one host with --group",
        )


def instance_of(repo: HookedRepo, credential: Credential) -> Instance:
    """Whose API is asked about a repo, whose URL is in its canonical form. One reached by ssh has its API at
    https. Raises FailureError where that is no place for this credential."""
    parts = urlsplit(repo.url)
    place = parts.netloc.rpartition("@")[2]
    path = unquote(parts.path).strip("/").removesuffix(".git")
    fixed = credential.forge_url
    in_clear = parts.scheme == "http" and not fixed and place not in KNOWN_HOSTS
    named = _as_named(parts.scheme, place, in_clear=in_clear)
    if credential.hosts and not named & credential.hosts:
        raise FailureError(_no_place(_not_for(credential, min(named)), HOSTS_HINT))
    if in_clear and not credential.hosts and repo.credential != credential.name:
        words = f"credential {credential.name!r} would be sent to {place} in the clear"
        raise FailureError(_no_place(words, f"add {min(named)!r} to its hosts, where that is as you want it"))
    if fixed:
        return Instance(fixed, _below(path, urlsplit(fixed).path.strip("/")))
    host = _name(Host(place)) if parts.scheme == "ssh" else place
    return Instance(f"{'http' if in_clear else 'https'}://{host}", path)


def _as_named(scheme: str, place: str, *, in_clear: bool) -> set[str]:
    """How the ``hosts`` of a credential may name a place. The port of ssh says nothing of the API's."""
    if scheme == "ssh":
        return {place, _name(Host(place))}
    return {f"{place}:80"} if in_clear and place == _name(Host(place)) else {place}


def _below(path: str, root: str) -> str:
    """An instance below a path has it in URLs of http, and not in those of ssh."""
    return path.removeprefix(f"{root}/") if root else path


def _not_for(credential: Credential, place: str) -> str:
    return f"credential {credential.name!r} is not for {place}"


def _no_place(words: str, hint: str) -> Failure:
    return Failure(FailureKind.AUTH_FAILED, words, hint=hint, context={OURS: CREDENTIAL})


def _credential(lot: Lot, wish: RegisterWish, credentials: Mapping[str, Credential]) -> Credential | None:
    if wish.credential is not None:
        return credentials.get(wish.credential)
    own = credentials.get(lot.credential) if lot.credential is not None else None
    if own is not None and own.secret:
        return own
    fitting = (c for c in credentials.values() if c.secret and _is_for(c, lot.host))
    return min(fitting, key=lambda c: (lot.host not in c.hosts, c.name), default=None)


def _is_for(credential: Credential, host: Host) -> bool:
    known = KNOWN_HOSTS.get(host)
    fits = not credential.forge or known is None or credential.forge == known.value
    return fits and _may_be_for(credential, host)


def _may_be_for(credential: Credential, host: Host) -> bool:
    """For some of the host's repos, perhaps: ``instance_of`` says for which."""
    return bool({host, _name(host), f"{host}:80"} & credential.hosts)


def _forge_of(credential: Credential | None) -> Forge | None:
    return Forge(credential.forge) if credential is not None and credential.forge else None


def _name(host: Host) -> str:
    """Without the port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
