"""`evermirror doctor`: looks at everything that is needed, one by one, and says what to do."""

from __future__ import annotations

import sys
from dataclasses import asdict

import typer

from evermirror.errors import ExitCode
from evermirror.faces.cli.options import AsJson, ConfigFile, DataDir, overrides
from evermirror.faces.cli.output import print_json, say


def doctor(data: DataDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Check this machine: git, disk, database, port, certificates, names, catalog."""
    from evermirror.config import load_config
    from evermirror.faces.cli.checks import Level, run_checks

    settings = load_config(config, overrides=overrides(data__dir=data))
    signs = {Level.FINE: "✓", Level.NOTE: "·", Level.WRONG: "✗"}
    found = []
    for check in run_checks(settings):
        found.append(check)
        if not as_json:
            say(f"{signs[check.level]} {check.name}: {check.what}")
            for detail in check.details:
                say(f"    {detail}")
            if check.todo:
                say(f"    → {check.todo}")
            sys.stdout.flush()
    wrong = [c for c in found if c.level is Level.WRONG]
    if as_json:
        print_json({"ok": not wrong, "checks": [{**asdict(c), "level": c.level.value} for c in found]})
    elif wrong:
        say(f"{len(wrong)} of {len(found)} checks found something wrong")
    else:
        say("everything is fine")
    if wrong:
        raise typer.Exit(ExitCode.FAILED)
