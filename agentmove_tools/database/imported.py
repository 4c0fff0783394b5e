"""What an import did, as its report tells it (Agent package, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmove_tools.package.report import passed_over

if TYPE_CHECKING:
    from agentmove_tools.database.tables import Counts
    from agentmove_tools.database.tenant import Team
    from agentmove_tools.package.contents import Package


class Imported:
    """An import that was done, or in a dry run would be.

    ``agent_id`` is the database's, None for one that a dry run would make. ``counts``: by table.
    ``pending``: the names of the agent's secrets that are still to be entered, by scope.
    """

    def __init__(
        self,
        package: Package,
        team: Team,
        *,
        agent_id: str | None,
        is_new: bool,
        is_dry_run: bool,
        counts: dict[str, Counts],
        pending: dict[str, list[str]],
    ) -> None:
        self.package = package
        self.team = team
        self.agent_id = agent_id
        self.is_new = is_new
        self.is_dry_run = is_dry_run
        self.counts = counts
        self.pending = pending

    @property
    def result(self) -> str:
        """``created``, ``updated`` or ``unchanged``: what became of the agent."""
        if self.is_new:
            return "created"
        changed = any(counts.written or counts.removed for counts in self.counts.values())
        return "updated" if changed else "unchanged"

    def to_json(self) -> dict[str, object]:
        """The report in JSON's types.

        Of each table, the rows that came ``in`` are those ``written`` and those ``left_alone``;
        ``removed`` are others.
        """
        found = self.package.found
        dry_run_made_it = self.is_dry_run and self.team.created
        return {
            "result": self.result,
            "dry_run": self.is_dry_run,
            "team": {
                "id": None if dry_run_made_it else self.team.id,
                "name": self.team.name,
                "created": self.team.created,
            },
            "agent": {
                "id": self.agent_id,
                "externalId": found.config.id,
                "name": found.config.name,
            },
            "tables": {
                table: {
                    "in": counts.came,
                    "written": counts.written,
                    "left_alone": counts.came - counts.written,
                    "removed": counts.removed,
                }
                for table, counts in self.counts.items()
            },
            "pending_secrets": self.pending,
            **passed_over(self.package),
        }
