"""The file that evermirror keeps itself: its own lines follow, others' stay."""

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.catalog.ownfile import HEAD, keys_in, merged


def line(name, more=""):
    return f"https://h.example/{name}{more}"


def test_a_new_file_says_whose_it_is():
    assert merged(b"", {"h.example/a": line("a")}, ()) == f"{HEAD}{line('a')}\n".encode()


def test_lines_are_replaced_added_and_dropped_and_what_people_wrote_stays():
    old = f"# mine\n{line('a')}\nnonsense\n{line('b')}\n{line('c')}\n".encode()
    wanted = {"h.example/a": line("a", " priority=high"), "h.example/d": line("d")}
    new = f"# mine\n{line('a', ' priority=high')}\nnonsense\n{line('c')}\n{line('d')}\n"
    assert merged(old, wanted, {"h.example/b"}) == new.encode()


@given(st.binary(max_size=80), st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_doing_it_twice_changes_nothing_more(old, wanted, dropped):
    lines = {f"h.example/{name}": line(name) for name in wanted}
    gone = {f"h.example/{name}" for name in dropped}
    once = merged(old, lines, gone)
    assert merged(once, lines, gone) == once
    assert keys_in(once).keys() >= lines.keys() - gone
    assert not keys_in(once).keys() & gone
