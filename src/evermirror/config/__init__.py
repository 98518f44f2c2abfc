"""Settings: one frozen object, put together from file, environment and flags, checked once."""

from evermirror.config.load import LoadedConfig, Origin, OriginKind, find_config_file, load, load_config
from evermirror.config.settings import Config, Credential
from evermirror.config.values import split_host_port

__all__ = [
    "Config",
    "Credential",
    "LoadedConfig",
    "Origin",
    "OriginKind",
    "find_config_file",
    "load",
    "load_config",
    "split_host_port",
]
