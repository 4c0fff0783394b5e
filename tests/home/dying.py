"""A receiver that dies, or is failed by the system, at a chosen call of the operating system."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agentmove_tools.home import exchange

# Every call that changes something on the disk, and those that open it.
CALLS: Final = (
    "chmod",
    "chown",
    "copy_file_range",
    "fchmod",
    "fchown",
    "fsync",
    "link",
    "mkdir",
    "open",
    "rename",
    "rmdir",
    "symlink",
    "unlink",
    "utime",
    "write",
)
_HARMLESS: Final = ("fsync",)  # counted, but not done: a killed process loses nothing of the cache


def forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a child; its exit status, or minus the number of the signal it died of.

    The status is 0 when ``work`` returns, and 99 when it raises, which is then shown.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads in the parent: none of them holds a lock here
        child = os.fork()
    if child == 0:
        status = 99
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - the child must not go on with the parent's tests
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _watched(before: Callable[[str], None]) -> None:
    """Have ``before`` called ahead of every call that is counted, in this process for good."""

    def wrap(name: str, real: Callable[..., object], *, skip: bool) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            before(name)
            return None if skip else real(*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, wrap(name, getattr(os, name), skip=name in _HARMLESS))
    module: Any = exchange
    module.exchange = wrap("exchange", module.exchange, skip=False)
    module.sync_file_system = wrap("sync", module.sync_file_system, skip=True)


def die_at(number: int, work: Callable[[], object], *, of: str | None = None) -> bool:
    """Run ``work`` in a child that is killed just before its call ``number``; whether it was.

    Counted are all calls, or those of one name.
    """

    def child() -> None:
        count = itertools.count(1)

        def before(name: str) -> None:
            if of in (None, name) and next(count) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        _watched(before)
        work()

    status = forked(child)
    assert status in (0, -signal.SIGKILL)
    return status != 0


def calls_of(work: Callable[[], object], log: Path) -> list[str]:
    """The calls that ``work`` makes, in order; it runs in a child."""

    def child() -> None:
        made: list[str] = []
        _watched(made.append)
        work()
        names = "\n".join(made)
        with log.open("w") as file:
            file.write(names)

    assert forked(child) == 0
    return log.read_text().split("\n")
