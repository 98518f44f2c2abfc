"""Settings of the hooks that forges send us."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from evermirror.config.posted_url import SECRET_CHARS_MIN, SHORT_SECRET
from evermirror.config.section import Section
from evermirror.config.values import Kind, MaybeHttpUrl, Secret
from evermirror.core.hooks.secrets import SECRETS_MAX, Secrets, lines_of
from evermirror.model.forge import Forge


def _check_lines(secret: SecretStr | None) -> SecretStr | None:
    if secret is None:
        return None
    lines = lines_of(secret.get_secret_value())
    if not lines:
        raise ValueError("is empty")
    if len(lines) > SECRETS_MAX:
        raise ValueError(f"has more than {SECRETS_MAX} lines: one secret a line, the first for new hooks")
    if any(len(line) < SECRET_CHARS_MIN for line in lines):
        raise ValueError(SHORT_SECRET)
    return secret


def _check_secrets(secrets: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, secret in secrets.items():
        if not _is_name(name):
            raise ValueError(f'{name!r} is neither a host nor a key such as "github.com/owner/name"')
        try:
            _check_lines(secret)
        except ValueError as error:
            raise ValueError(f"{name!r} {error}") from None
    return secrets


def _is_name(name: str) -> bool:
    plain = name.isascii() and name.isprintable() and not any(mark in name for mark in (" ", "@", "://"))
    return plain and bool(name.partition("/")[0])


def _check_base(url: str | None) -> str | None:
    """What hooks' addresses begin with."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc or not url.isascii() or not url.isprintable():
        raise ValueError("has more than scheme, host and path")
    if "/api/" in f"{parts.path}/":
        raise ValueError("has /api/ in it: give the server's address alone, the rest is added to it")
    return url.rstrip("/")


HookSecret = Annotated[Secret, AfterValidator(_check_lines)]


class Webhooks(Section):
    """Hooks of forges. Secrets (16 letters or more) may be several, one a line; new hooks get the first."""

    url: Annotated[MaybeHttpUrl, AfterValidator(_check_base)] = Field(
        default=None, description='Where forges reach this server, such as "https://mirror.example.org".'
    )
    unknown: Annotated[Literal["ignore", "add"], Kind.CHOICE] = Field(
        default="ignore",
        description="A hook of a repository that is not in the catalog: ignore it, or add the repository.",
    )
    github_secret: HookSecret = Field(
        default=None, description="Of X-Hub-Signature-256. With no secret a hook gets 403."
    )
    gitlab_secret: HookSecret = Field(
        default=None, description="Of X-Gitlab-Token, or a signing token (whsec_…)."
    )
    gitee_secret: HookSecret = Field(
        default=None, description="Of X-Gitee-Token: password, or key of its signature."
    )
    gitea_secret: HookSecret = Field(
        default=None, description="Of X-Gitea-Signature and X-Forgejo-Signature."
    )
    secrets: Annotated[Mapping[str, SecretStr], AfterValidator(_check_secrets), Kind.SECRETS] = Field(
        default={}, description="By host or repository key, in place of the four above."
    )

    def as_secrets(self) -> Secrets:
        """All of them, by whom they are for."""
        by_name: dict[str, tuple[str, ...]] = {}
        for name, secret in self.secrets.items():
            plain = _canonical(name)
            both = (*by_name.get(plain, ()), *lines_of(secret.get_secret_value()))
            by_name[plain] = tuple(dict.fromkeys(both))
        return Secrets(by_name, {forge: lines_of(text) for forge, text in self._forges()})

    def _forges(self) -> Iterator[tuple[Forge, str]]:
        own = {
            Forge.GITHUB: self.github_secret,
            Forge.GITLAB: self.gitlab_secret,
            Forge.GITEE: self.gitee_secret,
            Forge.GITEA: self.gitea_secret,
        }
        return ((forge, secret.get_secret_value()) for forge, secret in own.items() if secret is not None)

    def secret_values(self) -> Iterator[str]:
        """Each of them alone: a log would show one, not all."""
        yield from self.as_secrets().all()


def _canonical(name: str) -> str:
    host, slash, path = name.partition("/")
    path = path.rstrip("/").removesuffix(".git")
    return f"{host.lower()}{slash if path else ''}{path}"
