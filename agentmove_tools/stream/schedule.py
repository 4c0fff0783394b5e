"""What a scheduled job and ``day.json`` must look like in a stream (Move Stream, sections 6, 7)."""

from __future__ import annotations

from typing import Final

from agentmove_tools.canonical import canonical
from agentmove_tools.json_values import parse
from agentmove_tools.refusals import Refusal

MAX_SCHEDULE_FILE: Final = 16 << 20  # bytes; it is held in memory to be looked into


def check_schedule_size(path: bytes, size: int) -> None:
    """Refuse (schedule-json) a file that is too long to be held in memory, by its ``size``."""
    if size > MAX_SCHEDULE_FILE:
        raise Refusal("schedule-json", "it is longer than 16 MiB", path=path)


def check_schedule_file(path: bytes, content: bytes) -> None:
    """Refuse (schedule-json) what is malformed, in another form, or a job with another ID.

    ``path`` lies under ``schedule``.
    """
    try:
        value = parse(content)
        form = canonical(content)
    except Refusal as refusal:
        raise Refusal("schedule-json", refusal.why, path=path) from None
    if form != content:
        raise Refusal("schedule-json", "it is not in the one form: lnk-canon makes it", path=path)
    name = path.rpartition(b"/")[2]
    if path == b"schedule/day.json":
        if not isinstance(value, list) or len(value) != 2:
            raise Refusal("schedule-json", "it is not the pair [day, sent]", path=path)
    elif not isinstance(value, dict):
        raise Refusal("schedule-json", "a job is an object", path=path)
    elif value.get("id") != name.removesuffix(b".json").decode():
        raise Refusal("schedule-json", "its id is not its file's name", path=path)
