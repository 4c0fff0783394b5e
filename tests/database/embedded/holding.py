"""Commands that hold the embedded server: processes of their own, and what is left of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from agentmove_tools.database.embedded import server_state, stop_server
from agentmove_tools.database.embedded.programs import find_wheel
from tests.conftest import MEMORY, ROOT, clean_environment, lacking
from tests.database.servers import scratch

_ROOM: Final = 1 << 30  # bytes: for the data of a few servers at once
_LONGEST: Final = 60.0  # seconds: what takes so long hangs
_HOLD: Final = """
import json, sys
from agentmove_tools.database.embedded import hold_server
from agentmove_tools.refusals import AgentMoveError
try:
    held = hold_server(sys.argv[1] or None)
except AgentMoveError as error:
    print(json.dumps({"error": error.message, **error.details}), flush=True)
    sys.exit(3)
print(json.dumps(held.parameters), flush=True)
sys.stdin.read()
held.close()
"""


class Holder:
    """A process that holds the server of ``data`` until its input ends, or it is killed.

    A context manager. ``options`` are for ``subprocess``.
    """

    def __init__(
        self,
        data: Path | None,
        *,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401 - what subprocess takes
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-c", _HOLD, str(data or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(env),
            **options,
        )

    def said(self) -> dict[str, str]:
        """Its connection parameters, or its error, once it says so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return dict(json.loads(line)) if line else {}

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=_LONGEST)


def ask(parameters: Mapping[str, str], query: str) -> list[tuple[Any, ...]]:
    """Run a query, commit, and give its rows."""
    with psycopg.connect(**parameters, autocommit=True) as connection:  # type: ignore[arg-type]
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + _LONGEST
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def commands(*words: str) -> dict[int, str]:
    """The processes, by number, whose command line has all the words."""
    ps = subprocess.run(
        ["ps", "-axww", "-o", "pid=,command="], check=True, capture_output=True, text=True
    )
    found = {}
    for line in ps.stdout.splitlines():
        number, _, command = line.strip().partition(" ")
        if all(word in command for word in words):
            found[int(number)] = command
    return found


def keeper_of(data: Path) -> int:
    """The process id of the keeper of a data folder."""
    (found,) = commands("embedded.keeper", f" {data} ")
    return found


def server_of(data: Path) -> int:
    """The process id of the server of a data folder."""
    pid = server_state(str(data)).pid
    assert pid is not None
    return pid


def kill(*pids: int) -> None:
    """Kill processes, and wait until they are gone or nobody's."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        until(partial(has_ended, pid))


def has_ended(pid: int) -> bool:
    """Whether a process runs no more; it may still wait for its parent to look."""
    ps = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    return ps.stdout.strip()[:1] in ("", "Z")


@contextmanager
def quick_scratch() -> Iterator[Path]:
    """As ``scratch``, in memory where there is room: a server syncs what it writes."""
    found = os.statvfs(MEMORY) if MEMORY.is_dir() else None
    # some systems let no program be run from there, such as a copy of the server's
    no_programs = found is not None and found.f_flag & getattr(os, "ST_NOEXEC", 0)
    if found is None or no_programs or found.f_bavail * found.f_frsize < _ROOM:
        with scratch() as folder:
            yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="amt-", dir=MEMORY))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stopped_after(data: Path) -> Iterator[Path]:
    """Stop the server of ``data`` at the end, whatever is left of it; no process may stay."""
    try:
        yield data
    finally:
        stop_server(str(data))
        until(lambda: not commands(str(data)))


def copy_wheel(into: Path) -> Path:
    """A copy of what the wheel installs, below ``into``; its package."""
    wheel = Path(find_wheel())
    shutil.copytree(wheel, into / wheel.name)
    libraries = wheel.with_name(f"{wheel.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, into / libraries.name)
    return into / wheel.name


def copy_package(into: Path) -> None:
    """A copy of this package below ``into``."""
    source = ROOT / "agentmove_tools"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, into / source.name, ignore=ignore)


def python_for(user: int) -> str:
    """A Python that a user can run, of a version that is new enough."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [python, "-I", "-c", check], check=False, user=user, group=user, extra_groups=[]
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python
    lacking("there is no Python that another user can run")
    raise AssertionError
