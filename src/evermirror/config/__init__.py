"""Settings: one frozen object, put together from file, environment and flags, checked once."""

from evermirror.config.alerts_section import Alerts, Channel
from evermirror.config.credential_section import Credential
from evermirror.config.events_section import EventHook
from evermirror.config.load import LoadedConfig, Origin, OriginKind, find_config_file, load, load_config
from evermirror.config.settings import Config
from evermirror.config.values import split_host_port

__all__ = [
    "Alerts",
    "Channel",
    "Config",
    "Credential",
    "EventHook",
    "LoadedConfig",
    "Origin",
    "OriginKind",
    "find_config_file",
    "load",
    "load_config",
    "split_host_port",
]
