"""The globs of ``--exclude``, which leave paths under ``files/`` out (section 4a)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentmove_tools.home.layout import FILES
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_WILDCARD = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]")


def _to_regex(glob: str) -> str:
    text = glob.removeprefix("files/") if glob.startswith("files/") else glob
    anchored = "/" in text.rstrip("/")
    text = text.strip("/")
    if not text:
        msg = f"an empty pattern for --exclude: {glob!r}"
        raise UsageError(msg)
    parts: list[str] = []
    at = 0
    for match in _WILDCARD.finditer(text):
        parts.append(re.escape(text[at : match.start()]))
        part = match.group()
        if part == "**/":
            parts.append("(?:.*/)?")
        elif part == "**":
            parts.append(".*")
        elif part == "*":
            parts.append("[^/]*")
        elif part == "?":
            parts.append("[^/]")
        else:
            inner = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            negated = inner.startswith("!")
            inner = inner.removeprefix("!")
            inner = "\\^" + inner[1:] if inner.startswith("^") else inner
            parts.append(f"[{'^/' if negated else ''}{inner}]")
        at = match.end()
    parts.append(re.escape(text[at:]))
    start = "" if anchored or glob.startswith("files/") else "(?:.*/)?"
    return start + "".join(parts)


class Exclusion:
    """What ``--exclude`` leaves out.

    A glob without a ``/`` fits a name at any depth, one with a ``/`` the path below ``files/``
    from its start; ``*`` and ``?`` stop at a ``/``, ``**`` does not. What lies below a folder that
    fits is left out with it.
    """

    def __init__(self, globs: Sequence[str]) -> None:
        """Read the globs. Raises ``UsageError`` for one that cannot be read."""
        self._pattern: re.Pattern[str] | None = None
        if globs:
            try:
                self._pattern = re.compile("|".join(map(_to_regex, globs)), re.DOTALL)
            except re.error as error:
                msg = f"a pattern for --exclude cannot be read: {error}"
                raise UsageError(msg) from None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def __call__(self, path: bytes) -> bool:
        """Whether the path is left out, by itself; its folders are asked for before it."""
        if self._pattern is None or not path.startswith(FILES + b"/"):
            return False
        return self._pattern.fullmatch(path[len(FILES) + 1 :].decode(errors="replace")) is not None
