from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.refusals import UsageError
from agentmove_tools.stream.have import parse_have, render_rows, write_have

ONE = "0123456789abcdef" * 4
OTHER = "f" * 64
PATHS = [
    "files/a",
    "files/é\u0301 \U0001f600",
    'files/"quoted"\\',
    "files/a\nb\tc\x01\x7f\u2028",
    "memory/vec/index.bin",
    "harness/conversations/t 1/events.jsonl",
    "files/" + "long/" * 800 + "a",
]
HELD = {path: (ONE, OTHER)[number % 2] for number, path in enumerate(PATHS)}
EXPECTED = {path.encode(): bytes.fromhex(digest) for path, digest in HELD.items()}


class Pieces:
    """A source that gives at most ``count`` bytes a call."""

    def __init__(self, text: bytes, count: int) -> None:
        self._text = io.BytesIO(text)
        self._count = count

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        return self._text.readinto(memoryview(buffer)[: self._count])


class Generated:
    """A source whose text is made as it is read, and never there as a whole."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        if not self._rest:
            self._rest = next(self._pieces, b"")
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def parsed(text: bytes) -> dict[bytes, bytes]:
    return parse_have(io.BytesIO(text))


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 0, 3])
@pytest.mark.parametrize("count", [1, 13, 1 << 20])
def test_any_layout_of_the_json_is_taken(ascii_only: bool, indent: int | None, count: int) -> None:
    """Escaped or not, on one line or many, in pieces of any size."""
    held = HELD if count > 1 else {path: HELD[path] for path in PATHS[:-1]}
    text = json.dumps(held, ensure_ascii=ascii_only, indent=indent).encode()
    assert parse_have(Pieces(b" \r\n" + text + b"\n\t ", count)) == {
        path.encode(): EXPECTED[path.encode()] for path in held
    }


@pytest.mark.parametrize("text", [b"{}", b" { \n}\n", b"\t{\t}\t"])
def test_a_receiver_may_hold_nothing(text: bytes) -> None:
    """As for a Home that is not there."""
    assert parsed(text) == {}


def test_of_a_path_that_comes_twice_the_last_counts() -> None:
    """As in any JSON object here."""
    text = f'{{"files/a":"{ONE}","files/a":"{OTHER}"}}'.encode()
    assert parsed(text) == {b"files/a": bytes.fromhex(OTHER)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "[]",
        "null",
        '"files/a"',
        "\ufeff{}",
        "{",
        "{,}",
        "{}{}",
        "{} x",
        "{}\0",
        f'{{"files/a":"{ONE}"',
        f'{{"files/a":"{ONE}",',
        f'{{"files/a":"{ONE}",}}',
        f'{{,"files/a":"{ONE}"}}',
        f'{{"files/a":"{ONE}"}}}}',
        f'{{"files/a":"{ONE}"}}{{"files/b":"{ONE}"}}',
        f'{{"files/a":"{ONE}" "files/b":"{ONE}"}}',
        f'{{"files/a":"{ONE[1:]}"}}',
        f'{{"files/a":"{ONE}0"}}',
        f'{{"files/a":"{ONE.upper()}"}}',
        '{"files/a":null}',
        '{"files/a":{}}',
        f'{{"files/a" "{ONE}"}}',
        f"{{'files/a':'{ONE}'}}",
        f'{{files/a:"{ONE}"}}',
        f'{{"files/a\nb":"{ONE}"}}',
        f'{{"files/\\x41":"{ONE}"}}',
        f'{{"files/\\u00":"{ONE}"}}',
        f'{{"files/\\ud800":"{ONE}"}}',
        f'{{"files/\\u0000":"{ONE}"}}',
        f'{{"":"{ONE}"}}',
        f'{{"/files/a":"{ONE}"}}',
        f'{{"files/../a":"{ONE}"}}',
        f'{{"files/a/":"{ONE}"}}',
        f'{{"files/{"a" * 4096}":"{ONE}"}}',
        f'{{"{"a" * 400_000}":"{ONE}"}}',
        "{" + " " * 400_000 + "[",
    ],
    ids=range(38),
)
@pytest.mark.parametrize("count", [4093, 1 << 20])
def test_anything_else_is_refused(text: str, count: int) -> None:
    """As a wrong command line, in a line of a length that can be read."""
    with pytest.raises(UsageError) as caught:
        parse_have(Pieces(text.encode(), count))
    assert caught.value.message.startswith("this is not what lnk-have prints: ")
    assert len(caught.value.message) < 300


def test_a_path_that_is_not_utf8_is_refused() -> None:
    """And shown escaped."""
    with pytest.raises(UsageError, match=r"xff"):
        parsed(b'{"files/\xff":"' + ONE.encode() + b'"}')


def test_an_endless_entry_is_not_read_to_its_end() -> None:
    """What has no end is refused once it is longer than any entry."""
    read = 0

    def text() -> Iterator[bytes]:
        nonlocal read
        yield b'{"'
        while True:
            read += 1 << 16
            assert read < 1 << 22
            yield b"a" * (1 << 16)

    with pytest.raises(UsageError):
        parse_have(Generated(text()))


def test_the_text_is_never_held_as_a_whole() -> None:
    """What is held besides the result does not grow with it."""
    count = 30_000

    def text() -> Iterator[bytes]:
        for first in range(0, count, 1000):
            yield b"{" if first == 0 else b","
            yield b",".join(
                b'"files/some/folder/file-%08d":"%064x"' % (number, number)
                for number in range(first, first + 1000)
            )
        yield b"}"

    tracemalloc.start()
    try:
        held = parse_have(Generated(text()))
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(held) == count
    assert peak - size < 2 << 20
    assert size < 300 * count


# -- writing


def written(rows: list[bytes]) -> bytes:
    sink = io.BytesIO()
    write_have(rows, sink)
    return sink.getvalue()


def test_it_is_written_on_one_line_as_given() -> None:
    """Compact, in the order of the rows, and a newline at the end."""
    rows = [
        render_rows(b"files", (b"b", b"a"), bytes.fromhex(ONE + OTHER)),
        render_rows("memory/é".encode(), (b'"\n',), bytes.fromhex(ONE)),
    ]
    assert written(rows).decode() == (
        f'{{"files/b":"{ONE}","files/a":"{OTHER}","memory/é/\\"\\n":"{ONE}"}}\n'
    )


def test_a_folder_without_files_leaves_no_comma() -> None:
    """Wherever its empty row stands."""
    row = render_rows(b"files", (b"a",), bytes.fromhex(ONE))
    assert written([b"", b""]) == b"{}\n"
    assert written([b"", row, b"", row, b""]) == b"{" + row + b"," + row + b"}\n"


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None)
@given(
    st.dictionaries(
        NAMES.filter(lambda name: name not in (".", "..")), st.binary(min_size=32, max_size=32)
    )
)
def test_what_is_written_reads_back(files: dict[str, bytes]) -> None:
    """Any names, by this reader and by any other of JSON."""
    folder = 'files/"\\é'
    rows = render_rows(folder.encode(), [name.encode() for name in files], b"".join(files.values()))
    text = written([rows])
    assert parsed(text) == {f"{folder}/{name}".encode(): files[name] for name in files}
    assert json.loads(text) == {f"{folder}/{name}": files[name].hex() for name in files}


def test_it_is_written_in_large_pieces() -> None:
    """Neither a call for each row, nor all of it at once."""

    class Sink(io.BytesIO):
        calls = 0
        largest = 0

        def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
            self.calls += 1
            self.largest = max(self.largest, len(data))
            return super().write(data)

    sink = Sink()
    row = render_rows(b"files", [b"%04d" % number for number in range(10)], bytes(320))
    write_have((row for _ in range(2000)), sink)
    assert 3 < sink.calls < 20
    assert sink.largest < 1 << 19
