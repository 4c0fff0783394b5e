"""The rows of the way between Move Stream and package whose peak memory is measured.

Each stream is read from a file by ``agentfy-pack``, and the package that comes of it by
``agentfy-unpack``, which writes a stream again; or it is refused. What a package has no place for
is passed over, and takes no more than what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.homes import GIB, MIB, Data
from tests.benchmarks.measure import peak_memory, tool_command
from tests.benchmarks.memory import MemoryRow
from tests.benchmarks.package_memory import PACKAGE_CASES
from tests.benchmarks.packages import (
    SHAPES,
    dense,
    in_a_child,
    long_text,
    one_event,
    smallest_events,
    talk,
)
from tests.benchmarks.streams import Contents, write_stream, zeros

_TAKEN: Final = 300 * MIB  # what a stream may need whose package is as large as one may be
_REFUSED: Final = 128 * MIB  # and one that is refused, or whose content is passed over
_UNPACKED: Final = 128 * MIB
_JSON: Final = 10 * MIB
_ENTRIES: Final = 20_000
_PATHS: Final = 200_000
_EVENTS: Final = 100_000
_ROUND: Final = 128  # what stands around a value
_THREAD: Final = "harness/conversations/web:user-1/events.jsonl"
_BAD: Final = b'{"id":"last","type":"none","ts":0,"data":{}}\n'
_CONFIG_START: Final = b'{"id":"agent-1","threads":{"web:user-1":{"tools":["read"]}},"d":'


class Case(NamedTuple):
    """A stream. ``refusal`` is the code that it is refused with, "" when it is taken."""

    label: str
    files: Callable[[Data], Contents]
    refusal: str = ""
    options: tuple[str, ...] = ()
    agent: str = "agent-1"


def _row(name: str, most: int, cases: Iterable[Case]) -> MemoryRow:
    def measure(data: Data) -> Iterator[tuple[str, int]]:
        for case in cases:
            yield from _weighed(data, name, case)

    return MemoryRow(name, most, measure, huge=True)


def _weighed(data: Data, name: str, case: Case) -> Iterator[tuple[str, int]]:
    stream, package = (data.memory / f"{name}.{kind}" for kind in ("lnk", "zip"))
    in_a_child(partial(_write, data, case, stream))
    command = [*tool_command("agentfy-pack"), *case.options]
    peak = peak_memory(command, source=stream, output=package, refusal=case.refusal)
    yield f"agentfy-pack, {case.label}", peak
    stream.unlink()
    if not case.refusal:
        yield f"agentfy-unpack, {case.label}", _unpacked(package)
    package.unlink()


def _write(data: Data, case: Case, path: Path) -> None:
    files: Contents = {"harness/instructions.md": lambda: (b"# Bench\n",)}
    write_stream(path, files | case.files(data), agent=case.agent)


def _unpacked(package: Path, refusal: str = "") -> int:
    return peak_memory(tool_command("agentfy-unpack"), source=package, refusal=refusal)


def _bad_packages(data: Data) -> Iterator[tuple[str, int]]:
    for row, labels in _BAD_PACKAGES.items():
        for case in PACKAGE_CASES[row]:
            if case.label in labels:
                package = data.memory / "bad.zip"
                in_a_child(partial(case.write, data, package))
                yield f"agentfy-unpack, {case.label}", _unpacked(package, case.refusal)
                package.unlink()


_BAD_PACKAGES: Final = {
    "package-events-bad": ("the last",),
    "package-text-bad": ("NUL",),
    "package-event-bad": ("keys, NUL", "keys, bad event"),
    "package-config-bad": ("keys, NUL",),
    "package-entries-bad": ("two that meet", "one too many"),
}


# -- what is taken


def _talk(data: Data, last: bytes = b"") -> Contents:
    def events(path: str) -> Iterable[bytes]:
        return chain(talk(count, 8)[path], (last,) if last else ())

    count = data.scaled(_EVENTS)
    return {
        f"harness/conversations/{Path(path).stem}/events.jsonl": partial(events, path)
        for path in talk(0, 8)
        if path.endswith(".jsonl")
    }


def _text(data: Data, end: bytes = b"") -> Contents:
    size = data.scaled(_UNPACKED) - 1024
    return {"harness/instructions.md": lambda: chain(long_text(size), (end,))}


def _entries(data: Data, count: int = _ENTRIES) -> Contents:
    # as long as they may be in a package, and such that each character takes four bytes
    above = f"harness/package/memory/😀{'f' * 240}/"
    names = (f"{above}{number:05}{'n' * 235}😀.md" for number in range(count))
    return dict.fromkeys(names, lambda: (b"x",))


def _all_entries(data: Data) -> Contents:
    return _entries(data, max(3, data.scaled(_ENTRIES)) - 2)


def _line(shape: str) -> Callable[[Data], Contents]:
    def files(data: Data) -> Contents:
        size = data.scaled(_JSON)
        if shape == "powers":  # four times as long in the one form, which has the same limit
            size = size * 5 // 19
        return {_THREAD: lambda: one_event(dense(SHAPES[shape], size - _ROUND))}

    return files


def _config(shape: str, end: str = "") -> Callable[[Data], Contents]:
    def files(data: Data) -> Contents:
        size = data.scaled(_JSON) - _ROUND
        return {
            "harness/package/agent.config.json": lambda: chain(
                (_CONFIG_START,), dense(SHAPES[shape], size, end), (b"}\n",)
            )
        }

    return files


# -- what is passed over


def _large_file(data: Data) -> Contents:
    return {"files/large": partial(zeros, data.scaled(GIB))}


def _paths(data: Data) -> Contents:
    names = (
        f"files/{number // 1000:05}{'f' * 60}/{number:07}{'n' * 60}"
        for number in range(data.scaled(_PATHS))
    )
    return dict.fromkeys(names, tuple)


# -- what is refused


def _large_thread(data: Data) -> Contents:
    return {_THREAD: partial(zeros, max(data.scaled(GIB), _UNPACKED + 1))}


def _million(data: Data) -> Contents:
    return {_THREAD: lambda: smallest_events(1_000_001, 1_000_001)}


def _full(data: Data) -> Contents:
    """As much as a package may hold, and one more byte than that at the end."""
    half = _UNPACKED // 2
    return {f"harness/package/memory/{number}.md": partial(zeros, half) for number in range(2)}


BRIDGE_MEMORY_ROWS: Final = (
    _row(
        "bridge-taken",
        _TAKEN,
        [
            Case("100 000 events", _talk),
            Case("128 MiB", _text),
            Case("20 000", _all_entries),
            Case("a line, keys", _line("keys")),
            Case("a line, lists and an emoji", _line("lists and an emoji")),
            Case("a line, powers", _line("powers")),
        ],
    ),
    _row(
        "bridge-config",
        _TAKEN,
        [
            case
            for shape in SHAPES
            if shape != "powers"  # in the one form it is over the limit
            for case in (
                Case(shape, _config(shape)),
                Case(f"{shape}, another ID", _config(shape), agent="agent-2"),
            )
        ],
    ),
    _row(
        "bridge-left-out",
        _REFUSED,
        [
            Case("a GiB in files", _large_file),
            Case("200 000 paths", _paths),
        ],
    ),
    _row(
        "bridge-bad",
        _REFUSED,
        [
            Case("the last of 100 000", partial(_talk, last=_BAD), "event-type"),
            Case("a GiB in a conversation", _large_thread, "package-unpacked-size"),
            Case("a million events and one", _million, "package-entries"),
            Case("20 000 files and one", partial(_entries, count=_ENTRIES + 1), "package-entries"),
            Case("200 000 paths, strict", _paths, "bridge-loss", ("--strict",)),
            Case("config, NUL", _config("keys", "NUL"), "field-nul", agent="agent-2"),
        ],
    ),
    # what is found at the end only is held until then, and that is all
    _row(
        "bridge-full-bad",
        _TAKEN,
        [
            Case("128 MiB, NUL", partial(_text, end=b"\0"), "field-nul"),
            Case("128 MiB and more", _full, "package-unpacked-size"),
        ],
    ),
    MemoryRow("bridge-unpack-bad", _REFUSED, _bad_packages, huge=True),
)
