"""Passes and tickets as text that only the coordinator can make, and everybody with its public key can read.

    sealed = base64url(JSON) "." base64url(Ed25519 signature over a fixed word and that JSON)

Both say whether their bearer is trusted. A pass is worth its bearer's name: it is shown to relays only, never
to a worker that is read from.
"""

from __future__ import annotations

import base64
import binascii
import json
import math

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from evermirror.errors import EvermirrorError
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Pass, Ticket
from evermirror.model.repo import RepoKey

PASS_S = 3600.0  # a pass is good for so long, and renewed at half of it
TICKET_S = 900.0  # a reason to read may end meanwhile; the next command brings a new one
SEALED_CHARS_MAX = 16_384
PASSES_MAX = 1_000  # remembered as right
_WORD = b"evermirror relay 1\n"
_PASS, _TICKET = "pass", "ticket"


class SealInvalid(EvermirrorError):
    """Not sealed by our coordinator, not what it should be, or no longer good."""


def new_private_key() -> bytes:
    """32 secret bytes for a ``Sealer``."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


class Sealer:
    """The coordinator's half."""

    def __init__(self, private_key: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)

    @property
    def public_key(self) -> bytes:
        """32 bytes, for every ``Unsealer``."""
        return self._key.public_key().public_bytes_raw()

    def seal(self, value: Pass | Ticket) -> str:
        match value:
            case Pass(node, role):
                said: dict[str, object] = {"is": _PASS, "node": node, "role": role.value}
            case Ticket(bearer, holder, key):
                said = {"is": _TICKET, "bearer": bearer, "holder": holder, "key": key}
        said |= {"until": value.until, "trusted": value.trusted}
        text = json.dumps(said, separators=(",", ":")).encode()
        return f"{_base64(text)}.{_base64(self._key.sign(_WORD + text))}"


class Unsealer:
    """Everybody's half."""

    def __init__(self, public_key: bytes) -> None:
        try:
            self._key = Ed25519PublicKey.from_public_bytes(public_key)
        except ValueError:
            raise SealInvalid("the coordinator's public key is not one") from None
        self._passes: dict[str, Pass] = {}  # those whose seal is right, oldest first

    def read_pass(self, text: str, now: float) -> Pass:
        """Raises SealInvalid."""
        read = self._passes.get(text)
        if read is None:
            said = self._read(text, _PASS)
            try:
                read = Pass(NodeId(_text(said["node"])), Role(said["role"]), _until(said), _trusted(said))
            except (KeyError, ValueError):
                raise SealInvalid("the pass cannot be read") from None
            self._remember(text, read)
        if read.until <= now:
            raise SealInvalid("the pass has ended")
        return read

    def _remember(self, text: str, read: Pass) -> None:
        """A reader shows the same one with each question for half an hour."""
        if len(self._passes) >= PASSES_MAX:
            del self._passes[next(iter(self._passes))]
        self._passes[text] = read

    def read_ticket(self, text: str, now: float) -> Ticket:
        """Raises SealInvalid."""
        said = self._read(text, _TICKET)
        try:
            bearer, holder = NodeId(_text(said["bearer"])), NodeId(_text(said["holder"]))
            read = Ticket(bearer, holder, RepoKey(_text(said["key"])), _until(said), _trusted(said))
        except (KeyError, ValueError):
            raise SealInvalid("the ticket cannot be read") from None
        if read.until <= now:
            raise SealInvalid("the ticket has ended")
        return read

    def _read(self, text: str, what: str) -> dict[str, object]:
        if len(text) > SEALED_CHARS_MAX or not text.isascii():
            raise SealInvalid(f"no {what}")
        body, _, signature = text.partition(".")
        try:
            signed = _bytes(body)
            self._key.verify(_bytes(signature), _WORD + signed)
            said = json.loads(signed)
        except (InvalidSignature, binascii.Error, ValueError):
            raise SealInvalid(f"the {what} was not sealed by this coordinator") from None
        if not isinstance(said, dict) or said.get("is") != what:
            raise SealInvalid(f"no {what}")
        return said


def check_ticket(ticket: Ticket, *, bearer: NodeId, holder: NodeId, key: RepoKey) -> None:
    """Raises SealInvalid where it is not for exactly this."""
    if ticket.bearer != bearer:
        raise SealInvalid("the ticket is another reader's")
    if ticket.holder != holder:
        raise SealInvalid("the ticket is for another holder")
    if ticket.key != key:
        raise SealInvalid("the ticket is for another repo")


def _trusted(said: dict[str, object]) -> bool:
    """No where an older coordinator does not say."""
    return said.get("trusted") is True


def _until(said: dict[str, object]) -> float:
    value = said["until"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
