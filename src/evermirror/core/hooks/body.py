"""The body of a hook, from bytes to values: bounded, strict about its encoding, and in words that help."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NoReturn
from urllib.parse import parse_qsl

from evermirror.errors import UsageError

BODY_BYTES_MAX = 25_000_000  # GitHub sends no larger ones
LARGE_BYTES = 256 * 1024  # from here on reading takes milliseconds: not on the event loop
PARTS_MAX = 1_000_000  # values in one body: a few bytes of text can become a hundred in memory
FIELDS_MAX = 16  # of a form
TEXT_MAX_CHARS = 2_048  # of a value that is used: no URL is longer

_FORM = "application/x-www-form-urlencoded"
_NAMED_CHARS = 60  # of foreign text in a message
_AT_FORGE = "At the forge, set the hook's content type to application/json"

Json = Mapping[str, object]


class UnreadableHook(UsageError):
    """No body of a hook at all: cut off, wrongly encoded, or something else. ``UsageError`` itself: it can be
    read, and is not what the forge sends."""


def parse(headers: Mapping[str, str], body: bytes, fields: Iterable[str] = ("payload",)) -> Json:
    """The object in the body, as JSON or as one of a form's ``fields``."""
    if len(body) > BODY_BYTES_MAX:
        raise UnreadableHook(f"The body is larger than {BODY_BYTES_MAX} bytes")
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise UnreadableHook("The body is compressed", hint="Have no proxy compress what the forge sends")
    return _object(payload_of(headers, body, fields))


def payload_of(headers: Mapping[str, str], body: bytes, fields: Iterable[str] = ("payload",)) -> bytes:
    """The JSON itself: of a form, the field that has it."""
    media, _, parameters = headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    _check_charset(parameters)
    if media == _FORM:
        return _field(body, tuple(fields))
    if media and media not in ("application/json", "text/json") and not media.endswith("+json"):
        raise UnreadableHook(f"The body's Content-Type is {_named(media)}", hint=_AT_FORGE)
    return body


def is_form(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM


def _check_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in ("utf-8", "utf8", "us-ascii", ""):
            raise UnreadableHook(f"The body's charset is {_named(charset)}, and must be UTF-8")


def _field(body: bytes, fields: tuple[str, ...]) -> bytes:
    try:
        found = dict(
            parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=FIELDS_MAX,
            )
        )
    except UnicodeDecodeError:
        raise UnreadableHook("The form in the body is not percent-encoded UTF-8", hint=_AT_FORGE) from None
    except ValueError:
        raise UnreadableHook(f"The form in the body has more than {FIELDS_MAX} fields") from None
    name = next((name for name in fields if name in found), None)
    if name is None:
        raise UnreadableHook(f"The form in the body has no field {fields[0]!r}", hint=_AT_FORGE)
    return found[name].encode()


def _object(text: bytes) -> Json:
    if not text.strip():
        raise UnreadableHook("The body is empty")
    if parts_of(text) > PARTS_MAX:
        raise UnreadableHook(f"The body has more than {PARTS_MAX} parts")
    try:
        found: object = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise UnreadableHook("The body is not UTF-8") from None
    except json.JSONDecodeError as error:
        cut_off = error.pos >= len(error.doc) - 1 or error.msg.startswith("Unterminated")
        what = "The body is cut off" if cut_off else "The body is not JSON"
        raise UnreadableHook(f"{what}: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise UnreadableHook("The body is nested too deeply") from None
    except ValueError:
        raise UnreadableHook("The body has a number that is none") from None
    if not isinstance(found, dict):
        raise UsageError("The body is not a JSON object", hint="Only a forge's own hooks are taken here")
    return found


def parts_of(text: bytes) -> int:
    """How many values this JSON has, at most."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def object_in(found: Json, name: str) -> Json:
    """The object of that name; an empty one where there is none."""
    value = found.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"In the body {name!r} is not an object", hint=f"It is {_kind(value)}")
    return value


def text_in(found: Json, name: str) -> str:
    """The text of that name; empty where there is none."""
    value = found.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UsageError(f"In the body {name!r} is not text", hint=f"It is {_kind(value)}")
    if len(value) > TEXT_MAX_CHARS:
        raise UsageError(f"In the body {name!r} is longer than {TEXT_MAX_CHARS} characters")
    if not value.isprintable():  # also half a character, which JSON can name and nobody can write down
        raise UsageError(f"In the body {name!r} has characters that cannot be printed")
    return value


def texts_in(found: Json, *names: str) -> tuple[str, ...]:
    """Those that are there, in this order, each once."""
    return tuple(dict.fromkeys(text for name in names if (text := text_in(found, name))))


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


def _named(text: str) -> str:
    return repr(text if len(text) <= _NAMED_CHARS else text[: _NAMED_CHARS - 1] + "…")
