"""What a receiver did, counted so that what came in is accounted for (tools, habits)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from agentmove_tools.home.layout import part_of

if TYPE_CHECKING:
    from agentmove_tools.home.layout import Part
    from agentmove_tools.stream.manifest import Manifest

# What becomes of an entry that came in (the first three), and of what was there before.
Fate: TypeAlias = Literal["written", "passed_over", "left_alone", "kept", "removed"]
Result: TypeAlias = Literal[
    "staged", "in place", "already in place", "would be staged", "would be in place"
]


class Report:
    """Counts by kind: files, memory, each collection, connections, package.

    For each kind ``in`` = ``written`` + ``left_alone`` + ``passed_over``, in files and links;
    ``kept`` and ``removed`` count what the other end did not send, or sent for removal.
    ``events`` counts a conversation's events: ``in`` = ``appended`` + ``already_there`` +
    ``kept_beside``.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.result: Result = "staged"
        self.way: str | None = None
        self.bytes_written = 0
        self.kinds: dict[str, dict[str, int]] = {}
        self.events = {"in": 0, "appended": 0, "already_there": 0, "kept_beside": 0}
        self.passed_over: list[dict[str, str]] = []
        self.carried: list[bytes] = []
        self.notes: list[str] = []
        self.kept_beside: list[str] = []
        self.old_home: str | None = None

    def came_in(self, path: bytes, fate: Fate) -> None:
        """Count an entry of the stream and what became of it."""
        self.came_in_part(part_of(path), fate)

    def came_in_part(self, part: Part, fate: Fate) -> None:
        """Count an entry of one part of the Home."""
        counts = self._counts_of(part)
        counts["in"] += 1
        counts[fate] += 1

    def count(self, path: bytes, fate: Fate) -> None:
        """Count what became of something that was there before."""
        self._counts_of(part_of(path))[fate] += 1

    def _counts_of(self, part: Part) -> dict[str, int]:
        counts = self.kinds.get(part)
        if counts is None:
            counts = self.kinds[part] = {
                "in": 0,
                "written": 0,
                "left_alone": 0,
                "passed_over": 0,
                "kept": 0,
                "removed": 0,
            }
        return counts

    def pass_over(self, path: bytes, reason: str) -> None:
        """Say what was not taken, and why."""
        self.passed_over.append(
            {"path": path.decode("utf-8", "backslashreplace"), "reason": reason}
        )

    def summary(self) -> list[str]:
        """The report in a few lines, what its table does not say."""
        agent = self._manifest.agent
        lines = [f"{agent.name} ({agent.id}): {self._manifest.phase} {self.result}"]
        if self.way == "journal":
            lines[0] += ", by a journal: no exchange can be had here"
        if any(self.events.values()):
            lines.append(
                f"events: {self.events['in']} came in, {self.events['appended']} appended, "
                f"{self.events['already_there']} already there"
            )
        lines += [f"kept beside, as a thread of its own: {name}" for name in self.kept_beside]
        lines += [f"not taken: {row['path']}: {row['reason']}" for row in self.passed_over]
        if self.carried:
            names = ", ".join(path.decode("utf-8", "backslashreplace") for path in self.carried)
            lines.append(f"carried over: {names}")
        if self.old_home is not None:
            lines.append(f"the old Home: {self.old_home}")
        return lines + self.notes

    def to_json(self) -> dict[str, object]:
        """The report as JSON values."""
        manifest = self._manifest
        report: dict[str, object] = {
            "result": self.result,
            "phase": manifest.phase,
            "move": manifest.move,
            "agent": {"id": manifest.agent.id, "name": manifest.agent.name},
            "kinds": {kind: self.kinds[kind] for kind in sorted(self.kinds)},
            "events": self.events,
            "bytes_written": self.bytes_written,
            "passed_over": self.passed_over,
            "carried_over": [
                path.decode("utf-8", "backslashreplace") for path in sorted(self.carried)
            ],
        }
        if self.way is not None:
            report["way"] = self.way
        if self.kept_beside:
            report["kept_beside"] = self.kept_beside
        if self.old_home is not None:
            report["old_home"] = self.old_home
        if self.notes:
            report["notes"] = self.notes
        return report
