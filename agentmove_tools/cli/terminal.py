"""What is shown on a terminal: tables, and the question whether there is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from agentmove_tools.cli.errors import shown
from agentmove_tools.cli.pipes import write_text

_ROWS_AT_ONCE = 200


def is_terminal(descriptor: int) -> bool:
    """Say whether the descriptor is a terminal; a closed one is none."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output, control characters escaped."""
    write_text("".join(f"{shown(line)}\n" for line in lines))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on standard output, which is a terminal.

    It is printed in parts, so that a long one neither waits nor fills memory; the first part sets
    the columns' widths. Control characters are escaped, and nothing is read as markup. Colour
    follows ``NO_COLOR`` and ``TERM``.
    """
    from rich.console import Console  # noqa: PLC0415  (60 ms, and only for a terminal)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(markup=False, highlight=False, emoji=False)
    widths = [len(column) for column in columns]
    header = True
    for part in _parts(rows):
        for row in part if header else []:
            widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
        table = Table(box=None, pad_edge=False, show_header=header)
        for column, width in zip(columns[:-1], widths, strict=False):
            table.add_column(column, min_width=width, overflow="fold")
        table.add_column(columns[-1], overflow="fold")
        for row in part:
            table.add_row(*map(Text, row))
        console.print(table)
        header = False


def _parts(rows: Iterable[Sequence[str]]) -> Iterator[list[list[str]]]:
    """The rows in parts, escaped; at least one part. What came before an error comes out too."""
    left = iter(rows)
    more = True
    while more:
        part: list[list[str]] = []
        error = None
        try:
            for row in islice(left, _ROWS_AT_ONCE):
                part.append([shown(cell) for cell in row])  # noqa: PERF401 (it may raise midway)
        except Exception as raised:  # noqa: BLE001 (whatever it is, it is raised again)
            error = raised
        yield part
        if error is not None:
            raise error
        more = len(part) == _ROWS_AT_ONCE
