"""Imports for a process that keeps what it imports: a quarter of the time that a node takes to start, and
most of its memory while it has little to do."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from evermirror.errors import ConfigError


@contextmanager
def kept_for_good() -> Iterator[None]:
    """Around imports of much: the garbage collector would look through all that is there again and again
    meanwhile, and later, and find next to nothing. Neither happens where all is imported already."""
    known = len(sys.modules)
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > known:
            gc.freeze()
        if was_on:
            gc.enable()


def import_lean() -> None:
    """Before a coordinator's own modules: packages of which it uses a part, without their other parts. The
    ORM is 6 MB, the command line of the HTTP server 2 MB."""
    import_without(
        "sqlalchemy.ext.asyncio", "sqlalchemy.ext.asyncio.session", "sqlalchemy.ext.asyncio.scoping"
    )
    import_without("uvicorn", "uvicorn.main")


def import_without(package: str, *names: str) -> None:
    """A package without these modules of it; the whole one where it cannot be without them, as a later
    version may not."""
    known = set(sys.modules)
    try:
        with without(*names):
            import_module(package)
    except Exception:
        for name in set(sys.modules) - known:  # made while something was missing
            if name == package or name.startswith(f"{package}."):
                del sys.modules[name]
        import_module(package)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Around the first import of a package: these modules, which it names and we do not use, it does not
    load. What it takes from them is None there; who imports one of them later gets the real one."""
    unwanted = [name for name in names if name not in sys.modules]
    sys.modules.update({name: _Left(name) for name in unwanted})
    try:
        yield
    finally:
        for name in unwanted:
            sys.modules.pop(name, None)


class _Left(ModuleType):
    """In place of a module that is left out."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def need(name: str) -> None:
    """At the start, for what is imported ``later``: a library that is broken is found now and not when an
    alert is to be sent. Raises ConfigError: the settings ask for something that uses it."""
    try:
        import_module(name)
    except Exception as error:
        told = f"the settings need {name}, which cannot be imported ({error}): install evermirror anew"
        raise ConfigError([told]) from error


class later:
    """In place of a module: imports it when something of it is first used, which most nodes never do."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_name" or name.startswith("__"):  # asked by those who copy, before there is a name
            raise AttributeError(name)
        found = self.__dict__[name] = getattr(import_module(self._name), name)
        return found
