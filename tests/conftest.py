"""What the tests share: the conformance vectors, and a way to run an executable."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import pytest

# fixtures
from tests.database.databases import database, db_server, empty_database, template  # noqa: F401

ROOT: Final = Path(__file__).parent.parent
VECTORS: Final = ROOT.parent / "shared" / "vectors"
MEMORY: Final = Path("/dev/shm")

# what would change how a tool behaves, were it set where the tests run
_UNWANTED: Final = (
    "AGENTFY_DATABASE_URL",
    "AGENTMOVE_ERRORS",
    "COLUMNS",
    "FORCE_COLOR",
    "NO_COLOR",
    "PYTHONUNBUFFERED",
    "PYTHONWARNINGS",
)


class RunTool(Protocol):
    """Runs ``bin/NAME`` of this checkout, with this Python, and gives what came of it.

    ``stdin`` is all of its standard input; ``env`` is set over a clean environment.
    """

    def __call__(
        self,
        name: str,
        *arguments: str | bytes | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float = 120,
    ) -> subprocess.CompletedProcess[bytes]: ...


def clean_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give the environment to run a tool of this checkout in, with ``env`` set over it."""
    clean = {key: value for key, value in os.environ.items() if key not in _UNWANTED}
    return {**clean, "PYTHONPATH": str(ROOT), **(env or {})}


@pytest.fixture(scope="session")
def tool() -> RunTool:
    """Run an executable of ``bin/``: ``tool("lnk-seal", "-r", recipient, stdin=b"...")``."""

    def run(
        name: str,
        *arguments: str | bytes | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float = 120,
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, ROOT / "bin" / name, *arguments],
            input=stdin,
            capture_output=True,
            env=clean_environment(env),
            cwd=cwd,
            timeout=seconds,
            check=False,
        )

    return run


@pytest.fixture
def here() -> Iterator[Path]:
    """Give an empty folder, in memory where that can be had: a switch syncs its file system."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def vectors() -> Path:
    """Give the folder of the conformance vectors, which are not part of the project.

    Where they are not there, a test that needs them is skipped, but in CI it fails.
    """
    return need(VECTORS, "the conformance vectors")


@pytest.fixture(scope="session")
def specification() -> Path:
    """Give the folder of the specification, under the same terms as ``vectors``."""
    return need(ROOT.parent / "shared" / "spec", "the specification")


def need(path: Path, what: str) -> Path:
    """Give ``path`` if it is there; else skip the test that needs it, and in CI fail it."""
    if not path.exists():
        lacking(f"{what} is not at {path}")
    return path


def lacking(reason: str) -> None:
    """Skip a test for what the machine lacks; in CI nothing may lack, and it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI it has to be")
    pytest.skip(reason)
