"""What is said to PostgreSQL's programs by the environment, and what they say when they fail."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

# What the loader needs on systems that have no libraries in the usual places.
_LOADER: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
_GRAVE: Final = re.compile(r"\b(?:error|ERROR|FATAL|PANIC):\s+(.+)")
_HEAD: Final = re.compile(r"^\S+ \S+ UTC \[\d+\] [A-Z]+:\s+")  # of a line in the server's log
_FULL: Final = os.strerror(errno.ENOSPC)  # whatever else is said then follows from it
# What the server tells those who knock too early.
_NOT_YET: Final = "the database system is "


def environment() -> dict[str, str]:
    """The environment of a program of ours: nothing of this one's that would steer PostgreSQL."""
    kept = {name: os.environ[name] for name in _LOADER if name in os.environ}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TZ": "UTC", **kept}


def telling_line(output: bytes) -> str | None:
    """The one line of a failed program's output that tells why it failed; None if it was silent."""
    lines = [line.strip() for line in output.decode("utf-8", "backslashreplace").splitlines()]
    grave = [found[1] for line in lines if (found := _GRAVE.search(line)) is not None]
    grave = [text for text in grave if not text.startswith(_NOT_YET)]
    lines = [_HEAD.sub("", line) for line in lines if line]
    full = [text for text in grave if _FULL in text]
    for texts in (full, grave, lines):
        if texts:
            return texts[-1]
    return None
