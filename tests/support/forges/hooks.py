"""Hooks of a stand-in's repositories: what a forge refuses of a push, over http and ssh alike.

Their state are files in the repository's folder ``forge``: ``protected`` (lines "<force: yes|no> <glob>"),
``archived`` (there or not), ``protects`` (the default branch is protected at its first push, as GitLab does),
``pushed`` (what was pushed, for the hooks that the forge sends).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# GitLab's own words. It refuses the whole push, before any ref moves.
_PRE_RECEIVE = """\
#!/bin/sh
say() { echo "GitLab: $1" >&2; exit 1; }
[ -e forge/archived ] && say "You can't push code to an archived project."
zero=0000000000000000000000000000000000000000
head=$(git symbolic-ref HEAD)
while read -r old new ref; do
    case "$old" in *[!0]*) ;; *) old=$zero ;; esac
    case "$new" in *[!0]*) ;; *) new=$zero ;; esac
    if [ "$new" = $zero ] && [ "$ref" = "$head" ]; then
        say "The default branch of a project cannot be deleted."
    fi
    [ -e forge/protected ] || continue
    while read -r force glob; do
        case "$ref" in
        refs/heads/$glob) ;;
        *) continue ;;
        esac
        [ "$new" = $zero ] && say "You can only delete protected branches using the web interface."
        [ "$old" = $zero ] && continue
        [ "$force" = yes ] && continue
        git merge-base --is-ancestor "$old" "$new" ||
            say "You are not allowed to force push code to a protected branch on this project."
    done <forge/protected
done
exit 0
"""

_POST_RECEIVE = """\
#!/bin/sh
cat >forge/told.$$
cat forge/told.$$ >>forge/pushed
exec <forge/told.$$
rm forge/told.$$
git rev-parse --verify --quiet HEAD >/dev/null || {
    while read -r old new ref; do
        case "$ref" in refs/heads/*) git symbolic-ref HEAD "$ref"; break ;; esac
    done
}
head=$(git symbolic-ref HEAD)
if [ -e forge/protects ] && git rev-parse --verify --quiet "$head" >/dev/null; then
    rm forge/protects
    grep -qxF "yes ${head#refs/heads/}" forge/protected 2>/dev/null ||
        grep -qxF "no ${head#refs/heads/}" forge/protected 2>/dev/null ||
        echo "no ${head#refs/heads/}" >>forge/protected
fi
exit 0
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A protected branch, or a glob of them."""

    name: str
    force: bool


def install(repo: Path, *, protects: bool) -> None:
    """``protects``: the default branch becomes a protected one with the first push."""
    (repo / "hooks").mkdir(exist_ok=True)
    (repo / "forge").mkdir(exist_ok=True)
    for name, text in (("pre-receive", _PRE_RECEIVE), ("post-receive", _POST_RECEIVE)):
        hook = repo / "hooks" / name
        hook.write_text(text)
        hook.chmod(0o755)
    if protects:
        (repo / "forge" / "protects").touch()


def rules(repo: Path) -> list[Rule]:
    file = repo / "forge" / "protected"
    lines = file.read_text().splitlines() if file.exists() else []
    return [Rule(name, force == "yes") for force, name in (line.split(" ", 1) for line in lines)]


def set_rules(repo: Path, wanted: list[Rule]) -> None:
    text = "".join(f"{'yes' if rule.force else 'no'} {rule.name}\n" for rule in wanted)
    (repo / "forge" / "protected").write_text(text)


def set_archived(repo: Path, archived: bool) -> None:
    file = repo / "forge" / "archived"
    if archived:
        file.touch()
    else:
        file.unlink(missing_ok=True)
