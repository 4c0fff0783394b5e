"""Where what a package holds lies in a Home (Move Stream, section 1; Agent package, section 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentmove_tools.home.layout import CONVERSATIONS, INSTRUCTIONS, NOTES, PACKAGE
from agentmove_tools.package.layout import CONFIG, CURATED, SECRETS, SOUL, Layout

if TYPE_CHECKING:
    from agentmove_tools.package.layout import Part

AGENT_SECRETS: Final = SECRETS + "agent.json"
KEPT_CONFIG: Final = PACKAGE + b"/" + CONFIG.encode()

# What has no other place in a Home than harness/package/.
_KEPT: Final[frozenset[Part]] = frozenset(
    ("config", "user", "heartbeat", "memory", "secrets", "access", "usage", "browser-state")
)


def stream_path(path: str) -> bytes:
    """The path in a stream of a package's file, but for a session.

    What no collection has a place for lies under ``harness/package/``.
    """
    if path == SOUL:
        return INSTRUCTIONS
    if path == CURATED:
        return NOTES
    if path.startswith("skills/"):
        return b"harness/" + path.encode()
    return PACKAGE + b"/" + path.encode()


def kept_part(path: str) -> Part | None:
    """The part of a package that a file below ``harness/package/`` is; None if it is none there.

    What a collection brings is none.
    """
    part = Layout(()).place(path).part
    return part if path != CURATED and part in _KEPT else None


def thread_path(thread: str, name: bytes) -> bytes:
    """The path in a stream of one of the two files of a thread."""
    return b"%b/%b/%b" % (CONVERSATIONS, thread.encode(), name)
