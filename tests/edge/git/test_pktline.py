"""Frames survive a round trip; everything else is refused, and nothing is read beyond the body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.edge.git.pktline import MAX_DATA_BYTES, PktError, Sign, encode, packets, text

frames = st.lists(st.one_of(st.binary(max_size=300), st.sampled_from(Sign)), max_size=20)


def joined(items):
    return b"".join(i.value if isinstance(i, Sign) else encode(i) for i in items)


@given(frames)
def test_what_was_encoded_is_decoded(items):
    assert list(packets(joined(items))) == items


@given(st.binary(max_size=400))
def test_any_bytes_are_either_frames_or_refused(body):
    try:
        items = list(packets(body))
    except PktError:
        return
    assert joined(items).lower() == body.lower()  # hex digits may be in capitals


@given(frames.filter(bool), st.data())
def test_a_body_cut_inside_a_frame_is_refused(items, data):
    body = joined(items)
    ends, at = {0}, 0
    for item in items:
        at += 4 if isinstance(item, Sign) else len(item) + 4
        ends.add(at)
    cuts = [n for n in range(len(body)) if n not in ends]
    cut = data.draw(st.sampled_from(cuts))
    with pytest.raises(PktError):
        list(packets(body[:cut]))


@pytest.mark.parametrize(
    "body",
    [
        b"0003",
        b"+004",
        b" 004",
        b"0x04",
        b"00_4",
        b"000",
        b"zzzz",
        b"\xff\xff\xff\xff",
        b"ffff" + b"a" * 65531,
    ],
)
def test_lengths_that_git_never_writes_are_refused(body):
    with pytest.raises(PktError):
        list(packets(body))


def test_the_largest_frame_fits_and_one_byte_more_does_not():
    assert list(packets(encode(b"a" * MAX_DATA_BYTES))) == [b"a" * MAX_DATA_BYTES]
    with pytest.raises(PktError):
        encode(b"a" * (MAX_DATA_BYTES + 1))


def test_a_line_ends_with_one_newline_or_none():
    assert text(b"version 2\n") == text(b"version 2") == b"version 2"
    assert text(b"x\n\n") == b"x\n"
