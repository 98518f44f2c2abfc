"""Named credentials: how a secret reaches the one host it is for, and stays out of everything else."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

from evermirror.model.failure import CREDENTIAL, OURS, Failure, FailureError, FailureKind
from evermirror.model.repo import RepoSpec

TOKEN_LOGIN = "oauth2"  # noqa: S105  # the user name forges accept beside a bare token; GitHub takes any
REDACTED = "***"
ENCODED_FROM_CHARS = 8

# git asks "Username for 'https://host': " and "Password for 'https://user@host': ". The secret is in the
# environment only; printf is a builtin of sh, so it is in nobody's argv either. Any other host gets nothing.
ASKPASS_SCRIPT = """\
#!/bin/sh
case "$1" in
*"//$EVERMIRROR_HOST': " | *"@$EVERMIRROR_HOST': ") ;;
*) exit 1 ;;
esac
case "$1" in
"Username for "*) printf '%s\\n' "$EVERMIRROR_USERNAME" ;;
"Password for "*) printf '%s\\n' "$EVERMIRROR_SECRET" ;;
*) exit 1 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Credential:
    """One named credential. ``hosts`` limits where it may be sent; empty means wherever a repo names it."""

    name: str
    username: str = ""
    password: str = ""
    token: str = ""
    ssh_key_file: Path | None = None
    hosts: frozenset[str] = frozenset()
    forge: str = ""  # whose API the host has: a Forge's value; "": none is asked
    forge_url: str = ""  # where that forge is for hooks; "": at the repo's own host

    @property
    def secret(self) -> str:
        return self.token or self.password

    @property
    def login(self) -> str:
        return self.username or TOKEN_LOGIN

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"  # a traceback or a log line must not show the rest


class Credentials:
    """All credentials of this node, by name."""

    def __init__(self, credentials: Iterable[Credential] = ()) -> None:
        self._by_name: Mapping[str, Credential] = {c.name: c for c in credentials}
        self.redactor = Redactor(self._by_name.values())

    @property
    def by_name(self) -> Mapping[str, Credential]:
        return self._by_name

    def find(self, spec: RepoSpec) -> Credential | None:
        """The credential that ``spec`` names; one unknown here, or not meant for this host, is a failure."""
        if spec.credential is None:
            return None
        credential = self._by_name.get(spec.credential)
        if credential is None:
            hint = f"add [credentials.{spec.credential}] to its settings: every worker of the repo needs it"
            raise _refused(spec, "is not in the settings of this node", hint)
        if credential.hosts and spec.host not in credential.hosts:
            raise _refused(spec, f"is not for {spec.host}", "add the host to the credential's hosts")
        return credential

    def authorization(self, spec: RepoSpec) -> str | None:
        """The value of the Authorization header for a poll of ``spec``, where it has one."""
        credential = self.find(spec)
        if credential is None or not credential.secret:
            return None
        return "Basic " + _basic(credential.login, credential.secret)


class Redactor:
    """Removes every known secret, in each form it could take, from text that is stored, logged or shown."""

    def __init__(self, credentials: Iterable[Credential]) -> None:
        forms: set[str] = set()
        for credential in credentials:
            for secret in filter(None, (credential.password, credential.token)):
                forms |= {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
                forms |= _encoded(secret)
                forms |= {_basic(user, secret) for user in {credential.login, credential.username}}
        self._forms = sorted(forms, key=len, reverse=True)  # longest first: one may contain another

    def clean(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        return text

    def clean_failure(self, failure: Failure) -> Failure:
        """The same failure with secrets removed from all of its texts."""
        return Failure(
            kind=failure.kind,
            message=self.clean(failure.message),
            hint=self.clean(failure.hint),
            retry_after_s=failure.retry_after_s,
            git_command=self.clean(failure.git_command),
            stdout=self.clean(failure.stdout),
            stderr=self.clean(failure.stderr),
            corrupt=failure.corrupt,
            context={k: self.clean(v) for k, v in failure.context.items()},
        )


def install_askpass(path: Path) -> None:
    """Write the helper that git asks; it holds no secret itself."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(f".{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w") as file:
        file.write(ASKPASS_SCRIPT)
    fresh.chmod(0o700)
    fresh.replace(path)  # whole or not at all: another process may be running it


def _encoded(secret: str) -> set[str]:
    """As a server may say it back: in base64 by itself, or as it is in an address, with all signs or even all
    letters encoded. A short one would be found in words that have nothing to do with it."""
    if len(secret) < ENCODED_FROM_CHARS:
        return set()
    data = secret.encode()
    plain = (base64.b64encode(data), base64.urlsafe_b64encode(data))
    letters = {byte for byte in data if chr(byte).isascii() and chr(byte).isalnum()}
    percent = [
        "".join(chr(byte) if byte in kept else style % byte for byte in data)
        for kept in (letters, set[int]())
        for style in ("%%%02X", "%%%02x")
    ]
    return {*(form.decode("ascii").rstrip("=") for form in plain), *percent}


def _basic(user: str, secret: str) -> str:
    return base64.b64encode(f"{user}:{secret}".encode()).decode("ascii")


def _refused(spec: RepoSpec, what: str, hint: str) -> FailureError:
    message = f"credential {spec.credential!r} {what}"
    return FailureError(Failure(FailureKind.AUTH_FAILED, message, hint=hint, context={OURS: CREDENTIAL}))
