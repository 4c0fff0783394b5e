"""The rows of packages whose peak memory is measured: the worst that are taken, and refused.

Each package is read from a file by ``agentfy-verify``, and put into a new folder by
``agentfy-unpack``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.homes import MIB, Data
from tests.benchmarks.measure import peak_memory, tool_command
from tests.benchmarks.memory import MemoryRow
from tests.benchmarks.packages import (
    BAD_ENDS,
    CONFIG,
    SESSION,
    SHAPES,
    USERS,
    Files,
    Shape,
    dense,
    in_a_child,
    long_text,
    nested,
    one_event,
    repeated,
    smallest_events,
    write_package,
)

_TAKEN: Final = 300 * MIB  # what a package that is taken may need
_REFUSED: Final = 128 * MIB  # and one that is refused
_UPLOAD: Final = 25 * MIB
_FULL: Final = 24 * MIB  # what is uploaded beside a large JSON text
_UNPACKED: Final = 128 * MIB
_JSON: Final = 10 * MIB  # of a file, or of an event's line
_EVENTS: Final = 1_000_000
_ENTRIES: Final = 20_000
_ROUND: Final = 128  # what stands around a value
_ACCESS: Final = "data/access.json"
_BAD_EVENT: Final = b'{"id":"2","type":"none","ts":0,"data":{}}\n'


class Case(NamedTuple):
    """A package. ``refusal`` is the code that it is refused with, "" when it is taken."""

    label: str
    write: Callable[[Data, Path], None]
    refusal: str = ""


class _Cases(NamedTuple):
    """The packages of a row."""

    name: str
    most: int
    cases: tuple[Case, ...]


def _row(name: str, most: int, cases: Iterable[Case]) -> _Cases:
    return _Cases(name, most, tuple(cases))


def _measured(row: _Cases) -> MemoryRow:
    name = row.name

    def measure(data: Data) -> Iterator[tuple[str, int]]:
        for number, case in enumerate(row.cases):
            package = data.memory / f"{name}-{number}.zip"
            in_a_child(partial(case.write, data, package))
            new = data.memory / f"{name}-{number}"
            for tool, *arguments in (("agentfy-verify",), ("agentfy-unpack", str(new))):
                command = [*tool_command(tool), *arguments]
                peak = peak_memory(command, source=package, refusal=case.refusal)
                yield f"{tool}, {case.label}", peak
            package.unlink()  # one file, so that the next run does not wait for it

    return MemoryRow(name, row.most, measure, huge=True)


def package_of(
    content: Callable[[Data], Files], *, full: int = 0, declared: dict[str, int] | None = None
) -> Callable[[Data, Path], None]:
    """How the package of the smallest agent with these files is written.

    ``full`` is what the archive is filled to; it is scaled, and so are ``declared`` sizes.
    """

    def write(data: Data, path: Path) -> None:
        files: Files = {"SOUL.md": (b"# Bench\n",), "agent.config.json": (CONFIG,)}
        sizes = {name: data.scaled(size) for name, size in (declared or {}).items()}
        fill_to = data.scaled(full) if full else 0
        write_package(path, files | content(data), fill_to=fill_to, declared=sizes)

    return write


# -- one large JSON text


def _event(value: Callable[[int], Iterable[bytes]], more: bytes = b"") -> Callable[[Data], Files]:
    return lambda data: {
        SESSION: chain(one_event(value(data.scaled(_JSON) - _ROUND)), (more,) if more else ())
    }


def _config(value: Callable[[int], Iterable[bytes]]) -> Callable[[Data], Files]:
    return lambda data: {
        "agent.config.json": chain(
            (b'{"id":"agent-1","d":',), value(data.scaled(_JSON) - _ROUND), (b"}",)
        )
    }


def _access(value: Callable[[int], Iterable[bytes]]) -> Callable[[Data], Files]:
    return lambda data: {_ACCESS: value(data.scaled(_JSON))}


def _with_end(shape: Shape, end: str) -> Callable[[int], Iterator[bytes]]:
    return lambda size: dense(shape, size, end)


def _json_rows(
    name: str,
    place: Callable[[Callable[[int], Iterable[bytes]]], Callable[[Data], Files]],
    shapes: dict[str, Shape],
    more: Iterable[Case] = (),
) -> Iterator[_Cases]:
    taken: list[Case] = []
    refused: list[Case] = []
    for label, shape in shapes.items():
        for end, (_, _, refusal) in BAD_ENDS.items():
            write = package_of(place(_with_end(shape, end)))
            shown = f"{label}, {end}" if end else label
            (refused if end else taken).append(Case(shown, write, refusal))
    yield _row(name, _TAKEN, taken)
    yield _row(f"{name}-bad", _REFUSED, [*refused, *more])


_EVENT_THEN_BAD: Final = [
    Case(
        f"{label}, bad event",
        package_of(_event(_with_end(shape, ""), _BAD_EVENT)),
        "event-type",
    )
    for label, shape in SHAPES.items()
]
# An event has to keep within the limit in the one form, in which these are four times as long.
_IN_AN_EVENT: Final = {label: shape for label, shape in SHAPES.items() if label != "powers"}


def _powers(data: Data) -> Files:
    return {SESSION: one_event(dense(SHAPES["powers"], data.scaled(_JSON) * 5 // 19 - _ROUND))}


_FULL_SHAPES: Final = ("lists", "lists and an emoji", "objects", "floats")

# -- many events


def _once(data: Data) -> Files:
    count = data.scaled(_EVENTS)
    return {SESSION: smallest_events(count, count)}


def _once_bad(data: Data) -> Files:
    count = data.scaled(_EVENTS)
    return {SESSION: chain(smallest_events(count - 1, count), (_BAD_EVENT,))}


def _twice(data: Data) -> Files:
    count = data.scaled(_EVENTS)
    return {SESSION: smallest_events(count, max(1, count // 2))}


def _twice_bad(data: Data) -> Files:
    count = data.scaled(_EVENTS)
    last = b'{"id":"0","ts":1,"data":{},"type":"user"}\n'  # another than the first
    return {SESSION: chain(smallest_events(count - 1, max(1, count // 2)), (last,))}


# -- the other limits


def _soul(end: bytes) -> Callable[[Data], Files]:
    return lambda data: {"SOUL.md": chain(long_text(data.scaled(_UNPACKED) - 1024), (end,))}


def _entries(data: Data, last: bytes = b"x") -> Files:
    # As long as the upload and a disk allow, and such that each character takes four bytes.
    above = f"memory/😀{'f' * 240}/"
    count = max(3, data.scaled(_ENTRIES)) - 2
    names = [f"{above}{number:05}{'n' * 235}😀.md" for number in range(count)]
    return {name: (last if name == names[-1] else b"x",) for name in names}


def _entries_bad(data: Data) -> Files:
    return _entries(data, b"\0")


def _entries_meet(data: Data) -> Files:
    files = _entries(data)
    last = list(files)[-1]
    del files[next(iter(files))]
    return {**files, last.replace("n😀", "N😀"): (b"x",)}


def _entries_over(data: Data) -> Files:
    return {f"memory/{number}.md": (b"x",) for number in range(_ENTRIES - 1)}


def _write_long(data: Data, path: Path) -> None:
    files: Files = {"SOUL.md": (b"# Bench\n",), "agent.config.json": (CONFIG,)}
    write_package(path, files, fill_to=_UPLOAD + 4096)


def _bomb(name: str) -> Callable[[Data], Files]:
    return lambda data: {name: repeated(b"a", data.scaled(4 * _UNPACKED))}


def _bomb_declared(data: Data) -> Files:
    return {"SOUL.md": repeated(b"a", _UNPACKED + 1)}


def _front_matter(data: Data) -> Files:
    deep = nested(b"[", b"]", 60 << 10)
    return {"skills/deep/SKILL.md": chain((b"---\nmetadata: ",), deep, (b"\n---\n",))}


_LISTS_DEEP: Final = partial(nested, b"[", b"]")
_OBJECTS_DEEP: Final = partial(nested, b'{"":', b"}")

_ALL: Final = (
    _row(
        "package-events",
        _TAKEN,
        [
            Case("a million", package_of(_once, full=_UPLOAD)),
            Case("half of them twice", package_of(_twice, full=_UPLOAD)),
        ],
    ),
    _row(
        "package-events-bad",
        _REFUSED,
        [
            Case("the last", package_of(_once_bad, full=_UPLOAD), "event-type"),
            Case("the last, twice", package_of(_twice_bad, full=_UPLOAD), "event-duplicate"),
        ],
    ),
    _row("package-text", _TAKEN, [Case("128 MiB", package_of(_soul(b"")))]),
    _row(
        "package-text-bad",
        _REFUSED,
        [
            Case("NUL", package_of(_soul(b"\0")), "field-nul"),
            Case("a cut character", package_of(_soul(b"\xc3")), "field-encoding"),
        ],
    ),
    *_json_rows("package-event", _event, _IN_AN_EVENT, _EVENT_THEN_BAD),
    _row("package-powers", _TAKEN, [Case("powers", package_of(_powers))]),
    *_json_rows("package-config", _config, SHAPES),
    *_json_rows("package-access", _access, {**SHAPES, "users": USERS}),
    _row(
        "package-full",
        _TAKEN,
        [
            Case(label, package_of(_event(_with_end(SHAPES[label], "")), full=_FULL))
            for label in _FULL_SHAPES
        ],
    ),
    _row(
        "package-full-bad",
        _REFUSED,
        [
            Case(
                f"{label}, {end}",
                package_of(_event(_with_end(SHAPES[label], end)), full=_FULL),
                code,
            )
            for label in _FULL_SHAPES
            for end, (_, _, code) in BAD_ENDS.items()
            if end
        ],
    ),
    _row("package-entries", _TAKEN, [Case("20 000", package_of(_entries))]),
    _row(
        "package-entries-bad",
        _REFUSED,
        [
            Case("NUL", package_of(_entries_bad), "field-nul"),
            Case("two that meet", package_of(_entries_meet), "package-duplicate"),
            Case("one too many", package_of(_entries_over), "package-entries"),
        ],
    ),
    _row(
        "package-long-bad",
        _REFUSED,
        [Case("over 25 MiB", _write_long, "package-upload-size")],
    ),
    _row(
        "package-bomb-bad",
        _REFUSED,
        [
            Case("declared", package_of(_bomb_declared), "package-unpacked-size"),
            Case(
                "a text, undeclared",
                package_of(_bomb("SOUL.md"), declared={"SOUL.md": 100 * MIB}),
                "package-damaged",
            ),
            Case(
                "JSON, undeclared",
                package_of(_bomb(_ACCESS), declared={_ACCESS: 9 * MIB}),
                "package-damaged",
            ),
        ],
    ),
    _row(
        "package-deep-bad",
        _REFUSED,
        [
            Case("an event, lists", package_of(_event(_LISTS_DEEP)), "field-json"),
            Case("an event, objects", package_of(_event(_OBJECTS_DEEP)), "field-json"),
            Case("the configuration", package_of(_config(_LISTS_DEEP)), "field-json"),
            Case("access", package_of(_access(_LISTS_DEEP)), "field-json"),
            Case("front matter", package_of(_front_matter), "skill-front-matter"),
        ],
    ),
)

PACKAGE_CASES: Final = {row.name: row.cases for row in _ALL}
PACKAGE_MEMORY_ROWS: Final = tuple(_measured(row) for row in _ALL)
