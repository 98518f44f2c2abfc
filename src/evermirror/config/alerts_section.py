"""Settings of alerts, and of the channels that they go to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from evermirror.config.posted_url import (
    LOOPBACK,
    PLAIN_HTTP,
    SECRET_CHARS_MIN,
    SHORT_SECRET,
    check_posted_url,
    secrets_in,
    shows_nothing,
)
from evermirror.config.section import Section, SettingError
from evermirror.config.values import (
    Count,
    Duration,
    Kind,
    MaybeAddress,
    MaybeCount,
    MaybePath,
    MaybeText,
    Secret,
    TextList,
    is_host,
    split_host_port,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
CHANNEL_RECIPIENTS_MAX = 100
_CHANNEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}

# What each type must have, and what it may have; everything else would be without effect, and is refused.
_NEEDS = {
    "dingtalk": ("url",),
    "wecom": ("url",),
    "webhook": ("url", "secret"),
    "mail": ("host", "sender", "to"),
    "syslog": ("address",),
}
_TAKES = {
    "dingtalk": ("secret", "ca_file"),
    "wecom": ("ca_file",),
    "webhook": ("ca_file",),
    "mail": ("port", "tls", "username", "password", "ca_file"),
    "syslog": ("transport", "facility", "ca_file"),
}
_COMMON = ("type", "min_level", "kinds", "language")


class Alerts(Section):
    """What people are told of; [channels.NAME] says where."""

    language: Annotated[Literal["en", "zh"], Kind.CHOICE] = Field(
        default="en", description="Of messages: en or zh; a channel may have its own."
    )
    server: MaybeText = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="What this server is called in messages; none: the host's name.",
    )
    retention: Duration = Field(
        default=90 * DAY, ge=DAY, description="How long alerts that are over stay in the history."
    )
    settle: Duration = Field(
        default=10 * MINUTE,
        ge=MINUTE,
        description="What stood before a restart and is not seen again within this, is over.",
    )
    per_minute: Count = Field(
        default=20, ge=1, le=600, description="Messages to one channel in a minute; what waits goes as one."
    )
    digest_items: Count = Field(
        default=20, ge=1, le=100, description="Alerts in one message; further ones are counted in it."
    )
    give_up: Duration = Field(
        default=24 * HOUR, gt=0, description="A message that cannot be sent is tried for so long."
    )
    waiting_max: Count = Field(
        default=1000, ge=10, le=100_000, description="Alerts that wait for one channel; more are given up."
    )
    standing_max: Count = Field(
        default=1000, ge=10, le=100_000, description="Alerts that stand at the same time; more are counted."
    )


def _check_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """A pattern with a slip of the pen would be a channel that never says anything."""
    from evermirror.core.watch.kinds import ALL_KINDS  # brings the fleet: most commands need none of it

    for pattern in kinds:
        if not any(fnmatchcase(kind, pattern) for kind in ALL_KINDS):
            known = ", ".join(sorted(ALL_KINDS))
            raise ValueError(f"{pattern!r} matches no kind of alert; there are {known}")
    return kinds


def _check_mailboxes(addresses: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := next((address for address in addresses if not _is_mailbox(address)), None):
        raise ValueError(f'{wrong!r} is not a mail address such as "ops@example.org"')
    if len(addresses) > CHANNEL_RECIPIENTS_MAX:
        raise ValueError(f"has more than {CHANNEL_RECIPIENTS_MAX} addresses: use a mailing list")
    return addresses


def _check_mailbox(address: str | None) -> str | None:
    if address is not None and not _is_mailbox(address):
        raise ValueError('is not a mail address such as "evermirror@example.org"')
    return address


def _is_mailbox(text: str) -> bool:
    return len(text) <= 254 and _MAILBOX.fullmatch(text) is not None


def _check_host(host: str | None) -> str | None:
    if host is not None and not is_host(host):
        raise ValueError('is not a host such as "smtp.example.org"')
    return host


class Channel(Section):
    """A way on which people are told; its name is yours."""

    type: Annotated[Literal["dingtalk", "wecom", "mail", "syslog", "webhook"], Kind.CHOICE] = Field(
        description="dingtalk, wecom, mail, syslog or webhook."
    )
    min_level: Annotated[Literal["warning", "error", "critical"], Kind.CHOICE] = Field(
        default="warning", description="Less serious alerts are not sent here."
    )
    kinds: Annotated[TextList, AfterValidator(_check_kinds)] = Field(
        default=(), description='Only these kinds, such as "worker-down" or "project-*"; none: all.'
    )
    language: Annotated[Literal["auto", "en", "zh"], Kind.CHOICE] = Field(
        default="auto", description="auto: that of alerts.language."
    )
    url: Annotated[Secret, AfterValidator(check_posted_url)] = Field(
        default=None, description="dingtalk, wecom, webhook: where messages are posted to. Holds a secret."
    )
    secret: Secret = Field(
        default=None,
        description="webhook: signs messages, at least 16 letters long. dingtalk: SEC…, where it signs.",
    )
    host: Annotated[MaybeText, AfterValidator(_check_host)] = Field(
        default=None, description="mail: the SMTP server."
    )
    port: MaybeCount = Field(
        default=None, ge=1, le=65535, description="mail: none: 587 with starttls, 465 with tls, else 25."
    )
    tls: Annotated[Literal["starttls", "tls", "none"], Kind.CHOICE] = Field(
        default="starttls", description="mail: starttls, tls (from the first byte) or none."
    )
    username: MaybeText = Field(default=None, min_length=1, description="mail: where the server wants one.")
    password: Secret = Field(default=None, description="mail: that belongs to username.")
    sender: Annotated[MaybeText, AfterValidator(_check_mailbox)] = Field(
        default=None, description="mail: the address that messages come from."
    )
    to: Annotated[TextList, AfterValidator(_check_mailboxes)] = Field(
        default=(), description="mail: the addresses that they go to."
    )
    address: MaybeAddress = Field(default=None, description='syslog: such as "log.example.org:6514".')
    transport: Annotated[Literal["udp", "tcp", "tls"], Kind.CHOICE] = Field(
        default="udp", description="syslog: udp, tcp or tls."
    )
    facility: Annotated[
        Literal[
            "daemon", "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"
        ],
        Kind.CHOICE,
    ] = Field(default="daemon", description="syslog: daemon, user or local0 to local7.")
    ca_file: MaybePath = Field(
        default=None, description="CA certificates (PEM) to trust with TLS; none: the system's."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for key in _NEEDS[self.type]:
            if not getattr(self, key):
                raise SettingError(key, f"is missing: a channel of type {self.type} needs it")
        if stray := sorted(self.model_fields_set - self.meaningful):
            raise SettingError(stray[0], f"means nothing to a channel of type {self.type}: take it away")
        secret = self.secret.get_secret_value() if self.secret else ""
        if self.type == "webhook" and len(secret) < SECRET_CHARS_MIN:
            raise SettingError("secret", SHORT_SECRET)
        return self

    @model_validator(mode="after")
    def _shows_no_secret_on_the_way(self) -> Self:
        if self.url is not None and not shows_nothing(self.url):
            raise SettingError("url", PLAIN_HTTP)
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            raise SettingError(missing, "is missing: username and password come together")
        if self.password is not None and self.tls == "none" and self.host not in LOOPBACK:
            raise SettingError("tls", "is none, which would show the password: use starttls or tls")
        if self.address is not None and split_host_port(self.address)[1] == 0:
            raise SettingError("address", "has the port 0, which nobody can reach")
        return self

    @property
    def meaningful(self) -> frozenset[str]:
        """The settings that a channel of its type has."""
        return frozenset({*_COMMON, *_NEEDS[self.type], *_TAKES[self.type]})

    @property
    def smtp_port(self) -> int:
        return self.port or _PORTS[self.tls]

    def secret_values(self) -> Iterator[str]:
        for value in (self.secret, self.password):
            if value is not None:
                yield value.get_secret_value()
        if self.url is not None:
            yield from secrets_in(self.url)


def _check_channel_name(name: str) -> str:
    if not _CHANNEL_NAME.fullmatch(name):
        raise ValueError("a channel's name is made of a-z, 0-9, '_' and '-', at most 32")
    return name


ChannelName = Annotated[str, AfterValidator(_check_channel_name)]
