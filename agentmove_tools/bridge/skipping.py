"""Conversations without the events that a package cannot hold (Agent package, section 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentmove_tools.package.events import whole_event
from agentmove_tools.package.limits import MAX_JSON
from agentmove_tools.package.pairs import Pairs
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_BATCH: Final = 1 << 18  # bytes that are handed on at once
_OTHER: Final = "an event with its id and another content comes before it"
_TOO_LONG: Final = f"it is longer than {MAX_JSON >> 20} MiB"


def holdable_lines(
    pieces: Iterable[bytes], path: str, skip: Callable[[int, str], None]
) -> Iterator[bytes]:
    """The lines that a package can hold, with their ends, in pieces.

    ``skip`` is told the number of each of the others, and why it is left out. ``path`` is for
    that. Raises what ``pieces`` raises.
    """
    seen = Pairs()
    held: list[bytes] = []
    size = 0
    for number, line in enumerate(_lines(pieces), 1):
        try:
            if line is None:
                skip(number, _TOO_LONG)
                continue
            event, form = whole_event(line, path, number)
        except Refusal as refusal:
            skip(number, refusal.message)
            continue
        own = hash(form)
        if seen.keep(hash(event.id), own) not in (None, own):
            skip(number, _OTHER)
            continue
        held += (line, b"\n")
        size += len(line)
        if size > _BATCH:
            yield b"".join(held)
            held.clear()
            size = 0
    yield b"".join(held)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes | None]:
    """The lines, None for one over the limit, of which no more than that is held."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *rest = piece.split(b"\n")
        for line in rest:
            yield _joined(held, first, size)
            held, size, first = [], 0, line
        size += len(first)
        if size <= MAX_JSON:
            held.append(first)
    if size:
        yield _joined(held, b"", size)


def _joined(held: list[bytes], last: bytes, size: int) -> bytes | None:
    if size + len(last) > MAX_JSON:
        return None
    return b"".join((*held, last))
