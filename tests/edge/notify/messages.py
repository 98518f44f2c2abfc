"""Messages for the tests of channels: usual ones, and hostile ones."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from evermirror.model.alert import AlertId, Level, Message, MessageItem, Turn

AT = 1_794_787_200.0  # 2026-11-16T00:00:00Z
RAISED_AT = AT - 3600

ITEM = MessageItem(
    kind="project-failing",
    about="openeuler/kernel",
    level=Level.ERROR,
    turn=Turn.RAISED,
    title="Project fails",
    text="failed 3 times in a row: cannot resolve gitlab.example.org",
    raised_at=RAISED_AT,
    alert=AlertId(12),
)
MESSAGE = Message(
    title="Project fails: openeuler/kernel",
    items=(ITEM,),
    more=0,
    level=Level.ERROR,
    at=AT,
    language="en",
    server="mirror-1",
)
CHINESE = replace(
    MESSAGE,
    title="项目同步失败：openeuler/kernel",
    items=(replace(ITEM, title="项目同步失败", text="连续失败 3 次：无法解析 gitlab.example.org"),),
    language="zh",
    server="北京镜像",
)
OVER = replace(ITEM, turn=Turn.OVER, ended_at=AT)

HOSTILE = (
    "x](http://evil.example) **all** <@all> @all <at user_id=all> `rm` <script>alert(1)</script>\r\n"
    "Bcc: victim@evil.example\n# heading\u202e\x1b[2J\x00 &lt;@all&gt; ![i](http://evil.example/i.png) \udcff"
)


def hostile_message(text: str = HOSTILE) -> Message:
    item = replace(ITEM, kind=text, about=text, title=text, text=text)
    return replace(MESSAGE, title=text, items=(item,), server=text)


def digest(count: int, more: int = 0, **changes: object) -> Message:
    items = tuple(replace(ITEM, about=f"group/project-{n}", alert=AlertId(n)) for n in range(count))
    return replace(replace(MESSAGE, items=items, more=more), **changes)  # type: ignore[arg-type]


_texts = st.one_of(
    st.text(max_size=400),
    st.text(alphabet=st.sampled_from("@<>[]()*_`~#|\\!&;-\n\r\"'all所有人0x"), max_size=400),
    st.lists(st.sampled_from([*"ax:/. <&\n", "https://", "www.", "mailto:", "://"]), max_size=60).map(
        "".join
    ),
    st.integers(0, 3000).map(lambda n: "镜" * n),
    st.integers(0, 3000).map(lambda n: '"' * n),
)
_items = st.builds(
    MessageItem,
    kind=_texts,
    about=_texts,
    level=st.sampled_from(Level),
    turn=st.sampled_from(Turn),
    title=_texts,
    text=_texts,
    raised_at=st.floats(0, 4e9),
    ended_at=st.none() | st.floats(0, 4e9),
    alert=st.none() | st.integers(1, 10**12).map(AlertId),
)
messages = st.builds(
    Message,
    title=_texts,
    items=st.lists(_items, min_size=1, max_size=25).map(tuple),
    more=st.integers(0, 10**6),
    level=st.sampled_from(Level),
    at=st.floats(0, 4e9),
    language=st.sampled_from(["en", "zh"]),
    server=_texts,
)
