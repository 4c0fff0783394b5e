"""Rows for ``COPY ... (FORMAT binary)``: what PostgreSQL reads fastest, and without escapes.

A row is written as it is made, so that the largest of contents is never held twice.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from psycopg import Connection
    from psycopg.rows import TupleRow

# A text or bytes; a bool; an integer of 64 bits; NULL; a content in pieces with its size in bytes.
Cell: TypeAlias = "str | bytes | bool | int | tuple[int, Iterable[bytes]] | None"

_START: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_TRUE: Final = b"\0\0\0\1\1"
_FALSE: Final = b"\0\0\0\1\0"
_BATCH: Final = 1 << 17  # bytes that are handed on at once
_FETCHED: Final = 8 << 20  # bytes that are fetched at once, about, at most
_MOST_ROWS: Final = 2000

_length = struct.Struct("!i").pack
_integer = struct.Struct("!iq").pack
_columns = struct.Struct("!h").pack


def rows_at_once(largest: int) -> int:
    """How many rows a cursor fetches at once whose contents have so many bytes at most."""
    return max(1, min(_MOST_ROWS, _FETCHED // max(largest, 1)))


def copy_rows(
    connection: Connection[TupleRow], table: str, rows: Iterable[tuple[Cell, ...]]
) -> None:
    """Fill a temporary table, whose name is one of ours. Raises what ``rows`` and psycopg raise."""
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)".encode()) as copy,
    ):
        for piece in encoded(rows):
            copy.write(piece)


def encoded(rows: Iterable[tuple[Cell, ...]]) -> Iterator[bytes]:
    """The rows as COPY reads them, in pieces."""
    held: list[bytes] = [_START]
    size = 0
    for row in rows:
        held.append(_columns(len(row)))
        for cell in row:
            if type(cell) is str:
                content = cell.encode()
                held += (_length(len(content)), content)
                size += len(content)
            elif type(cell) is bytes:
                held += (_length(len(cell)), cell)
                size += len(cell)
            elif type(cell) is int:
                held.append(_integer(8, cell))
            elif type(cell) is tuple:
                held.append(_length(cell[0]))
                for piece in cell[1]:
                    held.append(piece)
                    size += len(piece)
                    if size > _BATCH:
                        yield b"".join(held)
                        held.clear()
                        size = 0
            elif cell is None:
                held.append(_NULL)
            elif type(cell) is bool:
                held.append(_TRUE if cell else _FALSE)
            else:
                raise TypeError(type(cell))
        if size > _BATCH or len(held) > _BATCH >> 4:
            yield b"".join(held)
            held.clear()
            size = 0
    held.append(_END)
    yield b"".join(held)
