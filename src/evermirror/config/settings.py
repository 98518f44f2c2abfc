"""Every setting, its default and one line of explanation; `evermirror config init` prints them from here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from evermirror.config.alerts_section import Alerts, Channel, ChannelName
from evermirror.config.credential_section import Credential, CredentialName
from evermirror.config.events_section import EventHook, EventHookName, Events
from evermirror.config.fleet_sections import Aggregator, Relay
from evermirror.config.hooks_section import Webhooks
from evermirror.config.pull_section import Pull, Retries, ScheduledJobs
from evermirror.config.section import Section, SettingError
from evermirror.config.serve_section import Serve
from evermirror.config.sources import read_sources
from evermirror.config.values import (
    Address,
    Count,
    Duration,
    FilePath,
    Flag,
    Kind,
    MaybeAddress,
    MaybeCount,
    MaybeDatabaseUrl,
    MaybeDuration,
    MaybeHttpUrl,
    MaybeNumber,
    MaybePath,
    MaybeSize,
    MaybeText,
    Number,
    Rate,
    Secret,
    Size,
    Text,
    TextList,
)
from evermirror.model.address import AllowList
from evermirror.model.client_address import TrustedProxies
from evermirror.model.source import CatalogSource

DATABASE_FILE = "evermirror.db"  # in data.dir
SCHEMES = ("https", "http", "ssh")
_REF_PREFIX = re.compile(r"refs/[A-Za-z0-9._/-]+/")
OWN_PREFIXES = ("refs/evermirror/", "refs/restored/", "refs/archive/")

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
MB = 1_000_000
RATE_LEAST = 0.00001  # a second: about one a day; of far less, waits are no finite numbers any more


def _check_schemes(schemes: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [s for s in schemes if s not in SCHEMES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(SCHEMES)}")
    if not schemes:
        raise ValueError(f"is empty: name at least one of {', '.join(SCHEMES)}")
    return schemes


def _check_allow(entries: tuple[str, ...]) -> tuple[str, ...]:
    AllowList.parse(list(entries))
    return entries


def _check_proxies(entries: tuple[str, ...]) -> tuple[str, ...]:
    TrustedProxies.parse(entries)
    return entries


def _check_ref_prefixes(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    for prefix in prefixes:
        if not _REF_PREFIX.fullmatch(prefix) or ".." in prefix or "//" in prefix:
            raise ValueError(f'{prefix!r} is not a ref prefix such as "refs/changes/"')
        if prefix.startswith(OWN_PREFIXES):
            raise ValueError(f"{prefix!r} is evermirror's own: no upstream has a say there")
    return prefixes


class Server(Section):
    """Where this process listens."""

    listen: Address = Field(
        default="127.0.0.1:8420",
        description="HTTP: API, dashboard, git. Also `up --listen`. Port 0: the system chooses.",
    )
    grpc_listen: Address = Field(
        default="127.0.0.1:8421", description="gRPC, for workers. Also `up --grpc-listen`."
    )
    names: TextList = Field(
        default=(),
        description="Further host names this server is known by, such as a proxy's in front of it.",
    )
    trusted_proxies: Annotated[TextList, AfterValidator(_check_proxies)] = Field(
        default=(),
        description='Proxies in front, addresses or networks: ["127.0.0.1", "10.0.0.0/8"]. Only their'
        " X-Forwarded-For is believed.",
    )
    tls_cert: MaybePath = Field(
        default=None, description="Certificate chain (PEM) for own TLS; usually TLS is ended in front."
    )
    tls_key: MaybePath = Field(default=None, description="Private key (PEM) that belongs to tls_cert.")
    connections: Count = Field(
        default=4_000,
        ge=2,
        le=1_000_000,
        description="HTTP connections at a time; at most half of the open files that the system allows us.",
    )
    connections_per_address: Count = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="Of these, from one address; never more than are left for others. Trusted proxies: all.",
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise SettingError(missing, "is missing: tls_cert and tls_key come together")
        return self


class Data(Section):
    """Where everything is kept."""

    dir: FilePath = Field(
        default=Path("./data"),
        description="Folder of mirrors, database and keys. Relative to the working folder. Also `--data`.",
    )


class Database(Section):
    """The coordinator's database."""

    url: MaybeDatabaseUrl = Field(
        default=None,
        repr=False,
        description="postgresql://user@host/name; none: SQLite in data.dir. May come from a file: url_file.",
    )


