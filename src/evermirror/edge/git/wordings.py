"""From words to a failure: the rule, and the words of ssh and of servers that do not serve a repository.

Git passes on the ERR line of a server, and ssh the words of the program behind it (GitLab, Gitea, GitHub,
Bitbucket, Gerrit, Gitee, gitolite, git-shell, sshd). Tables are read from the top: a text that says "not
found, or you may not see it" is NOT_FOUND.

Servers repeat what they are asked for, and whoever may submit a URL chooses that: a repository may be called
``rate-limiter``, or ``Host key verification failed``. So ssh's words count as whole lines only, and the names
in the URL, and what is quoted, count for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from urllib.parse import unquote, urlsplit

from evermirror.model.failure import HOST_WIDE, Failure, FailureKind

MESSAGE_CHARS_MAX = 300  # one line in a table; the whole of stderr is kept beside it
CAUSE = "cause"  # key in Failure.context: the name of the rule that matched
HOST_KEY = "host-key"
REFUSED = "refused"
UPSTREAM_DIED = "upstream-died"


class Says(Enum):
    OURS = auto()  # our own git's words only
    ANY = auto()  # upstream's too


@dataclass(frozen=True, slots=True)
class Rule:
    cause: str
    kind: FailureKind
    pattern: re.Pattern[str]
    says: Says = Says.OURS
    message: str = ""  # put before git's own words
    hint: str = ""
    corrupt: bool = False


def make_rule(
    cause: str,
    kind: FailureKind,
    *patterns: str,
    says: Says = Says.OURS,
    message: str = "",
    hint: str = "",
    corrupt: bool = False,
) -> Rule:
    compiled = re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE | re.MULTILINE)
    return Rule(cause, kind, compiled, says, message, hint, corrupt)


# Ssh's own words: whole lines of its own, on which no server and no name has a say.
HOST_KEY_CHANGED = re.compile(
    r"^@ +WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! +@\s*$", re.IGNORECASE | re.MULTILINE
)
OF_SSH = (
    make_rule(
        HOST_KEY,
        FailureKind.AUTH_FAILED,
        HOST_KEY_CHANGED.pattern,
        r"^Host key verification failed\.$",
        r"^No \S+ host key is known for \S+ and you have requested strict checking\.$",
        hint="compare the host's key with the one in the data folder's git/known_hosts",
    ),
    make_rule(
        "ssh-algorithms",
        FailureKind.AUTH_FAILED,
        r"^Unable to negotiate with \S+(?: port \d+)?: ",
        r"^no matching (?:host key type|key exchange method|cipher|MAC) found\b",
        hint="its ssh is too old for the one here: ask its operator to renew it, or use https",
    ),
    make_rule(
        "ssh-refused",
        FailureKind.AUTH_FAILED,
        r"^(?:\S+@\S+: )?Permission denied \((?:publickey|password|keyboard|gssapi|hostbased)[a-z,-]*\)\.$",
        r"^(?:Received disconnect from \S+(?: port \d+)?: ?\d+: )?Too many authentication failures\b",
        r"^Load key \"[^\"]+\": ",
        r"^no such identity: .+: No such file or directory$",
        hint="check the credential's ssh_key_file, and that upstream knows its public half",
    ),
)
_OF_WHOLE_HOSTS = frozenset({HOST_KEY, "ssh-algorithms"})  # no repo there can be read by anybody here

NETWORK = make_rule(
    "network",
    FailureKind.NETWORK_TIMEOUT,
    r"Could not resolve (?:host|proxy)",
    r"Name or service not known",
    r"Temporary failure in name resolution",
    r"Connection (?:refused|timed out|reset|closed|aborted)",
    r"Operation timed out",
    r"timed out",
    r"Couldn't connect to server",
    r"Failed to connect to",
    r"No route to host",
    r"Network is unreachable",
    r"Operation too slow",
    r"early EOF",
    r"RPC failed; curl \d+",
    r"the remote end hung up",
    r"unexpected disconnect",
    r"Empty reply from server",
    r"Recv failure",
    r"Send failure",
    r"transfer closed",
    r"bytes of body are still expected",
    r"kex_exchange_identification",
    r"gnutls_handshake\(\) failed",
    r"SSL_(?:connect|read|write)",
    r"TLS connect error",
    r"invalid index-pack output",
    r"unable to access",
)
# The same where git read nothing: ssh's own lines, and git's.
_NETWORK_OF_SSH = make_rule(
    "network",
    FailureKind.NETWORK_TIMEOUT,
    r"^ssh: Could not resolve hostname ",
    r"^ssh: connect to (?:host|address) \S+ port \d+: ",
    r"^Connection (?:closed|reset|timed out) (?:by|during) ",
    r"^Connection to \S+ (?:port \d+ )?timed out",
    r"^(?:kex|ssh)_exchange_identification: ",
    r"^Read from remote host \S+: ",
    r"^ssh_dispatch_run_fatal: ",
    r"^(?:fatal: |error: |(?:fetch|send)-pack: )+"
    r"(?:the remote end hung up|early EOF|unexpected disconnect|invalid index-pack output)",
)
# Ssh's last words of a connection that ended; where the server said why, that counts.
_CUT_OFF = make_rule(
    "network",
    FailureKind.NETWORK_TIMEOUT,
    r"^Connection to \S+ closed by",
    r"^(?:client_loop|packet_write_\w+|Write failed): (?:.*: )?Broken pipe$",
    r"^Timeout, server \S+ not responding\.$",
    r"^banner exchange: ",
)

# Git's own words where a server closed the connection before it said anything in git's protocol.
UNREAD = "fatal: Could not read from remote repository."
_AFTER_UNREAD = ("Please make sure you have the correct access rights", "and the repository exists.")
_NOISE = re.compile(
    r"Warning: Permanently added|PTY allocation request failed|Connection to \S+ closed\.$|[=\-*@#\s]*$"
    r"|\(or you mis-spelled the reponame\)"
)


def _wordings(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


LIMITED = _wordings(
    r"rate.?limit",
    r"too many(?! auth)",
    r"abuse",
    r"try again later",
    r"slow down",
    r"not allowed at this time",  # sshd, to an address that it punishes
    r"exceeded MaxStartups",
    r"频繁|稍后再试",
)
_NO_GIT = _wordings(r"git-\w+-pack['\"]?: (?:command )?not found", r"git: (?:command )?not found")
GONE = _wordings(
    r"not found",
    r"(?:does not|doesn't) exist",
    r"no such",
    r"could(?: not|n't) be found",
    r"(?:cannot|can't|could not) find",
    r"not exported",
    r"not appear to be a git",
    r"not a git (?:archive|repository)",
    r"invalid (?:repo|repository|project) name",
    r"unknown (?:repo|repository|project)\b",
    r"dmca|takedown",
    r"(?:repo|repository|project)\b.* (?:disabled|deleted|removed)\b",
    r"不存在|未找到|找不到",
)
_OUT_OF_ORDER = _wordings(
    r"internal (?:server |api )?(?:connection )?error",
    r"internal api",
    r"api is not accessible",
    r"unavailable|unreachable|overloaded",
    r"maintenance",
    r"temporarily",
    r"timed out|timeout",
    r"connection (?:refused|reset)",
    r"is (?:currently )?being (?:migrated|moved|restored|created|transferred)",
)
DENIED = _wordings(
    r"denied|deined",
    r"unauthori[sz]ed(?! (?:access|use|user|person))",  # which is what banners warn of
    r"not (?:authori[sz]ed|allowed|permitted|accessible|accepted|registered)",
    r"authenticat",
    r"forbidden|prohibited by",
    r"permission",
    r"access rights|no access|need access",
    r"(?:key|account|password|certificate|token|session|user)\b.*"
    r"(?:expired|revoked|suspended|blocked|locked|disabled|no longer allowed|marked as read.?only)",
    r"key audit",
    r"service not enabled",  # git daemon
    r"SAML|two.?factor|one.?time password|\bOTP\b",
    r"(?:shell|interactive) (?:access )?.*(?:disabled|not enabled|not provide)|not provide shell access",
    r"account is (?:currently )?not available",
    r"dubious ownership|unsafe repository",  # sshd's user is not the one who owns it
    r"unrecognized command|disallowed command",
    r"(?:exec|shell) request failed",
    r"权限|拒绝|禁止|无权",
)
_TABLE = (
    (FailureKind.RATE_LIMITED, LIMITED),
    (FailureKind.NOT_FOUND, _NO_GIT),
    (FailureKind.NOT_FOUND, GONE),
    (FailureKind.NETWORK_TIMEOUT, _OUT_OF_ORDER),
    (FailureKind.AUTH_FAILED, DENIED),
)
_HINTS = {
    FailureKind.NOT_FOUND: "it is gone, or the key may not see it: check the URL and the credential",
    FailureKind.AUTH_FAILED: "check the credential's ssh_key_file, and what the server lets this key read",
}
_CAUSES = {
    FailureKind.RATE_LIMITED: "rate-limited",
    FailureKind.NOT_FOUND: "not-found",
    FailureKind.NETWORK_TIMEOUT: "out-of-order",
    FailureKind.AUTH_FAILED: REFUSED,
}
_NO_GIT_HINT = "there is no git for this user at the server: ask its operator, or use another URL"
_DIED = re.compile(r"aborting due to possible repository corruption|pack-objects died|upload-pack: .*died")
_CUT_SHORT = re.compile(r"early EOF|the remote end hung up|unexpected disconnect|invalid index-pack output")


_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|(?<!\w)\"[^\"]*\"(?!\w)|`[^`']*['`]")
_SIGNS_FROM = 0xE000  # of Unicode's private use


def kind_of(said: str) -> FailureKind | None:
    """What one line of a server means; None where it says nothing that is known."""
    said = _QUOTED.sub("''", said)
    return next((kind for kind, wording in _TABLE if wording.search(said)), None)


def without_names(text: str, url: str) -> tuple[str, Mapping[str, str]]:
    """``text`` with a sign in place of each name of the URL that would be taken for a server's words, and
    what the signs stand for."""
    signs: dict[str, str] = {}
    for name in sorted(filter(_tells, _names(url)), key=len, reverse=True):
        sign = chr(_SIGNS_FROM + len(signs))
        text, found = re.subn(rf"(?<!\w){re.escape(name)}(?!\w)", sign, text, flags=re.ASCII)
        if found:
            signs[sign] = name
    return text, signs


def with_names(failure: Failure, signs: Mapping[str, str]) -> Failure:
    """For people to read."""
    message = failure.message
    for sign, name in signs.items():
        message = message.replace(sign, name)
    return replace(failure, message=message[:MESSAGE_CHARS_MAX]) if signs else failure


def _names(url: str) -> set[str]:
    """The path and its parts, as they are and as servers spell them, and the host's name."""
    parts = urlsplit(url)
    paths = {spelled.strip("/") for spelled in (parts.path, unquote(parts.path))}
    paths |= {path.removesuffix(".git") for path in paths}
    names = paths | {name for path in paths for name in path.split("/")}
    return names | {name.lower() for name in names} | {parts.hostname or "", parts.username or ""}


