"""Errors that are meant for a person: what is wrong, where, and what to do next."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process answers its caller; documented in docs/cli.md."""

    OK = 0
    FAILED = 1  # the thing asked for was tried and did not succeed
    USAGE = 2  # wrong flags, settings or input: nothing was tried
    UNREACHABLE = 3  # the server does not answer
    DENIED = 4  # token missing, wrong, or its role may not do this
    NOT_FOUND = 5  # no such repo, task, token
    WAITS = 6  # done, but for what waits for a person's word


class EvermirrorError(Exception):
    """Base of all errors we raise on purpose. ``hint`` says what to do next."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class UsageError(EvermirrorError):
    """The caller's input cannot be used; nothing was changed."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """Settings that cannot be used; ``problems`` holds every one of them, each with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InvalidUrl(UsageError):
    """A repository URL that is refused; ``reason`` is short and safe to show."""

    def __init__(self, reason: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.reason = reason


class InvalidValue(UsageError, ValueError):
    """A single value (duration, size, alias, allow-list entry …) that cannot be read.

    Also a ``ValueError``, so that settings' validators collect it with the rest."""


class NotFound(EvermirrorError):
    """The named thing does not exist."""

    exit_code = ExitCode.NOT_FOUND


class Conflict(EvermirrorError):
    """The request contradicts what is there."""


class Unavailable(EvermirrorError):
    """Somebody who is needed for this does not answer now; later it may work."""


class BadAnswer(Unavailable):
    """A node gave an answer that cannot be used: it is broken, of another version, or hostile."""


class HookRefused(EvermirrorError):
    """A hook that nobody vouches for: not signed as it should be, or there is no secret to check it by."""

    exit_code = ExitCode.DENIED


class EnvironmentUnfit(EvermirrorError):
    """This machine or folder cannot be used as it is: git too old, port taken, folder not writable."""

    exit_code = ExitCode.USAGE


class DatabaseUnreachable(EnvironmentUnfit):
    """The database server was asked and did not let us in; it may a minute later."""

    exit_code = ExitCode.FAILED
