"""What Prometheus is told of hooks of forges."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from evermirror.faces.api.hook_metrics import HookCollector
from evermirror.model.forge import Forge
from evermirror.model.hook import HookTrust
from evermirror.nodes.hook_service import HookFigures


def test_every_end_is_told_from_the_start_so_that_the_first_ones_make_a_rate():
    figures = HookFigures({(Forge.GITLAB, "refused"): 3}, {HookTrust.SILENT: 2}, 1)
    registry = CollectorRegistry()
    registry.register(HookCollector(lambda: figures))
    text = generate_latest(registry).decode()
    assert 'evermirror_hooks_total{forge="gitlab",result="refused"} 3.0' in text
    for forge in ("github", "gitlab", "gitea", "gitee"):
        for end in ("accepted", "merged", "added", "ignored", "pong", "unavailable"):
            assert f'evermirror_hooks_total{{forge="{forge}",result="{end}"}} 0.0' in text
    assert 'evermirror_hooked_repos{trust="silent"} 2.0' in text
    assert "evermirror_hooks_waiting 1.0" in text
