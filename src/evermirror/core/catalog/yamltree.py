"""YAML as a small tree of text with line numbers, within bounds: no aliases, no tags, no types.

Built from the parser's events, so that nothing is made that was not asked for: aliases (with which a kilobyte
becomes a gigabyte) end the reading, and scalars stay the text that was written.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

DEPTH_MAX = 20  # of nested lists and tables; a catalog has two or three
TEXT_MAX_CHARS = 16_384  # of one scalar, as of a line of a list file
YAML_MAX_BYTES = 16 * 2**20  # a thousand repos with many keys each are below 1 MB

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar; ``null`` where it was left empty."""

    text: str
    line: int
    null: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: list[Node]
    line: int


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, in its order; keys may be given twice."""

    pairs: list[tuple[str, Node]]
    line: int


Node = Text | Items | Table


class BadYaml(Exception):
    """The file as a whole cannot be used."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def read_yaml(data: bytes) -> Node | None:
    """The one document in ``data``, None where there is none; raises BadYaml."""
    if len(data) > YAML_MAX_BYTES:
        raise BadYaml(f"the file is over {YAML_MAX_BYTES // 2**20} MB: split it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadYaml("the file is not UTF-8 text", line) from None
    try:
        return _built(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else 0) from None
    except yaml.YAMLError as error:
        raise BadYaml(f"not YAML: {str(error).partition(chr(10))[0]}") from None


def _built(text: str) -> Node | None:
    root: Node | None = None
    documents = 0
    open_nodes: list[tuple[Items | Table, list[Text]]] = []  # with the key that waits for its value
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        made: Node
        match event:
            case yaml.ScalarEvent():
                if len(event.value) > TEXT_MAX_CHARS:
                    raise BadYaml(f"a text is longer than {TEXT_MAX_CHARS} characters", line)
                made = Text(event.value, line, not event.style and event.value in _NULLS)
            case yaml.SequenceStartEvent():
                made = Items([], line)
            case yaml.MappingStartEvent():
                made = Table([], line)
            case yaml.AliasEvent():
                raise BadYaml("aliases (*name) are not read: write the value out", line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                open_nodes.pop()
                continue
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise BadYaml("the file has more than one document", line)
                continue
            case _:
                continue
        if open_nodes:
            _put(made, *open_nodes[-1])
        else:
            root = made
        if not isinstance(made, Text):
            if len(open_nodes) >= DEPTH_MAX:
                raise BadYaml(f"nested deeper than {DEPTH_MAX}", line)
            open_nodes.append((made, []))
    return None if isinstance(root, Text) and root.null else root


def _put(made: Node, parent: Items | Table, waiting: list[Text]) -> None:
    if isinstance(parent, Items):
        parent.items.append(made)
    elif waiting:
        parent.pairs.append((waiting.pop().text, made))
    elif isinstance(made, Text):
        waiting.append(made)
    else:
        raise BadYaml("a key is not a text", made.line)
