"""What lies where in a Home (Move Stream, section 1), and its ``agent.json``."""

from __future__ import annotations

import json
import os
import stat
from typing import Final, Literal, TypeAlias, TypeGuard

from agentmove_tools.disk.folders import OPEN_FILE
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.manifest import Agent
from agentmove_tools.stream.paths import FILE, FOLDER

AGENT_FILE: Final = b"agent.json"
FILES: Final = b"files"
MEMORY: Final = b"memory"
NOTES: Final = b"memory/notes.md"
HARNESS: Final = b"harness"
INSTRUCTIONS: Final = b"harness/instructions.md"
SKILLS: Final = b"harness/skills"
CONVERSATIONS: Final = b"harness/conversations"
PACKAGE: Final = b"harness/package"
# Of what came with a package, what comes only where it is asked for.
ON_REQUEST: Final = (PACKAGE + b"/data/usage.json", PACKAGE + b"/browser-state")
CONNECTIONS: Final = b"connections"
SCHEDULE: Final = b"schedule"
PAUSED: Final = b"schedule/paused"
PLACES: Final = (b"ending", b"firing", b"waiting")
DAY: Final = b"day.json"
EVENTS: Final = b"events.jsonl"
THREAD: Final = b"thread.json"
WORKING_STATE: Final = b".lnk-move"  # where the parent folder cannot hold it

# What of harness/ is part of a move.
HARNESS_PARTS: Final = (b"conversations", b"instructions.md", b"package", b"skills")
# The folders that a move may put in place; a Home's other folders are its own.
MOVED: Final = (CONNECTIONS, FILES, HARNESS, MEMORY, SCHEDULE)

Part: TypeAlias = Literal[
    "files",
    "memory",
    "instructions",
    "skills",
    "notes",
    "jobs",
    "conversations",
    "connections",
    "package",
    "other",
]


def part_of(path: bytes) -> Part:
    """The part of a Home that a path of a stream belongs to; ``other`` is no part of a move."""
    top, _, rest = path.partition(b"/")
    if top == FILES:
        return "files"
    if top == MEMORY:
        return "notes" if path == NOTES else "memory"
    if top == CONNECTIONS:
        return "connections"
    if top == SCHEDULE:
        return "jobs"
    if top == HARNESS:
        return _harness_part(rest)
    return "other"


def _harness_part(rest: bytes) -> Part:
    first, _, below = rest.partition(b"/")
    if first == b"conversations":
        _, slash, name = below.partition(b"/")
        # Folders on the way are nobody's; a thread holds these two files and nothing else.
        return "conversations" if not slash or name in (EVENTS, THREAD) else "other"
    if first == b"skills":
        return "skills"
    if first == b"package":
        return "package"
    return "instructions" if rest == b"instructions.md" else "other"


def has_place(part: Part, path: bytes, kind: str) -> bool:
    """Whether something of this kind may lie at a path of a Home that a stream brings.

    A file where a thread's folder belongs, or a folder where a credential does, would take the
    place of what the receiver has there.
    """
    depth = path.count(b"/")
    if part == "conversations":
        return depth <= 2 if kind == FOLDER else depth == 3 and kind == FILE
    if part == "connections":
        return depth == 0 if kind == FOLDER else depth == 1 and kind == FILE
    if part in ("instructions", "notes"):
        return kind == FILE
    return part != "other"


def is_held(path: bytes) -> bool:
    """Whether a file of this path counts for ``have`` and ``tree`` by its own bytes."""
    return path.startswith((b"files/", b"memory/")) and path != NOTES


def thread_of(path: bytes) -> bytes | None:
    """The thread whose ``events.jsonl`` this path is, or None."""
    prefix = CONVERSATIONS + b"/"
    if path.startswith(prefix) and path.endswith(b"/" + EVENTS):
        thread = path[len(prefix) : -len(EVENTS) - 1]
        if thread and b"/" not in thread:
            return thread
    return None


def outside_conversations(path: bytes) -> bool:
    """Whether a walk of ``harness/conversations`` leaves this path out."""
    depth = path.count(b"/")
    return depth > 3 or (depth == 3 and not path.endswith((b"/" + EVENTS, b"/" + THREAD)))


def read_agent(home: int, shown: str) -> dict[str, object]:
    """The object in ``agent.json`` of the open Home.

    ``shown`` names the Home in errors. Raises ``Refusal`` (home-missing) where there is none,
    ``MachineError`` where it cannot be understood, and ``OSError``.
    """
    try:
        fd = os.open(AGENT_FILE, OPEN_FILE, dir_fd=home)
    except FileNotFoundError:
        raise Refusal("home-missing", "there is no agent.json in it", place=shown) from None
    except OSError:
        fd = -1
    if fd < 0 or not stat.S_ISREG(os.fstat(fd).st_mode):
        if fd >= 0:
            os.close(fd)
        msg = "agent.json is no file that can be read: mend it first"
        raise MachineError(msg, path=shown)
    with os.fdopen(fd, "rb") as file:
        text = file.read()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        msg = "agent.json is not one JSON object: mend it first"
        raise MachineError(msg, path=shown)
    return value


def _is_text(value: object) -> TypeGuard[str]:
    """Whether it is text that a stream can hold: a lone surrogate is none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def agent_of(fields: dict[str, object], shown: str) -> tuple[Agent, str]:
    """The agent and its harness, out of ``agent.json``'s fields. Raises ``MachineError``."""

    def text(name: str) -> str:
        value = fields.get(name)
        if not _is_text(value) or (name == "id" and not value):
            msg = f"agent.json has no text for {name!r}: mend it first"
            raise MachineError(msg, path=shown)
        return value

    owner = fields.get("owner")
    if owner is not None and not _is_text(owner):
        msg = "agent.json's owner is no text: mend it first"
        raise MachineError(msg, path=shown)
    return Agent(id=text("id"), name=text("name"), owner=owner), text("harness")
