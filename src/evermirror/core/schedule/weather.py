"""Whose fault a failure is: the repo's, its host's weather, or our own network.

    calm --3 repos fail alike, none succeeded--> stormy --one succeeds--> calm
                                                  |  ^
                                                  +--+ probe failed: wait twice as long

Rules
- Host-wide: STORM_REPOS or more repos of a host fail alike within WINDOW_S and none succeeds meanwhile. Those
  failures count against no repo, also the first ones, which were counted before it was known.
- A network failure says that the host does not answer: "meanwhile" is since the last success, so that a host
  that dies is known after three polls. Any other kind is an answer (gone, refused), of which a healthy host
  gives many: "meanwhile" is then the whole window.
- A repo alone on its host is its own failure. So is an answer about a repo never seen there: a list
  of wrong URLs says nothing about the host.
- A stormy host is asked by single probes, PROBE_FIRST_S apart, doubling to PROBE_LAST_S, until one succeeds.
  An answer of another kind ends a network storm: the host is there again.
- Own network: NETWORK_HOSTS or more hosts (or both, where there are only two) failed to answer at last try
  within the window, and no host answered at its last try. It counts against nobody; every silent host is
  probed as in a storm. As soon as one answers, all others are probed at once.
- A failure that says so itself (``Failure.host_wide``: a changed ssh host key) is host-wide at once, also
  of a repo never seen. It ends with the first answer that is about a repo.
- RATE_LIMITED, DISK_FULL, CONFLICT, PERMISSION_DENIED and damage here are no weather.
- A rate-limited host waits for its Retry-After (within bounds), else RATE_LIMIT_FIRST_S, doubling while it
  repeats.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, RepoKey

WINDOW_S = 600.0  # failures further apart than this have nothing to do with one another
STORM_REPOS = 3  # so many repos failing alike are the host's doing
NETWORK_HOSTS = 3  # so many hosts silent at once are our own network's doing
PROBE_FIRST_S = 30.0
PROBE_LAST_S = 600.0
RETRY_AFTER_MIN_S = 1.0  # a host that asks for nothing is still given a moment
RETRY_AFTER_MAX_S = 3600.0  # a host may not silence us for longer; it can ask again
RATE_LIMIT_FIRST_S = 60.0  # where a host limits us and does not say for how long
PATIENCE_FIRST_S = 10.0  # for an answer of a host that never gave one; twice as long at every further try
RECENT_MAX = 1000  # failures remembered per host; a storm is known after three, so more are never needed

_NO_WEATHER = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.DISK_FULL,
        FailureKind.CONFLICT,
        FailureKind.PERMISSION_DENIED,
    }
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whose failure it is; whose earlier failures no longer count; hosts whose probing times changed."""

    own: bool  # the repo's own: its table says whether it counts
    uncounted: tuple[tuple[Host, RepoKey], ...] = ()
    changed: tuple[Host, ...] = ()


class HostWeather:
    """What is known of one host's state of health."""

    __slots__ = (
        "blocked_until",
        "by_network",
        "kind",
        "probe_at",
        "probe_gap_s",
        "reason",
        "recent",
        "silences",
        "silent",
        "spoke",
        "strikes",
        "succeeded_at",
    )

    def __init__(self) -> None:
        self.recent: deque[tuple[float, RepoKey, FailureKind]] = deque(maxlen=RECENT_MAX)  # counted failures
        self.succeeded_at = float("-inf")
        self.silent = True  # it did not answer at the last try, or was not tried yet
        self.silences = 0  # tries without an answer, until the first one
        self.spoke = False  # it has answered at some time
        self.kind: FailureKind | None = None  # of the storm; None is calm
        self.by_network = False
        self.reason = ""  # in words, of a storm that the first failure told of
        self.probe_gap_s = 0.0
        self.probe_at = 0.0
        self.blocked_until = 0.0
        self.strikes = 0  # rate limits in a row

    @property
    def stormy(self) -> bool:
        return self.kind is not None

    @property
    def patience_s(self) -> float | None:
        """How long an answer is waited for; None: as the settings say. A host that never answered must not
        keep others waiting, but one that is only slow gets its time."""
        return None if self.spoke else PATIENCE_FIRST_S * 2.0 ** min(self.silences, 20)

    def block(self, retry_after_s: float | None, now: float) -> float:
        """The host limits us; returns until when it is left alone."""
        if now >= self.blocked_until:  # answers to polls that were on their way already are not a repetition
            self.strikes = min(self.strikes + 1, 10)  # 2**10 minutes is past the bound
        wait = RATE_LIMIT_FIRST_S * 2.0 ** (self.strikes - 1) if retry_after_s is None else retry_after_s
        if not wait >= RETRY_AFTER_MIN_S:  # also what is no number
            wait = RETRY_AFTER_MIN_S
        self.blocked_until = max(self.blocked_until, now + min(wait, RETRY_AFTER_MAX_S))
        return self.blocked_until

    def begin_storm(self, kind: FailureKind, now: float, *, by_network: bool) -> None:
        self.by_network = self.by_network or by_network
        if self.kind is None:
            self.kind = kind
            self.probe_gap_s = PROBE_FIRST_S
            self.probe_at = now + PROBE_FIRST_S

    def probe_failed(self, now: float) -> None:
        if now >= self.probe_at:  # not one that was on its way when the storm began
            self.probe_gap_s = min(self.probe_gap_s * 2.0, PROBE_LAST_S)
            self.probe_at = now + self.probe_gap_s

    def end_storm(self) -> None:
        self.kind = None
        self.by_network = False
        self.reason = ""

    def set_back(self, step_s: float) -> None:
        self.recent = deque(((at - step_s, key, kind) for at, key, kind in self.recent), maxlen=RECENT_MAX)
        self.succeeded_at -= step_s
        self.probe_at -= step_s
        self.blocked_until -= step_s

    def fade(self, now: float) -> None:
        while self.recent and self.recent[0][0] < now - WINDOW_S:
            self.recent.popleft()


