"""``python -m tests.benchmarks [ROW ...]``: measure, and print what came of it.

The exit status is 1 when a row is over its limit, or could not be run.
"""

from __future__ import annotations

import argparse
import compileall
import fnmatch
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from tests.benchmarks.bridge_memory import BRIDGE_MEMORY_ROWS
from tests.benchmarks.bridge_rows import BRIDGE_ROWS
from tests.benchmarks.database_memory import DATABASE_MEMORY_ROWS
from tests.benchmarks.database_rows import DATABASE_ROWS
from tests.benchmarks.homes import MIB, Data
from tests.benchmarks.measure import ROOT, BrokenRunError, take_turns
from tests.benchmarks.memory import MEMORY_ROWS, MemoryRow
from tests.benchmarks.package_memory import PACKAGE_MEMORY_ROWS
from tests.benchmarks.rows import ROWS, Row

_IN_MEMORY: Final = Path("/dev/shm")
_ALL_ROWS: Final = (*ROWS, *BRIDGE_ROWS, *DATABASE_ROWS)
_ALL_MEMORY_ROWS: Final = (
    *MEMORY_ROWS,
    *PACKAGE_MEMORY_ROWS,
    *BRIDGE_MEMORY_ROWS,
    *DATABASE_MEMORY_ROWS,
)
_NAMES: Final = [*(row.name for row in _ALL_ROWS), *(row.name for row in _ALL_MEMORY_ROWS)]
_ON_DISK: Final = Path("/var/tmp")  # a disk's on most machines, where /tmp may be in memory
_LINE: Final = "{:<20}{:<45}{:>10}{:>10}{:>8}{:>14}{:>9}  {}"


def main(arguments: list[str] | None = None) -> int:
    """Run the rows that are asked for; give the exit status."""
    asked = _parser().parse_args(arguments)
    times, memories = _chosen(asked)
    compileall.compile_dir(ROOT / "agentmove_tools", quiet=1)
    good = True
    with ExitStack() as opened:
        memory, disk = opened.enter_context(_folders(asked.memory_folder, asked.disk_folder))
        data = opened.enter_context(closing(Data(memory, disk, asked.scale)))
        if times:
            print(f"medians of {asked.repeat} runs in turn, after one to warm up")
            header = ("row", "against", "ours", "theirs", "ratio", "min-max", "at most", "")
            print(_LINE.format(*header))
        for row in times:
            good &= _time(row, data, asked.repeat)
        if memories:
            print("peak memory, MiB")
            print(_LINE.format("row", "tool", "", "", "peak", "", "at most", ""))
        for memory_row in memories:
            good &= _weigh(memory_row, data)
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure the tools against their like.",
        epilog="All that measures agent packages: python -m tests.benchmarks 'package-*'",
    )
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help=f"only these, or those that fit a pattern, of: {', '.join(_NAMES)}",
    )
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="pairs of runs [5]")
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="F", help="multiply all sizes and counts"
    )
    parser.add_argument("--memory-only", action="store_true", help="no times")
    parser.add_argument(
        "--huge",
        action="store_true",
        help="10 GiB, a million entries and the worst packages too: takes many minutes",
    )
    parser.add_argument(
        "--memory-folder",
        type=Path,
        default=_IN_MEMORY if _IN_MEMORY.is_dir() else None,
        metavar="FOLDER",
        help="a folder in memory [/dev/shm]",
    )
    parser.add_argument(
        "--disk-folder",
        type=Path,
        default=_ON_DISK,
        metavar="FOLDER",
        help="a folder on a disk [/var/tmp]",
    )
    return parser


def _chosen(asked: argparse.Namespace) -> tuple[list[Row], list[MemoryRow]]:
    names: set[str] = set()
    for pattern in asked.rows:
        fitting = fnmatch.filter(_NAMES, pattern)
        if not fitting:
            _parser().error(f"no such row: {pattern}")
        names.update(fitting)
    if asked.repeat < 1:
        _parser().error("--repeat is at least 1")
    times = [row for row in _ALL_ROWS if not asked.memory_only and (not names or row.name in names)]
    memories = [
        row
        for row in _ALL_MEMORY_ROWS
        if (row.name in names if names else asked.huge or not row.huge)
    ]
    return times, memories


@contextmanager
def _folders(memory: Path | None, disk: Path) -> Iterator[tuple[Path, Path]]:
    """A folder in memory and one on the disk, which go with all that is in them at the end.

    Nothing is removed before: a disk that still frees a large tree is slow for a long time.
    """
    if memory is None:
        print("no /dev/shm: what should lie in memory lies on the disk")
    made = [
        Path(tempfile.mkdtemp(prefix="lnk-bench-", dir=place)) for place in (memory or disk, disk)
    ]
    try:
        yield made[0], made[1]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


def _time(row: Row, data: Data, repeat: int) -> bool:
    """Run one row of times and print it; say whether its limit holds."""
    lacking = [name for name in row.needs if shutil.which(name) is None]
    if lacking:
        print(f"{row.name:<20}not measured: {', '.join(lacking)} is not installed", flush=True)
        return True
    try:
        ours, theirs = row.make(data)
        times = take_turns(ours, theirs, repeat * row.times)
    except BrokenRunError as error:
        return _failed(row.name, error)
    good = round(times.ratio, 2) <= row.most  # as it is shown
    print(
        _LINE.format(
            row.name,
            row.against,
            f"{statistics.median(times.ours):.3f} s",
            f"{statistics.median(times.theirs):.3f} s",
            f"{times.ratio:.2f}",
            f"{min(times.ratios):.2f}-{max(times.ratios):.2f}",
            f"{row.most:.2f}",
            _verdict(good),
        ),
        flush=True,
    )
    return good


def _weigh(row: MemoryRow, data: Data) -> bool:
    """Run one row of memory and print a line for each tool; say whether its limit holds."""
    all_good = True
    try:
        for name, peak in row.run(data):
            good = peak <= row.most
            all_good &= good
            most = f"{row.most // MIB}"
            line = _LINE.format(
                row.name, name, "", "", f"{peak / MIB:.0f}", "", most, _verdict(good)
            )
            print(line, flush=True)
    except BrokenRunError as error:
        return _failed(row.name, error)
    return all_good


def _verdict(good: bool) -> str:
    return "holds" if good else "<- OVER"


def _failed(name: str, error: BrokenRunError) -> bool:
    print(f"{name:<20}<- FAILED: {error}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
