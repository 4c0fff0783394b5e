from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmove_tools.package import pairs as module
from agentmove_tools.package.pairs import Pairs

hashes = st.integers(-(1 << 63), (1 << 63) - 1)
few = st.integers(-3, 3)


@pytest.mark.parametrize("small", [0, 3, 1000])
@given(added=st.lists(st.tuples(few | hashes, few | hashes), max_size=60))
def test_the_first_value_of_a_key_stays(small: int, added: list[tuple[int, int]]) -> None:
    """As a dict's ``setdefault`` has it, before and after the pairs are laid out closely."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SMALL", small)
        patch.setattr(module, "_BUCKETS", 8)  # to lay out many takes long
        pairs = Pairs()
        expected: dict[int, int] = {}
        for key, value in added:
            assert pairs.get(key) == expected.get(key)
            assert pairs.keep(key, value) == expected.get(key)
            expected.setdefault(key, value)
            assert len(pairs) == len(expected)
        assert all(pairs.get(key) == value for key, value in expected.items())


def test_many_take_little_memory() -> None:
    """A dict of so many would take more than twice as much."""
    count = 200_000
    tracemalloc.start()
    pairs = Pairs()
    for number in range(count):
        pairs.keep(hash(str(number)), hash(str(-number)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(pairs) == count
    assert peak < 75 * count