class Catalog(Section):
    """Which repositories are mirrored."""

    sources: Annotated[tuple[CatalogSource, ...], BeforeValidator(read_sources), Kind.SOURCES] = Field(
        default=(),
        description="Files, folders, git repositories: paths, URLs, or tables: url, branch, path, credential,"
        " writable. Also `up --catalog X`.",
    )
    interval: Duration = Field(default=5 * MINUTE, gt=0, description="How often the sources are looked at.")
    max_removed_share: Number = Field(
        default=0.1, ge=0, le=1, description="A change that removes more than this share of the catalog,"
    )
    max_removed_least: Count = Field(
        default=10, ge=1, description="and at least so many repositories, waits until it is confirmed."
    )


class Upstreams(Section):
    """What may be reached, and how."""

    schemes: Annotated[TextList, AfterValidator(_check_schemes)] = Field(
        default=("https",), description="Transports that are allowed, of https, http, ssh."
    )
    allow: Annotated[TextList, AfterValidator(_check_allow)] = Field(
        default=(), description="Internal hosts or CIDRs that may be reached all the same."
    )
    max_repo_size: MaybeSize = Field(default=None, gt=0, description="Larger repositories are refused.")
    ca_file: MaybePath = Field(
        default=None, description="CA certificates (PEM) to trust; none: the system's."
    )
    refs_extra: Annotated[TextList, AfterValidator(_check_ref_prefixes)] = Field(
        default=(), description='Ref prefixes to mirror besides branches and tags, such as "refs/changes/".'
    )


class Schedule(Section):
    """When to look."""

    policy: Annotated[Literal["adaptive", "cbrt-age", "fixed"], Kind.CHOICE] = Field(
        default="adaptive",
        description="adaptive favours busy repositories, cbrt-age quiet ones; fixed: by class.",
    )
    slots: Count = Field(default=10, ge=1, description="Syncs that run at the same time.")
    min_gap: Duration = Field(
        default=MINUTE, ge=0, description="A repository is not looked at more often than this."
    )
    max_gap: MaybeDuration = Field(
        default=24 * HOUR, gt=0, description="Nor less often than this; none: no bound."
    )
    polls_per_second: MaybeNumber = Field(
        default=None,
        ge=RATE_LEAST,
        description="Budget over all repositories, at least 0.00001; none: no bound. "
        "A coordinator's is its fleet's.",
    )

    @model_validator(mode="after")
    def _gaps_are_ordered(self) -> Self:
        if self.max_gap is not None and self.min_gap > self.max_gap:
            raise SettingError("min_gap", f"{self.min_gap:g} s is longer than max_gap, {self.max_gap:g} s")
        return self


class Limits(Section):
    """Bounds that keep us polite and safe."""

    host_rate: Rate = Field(
        default=5.0,
        ge=RATE_LEAST,
        description="Requests to one upstream host. A coordinator's is its fleet's.",
    )
    host_connections: Count = Field(default=8, ge=1, le=1000, description="Connections to one upstream host.")
    polls_in_flight: Count = Field(
        default=256, ge=1, le=100_000, description="Polls under way at the same time, over all hosts."
    )
    connect_timeout: Duration = Field(default=10.0, gt=0, description="For name, TCP and TLS.")
    answer_timeout: Duration = Field(default=MINUTE, gt=0, description="For a whole answer to a poll.")
    answer_bytes: Size = Field(
        default=64 * MB, gt=0, description="Largest answer to a poll: about 700,000 refs."
    )
    no_progress: Duration = Field(
        default=5 * MINUTE, gt=0, description="A git that moves no bytes for this long is ended."
    )
    git_output_bytes: Size = Field(
        default=64 * MB, gt=0, description="Largest output of one git command: about 600,000 refs."
    )
    git_memory: MaybeSize = Field(
        default=8_000 * MB,
        ge=256 * MB,
        description="Memory of one git process. 8 GB: about 20 million objects; packs on disk do not count.",
    )
    git_object: MaybeSize = Field(
        default=1_000 * MB,
        ge=MB,
        description="Largest object in memory of a git that takes a pack in; above 64 MB: one at a time.",
    )


