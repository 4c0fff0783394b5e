"""The file that ``--have`` names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentmove_tools.cli.pipes import InputPipe
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def read_have(file: Path | None) -> dict[bytes, bytes] | None:
    """What the other end holds, digests by path; None where no file is named.

    Raises ``UsageError`` where it is not what ``lnk-have`` prints, and ``OSError``.
    """
    from agentmove_tools.stream.have import parse_have  # noqa: PLC0415  (only where it is needed)

    if file is None:
        return None
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return parse_have(InputPipe(descriptor, str(file)))
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}", **error.details) from None
    finally:
        os.close(descriptor)
