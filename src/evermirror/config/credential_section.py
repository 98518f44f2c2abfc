"""Settings of credentials: ways to sign in at upstreams and targets, by name."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from evermirror.config.section import Section, SettingError
from evermirror.config.values import Kind, MaybeDate, MaybeHttpUrl, MaybePath, MaybeText, Secret, TextList
from evermirror.errors import InvalidUrl
from evermirror.model.host import canonical_host

_CREDENTIAL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]/@\s]+)(:[1-9][0-9]{0,4})?")


def _check_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """As keys have them: in lower case, with the port where it is not the usual one."""
    return tuple(_check_host(host) for host in hosts)


def _check_host(text: str) -> str:
    parts = _HOST.fullmatch(text)
    try:
        name = canonical_host(parts[1]) if parts is not None else ""
    except InvalidUrl:
        name = ""
    if parts is None or not name:
        raise ValueError(f'{text!r} is not a host such as "gitlab.example.org" or "git.example.org:8443"')
    return (f"[{name}]" if ":" in name else name) + (parts[2] or "")


def _check_forge_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc or not url.isascii() or not url.isprintable():
        raise ValueError("has more than scheme, host and path")
    if "/api/" in f"{parts.path}/":
        raise ValueError("is written without /api: that is added")
    return url.rstrip("/")


class Credential(Section):
    """A way to sign in upstream; repositories refer to it by name."""

    username: MaybeText = Field(default=None, description="User name, where the server wants one.")
    password: Secret = Field(default=None, description="Password.")
    token: Secret = Field(default=None, description="Access token, instead of a password.")
    ssh_key_file: MaybePath = Field(default=None, description="Private key for ssh.")
    forge: Annotated[Literal["none", "gitlab", "gitea", "github", "gitee"], Kind.CHOICE] = Field(
        default="none", description="Whose API it has: default branches of targets and hooks are set there."
    )
    forge_url: Annotated[MaybeHttpUrl, AfterValidator(_check_forge_url)] = Field(
        default=None,
        description='Where the forge is, if not at the host: "https://example.org/gitlab"; for hooks.',
    )
    hosts: Annotated[TextList, AfterValidator(_check_hosts)] = Field(
        default=(),
        description="Where it may be sent; hooks of repositories there are registered with it.",
    )
    expires: MaybeDate = Field(
        default=None, description="Its last day, where the forge does not tell; an alert comes 30 days ahead."
    )

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        given = [self.password is not None, self.token is not None, self.ssh_key_file is not None]
        if not any(given):
            raise SettingError("token", "is missing: give one of password, token, ssh_key_file")
        if self.password is not None and self.token is not None:
            raise SettingError("token", "and password are both given: keep one")
        if self.forge_url is not None and self.forge == "none":
            raise SettingError("forge", "is missing: forge_url needs it")
        return self


def _check_credential_name(name: str) -> str:
    if not _CREDENTIAL_NAME.fullmatch(name):
        raise ValueError("a credential's name is made of a-z, 0-9, '.', '_' and '-', at most 64")
    return name


CredentialName = Annotated[str, AfterValidator(_check_credential_name)]
