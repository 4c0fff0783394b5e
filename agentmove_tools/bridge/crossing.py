"""What crossed from one form to the other, and what did not: nothing is left out in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmove_tools.package.contents import Found
    from agentmove_tools.stream.manifest import Agent

# What is kept to be told; the rest is only counted, so that memory does not grow with a stream.
_MOST: Final = 100_000
_MOST_BYTES: Final = 16 << 20
_MAX_NAME: Final = 255  # bytes of a name, on nearly every disk

Fate: TypeAlias = Literal["written", "passed_over"]


class Lost(NamedTuple):
    """What has no place at the other side: a path, or a part of what is there, and why."""

    path: bytes
    why: str


class SkippedEvent(NamedTuple):
    """An event that a package cannot hold: its file, its line, and why."""

    path: bytes
    line: int
    why: str


class Crossing:
    """The report of one crossing.

    ``kinds`` counts files and links by the part of a Home that they are of: ``in`` = ``written`` +
    ``passed_over``. ``events`` counts events: ``in`` = ``written`` + ``repeats`` (equal to an
    earlier one) + ``skipped``. ``lost`` is what has no place at the other side, ``not_asked`` what
    would have been taken had it been asked for, ``skipped`` the events that were left out; of more
    than can be told the rest is counted in ``lost_more``, ``not_asked_more``, ``skipped_more``.
    ``warnings`` and ``secrets`` are the package's, as ``Found`` has them. ``notes``: what else to
    know.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.kinds: dict[str, dict[str, int]] = {}
        self.events = {"in": 0, "written": 0, "repeats": 0, "skipped": 0}
        self.lost: list[Lost] = []
        self.lost_more = 0
        self.not_asked: list[Lost] = []
        self.not_asked_more = 0
        self.skipped: list[SkippedEvent] = []
        self.skipped_more = 0
        self.warnings: list[tuple[str, str]] = []
        self.secrets: dict[str, list[str]] = {}
        self.notes: list[str] = []
        self._bytes = 0  # of paths in ``lost``
        self._bytes_not_asked = 0
        self._has_long_name = False

    def count(self, kind: str, fate: Fate) -> None:
        """Count one file, or link, and what became of it."""
        counts = self.kinds.setdefault(kind, {"in": 0, "written": 0, "passed_over": 0})
        counts["in"] += 1
        counts[fate] += 1

    def count_as_passed_over(self, kind: str) -> None:
        """Count a file as passed over that was counted as written."""
        counts = self.kinds[kind]
        counts["written"] -= 1
        counts["passed_over"] += 1

    def lose(self, path: bytes, why: str) -> None:
        """Say what has no place at the other side."""
        self._bytes += len(path)
        if len(self.lost) >= _MOST or self._bytes > _MOST_BYTES:
            self.lost_more += 1
        else:
            self.lost.append(Lost(path, why))

    def leave_out_unasked(self, path: bytes, why: str) -> None:
        """Say what is left out only because it was not asked for."""
        self._bytes_not_asked += len(path)
        if len(self.not_asked) >= _MOST or self._bytes_not_asked > _MOST_BYTES:
            self.not_asked_more += 1
        else:
            self.not_asked.append(Lost(path, why))

    def skip_event(self, path: bytes, line: int, why: str) -> None:
        """Say which event is left out."""
        self.events["skipped"] += 1
        if len(self.skipped) >= _MOST:
            self.skipped_more += 1
        else:
            self.skipped.append(SkippedEvent(path, line, why))

    def look_at_name(self, path: bytes) -> None:
        """Note the first path that a Home on a disk can hardly hold."""
        if not self._has_long_name and max(map(len, path.split(b"/"))) > _MAX_NAME:
            self._has_long_name = True
            note = f"a name is longer than {_MAX_NAME} bytes, which few disks hold"
            self.notes.append(f"{shown(path)}: {note}")

    def take_from(self, found: Found, origin: Callable[[str], bytes]) -> None:
        """Account for what a package's parts said as they were read.

        ``origin`` gives the path that a path in the package is told as.
        """
        self.secrets = found.secrets
        self.warnings = [
            (shown(origin(path)), warning)
            for path, warnings in sorted(found.warnings.items())
            for warning in warnings
        ]
        for chat in found.chats.values():
            path = chat.path
            self.events["written"] += chat.events
            self.events["repeats"] += chat.repeats
            if chat.repeats:
                again = "an event comes" if chat.repeats == 1 else f"{chat.repeats} events come"
                self.lose(origin(path), f"{again} again, equal: a package has each once")
            if chat.torn:
                self.lose(origin(path), "its last line was cut short")
        self.events["in"] = sum(self.events[name] for name in ("written", "repeats", "skipped"))

    def check_nothing_lost(self) -> None:
        """Raise ``Refusal`` (bridge-loss) that names all that has no place at the other side."""
        if self.lost:
            path, why = self.lost[0]
            more = len(self.lost) + self.lost_more - 1
            raise Refusal(
                "bridge-loss",
                why + (f"; and {more} more (details.paths)" if more else ""),
                path=path,
                paths=[shown(each.path) for each in self.lost],
            )

    def to_json(self) -> dict[str, object]:
        """The report as JSON values."""
        return {
            "agent": {"id": self.agent.id, "name": self.agent.name},
            "kinds": {kind: self.kinds[kind] for kind in sorted(self.kinds)},
            "events": self.events,
            "left_out": [{"path": shown(each.path), "reason": each.why} for each in self.lost],
            "left_out_more": self.lost_more,
            "not_asked_for": [
                {"path": shown(each.path), "reason": each.why} for each in self.not_asked
            ],
            "not_asked_for_more": self.not_asked_more,
            "skipped_events": [
                {"path": shown(each.path), "line": each.line, "reason": each.why}
                for each in self.skipped
            ],
            "skipped_events_more": self.skipped_more,
            "warnings": [{"path": path, "warning": warning} for path, warning in self.warnings],
            "secrets": self.secrets,
            "notes": self.notes,
        }


def shown(path: bytes) -> str:
    """A path as reports have it."""
    return path.decode("utf-8", "backslashreplace")
