"""YAML catalog files: one repo a file (``url:``), or a list of them (``- git_url: …``), and ``DEFAULTS``.

    url:                                      - git_url: https://git.example/a
    - https://git.example/mongo.git             workers: [3, 7]
    - https://mirror.example/mongo.git        - git_url: https://git.example/b
    priority: high                              interval: 10m

Of several URLs the first is the repo, the later ones are its fallbacks. A ``DEFAULTS`` file says what holds
for all YAML files in its folder and below, where they do not say otherwise themselves. Keys that are not
ours are other programs' and left alone, unless they look like a slip of one of ours: a misspelt ``private``
must not publish a repository.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import lru_cache

from evermirror.core.catalog.attributes import FALLBACKS_MAX, PLAIN, READERS, Attributes, read_attributes
from evermirror.core.catalog.entry import BadLine, CatalogEntry, Parsed, Problem, shown, without_repeats
from evermirror.core.catalog.yamltree import BadYaml, Items, Node, Table, Text, read_yaml
from evermirror.errors import InvalidUrl
from evermirror.model.repo import Host, RepoKey
from evermirror.model.url import RepoUrl, UrlRules, parse_url

DEFAULTS_NAME = "DEFAULTS"
URL_KEYS = ("git_url", "url")
_SAME = {
    "targets": "target",
    "target_credentials": "target_credential",
    "fallbacks": "fallback",
    "worker": "workers",
}
_NOT_INHERITED = frozenset({*URL_KEYS, "alias", "fallback", "fsck_allow", "fsck_reason"})  # of one repo
_KNOWN = (*URL_KEYS, *READERS, *_SAME)
_LIKENESS = 0.8  # of difflib: "privat", "Private", "git-url" are; "private_repo", "path", "node" are not


def parse_yaml(data: bytes, name: str, rules: UrlRules, defaults: Attributes = PLAIN) -> Parsed:
    """Entries and problems of one file; of two items for one repo the first counts."""
    try:
        root = read_yaml(data)
    except BadYaml as bad:
        return Parsed.no_use(name, bad.reason, line=bad.line)
    items = root.items if isinstance(root, Items) else [] if root is None else [root]
    entries: list[CatalogEntry] = []
    problems: list[Problem] = []
    hosts: dict[Host, Host] = {}
    for item in items:
        try:
            entries.append(_entry(item, name, rules, defaults, hosts))
        except BadLine as bad:
            problems.append(Problem(name, item.line, shown(_first_text(item)), bad.reason, bad.key))
    entries, repeats = without_repeats(entries)
    problems = sorted(problems + repeats, key=lambda problem: problem.line) if repeats else problems
    return Parsed.of(entries, problems)


def parse_defaults(data: bytes, rules: UrlRules, above: Attributes = PLAIN) -> Attributes:
    """``above`` with what a DEFAULTS file says; raises BadYaml where any of it cannot be understood."""
    root = read_yaml(data)
    if root is None:
        return above
    if not isinstance(root, Table):
        raise BadYaml("DEFAULTS must be a table of keys", root.line)
    if own := next((key for key, _ in root.pairs if _SAME.get(key, key) in _NOT_INHERITED), None):
        raise BadYaml(f"{own} belongs to one repo, not into DEFAULTS", root.line)
    try:
        return read_attributes(_pairs(root, None), None, rules, above)
    except BadLine as bad:
        raise BadYaml(bad.reason, root.line) from None


def _entry(
    item: Node, name: str, rules: UrlRules, defaults: Attributes, hosts: dict[Host, Host]
) -> CatalogEntry:
    if isinstance(item, Text):
        return defaults.entry(_url(item.text, rules), hosts, name, item.line)
    if isinstance(item, Items):
        raise BadLine("a list inside the list: write one repo an item")
    named = [node for key, node in item.pairs if key in URL_KEYS]
    if not named:
        raise BadLine("has neither url nor git_url")
    if len(named) > 1:
        raise BadLine("url is given twice: write several as a list")
    first, *more = _texts(named[0], "url", None)
    url = _url(first, rules)
    if len(more) > FALLBACKS_MAX:
        raise BadLine(f"more than {FALLBACKS_MAX} fallbacks are given", url.key)
    pairs = [*_pairs(item, url.key), *(("fallback", text) for text in more)]
    return read_attributes(pairs, url.key, rules, defaults).entry(url, hosts, name, item.line)


def _url(text: str, rules: UrlRules) -> RepoUrl:
    try:
        return parse_url(text, rules)
    except InvalidUrl as error:
        raise BadLine(str(error)) from None


def _pairs(table: Table, key: RepoKey | None) -> Iterator[tuple[str, str]]:
    """What is said in keys of ours, one pair a value."""
    for name, node in table.pairs:
        ours = _SAME.get(name, name)
        if ours in READERS:
            if isinstance(node, Text) and node.null:
                continue
            for text in _texts(node, name, key):
                yield ours, text.lower() if ours == "private" else text
        elif name not in URL_KEYS and (meant := _slip_of(name)):
            raise BadLine(f"unknown key {shown(name)!r}: did you mean {meant}?", key)


def _texts(node: Node, name: str, key: RepoKey | None) -> list[str]:
    items = node.items if isinstance(node, Items) else [node]
    texts = [item.text for item in items if isinstance(item, Text) and not item.null]
    if len(texts) < len(items) or not texts:
        raise BadLine(f"{name} must be a text, or a list of texts", key)
    return texts


@lru_cache(maxsize=4096)
def _slip_of(name: str) -> str | None:
    if name == "<<":
        return "to write the keys out"
    folded = name[:64].lower().replace("-", "_")
    near = difflib.get_close_matches(folded, _KNOWN, n=1, cutoff=_LIKENESS)
    return near[0] if near else None


def _first_text(node: Node) -> str:
    match node:
        case Text():
            return node.text
        case Items():
            return ""
        case Table():
            found = [v for k, v in node.pairs if k in URL_KEYS and isinstance(v, Text)]
            return found[0].text if found else ", ".join(k for k, _ in node.pairs[:5])