class Maintenance(Section):
    """Upkeep of mirrors, while nothing else is to be done."""

    enabled: Flag = Field(default=True, description="Repack, index and check mirrors in idle slots.")
    slots: Count = Field(default=1, ge=1, le=64, description="Mirrors that are worked on at the same time.")
    packs_max: Count = Field(
        default=20, ge=1, le=1000, description="More packs than this are repacked into larger ones."
    )
    full_every: Duration = Field(
        default=30 * DAY, gt=0, description="A mirror that changed is repacked as a whole this often."
    )
    fsck_every: Duration = Field(
        default=30 * DAY,
        gt=0,
        description="Every object is checked this often; a damaged mirror is replaced by a fresh clone.",
    )
    cruft_expiry: Duration = Field(
        default=180 * DAY, gt=0, description="What no branch, tag or kept tip reaches stays for this long."
    )
    time_limit: Duration = Field(default=HOUR, gt=0, description="A job that takes longer is ended.")


def _forever(value: object) -> object:
    return "none" if isinstance(value, str) and value.lower() == "forever" else value


class Keep(Section):
    """What stays when upstream throws something away, and when upstream is not followed."""

    retention: Annotated[MaybeDuration, BeforeValidator(_forever)] = Field(
        default=90 * DAY, gt=0, description="Rewritten and deleted tips are kept so long; none: for ever."
    )
    trash: Duration = Field(
        default=7 * DAY, ge=0, description="A removed mirror can be brought back for so long."
    )
    guard_share: Number = Field(
        default=0.2, ge=0, le=1, description="An upstream that lost more than this share of its refs,"
    )
    guard_least: Count = Field(
        default=5, ge=0, description="and more refs than this, is not followed until that is confirmed,"
    )
    confirm_after: Duration = Field(
        default=DAY, ge=0, description="or until it has looked so for this long, at three polls or more."
    )


class Fleet(Section):
    """Several workers: see the operations guide."""

    replicas: Count = Field(default=1, ge=1, le=16, description="Workers that hold each repository.")
    copy_from_holders: Flag = Field(
        default=True,
        description="What another worker holds is copied from it through a relay; upstream gives the rest.",
    )
    warm_up: Duration = Field(
        default=10 * MINUTE,
        ge=0,
        description="Wait for workers before the first placement of an empty fleet.",
    )
    min_workers: MaybeCount = Field(
        default=None, ge=1, description="This many workers end the warm-up early."
    )
    grace: Duration = Field(
        default=10 * MINUTE, ge=0, description="A lost worker's repositories move after this."
    )
    clone_patience: Duration = Field(
        default=10 * MINUTE, gt=0, description="First clones without progress go to another worker then."
    )
    task_patience: Duration = Field(
        default=HOUR,
        gt=0,
        description="A sync that somebody asked for, and that no worker can take, fails then.",
    )
    heartbeat: Duration = Field(default=5.0, gt=0, description="Gap between heartbeats.")
    max_missed: Count = Field(default=4, ge=1, description="Missed heartbeats until a worker is suspected.")
    disk_high: Number = Field(
        default=0.85,
        gt=0,
        le=1,
        description="Share of this node's disk, as `df` shows it, above which no new clone begins; an"
        " aggregator in pull-through mode evicts the least used.",
    )


class Worker(Section):
    """This process as a worker of a fleet."""

    name: MaybeText = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="none: the name of its token; of `evermirror up`, the host's.",
    )
    token: Secret = Field(default=None, description="From `evermirror token create --role worker`.")
    coordinator: MaybeAddress = Field(default=None, description="gRPC address of the coordinator.")
    weight: Number = Field(
        default=1.0, gt=0, le=1000, description="Share of the load; 2 takes twice as much as 1."
    )
    capacity: MaybeCount = Field(default=None, ge=0, description="The most repositories it takes.")


