"""Who mentions what, against a plain list."""

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.catalog.mentions import Mentions, hashes_of

KEYS = st.lists(st.sampled_from("abcdefgh"), max_size=5)


@given(
    st.lists(st.tuples(st.integers(0, 5), KEYS, KEYS) | st.lists(st.integers(0, 5), max_size=3), max_size=12)
)
def test_as_a_plain_list_has_it(steps):
    index, plain = Mentions(), []
    for step in steps:
        if isinstance(step, list):
            index.remove(step)
            plain = [m for m in plain if m[1] not in step]
        else:
            file, sure, unsure = step
            index.add(file, hashes_of(sure), hashes_of(unsure))
            plain += [(k, file, False) for k in sure] + [(k, file, True) for k in unsure]
    asked = list("abcdefghi")
    found = sorted((asked[m.index], m.file, m.unsure) for m in index.find(hashes_of(asked)))
    assert found == sorted(plain)
    assert index.mentioned(hashes_of(asked)).tolist() == [k in {m[0] for m in plain} for k in asked]
    assert index.distinct() == len({m[0] for m in plain})
    assert len(index) == len(plain)


def test_hashes_are_the_same_everywhere():
    assert hashes_of(["github.com/a/b", ""]).tolist() == [1690830949337193973, 13020603013274838756]
    assert len(set(hashes_of(map(str, range(10_000))).tolist())) == 10_000
