"""A package into the database: one transaction, all or nothing (Agent package, section 4)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.database import tables
from agentmove_tools.database.connection import roll_back
from agentmove_tools.database.copying import copy_rows
from agentmove_tools.database.errors import IN_DOUBT, NOTHING_CHANGED, database_errors
from agentmove_tools.database.imported import Imported
from agentmove_tools.database.listing import pending_names
from agentmove_tools.database.messages import ChangedMeanwhileError, import_messages
from agentmove_tools.database.schema import HEAD, migrate, version_of
from agentmove_tools.database.tables import Agent, Counts
from agentmove_tools.database.tenant import (
    enter_team,
    refuse_concierge,
    take_role,
    unknown_agent,
)
from agentmove_tools.package.layout import memory_date, profile_of
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from psycopg import Connection
    from psycopg.rows import TupleRow

    from agentmove_tools.database.copying import Cell
    from agentmove_tools.database.tenant import Team
    from agentmove_tools.package.contents import File, Package
    from agentmove_tools.package.layout import Part

# How often an import begins again that met somebody else's change, and how long it waits first.
_TRIES: Final = 5
_WAIT: Final = 0.1  # seconds, more each time
_HELD: Final = 1 << 20  # bytes of a SKILL.md that is not read a second time to be sent
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class ImportOptions(NamedTuple):
    """What an import is told.

    ``team``: a name or an ID; ``create_team``: a missing one is made. ``agent``: the database's ID
    of the agent that is meant. ``prune``: skills, memories and pending names that the package lacks
    are removed. ``dry_run``: all is done, and then undone.
    """

    team: str
    create_team: bool = False
    agent: str | None = None
    prune: bool = False
    dry_run: bool = False


def import_package(
    connection: Connection[TupleRow], package: Package, options: ImportOptions
) -> Imported:
    """Write a package's agent into the database, all of it or nothing; what was done.

    The schema was brought forward before, but for a dry run, which does it itself and undoes it.
    Raises ``Refusal`` as reading the package does, team-unknown, agent-unknown, agent-id,
    agent-concierge and event-duplicate; and ``MachineError``.
    """
    import psycopg  # noqa: PLC0415 (whoever has a connection has imported it)

    meanwhile = (
        ChangedMeanwhileError,
        psycopg.errors.UniqueViolation,
        psycopg.errors.ForeignKeyViolation,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.SerializationFailure,
    )
    for attempt in range(1, _TRIES + 1):
        try:
            with database_errors(NOTHING_CHANGED, but=meanwhile):
                done = _Import(connection, package, options).run()
        except meanwhile:
            roll_back(connection)  # where that is not to be had, the next try says why
            if attempt == _TRIES:
                break
            time.sleep(_WAIT * attempt)
            continue
        except BaseException:
            roll_back(connection)
            raise
        if options.dry_run:
            roll_back(connection)
        else:
            with database_errors(IN_DOUBT):
                connection.commit()
        return done
    raise MachineError(
        f"somebody else changed the agent in the meantime, {_TRIES} times; {NOTHING_CHANGED}"
    )


class _Import:
    """One try at an import, in the transaction that is open."""

    def __init__(
        self, connection: Connection[TupleRow], package: Package, options: ImportOptions
    ) -> None:
        self._connection = connection
        self._package = package
        self._options = options
        self._files: dict[Part, list[File]] = {}
        for file in package.files:
            self._files.setdefault(file.part, []).append(file)
        self._counts: dict[str, Counts] = {}

    def run(self) -> Imported:
        connection, package, options = self._connection, self._package, self._options
        package.begin()
        if options.dry_run and version_of(connection) != HEAD:
            migrate(connection)
        take_role(connection)
        team = enter_team(connection, options.team, create=options.create_team)
        if options.agent is not None:
            package.expect(self._external_id(team, options.agent), "the agent --agent names has")
        config_text = self._text("config")
        external_id = str(package.found.config.id)
        connection.execute(_LOCK, (f"{team.id} {external_id}",))
        agent = self._agent(team, external_id, config_text)
        with tables.without_nested_loops(connection):
            self._skills(agent)
            self._memories(agent)
            self._secrets(agent)
            self._access(agent)
            self._on_request(agent)
        chats, messages = import_messages(connection, package, agent)
        self._counts |= {"chat": chats, "message": messages}
        package.check_rest()
        return Imported(
            package,
            team,
            agent_id=None if self._is_new and options.dry_run else agent.id,
            is_new=self._is_new,
            is_dry_run=options.dry_run,
            counts=self._counts,
            pending=self._pending(agent),
        )

    def _text(self, part: Part) -> bytes | None:
        """The whole text of a part that a package has once, None where it has not."""
        for file in self._files.get(part, ()):
            return b"".join(self._package.content(file))
        return None

    # -- the agent

    def _external_id(self, team: Team, agent: str) -> str:
        row = self._connection.execute(
            "SELECT external_id FROM agentfy.agent WHERE team_id = %s AND id = %s",
            (team.id, agent),
        ).fetchone()
        if row is None:
            raise unknown_agent(agent)
        return str(row[0])

    def _agent(self, team: Team, external_id: str, config_text: bytes | None) -> Agent:
        """Write the agent's own row, under its lock."""
        connection = self._connection
        held = connection.execute(
            "SELECT id, type FROM agentfy.agent WHERE team_id = %s AND external_id = %s FOR UPDATE",
            (team.id, external_id),
        ).fetchone()
        if self._options.agent is not None and (held is None or held[0] != self._options.agent):
            raise ChangedMeanwhileError  # it was removed, or got another ID, since it was looked up
        if held is not None:
            refuse_concierge(held[1], held[0])
        self._is_new = held is None
        connection.execute(
            """
            CREATE TEMPORARY TABLE incoming_agent (
                external_id text, name text, soul text, config text, "user" text, heartbeat text,
                runtime_profile text, limits text
            ) ON COMMIT DROP
            """
        )
        copy_rows(connection, "pg_temp.incoming_agent", [self._agent_row(external_id, config_text)])
        if held is None:
            row = connection.execute(
                """
                INSERT INTO agentfy.agent (team_id, external_id, name, soul, config, "user",
                    heartbeat, runtime_profile, limits)
                SELECT %s, external_id, name, soul, config, "user", heartbeat, runtime_profile,
                    limits::json
                FROM pg_temp.incoming_agent
                RETURNING id
                """,
                (team.id,),
            ).fetchone()
            if row is None:
                raise AssertionError  # one row came and one was inserted
            self._counts["agent"] = Counts(came=1, written=1)
            return Agent(team.id, str(row[0]))
        written = connection.execute(
            """
            UPDATE agentfy.agent AS held SET name = came.name, soul = came.soul,
                config = came.config, "user" = coalesce(came."user", held."user"),
                heartbeat = coalesce(came.heartbeat, held.heartbeat),
                runtime_profile = came.runtime_profile, limits = came.limits::json
            FROM pg_temp.incoming_agent AS came
            WHERE held.team_id = %s AND held.id = %s AND (
                held.soul <> came.soul OR held.config <> came.config
                OR held.name IS DISTINCT FROM came.name OR held."user" <> came."user"
                OR held."user" IS NULL AND came."user" IS NOT NULL
                OR held.heartbeat <> came.heartbeat
                OR held.heartbeat IS NULL AND came.heartbeat IS NOT NULL
                OR held.runtime_profile <> came.runtime_profile
                OR held.limits::text IS DISTINCT FROM came.limits
            )
            """,
            (team.id, held[0]),
        ).rowcount
        self._counts["agent"] = Counts(came=1, written=written)
        return Agent(team.id, str(held[0]))

    def _agent_row(self, external_id: str, config_text: bytes | None) -> tuple[Cell, ...]:
        config = self._package.found.config
        single: dict[Part, Cell] = {}
        for part in ("soul", "user", "heartbeat"):
            files = self._files.get(part)
            single[part] = self._content(files[0]) if files else None
        return (
            external_id,
            config.name,
            single["soul"],
            config_text,
            single["user"],
            single["heartbeat"],
            config.profile,
            config.limits,
        )

    def _content(self, file: File) -> tuple[int, Iterable[bytes]]:
        return file.items[0].size, self._package.content(file)

    # -- what is an agent's

    def _skills(self, agent: Agent) -> None:
        connection, prune = self._connection, self._options.prune
        skills = self._files.get("skill", [])
        if skills or prune:
            tables.take_in(connection, tables.SKILL, self._skill_rows(skills))
            self._counts["skill"] = tables.upsert(connection, tables.SKILL, agent)
            if prune:
                before = self._assets(agent)
                self._remove(tables.SKILL, agent)
                gone = before - self._assets(agent)
                if gone:
                    self._counts["file"] = Counts(removed=gone)
        if not skills:
            return
        ids: dict[str, str] = dict(
            connection.execute(
                """
                SELECT held.path, held.id FROM agentfy.skill AS held
                JOIN pg_temp.incoming_skill AS came USING (path)
                WHERE held.team_id = %s AND held.agent_id = %s
                """,
                agent,
            ).fetchall()
        )
        tables.take_in(connection, tables.FILE, self._asset_rows(ids))
        gone = self._counts.get("file", Counts()).removed
        self._counts["file"] = tables.upsert(connection, tables.FILE, agent)._replace(removed=gone)
        of_these = "held.skill_id = ANY(%(given)s)"
        self._remove(tables.FILE, agent, of_these, list(ids.values()))

    def _assets(self, agent: Agent) -> int:
        """How many assets the agent's skills have."""
        row = self._connection.execute(
            """
            SELECT count(*) FROM agentfy.file JOIN agentfy.skill ON skill.id = file.skill_id
            WHERE file.team_id = %s AND skill.agent_id = %s
            """,
            agent,
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _skill_rows(self, files: list[File]) -> Iterator[tuple[Cell, ...]]:
        for file in files:
            # its front matter is known when it has been read to the end
            size = file.items[0].size
            held = [piece for piece in self._package.content(file) if size <= _HELD]
            read = self._package.found.skills[file.path]
            content = iter(held) if held else file.items[0].pieces()
            yield file.skill, read.name, read.description, (size, content)

    def _asset_rows(self, ids: dict[str, str]) -> Iterator[tuple[Cell, ...]]:
        for file in self._files.get("asset", ()):
            path = file.path[len(file.skill) + 1 :]
            yield ids[file.skill], path, file.executable, self._content(file)

    def _memories(self, agent: Agent) -> None:
        files = self._files.get("memory", [])
        if not files and not self._options.prune:
            return
        rows = ((file.path, memory_date(file.path), self._content(file)) for file in files)
        tables.take_in(self._connection, tables.MEMORY, rows)
        self._counts["memory"] = tables.upsert(self._connection, tables.MEMORY, agent)
        if self._options.prune:
            self._remove(tables.MEMORY, agent)

    def _secrets(self, agent: Agent) -> None:
        files = self._files.get("secrets", [])
        if not files:
            return
        tables.take_in(self._connection, tables.SECRET, self._names(files))
        self._counts["secret"] = tables.upsert(self._connection, tables.SECRET, agent)
        if self._options.prune:
            pending = "held.pending AND held.scope = ANY(%(given)s)"
            self._remove(tables.SECRET, agent, pending, [file.scope for file in files])

    def _names(self, files: list[File]) -> Iterator[tuple[Cell, ...]]:
        for file in files:
            for _ in self._package.content(file):
                pass
            for name in self._package.found.secrets[file.scope]:
                yield file.scope, name

    def _access(self, agent: Agent) -> None:
        text = self._text("access")
        strategy = self._package.found.config.access_strategy
        if text is None and strategy is None:
            written = self._connection.execute(
                "UPDATE agentfy.access SET strategy = NULL"
                " WHERE team_id = %s AND agent_id = %s AND strategy IS NOT NULL",
                agent,
            ).rowcount
            if written:
                self._counts["access"] = Counts(came=1, written=written)
            return
        self._connection.execute(
            "CREATE TEMPORARY TABLE incoming_access (list text, strategy text) ON COMMIT DROP"
        )
        copy_rows(self._connection, "pg_temp.incoming_access", [(text, strategy)])
        written = self._connection.execute(
            """
            INSERT INTO agentfy.access AS held (team_id, agent_id, list, strategy)
            SELECT %s, %s, list, strategy FROM pg_temp.incoming_access AS came
            WHERE NOT EXISTS (
                SELECT FROM agentfy.access AS held WHERE held.team_id = %s AND held.agent_id = %s
                    AND held.list IS NOT DISTINCT FROM coalesce(came.list, held.list)
                    AND held.strategy IS NOT DISTINCT FROM came.strategy
            )
            ON CONFLICT (agent_id) DO UPDATE SET list = coalesce(excluded.list, held.list),
                strategy = excluded.strategy
            WHERE held.team_id = excluded.team_id
            """,
            (*agent, *agent),
        ).rowcount
        self._counts["access"] = Counts(came=1, written=written)
        if text is None:
            return
        rows = ((*key.split(":", 1), None) for key in self._package.may_speak())
        tables.take_in(self._connection, tables.ACCESS_USER, rows)
        self._connection.execute(
            """
            UPDATE pg_temp.incoming_access_user AS came SET app_user_id = known.app_user_id
            FROM agentfy.app_user_identity AS known
            WHERE known.team_id = %s AND known.channel = came.channel AND known."user" = came."user"
            """,
            (agent.team_id,),
        )
        self._counts["access_user"] = tables.upsert(self._connection, tables.ACCESS_USER, agent)
        self._remove(tables.ACCESS_USER, agent)

    def _on_request(self, agent: Agent) -> None:
        usage = self._files.get("usage", [])
        if usage:
            rows: Iterable[tuple[Cell, ...]] = ((self._content(file),) for file in usage)
            tables.take_in(self._connection, tables.USAGE, rows)
            self._counts["usage"] = tables.upsert(self._connection, tables.USAGE, agent)
        accounts = self._files.get("browser-state", [])
        if accounts:
            rows = ((profile_of(file.path), self._content(file)) for file in accounts)
            tables.take_in(self._connection, tables.ACCOUNT, rows)
            self._counts["account"] = tables.upsert(self._connection, tables.ACCOUNT, agent)

    def _remove(
        self, table: tables.Table, agent: Agent, only: str = "true", given: Sequence[str] = ()
    ) -> None:
        removed = tables.remove_missing(self._connection, table, agent, only, given)
        counts = self._counts[table.name]
        self._counts[table.name] = counts._replace(removed=counts.removed + removed)

    def _pending(self, agent: Agent) -> dict[str, list[str]]:
        return pending_names(self._connection, agent)
