"""What the tests of the receiver share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentmove_tools.home.receiver import Options
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import Phase
from tests.home.builder import (
    MOVE,
    snapshot,
    take,
    times,
)

AGENT = Agent("a1", "Ada")


def manifest(phase: Phase = "switch", **fields: object) -> Manifest:
    """A manifest of Ada's, as another sender may write it."""
    made = Manifest(phase=phase, move=MOVE, version="9", agent=AGENT, harness="claude")
    return replace(made, **fields)  # type: ignore[arg-type]


def state_of(home: Path) -> object:
    """All of a Home, its inodes and mtimes included; a hard link made and dropped is no change."""
    if not home.exists():
        return None
    return snapshot(home), {path: row[:2] for path, row in times(home).items()}


def refused(home: Path, stream: bytes, options: Options | None = None, *, code: str) -> Refusal:
    """Apply a stream that is refused with this code and leaves the Home as it was."""
    before = state_of(home)
    with pytest.raises(Refusal) as caught:
        take(home, stream, options)
    assert caught.value.code == code
    assert state_of(home) == before
    return caught.value