class Auth(Section):
    """Who may do what, and how long it is known who did."""

    tokens_required: Annotated[Literal["auto"] | bool, Kind.CHOICE] = Field(
        default="auto", description="auto: needed as soon as a token exists or the address is not loopback."
    )
    public_reads: Flag = Field(default=True, description="Reading needs no token.")
    audit_retention: Annotated[MaybeDuration, BeforeValidator(_forever)] = Field(
        default=365 * DAY, gt=0, description="Entries of the audit log are kept so long; none: for ever."
    )


class Client(Section):
    """What the command line talks to; EVERMIRROR_SERVER and EVERMIRROR_TOKEN come before these."""

    server: MaybeHttpUrl = Field(default=None, description="none: the address in server.listen.")
    token: Secret = Field(default=None, description="Token for that server.")


class Log(Section):
    """What is told, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Kind.CHOICE] = Field(
        default="info", description="Less than this is not written."
    )
    format: Annotated[Literal["auto", "human", "json"], Kind.CHOICE] = Field(
        default="auto", description="auto: human on a terminal, JSON otherwise."
    )


class GitTool(Section):
    """The git program."""

    binary: Text = Field(default="git", min_length=1, description="Name or path; 2.38 or newer.")


class Config(Section):
    """All settings of a process."""

    server: Server = Server()
    data: Data = Data()
    database: Database = Database()
    catalog: Catalog = Catalog()
    upstreams: Upstreams = Upstreams()
    schedule: Schedule = Schedule()
    limits: Limits = Limits()
    maintenance: Maintenance = Maintenance()
    serve: Serve = Serve()
    keep: Keep = Keep()
    fleet: Fleet = Fleet()
    worker: Worker = Worker()
    aggregator: Aggregator = Aggregator()
    relay: Relay = Relay()
    pull: Pull = Pull()
    scheduled_jobs: ScheduledJobs = ScheduledJobs()
    retry_policy: Retries = Retries()
    auth: Auth = Auth()
    credentials: Mapping[CredentialName, Credential] = {}
    alerts: Alerts = Alerts()
    channels: Mapping[ChannelName, Channel] = {}
    events: Events = Events()
    event_hooks: Mapping[EventHookName, EventHook] = {}
    webhooks: Webhooks = Webhooks()
    client: Client = Client()
    log: Log = Log()
    git: GitTool = GitTool()

    @model_validator(mode="after")
    def _sources_name_known_credentials(self) -> Self:
        allow = AllowList.parse(list(self.upstreams.allow))
        for source in self.catalog.sources:
            if source.credential is None:
                continue
            named = f"sources: {source.place!r} names the credential {source.credential!r}"
            if source.credential not in self.credentials:
                raise SettingError(
                    "catalog", f"{named}, which is none: add [credentials.{source.credential}]"
                )
            at = urlsplit(source.place)
            if at.scheme == "http" and not allow.allows_host(at.hostname or "", at.port or 80):
                raise SettingError(
                    "catalog", f"{named}, and plain http would show it to everybody: use https"
                )
        return self

    @property
    def store_url(self) -> str:
        """The coordinator's database: the one that is set, else SQLite in the data folder."""
        return self.database.url or f"sqlite:///{self.data.dir / DATABASE_FILE}"

    def secret_values(self) -> tuple[str, ...]:
        """Everything that must never be printed: for logs to mask."""
        found: list[str | None] = [_password(self.database.url)]
        sections = (self.worker, self.aggregator, self.client, *self.credentials.values())
        for section in sections:
            found += [v.get_secret_value() for _, v in section if isinstance(v, SecretStr)]
        found += self.webhooks.secret_values()
        found += [v for channel in self.channels.values() for v in channel.secret_values()]
        found += [v for hook in self.event_hooks.values() for v in hook.secret_values()]
        return tuple(v for v in found if v)


def _password(url: str | None) -> str | None:
    return urlsplit(url).password if url else None
