"""Commands that hold an embedded server, each a process of its own, and looks at the processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import psycopg

from tests.conftest import ROOT

_SCRIPT: Final = """
import json, sys
from agentmove_tools.database.embedded import hold_server
from agentmove_tools.refusals import AgentMoveError
try:
    held = hold_server(waiting=lambda text: print(json.dumps({"waiting": text}), flush=True))
except AgentMoveError as error:
    print(json.dumps({"kind": type(error).__name__, "error": error.message, **error.details}))
except OSError as error:
    print(json.dumps({"kind": "OSError", "error": error.strerror}))
else:
    print(json.dumps({"parameters": held.parameters}), flush=True)
    sys.stdin.read()
    held.close()
"""


class Failed(Exception):
    """What a client was told instead of a server."""

    def __init__(self, told: Mapping[str, str]) -> None:
        super().__init__(told)
        self.kind = told["kind"]
        self.message = told["error"]
        self.hint = told.get("hint")


class Account(NamedTuple):
    """Another user that a client runs as."""

    uid: int
    gid: int


class Client:
    """A process that holds the server of ``data`` until ``close``, or until it is killed.

    ``before`` is Python that it runs first. Its environment is clean but for ``env``.
    """

    def __init__(
        self,
        data: Path | str | None,
        *,
        idle: float = 60,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        account: Account | None = None,
        python: str = sys.executable,
        umask: int = -1,
        before: str = "",
    ) -> None:
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "AGENTFY_IDLE": str(idle)}
        if data is not None:
            own["AGENTFY_DATA"] = str(data)
        self.waited: list[str] = []
        self._parameters: dict[str, str] | None = None
        self.process = subprocess.Popen(
            [python, "-c", before + _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**own, **(env or {})},
            cwd=cwd,
            umask=umask,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )

    def parameters(self) -> dict[str, str]:
        """Wait for the server; raises ``Failed`` for an error of ours."""
        assert self.process.stdout is not None
        while self._parameters is None:
            line = self.process.stdout.readline()
            assert line, "the client ended without a word"
            told = json.loads(line)
            if "error" in told:
                raise Failed(told)
            if "waiting" in told:
                self.waited.append(told["waiting"])
            self._parameters = told.get("parameters")
        return self._parameters

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(**self.parameters(), autocommit=True)  # type: ignore[arg-type]

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self._end()

    def _end(self) -> None:
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds; fails the test if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it has not come to be in time"
        time.sleep(0.02)
