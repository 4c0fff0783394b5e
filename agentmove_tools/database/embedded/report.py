"""What a keeper tells the client that started it: a line for each thing, in a pipe."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from agentmove_tools.refusals import MachineError

_PIPE: Final = 1
_ERRORS: Final = 2

WAITING: Final = b"waiting"
FAILED: Final = b"failed"
READY: Final = b"ready"


def waiting(what: str) -> None:
    """Tell what takes its time."""
    _say(WAITING + b" " + what.encode())


def failed(error: MachineError) -> None:
    """Tell why the server cannot be had."""
    import json  # noqa: PLC0415 - only a failure needs it

    _say(FAILED + b" " + json.dumps({"message": error.message, **error.details}).encode())


def ready(log: int) -> None:
    """Tell that the server takes connections; from here on the log gets what goes wrong."""
    _say(READY)
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, _PIPE)
    os.dup2(log, _ERRORS)
    os.close(nowhere)


def _say(line: bytes) -> None:
    with contextlib.suppress(OSError):  # the client may be gone, and the server is kept still
        os.write(_PIPE, line + b"\n")


def error_of(line: bytes) -> MachineError:
    """The error in a line that ``failed`` wrote."""
    import json  # noqa: PLC0415 - only a failure needs it

    details = json.loads(line)
    return MachineError(details.pop("message"), **details)
