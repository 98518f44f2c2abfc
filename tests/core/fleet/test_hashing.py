from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.hashing import (
    bytes_hash,
    bytes_hashes,
    key_hashes,
    mix,
    positions,
)
from tests.support.plain_hashing import key_hash, mix_one, position

u64 = st.integers(0, 2**64 - 1)


def test_a_key_has_the_same_number_for_ever() -> None:
    assert key_hash("") == 0x2D06_8005_38D3_94C2  # xxh3's published vector for no input
    assert key_hash("github.com/torvalds/linux") == 0xD98A_036C_46EF_0C96
    assert key_hash("gitee.com/开源/仓库") == 0x930E_7233_6194_CFD5


def test_salts_are_the_steps_of_splitmix64() -> None:
    published = [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]
    assert [position(0, salt) for salt in (1, 2, 3)] == published


def test_the_place_of_a_repo_never_handed_back_is_its_number_mixed() -> None:
    assert position(key_hash("a"), 0) == mix_one(key_hash("a"))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_many_keys_are_hashed_as_each_alone(keys: list[str]) -> None:
    letters = [key.encode() for key in keys]
    alone = [key_hash(key) for key in keys]
    assert key_hashes(keys).tolist() == alone
    assert bytes_hashes(letters).tolist() == alone
    assert [bytes_hash(each) for each in letters] == alone


@given(st.lists(u64))
def test_many_numbers_are_mixed_as_each_alone(numbers: list[int]) -> None:
    column = np.array(numbers, np.uint64)
    assert mix(column).tolist() == [mix_one(number) for number in numbers]
    assert column.tolist() == numbers  # and stay as they were


@given(st.lists(st.tuples(u64, st.integers(0, 255))))
def test_many_repos_have_the_places_of_each_alone(repos: list[tuple[int, int]]) -> None:
    hashes = np.array([hash_ for hash_, _ in repos], np.uint64)
    salts = np.array([salt for _, salt in repos], np.uint8)
    assert positions(hashes, salts).tolist() == [position(hash_, salt) for hash_, salt in repos]


@given(u64)
def test_mixing_loses_nothing(number: int) -> None:
    assert unmixed(mix_one(number)) == number


def unmixed(x: int) -> int:
    """Each step of the finaliser, backwards."""
    x = x ^ (x >> 31) ^ (x >> 62)
    x = x * pow(0x94D0_49BB_1331_11EB, -1, 2**64) % 2**64
    x = x ^ (x >> 27) ^ (x >> 54)
    x = x * pow(0xBF58_476D_1CE4_E5B9, -1, 2**64) % 2**64
    return x ^ (x >> 30) ^ (x >> 60)


def test_another_salt_is_another_place_that_has_nothing_to_do_with_the_first() -> None:
    hashes = key_hashes([f"forge.example/team/repo-{i}" for i in range(16_000)])
    sixteenth = [positions(hashes, np.full(16_000, salt, np.uint8)) >> np.uint64(60) for salt in (0, 1)]
    together = np.zeros((16, 16), np.int64)
    np.add.at(together, (sixteenth[0], sixteenth[1]), 1)
    assert together.sum() == 16_000
    assert together.min() > 62.5 - 45  # 62.5 expected in each of 256, deviation 7.9
    assert together.max() < 62.5 + 45
