"""What the settings mean for every node: which URLs it believes, how it calls git, the credentials it has."""

from __future__ import annotations

from pydantic import SecretStr

from evermirror.config import Config
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.model.address import AllowList
from evermirror.model.url import UrlRules


def url_rules(config: Config) -> UrlRules:
    return UrlRules(
        schemes=frozenset(config.upstreams.schemes), allow=AllowList.parse(list(config.upstreams.allow))
    )


def git_settings(config: Config) -> GitSettings:
    return GitSettings(
        data_dir=config.data.dir,
        binary=config.git.binary,
        schemes=frozenset(config.upstreams.schemes),
        ca_file=config.upstreams.ca_file,
        refs_extra=config.upstreams.refs_extra,
        connect_timeout_s=config.limits.connect_timeout,
        no_progress_s=config.limits.no_progress,
        output_bytes=config.limits.git_output_bytes,
        memory_bytes=config.limits.git_memory,
        object_bytes=config.limits.git_object,
    )


def credentials_of(config: Config) -> Credentials:
    def secret(value: SecretStr | None) -> str:
        return value.get_secret_value() if value is not None else ""

    return Credentials(
        Credential(
            name,
            username=c.username or "",
            password=secret(c.password),
            token=secret(c.token),
            ssh_key_file=c.ssh_key_file,
            hosts=frozenset(c.hosts),
            forge="" if c.forge == "none" else c.forge,
            forge_url=c.forge_url or "",
        )
        for name, c in config.credentials.items()
    )
