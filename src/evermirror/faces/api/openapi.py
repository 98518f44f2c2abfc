"""The OpenAPI document: FastAPI's, plus what holds for every route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from evermirror import __version__
from evermirror.faces.api.problems import MEDIA_TYPE, Kind, Problem

_DESCRIPTION = """\
Keeps git mirrors fresh. Errors are problem documents (RFC 9457): `type` names the problem, `hint` says what
to do. Times are ISO 8601 in UTC. Task ids are strings; below `/api/pull` they are numbers.

Mirrors are cloned from `/git/{key}`; that is git's own protocol and not described here.

Writes need a bearer token, except from this machine while there is none; reading is public unless configured
otherwise.
"""


def document(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A function for ``app.openapi`` that builds the document once."""
    built: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not built:
            built.update(
                get_openapi(
                    title="evermirror", version=__version__, description=_DESCRIPTION, routes=app.routes,
                    license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
                )
            )  # fmt: skip
            _complete(built)
        return built

    return openapi


_UNREADABLE = {
    "description": "No HTTP request that can be read, or its line and headers are longer than 64 KiB",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}

_UNCERTAIN = {
    "description": f"{Kind.UNCERTAIN.title}: an aggregator passed it on, and got no answer",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _complete(doc: dict[str, Any]) -> None:
    components = doc.setdefault("components", {})
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = components.setdefault("schemas", {})
    schemas.update(schema.pop("$defs", {}))
    schemas["Problem"] = schema
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, item in doc["paths"].items():
        for method, operation in item.items():
            operation["responses"].setdefault("400", _UNREADABLE)
            if method not in ("get", "head"):
                operation["responses"].setdefault("502", _UNCERTAIN)
            if path not in ("/healthz", "/readyz"):
                operation["security"] = [{}, {"token": []}]
