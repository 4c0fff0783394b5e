"""Which path of a package is what (Agent package, section 1)."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SOUL: Final = "SOUL.md"
CONFIG: Final = "agent.config.json"
USER: Final = "USER.md"
HEARTBEAT: Final = "HEARTBEAT.md"
CURATED: Final = "MEMORY.md"  # the curated memory
REQUIRED: Final = (SOUL, CONFIG)
OF_HOME: Final = "agent.json"  # what tells a Home, which is no agent's folder
SKILL_FILE: Final = "SKILL.md"
SECRETS: Final = "data/secrets/"
SESSIONS: Final = "data/sessions/"
ACCESS: Final = "data/access.json"
USAGE: Final = "data/usage.json"
BROWSER_STATE: Final = "browser-state/"

Part: TypeAlias = Literal[
    "soul",
    "config",
    "user",
    "heartbeat",
    "memory",
    "skill",
    "asset",
    "secrets",
    "access",
    "session",
    "usage",
    "browser-state",
    "derived",
    "leftover",
    "unknown",
]
# What never goes into a package, and why.
PASSED_OVER: Final[dict[Part, str]] = {
    "derived": "a derived index: it is built again from the texts",
    "leftover": "a leftover of the system that packed it",
    "unknown": "a package has no place for it",
}
# What goes only where it is asked for.
ON_REQUEST: Final[tuple[Part, ...]] = ("usage", "browser-state")

# The field of a platform's database that a part's text is for; errors name it.
FIELDS: Final[dict[Part, str]] = {
    "soul": "agent.soul",
    "config": "agent.config",
    "user": "agent.user",
    "heartbeat": "agent.heartbeat",
    "memory": "memory.content",
    "skill": "skill.content",
    "secrets": "secret.names",
    "access": "access.list",
    "session": "message",
    "usage": "usage",
    "browser-state": "account",
}

_SINGLE: Final[dict[str, Part]] = {
    SOUL: "soul",
    CONFIG: "config",
    USER: "user",
    HEARTBEAT: "heartbeat",
    CURATED: "memory",
    ACCESS: "access",
    USAGE: "usage",
    "data/memory.sqlite": "derived",
    "data/memory.sqlite-wal": "derived",
    "data/memory.sqlite-shm": "derived",
    "data/memory.sqlite-journal": "derived",
}
# folder, ending -> the part of the files that lie directly in it
_DIRECTLY_IN: Final[tuple[tuple[str, str, Part], ...]] = (
    (SECRETS, ".json", "secrets"),
    (SESSIONS, ".jsonl", "session"),
    (BROWSER_STATE, ".json", "browser-state"),
)
_AT_ANY_DEPTH: Final = ("skills/", "memory/")
_BELOW: Final = (*_AT_ANY_DEPTH, *(top for top, _, _ in _DIRECTLY_IN))
_FOLDERS: Final = frozenset({"data", *(top.removesuffix("/") for top in _BELOW)})
_DATED: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:-.*)?\.md", re.DOTALL)


class Place(NamedTuple):
    """What a path is. ``folder`` is the skill's, for one of its files."""

    part: Part
    folder: str = ""


class Layout:
    """The places of one package's paths; which of them are skills depends on all of them."""

    def __init__(self, paths: Iterable[str]) -> None:
        found = {
            path[: -len(SKILL_FILE) - 1]
            for path in paths
            if path.startswith("skills/") and path.endswith("/" + SKILL_FILE)
        }
        found.discard("skills")
        self._deepest = max((folder.count("/") for folder in found), default=0)
        self._skills = found
        self._folders: dict[str, str] = {}  # folder -> the skill that it belongs to, or ""

    def place(self, path: str) -> Place:
        """The place of a file."""
        single = _SINGLE.get(path)
        if single is not None:
            return Place(single)
        if is_leftover(path):
            return Place("leftover")
        if path.startswith("skills/"):
            folder = self._skill_of(path.rpartition("/")[0])
            if not folder:
                return Place("unknown")
            is_head = len(path) == len(folder) + 1 + len(SKILL_FILE) and path.endswith(SKILL_FILE)
            return Place("skill" if is_head else "asset", folder)
        if path.startswith("memory/"):
            return Place("memory" if path.endswith(".md") else "unknown")
        for top, ending, part in _DIRECTLY_IN:
            if path.startswith(top) and path.endswith(ending) and "/" not in path[len(top) :]:
                # a session without a name is refused as it is read; a profile without one is none
                unnamed = part == "browser-state" and path == top + ending
                return Place("unknown" if unnamed else part)
        return Place("unknown")

    def _skill_of(self, folder: str) -> str:
        known = self._folders.get(folder)
        if known is None:
            known = ""
            at = folder.find("/")
            for _ in range(self._deepest):
                at = folder.find("/", at + 1)
                outer = folder if at < 0 else folder[:at]
                if outer in self._skills:
                    known = outer
                    break
                if at < 0:
                    break
            self._folders[folder] = known
        return known


def is_leftover(path: str) -> bool:
    """Whether it is what macOS leaves in folders and archives."""
    if "._" not in path and ".DS_Store" not in path and "__MACOSX/" not in path:
        return False
    name = path[path.rfind("/") + 1 :]
    return name.startswith("._") or name == ".DS_Store" or path.startswith("__MACOSX/")


def is_of_package(path: str, wanted: Collection[Part] = ON_REQUEST) -> bool:
    """Whether a package holds this path, or what lies below it: a link there would be lost.

    ``wanted``: which of ``ON_REQUEST`` it holds.
    """
    if path == USAGE:
        return "usage" in wanted
    if path == "browser-state" or path.startswith("browser-state/"):
        return "browser-state" in wanted
    if path in _FOLDERS or _SINGLE.get(path, "derived") != "derived":
        return True
    return path.startswith(_BELOW)


def may_hold(folder: str) -> bool:
    """Whether anything in this folder of an agent may be of a package."""
    return folder in _FOLDERS or folder.startswith(_AT_ANY_DEPTH)


def profile_of(path: str) -> str:
    """The name of the profile whose browser state the path is of."""
    return path[len(BROWSER_STATE) :].removesuffix(".json")


def memory_date(path: str) -> str | None:
    """The date ``YYYY-MM-DD`` in the name of a daily memory, None for another.

    Raises ``Refusal`` (memory-date) for a date that there is not.
    """
    match = _DATED.fullmatch(path[path.rfind("/") + 1 :])
    if match is None:
        return None
    try:
        return date(*map(int, match.groups())).isoformat()
    except ValueError:
        why = "rename the file: a name that starts so is a day's"
        raise Refusal("memory-date", why, path=path.encode()) from None
