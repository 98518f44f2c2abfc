"""Kept answers: bounded, for one address, language and token, and forgotten with the token."""

from __future__ import annotations

from evermirror.faces.pass_on.kept import ENTRY_BYTES, FRESH_S, STALE_S, Answer, Kept, Key


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def key(name, token=b""):
    return Key(name.encode(), b"", token)


def answer(kept, clock, size=100):
    return Answer((), b"x" * size, clock.now, 0.0, kept.writes)


def test_fresh_then_stale_then_forgotten():
    clock = Clock()
    kept = Kept(clock)
    one = answer(kept, clock)
    kept.keep(key("a"), one)
    assert kept.fresh(key("a")) is one
    assert kept.fresh(key("b")) is None
    assert kept.fresh(key("a", b"t")) is kept.stale(key("a", b"t")) is None
    clock.now += FRESH_S + 0.1
    assert kept.fresh(key("a")) is None
    assert kept.stale(key("a")) is one
    clock.now += STALE_S
    assert kept.stale(key("a")) is None
    assert kept.size_bytes == 0


def test_a_write_ends_the_freshness_of_all_and_nothing_else():
    clock = Clock()
    kept = Kept(clock)
    before = answer(kept, clock)
    kept.keep(key("a"), before)
    kept.wrote()
    assert kept.fresh(key("a")) is None
    assert kept.stale(key("a")) is before
    kept.keep(key("b"), before)  # asked for before the write
    assert kept.fresh(key("b")) is None
    kept.keep(key("a"), after := answer(kept, clock))
    assert kept.fresh(key("a")) is after
    kept.keep(key("a"), before)  # it was long on its way
    assert kept.fresh(key("a")) is after


def test_memory_is_bounded_and_the_longest_unused_goes():
    clock = Clock()
    kept = Kept(clock, bytes_max=10 * (100 + ENTRY_BYTES))
    for n in range(10):
        kept.keep(key(str(n)), answer(kept, clock))
    assert kept.stale(key("0")) is not None  # used again
    kept.keep(key("new"), answer(kept, clock))
    assert kept.stale(key("1")) is None
    assert kept.stale(key("0")) is not None
    for n in range(1000):
        kept.keep(key(f"x{n}"), answer(kept, clock, size=n))
        assert kept.size_bytes <= 10 * (100 + ENTRY_BYTES)
    before = kept.size_bytes
    kept.keep(key("huge"), answer(kept, clock, size=1_000_000))
    assert kept.stale(key("huge")) is None
    assert kept.size_bytes == before


def test_a_refused_token_takes_its_answers_along():
    clock = Clock()
    kept = Kept(clock)
    for token in (b"t", b"u", b""):
        for name in "ab":
            kept.keep(key(name, token), answer(kept, clock))
    kept.refused(b"t")
    kept.refused(b"t")
    assert [kept.stale(key("a", token)) is None for token in (b"t", b"u", b"")] == [True, False, False]
    kept.refused(b"u")
    kept.refused(b"")
    assert kept.size_bytes == 0
