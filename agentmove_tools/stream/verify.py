"""Checking a Move Stream while it passes through (Move Stream, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.tar_reader import MoveReader

if TYPE_CHECKING:
    from agentmove_tools.streams import ByteSink, ByteSource


def verify(
    source: ByteSource,
    sink: ByteSink,
    *,
    any_links: bool = False,
    max_bytes: int | None = None,
    max_entries: int | None = None,
) -> None:
    """Pass a stream's bytes from ``source`` to ``sink``, checked.

    The end passes only when all is good, so what is refused reaches a later stage without it.
    Raises ``Refusal``, and what ``source`` and ``sink`` raise.
    """
    reader = MoveReader(
        source,
        any_links=any_links,
        max_bytes=max_bytes,
        max_entries=max_entries,
        passthrough=sink,
    )
    try:
        for _ in reader:
            pass
    except Refusal:
        # What came whole before it is good: a receiver keeps it for the next try.
        reader.pass_accepted()
        raise
