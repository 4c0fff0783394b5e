"""The manifest that a Move Stream starts with (Move Stream, section 3)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeGuard

from agentmove_tools.json_values import LongInteger, form_of, parse
from agentmove_tools.refusals import Refusal, UsageError
from agentmove_tools.stream.paths import COLLECTIONS, PHASES, check_plain

if TYPE_CHECKING:
    from agentmove_tools.stream.paths import Collection, Phase
    from agentmove_tools.streams import ByteSource

FORMAT: Final = 4
MAX_MANIFEST: Final = 64 << 20

_MOVE: Final = re.compile(r"[0-9a-f]{32}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MODE: Final = re.compile(r"[0-7]{3}")
_HELD: Final = (b"files/", b"memory/")
_TOO_LONG: Final = "it is longer than 64 MiB"


@dataclass(frozen=True, slots=True)
class Agent:
    """Who moves: ``id`` is what a Home and a stream are matched by."""

    id: str
    name: str
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest whose every field was checked.

    ``removed``: paths that the other end holds and the sender no longer does. ``tree``: the digest
    of ``files/`` and ``memory/`` as 64 hex digits. ``modes``: permission bits of files that are
    skipped. ``collections``: those that the stream speaks for, None for all. ``unknown``: fields
    that this format does not name.
    """

    phase: Phase
    move: str
    version: str
    agent: Agent
    harness: str
    removed: tuple[bytes, ...] | None = None
    tree: str | None = None
    modes: dict[bytes, int] | None = None
    collections: tuple[Collection, ...] | None = None
    unknown: dict[str, object] = field(default_factory=dict)
    unknown_of_agent: dict[str, object] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Read a manifest.

        Of a repeated key the last counts. Raises ``Refusal``: manifest-json, manifest-field (whose
        ``details`` name the ``field``), stream-format.
        """
        if len(data) > MAX_MANIFEST:
            raise Refusal("manifest-json", _TOO_LONG)
        try:
            value = parse(data)
        except Refusal as refusal:
            raise Refusal("manifest-json", refusal.why) from None
        if not isinstance(value, dict):
            raise Refusal("manifest-json", f"it is {_type_of(value)}")
        return _Fields(value).manifest()

    def to_json(self) -> bytes:
        """The manifest in the one form, without a newline.

        Raises ``Refusal``: manifest-json where no reader would take it, for its length or for a
        lone surrogate.
        """
        agent: dict[str, object] = {
            **self.unknown_of_agent,
            "id": self.agent.id,
            "name": self.agent.name,
        }
        if self.agent.owner is not None:
            agent["owner"] = self.agent.owner
        value: dict[str, object] = {
            **self.unknown,
            "format": FORMAT,
            "phase": self.phase,
            "move": self.move,
            "version": self.version,
            "agent": agent,
            "harness": self.harness,
        }
        if self.removed is not None:
            value["removed"] = [path.decode() for path in self.removed]
        if self.tree is not None:
            value["tree"] = self.tree
        if self.modes is not None:
            value["modes"] = {path.decode(): f"{mode:03o}" for path, mode in self.modes.items()}
        if self.collections is not None:
            value["collections"] = list(self.collections)
        try:
            text = form_of(value)
        except Refusal as refusal:
            raise Refusal("manifest-json", refusal.why) from None
        if len(text) > MAX_MANIFEST:
            raise Refusal("manifest-json", _TOO_LONG)
        return text

    def summary(self) -> list[tuple[str, str]]:
        """Its fields as a person reads them, a name and a value each."""
        rows = [
            ("phase", self.phase),
            ("agent", f"{self.agent.name} ({self.agent.id})"),
            ("harness", self.harness),
            ("move", self.move),
            ("version", self.version),
        ]
        if self.agent.owner is not None:
            rows.insert(2, ("owner", self.agent.owner))
        if self.collections is not None:
            rows.append(("collections", ", ".join(self.collections)))
        if self.tree is not None:
            rows.append(("tree", self.tree))
        if self.removed is not None:
            rows.append(("removed", _counted(len(self.removed), "file")))
            rows += [("", path.decode()) for path in self.removed[:20]]
            if len(self.removed) > 20:
                rows.append(("", "..."))
        if self.modes is not None:
            rows.append(("modes", _counted(len(self.modes), "skipped file")))
        rows += [(name, "(unknown field)") for name in sorted(self.unknown)]
        return rows


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def new_move_id() -> str:
    """A new move's ID: 128 random bits, 32 lower-case hex digits."""
    return os.urandom(16).hex()


def check_move_id(text: str) -> None:
    """Raise ``UsageError`` unless the text is a move's ID."""
    if not _MOVE.fullmatch(text):
        msg = "a move's ID has 32 lower-case hex digits: openssl rand -hex 16"
        raise UsageError(msg)


def check_phase(text: str) -> Phase:
    """The phase of this name. Raises ``UsageError``."""
    for phase in PHASES:
        if phase == text:
            return phase
    msg = f"a phase is copy, switch or files, and not {text!r}"
    raise UsageError(msg)