class Weather:
    """All hosts together; ``succeeded`` and ``failed`` are its two doors."""

    __slots__ = ("_answering", "_hosts", "_silent", "network_down")

    def __init__(self) -> None:
        self._hosts: dict[Host, HostWeather] = {}
        # Hosts by their last try, oldest first: answered, or network failure.
        self._answering: OrderedDict[Host, float] = OrderedDict()
        self._silent: OrderedDict[Host, float] = OrderedDict()
        self.network_down = False

    def of(self, host: Host) -> HostWeather:
        weather = self._hosts.get(host)
        if weather is None:
            weather = self._hosts[host] = HostWeather()
        return weather

    def set_back(self, step_s: float) -> None:
        """The clock was, by so much."""
        for weather in self._hosts.values():
            weather.set_back(step_s)
        for last_try in (self._answering, self._silent):
            for host in last_try:
                last_try[host] -= step_s

    def forget(self, host: Host) -> None:
        """No repo lives there any more."""
        self._hosts.pop(host, None)
        self._answering.pop(host, None)
        self._silent.pop(host, None)

    def succeeded(self, host: Host, now: float) -> tuple[Host, ...]:
        """A poll or sync succeeded; returns hosts that may be probed earlier now."""
        weather = self.of(host)
        weather.succeeded_at = now
        if weather.recent:
            weather.recent.clear()
        weather.strikes = 0
        weather.end_storm()
        return self._answered(host, now)

    def failed(
        self, host: Host, key: RepoKey, failure: Failure, now: float, *, seen_before: bool = True
    ) -> Judgement:
        """A poll or sync failed; ``seen_before``: upstream answered for this repo at some time."""
        weather, kind = self.of(host), failure.kind
        changed: tuple[Host, ...] = ()
        if kind is FailureKind.NETWORK_TIMEOUT:
            weather.silent = True
            weather.silences += 1
            self._answering.pop(host, None)
            self._silent[host] = now
            self._silent.move_to_end(host)
        else:
            changed = self._answered(host, now)
            if weather.kind is FailureKind.NETWORK_TIMEOUT or (weather.reason and not failure.host_wide):
                weather.end_storm()
        if failure.host_wide:
            if weather.stormy:
                weather.probe_failed(now)
            else:
                weather.begin_storm(kind, now, by_network=False)
            weather.reason = failure.message
            return Judgement(False, changed=(*changed, host))
        stranger = not seen_before and kind is not FailureKind.NETWORK_TIMEOUT
        if kind in _NO_WEATHER or failure.corrupt or stranger:
            return Judgement(True, changed=changed)
        if weather.kind is not None:
            weather.probe_failed(now)
            if weather.kind is kind:
                return Judgement(False, changed=changed)
        weather.fade(now)
        weather.recent.append((now, key, kind))
        return self._judge(host, kind, now, changed)

    def _judge(self, host: Host, kind: FailureKind, now: float, changed: tuple[Host, ...]) -> Judgement:
        """Look whether the failure just noted makes a storm, here or everywhere."""
        hosts: tuple[Host, ...] = ()
        if kind is FailureKind.NETWORK_TIMEOUT and self._own_network(now):
            self.network_down = True
            hosts = tuple(self._silent)
        elif self._host_wide(self.of(host), kind, now):
            hosts = (host,)
        if not hosts:
            return Judgement(True, changed=changed)
        self.of(host).recent.pop()  # the failure at hand: it never counted
        uncounted: list[tuple[Host, RepoKey]] = []
        for name in hosts:
            weather = self.of(name)
            weather.begin_storm(kind, now, by_network=self.network_down)
            weather.fade(now)
            uncounted += [(name, key) for _, key, failed_as in weather.recent if failed_as is kind]
            weather.recent = deque((r for r in weather.recent if r[2] is not kind), maxlen=RECENT_MAX)
        return Judgement(False, tuple(uncounted), changed + hosts)

    def _host_wide(self, weather: HostWeather, kind: FailureKind, now: float) -> bool:
        if kind is not FailureKind.NETWORK_TIMEOUT and weather.succeeded_at >= now - WINDOW_S:
            return False
        alike = {key for _, key, failed_as in weather.recent if failed_as is kind}
        return len(alike) >= STORM_REPOS

    def _own_network(self, now: float) -> bool:
        for last_try in (self._silent, self._answering):
            while last_try and next(iter(last_try.values())) < now - WINDOW_S:
                last_try.popitem(last=False)
        if self._answering:
            return False
        return len(self._silent) >= min(NETWORK_HOSTS, max(2, len(self._hosts)))

    def _answered(self, host: Host, now: float) -> tuple[Host, ...]:
        weather = self.of(host)
        weather.silent, weather.spoke = False, True
        self._silent.pop(host, None)
        self._answering[host] = now
        self._answering.move_to_end(host)
        if not self.network_down:
            return ()
        self.network_down = False
        waiting = tuple(name for name, weather in self._hosts.items() if weather.by_network)
        for name in waiting:
            weather = self._hosts[name]
            weather.by_network = False
            weather.probe_at = min(weather.probe_at, now)
            weather.probe_gap_s = PROBE_FIRST_S
        return waiting
