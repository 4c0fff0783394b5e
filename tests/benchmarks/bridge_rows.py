"""The rows of the way between Move Stream and package whose time is measured.

The agent is that of the rows with a database: 100 000 events in eight conversations.
"""

from __future__ import annotations

import shlex
import sys
from typing import Final

from tests.benchmarks.homes import Data, quoted
from tests.benchmarks.measure import Work, tool
from tests.benchmarks.rows import EXTRACT, READ_SESSIONS, Pair, Row


def _pack(data: Data) -> Pair:
    given, place = quoted(data.talk_stream), data.memory / "bridged"
    theirs = f'mkdir "$NEW/tree" && {EXTRACT} -C "$NEW/tree" < {given} && cd "$NEW/tree"'
    return (
        Work(f'{tool("agentfy-pack")} < {given} > "$NEW/agent.zip"', place),
        Work(f'{theirs} && zip -q -r "$NEW/agent.zip" .', place),
    )


def _unpack(data: Data) -> Pair:
    given, place = quoted(data.packed_talk()), data.memory / "bridged-back"
    python = shlex.quote(sys.executable)
    return (
        Work(f'{tool("agentfy-unpack")} < {given} > "$NEW/agent.lnk"', place),
        Work(f"{python} -I -S -c {shlex.quote(READ_SESSIONS)} {given}", place),
    )


BRIDGE_ROWS: Final = (
    Row("bridge-pack", "tar -x && zip -q -r", 3.5, _pack, ("tar", "zip")),
    Row("bridge-unpack", "zipfile, json.loads", 3.5, _unpack),
)