def read_manifest(source: ByteSource) -> Manifest:
    """Read all of ``source`` as a manifest. Raises ``Refusal`` as ``Manifest.parse`` does."""
    pieces = bytearray()
    buffer = bytearray(1 << 16)
    while count := source.readinto(buffer):
        pieces += memoryview(buffer)[:count]
        if len(pieces) > MAX_MANIFEST:
            break
    return Manifest.parse(bytes(pieces))


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _is_text(value: object) -> TypeGuard[str]:
    # An integer that Python does not convert comes as its digits, in a type of its own.
    return type(value) is str


def _wrong(name: str, why: str) -> Refusal:
    return Refusal("manifest-field", why, place=name, field=name)


class _Fields:
    """The members of a manifest's object, taken one by one."""

    def __init__(self, value: dict[str, object]) -> None:
        self._value = value

    def manifest(self) -> Manifest:
        self._check_format()
        phase = self._phase()
        return Manifest(
            phase=phase,
            move=self._matching("move", _MOVE, "32 lower-case hex digits"),
            removed=self._removed(phase),
            version=self._text("version"),
            agent=self._agent(),
            harness=self._text("harness"),
            tree=None
            if "tree" not in self._value
            else self._matching("tree", _DIGEST, "64 lower-case hex digits"),
            modes=self._modes(),
            collections=self._collections(),
            unknown={k: v for k, v in self._value.items() if k not in _KNOWN},
            unknown_of_agent=self._unknown_of_agent(),
        )

    def _get(self, name: str) -> object:
        if name not in self._value:
            raise _wrong(name, "it is missing")
        return self._value[name]

    def _check_format(self) -> None:
        number = self._get("format")
        if isinstance(number, LongInteger):
            number = number.digits
        elif isinstance(number, bool) or not isinstance(number, int):
            raise _wrong("format", f"it must be the number 4, and is {_type_of(number)}")
        if number != FORMAT:
            raise Refusal("stream-format", f"it says format {str(number)[:20]}", field="format")

    def _phase(self) -> Phase:
        text = self._get("phase")
        for phase in PHASES:
            if phase == text:
                return phase
        raise _wrong("phase", "it must be copy, switch or files")

    def _text(self, name: str) -> str:
        text = self._get(name)
        if not _is_text(text):
            raise _wrong(name, f"it must be text, and is {_type_of(text)}")
        return text

    def _matching(self, name: str, pattern: re.Pattern[str], form: str) -> str:
        text = self._text(name)
        if not pattern.fullmatch(text):
            raise _wrong(name, f"it must be {form}")
        return text

    def _agent(self) -> Agent:
        value = self._get("agent")
        if not isinstance(value, dict):
            raise _wrong("agent", f"it must be an object, and is {_type_of(value)}")
        texts: dict[str, str] = {}
        for name in ("id", "name", "owner"):
            text = value.get(name)
            if name == "owner" and name not in value:
                continue
            if not _is_text(text):
                seen = f"and is {_type_of(text)}" if name in value else "and is missing"
                raise _wrong(f"agent.{name}", f"it must be text, {seen}")
            texts[name] = text
        if not texts["id"]:
            raise _wrong("agent.id", "it is empty")
        return Agent(texts["id"], texts["name"], texts.get("owner"))

    def _unknown_of_agent(self) -> dict[str, object]:
        value = self._value["agent"]
        items = value.items() if isinstance(value, dict) else ()
        return {k: v for k, v in items if k not in ("id", "name", "owner")}

    def _removed(self, phase: Phase) -> tuple[bytes, ...] | None:
        if "removed" not in self._value:
            return None
        value = self._value["removed"]
        if phase != "switch":
            raise _wrong("removed", "only a switch has it")
        if not isinstance(value, list):
            raise _wrong("removed", f"it must be a list, and is {_type_of(value)}")
        return tuple(_held_path("removed", path) for path in value)

    def _modes(self) -> dict[bytes, int] | None:
        if "modes" not in self._value:
            return None
        value = self._value["modes"]
        if not isinstance(value, dict):
            raise _wrong("modes", f"it must be an object, and is {_type_of(value)}")
        modes: dict[bytes, int] = {}
        for path, mode in value.items():
            if not isinstance(mode, str) or not _MODE.fullmatch(mode):
                raise _wrong("modes", "a mode is three octal digits, as text")
            modes[_held_path("modes", path)] = int(mode, 8)
        return modes

    def _collections(self) -> tuple[Collection, ...] | None:
        if "collections" not in self._value:
            return None
        value = self._value["collections"]
        if not isinstance(value, list):
            raise _wrong("collections", f"it must be a list, and is {_type_of(value)}")
        if any(name not in COLLECTIONS for name in value) or len({*value}) != len(value):
            raise _wrong("collections", f"it may name {', '.join(COLLECTIONS)}, each once")
        return tuple(name for name in COLLECTIONS if name in value)


_KNOWN: Final = frozenset(
    (
        "format",
        "phase",
        "move",
        "removed",
        "version",
        "agent",
        "harness",
        "tree",
        "modes",
        "collections",
    )
)


def _held_path(name: str, value: object) -> bytes:
    if not _is_text(value):
        raise _wrong(name, f"a path is text, and not {_type_of(value)}")
    path = value.encode("utf-8", "surrogatepass")
    try:
        check_plain(path)
    except Refusal as refusal:
        raise _wrong(name, f"{value!r}: {refusal.why}") from None
    if not path.startswith(_HELD):
        raise _wrong(name, f"{value!r} is not under files/ or memory/")
    return path
