"""The rows whose peak memory is measured: that of the tool's own process, as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.homes import GIB, MIB, Data, add_files, add_large, make_home
from tests.benchmarks.measure import peak_memory, tool, tool_command

_STREAM: Final = 64 * MIB  # what a filter may hold, however long the stream is
_ENTRIES: Final = 400 * MIB  # and with a million entries
_MILLION: Final = 1_000_000


@dataclass(frozen=True)
class MemoryRow:
    """Several tools given the same data; ``most`` is in bytes, for each.

    ``run`` gives the tools' names and peaks as they are measured. A ``huge`` row takes minutes.
    """

    name: str
    most: int
    run: Callable[[Data], Iterator[tuple[str, int]]]
    huge: bool


def _bytes(name: str, size: int, files: int) -> Callable[[Data], Iterator[tuple[str, int]]]:
    def measure(data: Data) -> Iterator[tuple[str, int]]:
        total = data.scaled(size)
        zeros = f"head -c {total} /dev/zero"
        seal = [*tool_command("lnk-seal"), "-r", data.recipient]
        unseal = [*tool_command("lnk-unseal"), "-i", str(data.identity)]
        if files == 1:
            yield "lnk-seal", peak_memory(seal, feed=zeros)
            sealed = f"{zeros} | {tool('lnk-seal')} -r {data.recipient}"
            yield "lnk-unseal", peak_memory(unseal, feed=sealed)
        home = make_home(data.memory / name)
        if files == 1:
            add_large(home, total, None)
        else:
            add_files(home, data.scaled(files), size // files, 1000)
        # The new Home is on the disk: zeros that were written out take room.
        yield from _of_home(data, home, data.disk / name)

    return measure


def _entries(name: str, per_folder: int) -> Callable[[Data], Iterator[tuple[str, int]]]:
    def measure(data: Data) -> Iterator[tuple[str, int]]:
        home = make_home(data.memory / name)
        add_files(home, data.scaled(_MILLION), 0, per_folder)
        have = [*tool_command("lnk-have"), str(home)]
        yield "lnk-have", peak_memory(have)
        yield "lnk-have, again", peak_memory(have)
        yield from _of_home(data, home, data.memory / f"{name}-applied")

    return measure


def _of_home(data: Data, home: Path, applied: Path) -> Iterator[tuple[str, int]]:
    """All that a Home's stream passes through; a switch, since that does most."""
    manifest = data.memory / f"{home.name}.json"
    make = [*tool_command("lnk-manifest"), str(home), "--phase", "switch"]
    yield "lnk-manifest", peak_memory(make, output=manifest)
    files = {"HERE": home, "IN": manifest}
    create = [*tool_command("lnk-tar-create"), str(home)]
    yield "lnk-tar-create", peak_memory(create, feed='cat "$IN"', variables=files)
    feed = f'{tool("lnk-tar-create")} "$HERE" < "$IN"'
    for name in ("lnk-tar-verify", "lnk-tar-list", "lnk-manifest"):
        shown = "lnk-manifest, of it" if name == "lnk-manifest" else name
        yield shown, peak_memory(tool_command(name), feed=feed, variables=files)
    applied.mkdir(parents=True)
    apply = [*tool_command("lnk-tar-apply"), str(applied / "home")]
    yield "lnk-tar-apply", peak_memory(apply, feed=feed, variables=files)


def _values(data: Data) -> Iterator[tuple[str, int]]:
    lines = f"""yes '{{"b": [1, 2.50], "a": "text"}}' | head -c {data.scaled(GIB) // 32 * 32}"""
    yield "lnk-canon", peak_memory(tool_command("lnk-canon"), feed=lines)


MEMORY_ROWS: Final = (
    MemoryRow("memory-large", _STREAM, _bytes("memory-large", GIB, 1), huge=False),
    MemoryRow("memory-many", _STREAM, _bytes("memory-many", GIB, 16_384), huge=False),
    MemoryRow("memory-huge", _STREAM, _bytes("memory-huge", 10 * GIB, 1), huge=True),
    MemoryRow("memory-huge-many", _STREAM, _bytes("memory-huge-many", 10 * GIB, 16_384), huge=True),
    MemoryRow("memory-values", _STREAM, _values, huge=True),
    MemoryRow("memory-entries", _ENTRIES, _entries("memory-entries", 1000), huge=True),
    MemoryRow("memory-folder", _ENTRIES, _entries("memory-folder", _MILLION), huge=True),
)
