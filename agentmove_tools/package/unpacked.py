"""How a package is put into a folder, and the report of what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentmove_tools.package.report import passed_over

if TYPE_CHECKING:
    from agentmove_tools.package.contents import Package
    from agentmove_tools.package.layout import Part


class UnpackOptions(NamedTuple):
    """``update``: a folder that is there is updated. ``delete``: what the package lacks goes."""

    update: bool = False
    delete: bool = False


class Unpacked:
    """What was done: ``result`` is created, updated or unchanged; ``parts`` counts files.

    For each part, and for the events of sessions, ``in`` = ``written`` + ``left_alone`` +
    ``passed_over``; ``removed`` counts what the folder had. ``written`` are the paths that an
    update wrote, ``removed`` those that it took out, ``removed_names`` the secrets' names without
    a value that it took out, and ``pending`` those still to be entered, both by scope. ``warnings``
    are of the folder's own files, by path.
    """

    def __init__(self, package: Package) -> None:
        self._package = package
        self.result = "unchanged"
        self.parts: dict[str, dict[str, int]] = {}
        self.events = _no_counts()
        self.written: list[str] = []
        self.removed: list[str] = []
        self.removed_names: dict[str, list[str]] = {}
        self.pending: dict[str, list[str]] = {}
        self.warnings: list[tuple[str, str]] = []

    def count(self, part: Part, fate: str, number: int = 1) -> None:
        """Count files of a part that were ``written``, ``left_alone``, ``passed_over``."""
        counts = self.parts.setdefault(part, _no_counts())
        counts[fate] += number
        if fate != "removed":
            counts["in"] += number
        if fate in ("written", "removed") and self.result == "unchanged":
            self.result = "updated"

    def count_events(self, came: int, *, there: int = 0, removed: int = 0) -> None:
        """Count a session's events: that came, that were there already, that were taken out."""
        self.events["in"] += came
        self.events["written"] += came - there
        self.events["left_alone"] += there
        self.events["removed"] += removed

    def count_passed_over(self) -> None:
        """Count what of the package was not taken."""
        for each in self._package.passed_over:
            self.count(each.part, "passed_over")
        for _ in self._package.unknown:
            self.count("unknown", "passed_over")

    def to_json(self) -> dict[str, object]:
        """The report, in JSON's types."""
        config = self._package.found.config
        rest = passed_over(self._package)
        rest["warnings"] += [{"path": path, "warning": text} for path, text in self.warnings]
        return {
            "result": self.result,
            "agent": {"id": config.id, "name": config.name},
            "parts": dict(sorted(self.parts.items())),
            "events": self.events,
            "written": self.written,
            "removed": self.removed,
            "removed_names": self.removed_names,
            "pending_secrets": self.pending,
            **rest,
        }


def _no_counts() -> dict[str, int]:
    return {"in": 0, "written": 0, "left_alone": 0, "passed_over": 0, "removed": 0}
