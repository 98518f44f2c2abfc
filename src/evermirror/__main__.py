"""The program's first lines: answers --version at once, and turns errors into words and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import PurePath

from evermirror import __version__

NAMES = ("evermirror", "gitlab-mirror")  # the same program under the name that users of GitLab know


def main() -> int:
    """Entry point of both commands; the result is the exit code."""
    name = PurePath(sys.argv[0]).name
    name = name if name in NAMES else NAMES[0]
    args = sys.argv[1:]
    if args in (["--version"], ["-V"]):  # before any import: scripts ask often
        print(f"{name} {__version__}")
        return 0
    # gRPC reads it when it is imported; otherwise it writes lines of its own beside the log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from evermirror.importing import kept_for_good

    with kept_for_good():
        from evermirror.faces.cli.program import run

    debug = "--debug" in args or bool(os.environ.get("EVERMIRROR_DEBUG"))
    return run([a for a in args if a != "--debug"], name, debug=debug)  # accepted before and after a command


if __name__ == "__main__":
    sys.exit(main())