def _tells(name: str) -> bool:
    return " " in name or kind_of(name) is not None or NETWORK.pattern.search(name) is not None


def _said(lines: Iterable[str]) -> Iterator[str]:
    """What ssh and the server wrote where git read nothing; without decoration."""
    for line in lines:
        words = line.removeprefix("remote:").strip()
        if words and words != UNREAD and words not in _AFTER_UNREAD and not _NOISE.match(words):
            yield words


def unread(ours: str, theirs: str) -> Failure:
    """Git heard nothing: judged by ssh's own words, else by the server's, of which the last count most."""
    own = "\n".join(_said(ours.split("\n")))
    said = list(_said([*theirs.split("\n"), *ours.split("\n")]))
    if (rule := first(OF_SSH, own, "")) is not None:
        return by_rule(rule, own, "")
    known = [(words, kind) for words in reversed(said) if (kind := kind_of(words)) is not None]
    known.sort(key=lambda found: found[1] is not FailureKind.RATE_LIMITED)
    limited = bool(known) and known[0][1] is FailureKind.RATE_LIMITED
    if not limited and (rule := first((_NETWORK_OF_SSH,), own, "")) is not None:
        return by_rule(rule, own, "")
    if known:
        words, kind = known[0]
        hint = _NO_GIT_HINT if _NO_GIT.search(words) else _HINTS.get(kind, "")
        return failure(_CAUSES[kind], kind, bare(words), hint=hint)
    if (rule := first((_CUT_OFF,), own, "")) is not None:
        return by_rule(rule, own, "")
    silent = "the server closed the connection without a word"
    return failure("unknown", FailureKind.UNKNOWN, bare(said[-1]) if said else silent)


