"""How two commands are timed against each other, and how much memory one takes."""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).parent.parent.parent

# what would change how a tool behaves, or keep Python from its compiled code
_UNWANTED: Final = (
    "AGENTMOVE_ERRORS",
    "FORCE_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "PYTHONPYCACHEPREFIX",
    "PYTHONUNBUFFERED",
    "PYTHONWARNINGS",
)
# ru_maxrss is in bytes on macOS, and in KiB elsewhere
_SAID: Final = 4096  # bytes of an error that are looked at
_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class BrokenRunError(Exception):
    """A command that was to be measured failed: there is nothing to report."""


@dataclass(frozen=True)
class Work:
    """A script for bash, run with ``pipefail``, in which ``$NEW`` is a fresh and empty folder.

    ``place`` is where that folder is made. ``before`` is called first, and not timed.
    """

    script: str
    place: Path
    before: Callable[[], None] | None = None


@dataclass(frozen=True)
class Times:
    """The times of two works that took turns, in seconds, in the order of the runs."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        """How long ours took for each second of theirs, pair by pair."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


def tool_command(name: str) -> list[str]:
    """The command that runs an executable of the project.

    That is the installed script beside this Python where there is one, and else the one in
    ``bin/`` with this Python.
    """
    installed = Path(sys.executable).parent / name
    if installed.is_file():
        return [str(installed)]
    return [sys.executable, str(ROOT / "bin" / name)]


def tool(name: str) -> str:
    """The same, quoted for a script."""
    return shlex.join(tool_command(name))


def environment() -> dict[str, str]:
    """The environment as a user has it."""
    clean = {key: value for key, value in os.environ.items() if key not in _UNWANTED}
    if not (Path(sys.executable).parent / "lnk-seal").is_file():
        clean["PYTHONPATH"] = str(ROOT)  # from a checkout that is not installed
    return clean


def run(script: str, **variables: str | Path) -> None:
    """Run a script. Raises ``BrokenRunError`` with what it said."""
    done = subprocess.run(
        _bash(script),
        env=environment() | {key: str(value) for key, value in variables.items()},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise _broken(script, done.returncode, done.stderr)


def take_turns(ours: Work, theirs: Work, repeat: int) -> Times:
    """Run the two in turn, once to warm up and then ``repeat`` times, and time each."""
    times = Times([], [])
    for turn in range(repeat + 1):
        one, other = _timed(ours), _timed(theirs)
        if turn:
            times.ours.append(one)
            times.theirs.append(other)
    return times


def peak_memory(
    command: Sequence[str],
    *,
    feed: str | None = None,
    source: Path = Path(os.devnull),
    output: Path = Path(os.devnull),
    variables: Mapping[str, str | Path] | None = None,
    refusal: str = "",
) -> int:
    """Run ``command`` and give the most memory that its process held at once, in bytes.

    It reads ``source``, or the standard output of the script ``feed``. With ``refusal`` it has to
    end with that refusal. A process starts with its parent's peak,
    so nothing less than this one's own is seen: what makes data must not hold it. Raises
    ``BrokenRunError``.
    """
    env = environment() | {key: str(value) for key, value in (variables or {}).items()}
    feeder = None
    if feed is not None:
        feeder = subprocess.Popen(
            _bash(feed), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
    with ExitStack() as opened:
        said = opened.enter_context(tempfile.TemporaryFile())
        measured = subprocess.Popen(
            command,
            env=env,
            stdin=opened.enter_context(source.open("rb")) if feeder is None else feeder.stdout,
            stdout=opened.enter_context(output.open("wb")),
            stderr=said,
        )
        usage = _waited_for(measured, feeder)
        if refusal:
            _check_refusal(command, measured.returncode, said, refusal)
        elif measured.returncode:
            raise _broken(shlex.join(command), measured.returncode, _first_of(said))
    if feeder is not None and feeder.wait():
        raise _broken(feed or "", feeder.returncode)
    return usage * _RSS_UNIT


def _waited_for(measured: subprocess.Popen[bytes], feeder: subprocess.Popen[bytes] | None) -> int:
    """Wait until it has ended, and give its peak as the kernel has it."""
    if feeder is not None and feeder.stdout is not None:
        feeder.stdout.close()
    _, status, usage = os.wait4(measured.pid, 0)
    measured.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss


def _check_refusal(command: Sequence[str], status: int, said: IO[bytes], refusal: str) -> None:
    """See that it was refused, and why. Raises ``BrokenRunError``."""
    text = _first_of(said)
    if status != 1 or f": refused: {refusal}: ".encode() not in text:
        raise _broken(f"{shlex.join(command)}, which is to end with {refusal}", status, text)


def _first_of(said: IO[bytes]) -> bytes:
    said.seek(0)
    return said.read(_SAID)


def _timed(work: Work) -> float:
    work.place.mkdir(parents=True, exist_ok=True)
    fresh = work.place / f"{len(os.listdir(work.place)):05}"
    fresh.mkdir()
    if work.before is not None:
        work.before()
    start = time.perf_counter()
    run(work.script, NEW=fresh)
    return time.perf_counter() - start


def _bash(script: str) -> list[str]:
    return ["bash", "-o", "pipefail", "-ec", script]


def _broken(script: str, status: int, said: bytes = b"") -> BrokenRunError:
    text = said.decode(errors="replace").strip()
    return BrokenRunError(f"exit status {status} of: {script}" + (f"\n{text}" if text else ""))
