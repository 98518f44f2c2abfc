"""How the sources of the catalog are written in the settings, and what must hold between them."""

from __future__ import annotations

import os.path
from dataclasses import replace

from evermirror.config.values import Kind
from evermirror.model.source import parse_source


def read_sources(value: object) -> object:
    """A tuple of ``CatalogSource``; raises ValueError."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not {Kind.SOURCES.value}")
    read = [parse_source(item) for item in value]
    sources = tuple(s if s.is_address else replace(s, place=os.path.expanduser(s.place)) for s in read)
    places = [(s.place, s.branch, s.path) for s in sources]
    if twice := next((s for s, place in zip(sources, places, strict=True) if places.count(place) > 1), None):
        raise ValueError(f"{twice.place!r} is given twice")
    if sum(source.writable for source in sources) > 1:
        raise ValueError("more than one source is writable: API additions are written to one")
    return sources
