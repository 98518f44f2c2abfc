"""What people may ask of a discovery: each value with its bounds. Errors name the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from evermirror.core.discover.naming import path_inside, target_place
from evermirror.core.discover.select import check_patterns
from evermirror.edge.git.credentials import Credential
from evermirror.errors import InvalidUrl, InvalidValue, UsageError
from evermirror.model.discovery import DiscoverySpec
from evermirror.model.forge import Forge
from evermirror.model.pull import INTERVAL_MAX_S, MINUTE
from evermirror.model.url import UrlRules, check_alias, parse_url
from evermirror.nodes.coordinator.pull.pull_checks import check_credential

EVERY_MIN_S = 60.0
EVERY_MAX_S = 30 * 86_400.0
GITEE_HOST = "gitee.com"
_PROBE = "x"  # stands for a project, where a URL without one is checked


def checked_spec(
    spec: DiscoverySpec, rules: UrlRules, credentials: Mapping[str, Credential]
) -> DiscoverySpec:
    """The same with its URLs in their canonical form."""
    spec = replace(
        spec, source_url=_instance("source_url", spec.source_url, rules), group=spec.group.strip("/")
    )
    _check_forge("forge", spec.forge, spec.source_url)
    _check_group(spec)
    check_patterns("include", spec.include)
    check_patterns("exclude", spec.exclude)
    _check_prefix(spec.prefix)
    _check_login("credential", spec.credential, spec.forge, credentials)
    _check_times(spec)
    if spec.over_ssh and "ssh" not in rules.schemes:
        raise UsageError(
            "over_ssh: ssh:// is not allowed here", hint="Have the operator add ssh to upstreams.schemes"
        )
    return spec if spec.target_url is None else _with_target(spec, spec.target_url, rules, credentials)


def check_same_source(before: DiscoverySpec, after: DiscoverySpec) -> None:
    """What is known of a group's projects holds for that group only."""
    for field in ("source_url", "forge", "group"):
        if getattr(before, field) != getattr(after, field):
            raise UsageError(
                f"{field}: a discovery stays with its group",
                hint="Remove this one, and discover the other group",
            )


def _instance(field: str, text: str, rules: UrlRules) -> str:
    try:
        url = parse_url(f"{text.rstrip('/')}/{_PROBE}", rules)
    except InvalidUrl as error:
        raise InvalidUrl(f"{field}: {error.reason}", hint=error.hint) from None
    if url.scheme not in ("https", "http"):
        raise InvalidUrl(
            f"{field}: a forge's API is asked over https",
            hint="Write it like https://gitlab.example.com; over_ssh is about git",
        )
    return url.text.removesuffix(f"/{_PROBE}")


def _check_forge(field: str, forge: Forge, url: str) -> None:
    if forge is Forge.GITEE or urlsplit(url).hostname == GITEE_HOST:
        raise UsageError(
            f"{field}: groups at Gitee are not followed, and no projects are made there",
            hint="Add its repositories one by one; evermirror webhook register makes their hooks",
        )


def _check_group(spec: DiscoverySpec) -> None:
    try:
        check_alias(spec.group)
    except InvalidValue as error:
        words = error.message.replace("the project key", "it")
        raise UsageError(f"group: {words}", hint="Write it like devops/tools") from None
    if spec.forge is not Forge.GITLAB and "/" in spec.group:
        raise UsageError(
            f"group: {spec.forge.value} has no groups in groups", hint="Name an organisation or a user"
        )


def _check_prefix(prefix: str) -> None:
    try:
        check_alias(f"{prefix}{_PROBE}")
    except InvalidValue as error:
        raise UsageError(f"prefix: {error.message}", hint="Write it like mirror/") from None


def _check_login(field: str, name: str | None, forge: Forge, credentials: Mapping[str, Credential]) -> None:
    check_credential(field, name, frozenset(credentials))
    if name is None:
        return
    credential = credentials[name]
    if not credential.secret:
        raise UsageError(
            f"{field}: {name!r} has no token, and the API needs one",
            hint=f"Add credentials.{name}.token; it may stand beside ssh_key_file",
        )
    if credential.forge not in ("", forge.value):
        raise UsageError(
            f"{field}: {name!r} is for {credential.forge}, and not for {forge.value}",
            hint=f"Its setting is credentials.{name}.forge",
        )


def _check_times(spec: DiscoverySpec) -> None:
    if spec.every_s is not None and not EVERY_MIN_S <= spec.every_s <= EVERY_MAX_S:
        raise UsageError(
            "every: it is looked again after 1 minute to 30 days", hint="Such as 1h; null: only once"
        )
    if spec.interval_s is not None and not MINUTE <= spec.interval_s <= INTERVAL_MAX_S:
        raise UsageError(
            "sync_interval: it is from 1 minute to a year", hint="Leave it out for the class's own"
        )


def _with_target(
    spec: DiscoverySpec, target_url: str, rules: UrlRules, credentials: Mapping[str, Credential]
) -> DiscoverySpec:
    spec = replace(spec, target_url=_instance("target_url", target_url, rules))
    _check_forge("target_forge", spec.target_forge, spec.target_url or "")
    _check_login("target_credential", spec.target_credential, spec.target_forge, credentials)
    if spec.target_credential is None:
        raise UsageError(
            "target_credential: groups and projects are made at a target, which needs a token",
            hint="Name a credential of the settings",
        )
    place = target_place(spec)
    target_group = place.group or spec.group
    inside = target_group == spec.group or path_inside(spec.group, target_group) is not None
    if place.base_url == spec.source_url and inside:
        raise UsageError(
            "target_url: the target is inside the group itself",
            hint="Its mirrors would be discovered in turn",
        )
    return spec
