"""Millions of hashes, remembered in little memory."""

from __future__ import annotations

from array import array
from typing import Final

_SMALL: Final = 50_000  # pairs, up to which a dict is quicker and small enough
_BUCKETS: Final = 1 << 15


class Pairs:
    """A value for each key; both are hashes, integers of 64 bits.

    A dict would take 120 bytes for a pair; this takes about 25.
    """

    def __init__(self) -> None:
        self._small: dict[int, int] = {}
        self._keys: list[array[int]] = []
        self._values: list[array[int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._small)

    def get(self, key: int) -> int | None:
        """The value of ``key``, None where it has none."""
        if not self._keys:
            return self._small.get(key)
        keys = self._keys[key % _BUCKETS]
        return self._values[key % _BUCKETS][keys.index(key)] if key in keys else None

    def keep(self, key: int, value: int) -> int | None:
        """The value that ``key`` has; None where it had none, and has this one from now on."""
        if self._keys:
            found = self.get(key)
            if found is None:
                self._add(key, value)
            return found
        found = self._small.get(key)
        if found is None:
            self._small[key] = value
            if len(self._small) > _SMALL:
                self._spread()
        return found

    def _add(self, key: int, value: int) -> None:
        self._keys[key % _BUCKETS].append(key)
        self._values[key % _BUCKETS].append(value)
        self._count += 1

    def _spread(self) -> None:
        self._keys = [array("q") for _ in range(_BUCKETS)]
        self._values = [array("q") for _ in range(_BUCKETS)]
        for key, value in self._small.items():
            self._add(key, value)
        self._small.clear()