def died(ours: str, theirs: str) -> Failure | None:
    """Upstream's git ended while it sent: its own words, not what ours says of the rest that is missing."""
    lines = [*theirs.split("\n"), *ours.split("\n")]
    complaints = [line for line in theirs.split("\n") if re.match(r"remote: (?:fatal|error): ", line)]
    signs = [line for line in lines if _DIED.search(line)]
    if not signs and not (complaints and _CUT_SHORT.search(ours)):
        return None
    killed = [line for line in lines if "died of signal" in line]
    words = bare(bare((complaints + killed + signs)[0]))
    hint = "tell upstream's operator: its git or its copy is at fault. What is here stays, and is served"
    return failure(UPSTREAM_DIED, FailureKind.UNKNOWN, f"upstream's git failed: {words}", hint=hint)


def first(rules: tuple[Rule, ...], ours: str, theirs: str) -> Rule | None:
    both = f"{ours}\n{theirs}"
    return next((r for r in rules if r.pattern.search(both if r.says is Says.ANY else ours)), None)


def by_rule(rule: Rule, ours: str, theirs: str) -> Failure:
    both = f"{ours}\n{theirs}" if rule.says is Says.ANY else ours
    line = next((text for text in both.split("\n") if rule.pattern.search(text)), "")
    message = f"{rule.message}: {bare(line)}" if rule.message else bare(line)
    return failure(rule.cause, rule.kind, message, hint=rule.hint, corrupt=rule.corrupt)


def bare(line: str) -> str:
    return re.sub(r"^(?:remote: )?(?:(?:fatal|error): )?(?:remote error: |protocol error: )?", "", line)[
        :MESSAGE_CHARS_MAX
    ]


def failure(cause: str, kind: FailureKind, message: str, *, hint: str = "", corrupt: bool = False) -> Failure:
    context = {CAUSE: cause, HOST_WIDE: cause} if cause in _OF_WHOLE_HOSTS else {CAUSE: cause}
    return Failure(kind, message, hint=hint, corrupt=corrupt, context=context)
