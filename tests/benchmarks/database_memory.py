"""The rows of a database whose peak memory is measured: imports and exports of the worst packages.

Each package goes into a database with the schema and a team, a second time into the same, and out
of it; or it is refused. It is the tool's own process that is measured, not the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from tests.benchmarks.homes import MIB, Data
from tests.benchmarks.measure import peak_memory, tool_command
from tests.benchmarks.memory import MemoryRow
from tests.benchmarks.package_memory import PACKAGE_CASES, Case, package_of
from tests.benchmarks.packages import SESSION, Files, in_a_child, smallest_events

_MOST: Final = 300 * MIB
_NAME: Final = "weighed"  # of the database
_EVENTS: Final = 500_000
_LAST: Final = b'{"id":"last","ts":0,"data":{},"type":"%s"}\n'
# Nothing says any more that the events are those of a package: an export checks each.
_FORGET: Final = "UPDATE agentfy.chat SET digest = NULL, digested = NULL"
_SPOIL: Final = """
UPDATE agentfy.message SET event = '{'
WHERE id = (SELECT id FROM agentfy.message ORDER BY place DESC LIMIT 1)
"""
_SWELL: Final = "UPDATE agentfy.agent SET soul = repeat('a', 129 << 20)"


def _row(
    name: str,
    cases: tuple[Case, ...],
    more: Callable[[Data], Iterator[tuple[str, int]]] | None = None,
) -> MemoryRow:
    def measure(data: Data) -> Iterator[tuple[str, int]]:
        for number, case in enumerate(cases):
            if number == 0 or not case.refusal:  # one that is refused leaves it as it is
                data.databases.fresh(_NAME, data.databases.team)
            package = data.memory / f"{name}.zip"
            in_a_child(partial(case.write, data, package))
            yield from _of_package(data, case, package)
            package.unlink()
        if more is not None:
            yield from more(data)

    return MemoryRow(name, _MOST, measure, huge=True)


def _of_package(data: Data, case: Case, package: Path) -> Iterator[tuple[str, int]]:
    yield f"agentfy-import, {case.label}", _import(data, package, case.refusal)
    if not case.refusal:
        yield f"agentfy-import, again, {case.label}", _import(data, package)
        yield f"agentfy-export, {case.label}", _export(data)


def _import(data: Data, package: Path, refusal: str = "") -> int:
    to = ["--db", data.databases.address(_NAME), "--team", "bench"]
    return peak_memory([*tool_command("agentfy-import"), *to], source=package, refusal=refusal)


def _export(data: Data, refusal: str = "") -> int:
    out_of = ["--db", data.databases.address(_NAME), data.databases.agent_of(_NAME)]
    return peak_memory([*tool_command("agentfy-export"), *out_of], refusal=refusal)


# -- many events


def _many(last: bytes) -> Callable[[Data], Files]:
    def files(data: Data) -> Files:
        count = data.scaled(_EVENTS)
        return {SESSION: chain(smallest_events(count - 1, count), (_LAST % last,))}

    return files


def _talk(data: Data) -> Iterator[tuple[str, int]]:
    """The package that is timed; then one event more in it, and every event checked."""
    data.databases.fresh(_NAME, data.databases.team)
    yield from _of_package(data, Case("100 000", lambda *_: None), data.packed_talk())
    inserted = data.packed_talk("inserted", 0.5)
    yield "agentfy-import, one more in the middle", _import(data, inserted)
    data.databases.ask(_NAME, _FORGET)
    yield "agentfy-import, nothing known", _import(data, inserted)
    data.databases.ask(_NAME, _FORGET)
    yield "agentfy-export, nothing known", _export(data)


def _refused_by_database(data: Data) -> Iterator[tuple[str, int]]:
    """What only the rows that are there make wrong."""
    package = data.memory / "other.zip"
    for last in (b"user", b"summary"):
        in_a_child(partial(package_of(_many(last)), data, package))
        if last == b"user":
            data.databases.fresh(_NAME, data.databases.team)
            _import(data, package)
    yield "agentfy-import, another last event", _import(data, package, "event-duplicate")
    data.databases.ask(_NAME, _SPOIL)
    yield "agentfy-export, bad last event", _export(data, "field-json")
    data.databases.ask(_NAME, _SWELL)
    yield "agentfy-export, too much", _export(data, "package-unpacked-size")


def _of(row: str, *labels: str, named: str = "") -> tuple[Case, ...]:
    """The packages of a row that are measured without a database, or some; ``named`` anew."""
    return tuple(
        case._replace(label=f"{named}, {case.label}" if named else case.label)
        for case in PACKAGE_CASES[row]
        if not labels or case.label in labels
    )


DATABASE_MEMORY_ROWS: Final = (
    _row("database-talk", (), _talk),
    _row("database-events", (Case("500 000", package_of(_many(b"user"))),)),
    _row("database-text", _of("package-text")),
    # of all shapes the one that takes most, and the one that is longer in the one form
    _row("database-line", (*_of("package-event", "keys"), *_of("package-powers"))),
    _row("database-entries", _of("package-entries")),
    _row(
        "database-refused",
        (
            Case("the last of 500 000", package_of(_many(b"none")), "event-type"),
            *_of("package-text-bad", "NUL", named="128 MiB"),
            *_of("package-event-bad", "keys, NUL", "keys, bad event"),
            *_of("package-entries-bad", "NUL", "one too many", named="entries"),
        ),
        _refused_by_database,
    ),
)
