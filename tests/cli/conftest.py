"""Running the private tool, which tries what all tools share."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.conftest import clean_environment

PRIVATE: Final = (sys.executable, str(Path(__file__).with_name("private_tool.py")))


class RunPrivate(Protocol):
    def __call__(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[bytes]: ...


class RunShell(Protocol):
    def __call__(
        self, script: str, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture
def private(tmp_path: Path) -> RunPrivate:
    """Run the private tool with these arguments and this standard input."""

    def run(
        *arguments: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*PRIVATE, *arguments],
            input=stdin,
            capture_output=True,
            env=clean_environment(env),
            cwd=cwd or tmp_path,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def shell(tmp_path: Path) -> RunShell:
    """Run a bash script in which ``$private`` is the private tool."""

    def run(
        script: str, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["bash", "-c", f"private={shlex.quote(shlex.join(PRIVATE))}\n{script}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=clean_environment(env),
            cwd=cwd or tmp_path,
            timeout=60,
            check=False,
        )

    return run
