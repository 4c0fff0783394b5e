from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import END_NAME
from agentmove_tools.stream.verify import verify
from tests.stream.tars import (
    END,
    Chunked,
    digest,
    file,
    folder,
    hashed,
    header,
    manifest,
    padded,
    pax,
    stream,
)

LARGE = bytes(range(256)) * (3 << 12)  # 3 MiB
GOOD = stream(folder(b"files/"), file(b"files/a"), file(b"files/large", LARGE), file(b"files/z"))
BEFORE_END = GOOD.rindex(END)


class Written:
    """A sink that holds what it got, and what the source had given by then."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        self.data += data
        return len(data)


class Watched:
    """A source that is asked, before each read, whether enough has been passed on."""

    def __init__(self, parts: Iterator[bytes], before: Callable[[int], None]) -> None:
        self._parts = parts
        self._before = before
        self._given = 0
        self._part = b""

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        if not self._part:
            self._before(self._given)
            self._part = next(self._parts, b"")
        count = min(len(self._part), len(buffer))
        memoryview(buffer)[:count] = self._part[:count]
        self._part = self._part[count:]
        self._given += count
        return count


@pytest.mark.parametrize("zeros", [0, 1, 511, 9000, (5 << 20) + 7])
@pytest.mark.parametrize("count", [1 << 20, 4096, 777])
def test_a_good_stream_passes_as_it_is(zeros: int, count: int) -> None:
    """Every byte, and however many zeros come after the end."""
    data = GOOD.rstrip(b"\0")
    data += bytes(BEFORE_END + len(END) - len(data) + zeros)
    out = io.BytesIO()
    verify(Chunked(data, [count]), out)
    assert out.getvalue() == data


def refused(data: bytes, counts: tuple[int, ...] = ()) -> tuple[str, bytes]:
    """Give the code of a refusal, and what had passed."""
    out = io.BytesIO()
    with pytest.raises(Refusal) as caught:
        verify(Chunked(data, counts), out)
    return caught.value.code, out.getvalue()


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (b"x", "stream-after-end"),
        (bytes(100_000) + b"x", "stream-after-end"),
        (bytes(3 << 20) + b"x", "stream-after-end"),
        (GOOD, "stream-after-end"),
    ],
)
@pytest.mark.parametrize("count", [1 << 20, 10_000])
def test_the_end_waits_for_all_that_comes_after_it(more: bytes, code: str, count: int) -> None:
    """Its own PAX header is held back too, so nothing of it passes."""
    assert refused(GOOD + more, (count,)) == (code, GOOD[:BEFORE_END])


@pytest.mark.parametrize(
    "end",
    [
        pax(LNK_sha256=digest(b"x")) + header(END_NAME),
        hashed(b"") + header(END_NAME, b"0", 1) + padded(b"x"),
        hashed(b"") + header(END_NAME, b"2", target=b"a"),
        hashed(b"") + header(END_NAME + b"/", b"5"),
    ],
)
def test_an_end_that_is_none_does_not_pass(end: bytes) -> None:
    """Nor does its PAX header."""
    code, passed = refused(manifest() + file(b"files/a") + end + bytes(1024))
    assert code in ("hash-mismatch", "stream-after-end")
    assert passed == manifest() + file(b"files/a")


def test_nothing_passes_of_what_is_no_move() -> None:
    """Not a byte, however good the rest is."""
    assert refused(file(b"files/a") + GOOD) == ("stream-not-move", b"")
    assert refused(GOOD[512:]) == ("stream-not-move", b"")
    assert refused(b"") == ("stream-not-move", b"")


def test_what_came_whole_before_a_fault_passes() -> None:
    """A receiver keeps it for the next try; the fault itself does not pass."""
    good = manifest() + folder(b"files/") + file(b"files/a")
    for count in (1 << 20, 100):
        for bad in (hashed(b"y") + header(b"files/b", b"0", 1) + padded(b"x"), file(b"files/../b")):
            code, passed = refused(good + bad + file(b"files/c") + END, (count,))
            assert code in ("hash-mismatch", "entry-path")
            assert passed == good
        assert refused(good + file(b"files/b")[:-1], (count,)) == ("stream-cut", good)


def test_a_large_file_with_another_hash_does_not_get_an_end() -> None:
    """Its content may pass before the hash is known, but nothing after it."""
    large = hashed(b"other") + header(b"files/a", b"0", len(LARGE)) + LARGE
    code, passed = refused(manifest() + large + file(b"files/b") + END)
    assert code == "hash-mismatch"
    assert (manifest() + large).startswith(passed)


def test_what_came_is_passed_on_before_more_is_waited_for() -> None:
    """Each entry once it is whole; of a large file, each piece."""
    entries = [manifest(), folder(b"files/"), file(b"files/a"), file(b"files/b", b"y" * 2000)]
    large = hashed(LARGE) + header(b"files/l", b"0", len(LARGE))
    pieces = [LARGE[at : at + 200_000] for at in range(0, len(LARGE), 200_000)]
    out = Written()

    def check(given: int) -> None:
        passed = len(out.data)
        whole = sum(map(len, entries))
        # What is known only of the large file's headers is not a piece of it yet.
        if given <= whole or given > whole + len(large):
            assert passed == min(given, whole + len(large) + len(LARGE))

    parts = [*entries, large, *pieces, END, bytes(1024)]
    verify(Watched(iter(parts), check), out)
    assert out.data == b"".join(parts)


def test_the_end_is_passed_on_only_when_the_input_ends() -> None:
    """Though nothing but zeros is left."""
    parts = [manifest(), END, bytes(512), bytes(512), bytes(9000)]
    out = Written()

    def check(given: int) -> None:
        assert bytes(out.data) in (b"", manifest())

    verify(Watched(iter(parts), check), out)
    assert out.data == b"".join(parts)


def test_zeros_after_the_end_are_counted_and_not_held() -> None:
    """They may be more than fits into memory."""
    import tracemalloc

    zeros = bytes(1 << 20)
    parts = [manifest(), END, *[zeros] * 60]

    class Counting:
        count = 0

        def write(self, data: bytes | bytearray | memoryview, /) -> int:
            self.count += len(data)
            return len(data)

    out = Counting()
    tracemalloc.start()
    try:
        verify(Watched(iter(parts), lambda _: None), out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert out.count == sum(map(len, parts))
    assert peak < 12 << 20


def test_a_sink_that_fails_ends_it() -> None:
    """With its own error, and it is not written to again."""

    class Full:
        failed = False

        def write(self, _: bytes | bytearray | memoryview, /) -> int:
            assert not self.failed
            self.failed = True
            raise OSError(28, "No space left on device")

    for data in (GOOD, GOOD[:-1024] + b"x"):
        with pytest.raises(OSError, match="No space"):
            verify(Chunked(data, [4096]), Full())


def test_limits_hold() -> None:
    """On bytes, those after the end too, and on entries."""
    out = io.BytesIO()
    verify(io.BytesIO(GOOD), out, max_bytes=len(GOOD), max_entries=4)
    assert out.getvalue() == GOOD
    for size, entries in ((len(GOOD) - 1, None), (None, 3), (0, None)):
        out = io.BytesIO()
        with pytest.raises(Refusal) as caught:
            verify(io.BytesIO(GOOD), out, max_bytes=size, max_entries=entries)
        assert caught.value.code == "stream-tar"
        assert END_NAME not in out.getvalue()
    with pytest.raises(Refusal):
        verify(io.BytesIO(GOOD + bytes(1 << 21)), io.BytesIO(), max_bytes=len(GOOD))
