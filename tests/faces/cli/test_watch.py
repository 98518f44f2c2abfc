"""What goes on being shown: the screen is given back however it ends."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, Group

from evermirror.faces.cli import watch

ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


class CutShort:
    """Ctrl-C comes while this is drawn."""

    def __rich_console__(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("drawn_before", [0, 1, 3], ids=["first picture", "second", "fourth"])
def test_ctrl_c_while_a_picture_is_drawn_gives_the_screen_back(monkeypatch, drawn_before):
    screen = io.StringIO()
    monkeypatch.setattr(watch, "console", lambda: Console(file=screen, force_terminal=True))
    monkeypatch.setattr(watch, "WATCH_GAP_S", 0.0)
    pictures = [Group("as it is")] * drawn_before + [Group(CutShort())]
    with pytest.raises(KeyboardInterrupt):
        watch._live(iter(pictures).__next__)
    assert screen.getvalue().count(ENTERED) == screen.getvalue().count(LEFT) == 1
