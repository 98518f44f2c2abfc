"""Commits one file to a catalog's git repository and pushes it: no checkout, no force.

fetch ─▶ the file at the tip ─▶ the file as it should be ─▶ commit on the tip ─▶ push
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from evermirror.core.catalog.ownfile import OWN_FILE
from evermirror.edge.catalog.clone import GitTree
from evermirror.edge.git.command import parse_ls_remote
from evermirror.model.failure import Failure, FailureError, FailureKind

OUTGOING = "refs/evermirror/outgoing"
AUTHOR = "evermirror <evermirror@localhost>"

Edit = Callable[[bytes], Awaitable[tuple[bytes, str]]]  # from the content to the new one, and why


def own_path(tree: GitTree) -> str:
    """Where the file lies in the source."""
    return f"{tree.source.path}/{OWN_FILE}" if tree.source.path else OWN_FILE


async def publish(tree: GitTree, edit: Edit) -> str | None:
    """Bring the file at ``own_path`` to what ``edit`` makes of it; returns the commit that was pushed, None
    where nothing was to be done. Whoever pushed in between wins: then a FailureError, to be tried again."""
    tip = await tree.fetch()
    path = own_path(tree)
    listing = await tree.at(tip)
    files = listing.files if listing is not None else {}
    if tree.source.path and tree.source.path in files:
        words = f"{tree.source.path} is a file: nothing can be written beside it"
        raise FailureError(Failure(FailureKind.CONFLICT, words, hint="Give a folder as path of the source"))
    old = (await tree.blobs([files[path].id]))[files[path].id] if path in files else b""
    new, why = await edit(old)
    if new == old:
        return None
    async with tree.writing:
        commit = await _commit(tree, tip, path, new, why)
    branch = tree.source.branch or await _default_branch(tree)
    remote = tree.remote
    await tree.git.run(
        ["push", "--porcelain", "--end-of-options", remote.url, f"{commit}:refs/heads/{branch}"],
        repo=tree.repo,
        remote=remote,
        no_progress_s=tree.git.settings.no_progress_s,
    )
    return commit


async def _commit(tree: GitTree, tip: str, path: str, content: bytes, why: str) -> str:
    message = why.encode()
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    stream = (
        f"commit {OUTGOING}\ncommitter {AUTHOR} now\ndata {len(message)}\n".encode()
        + message
        + f'\nfrom {tip}\nM 100644 inline "{quoted}"\ndata {len(content)}\n'.encode(
            "utf-8", "surrogateescape"
        )
        + content
        + b"\ndone\n"
    )
    args = ["fast-import", "--quiet", "--force", "--done", "--date-format=now"]
    await tree.git.run(args, repo=tree.repo, stdin=stream)
    found = await tree.git.run(["for-each-ref", "--format=%(objectname)", OUTGOING], repo=tree.repo)
    return found.stdout.decode("ascii").strip()


async def _default_branch(tree: GitTree) -> str:
    remote = tree.remote
    done = await tree.git.run(
        ["ls-remote", "--quiet", "--symref", "--end-of-options", remote.url, "HEAD"],
        repo=tree.repo,
        remote=remote,
        no_progress_s=tree.git.settings.no_progress_s,
    )
    head = parse_ls_remote(done.stdout).head
    if head is None or not head.startswith("refs/heads/"):
        words = f"{tree.source.place} does not say which branch is its own"
        raise FailureError(Failure(FailureKind.CONFLICT, words, hint="Give the branch of the source"))
    return head.removeprefix("refs/heads/")
