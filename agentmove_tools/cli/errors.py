"""Errors and notes on standard error: one line each, for a person or for a program."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from agentmove_tools.refusals import AgentMoveError, Refusal, UsageError

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
FAILED: Final = 3
INTERRUPTED: Final = 130  # what a shell gives for a program that Ctrl-C ended

# Whatever echoes a command line must not echo a secret key that was put there by mistake. What
# only names the form of one ("it starts with LNK-SECRET-KEY-1") is none.
_SECRET: Final = re.compile(r"(?:LNK|AGE)-SECRET-KEY-1[0-9a-z]{4,}", re.IGNORECASE)

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def shown(text: str) -> str:
    r"""Escape what a terminal would act on or not show: controls, bidi overrides, lone bytes.

    A byte that is not UTF-8 (a surrogate, as ``os.fsdecode`` makes them) is shown as ``\xff``.
    Spaces and printable Unicode stay as they are. Secret keys are left out.
    """
    text = _SECRET.sub("(a secret key)", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in text)


def _escaped(point: int) -> str:
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def say(name: str, text: str) -> None:
    """Write the note ``NAME: TEXT`` to standard error."""
    _write(f"{name}: {shown(text)}\n")


def wants_json(arguments: Sequence[str]) -> bool:
    """Say whether errors are told in JSON, before the command line is parsed.

    That is so that mistakes in the command line are told in JSON too.
    """
    if os.environ.get("AGENTMOVE_ERRORS") == "json":
        return True
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json-errors" in options


def report(name: str, error: BaseException, *, as_json: bool) -> int:
    """Write what ``error`` says to standard error; give the exit status."""
    told = _take_apart(error)
    if as_json:
        _write(_json_line(told))
        return told.status
    parts = [name, told.label, told.message]
    if told.place is not None:
        parts.insert(2, told.place)
    text = ": ".join(map(shown, parts)) + "\n"
    if told.hint is not None:
        text += f"{name}: hint: {shown(told.hint)}\n"
    _write(text)
    return told.status


class _Told(NamedTuple):
    """The parts of an error."""

    status: int
    label: str
    place: str | None
    message: str
    details: dict[str, object]
    hint: str | None = None


def _take_apart(error: BaseException) -> _Told:
    if isinstance(error, Refusal):
        label = f"refused: {error.code}"
        return _Told(REFUSED, label, error.place, error.message, {**error.details}, error.hint)
    if isinstance(error, AgentMoveError):
        usage = isinstance(error, UsageError)
        details: dict[str, object] = {**error.details}
        hint = details.pop("hint", None)
        path = details.get("path")
        return _Told(
            USAGE if usage else FAILED,
            "usage" if usage else "failed",
            path if isinstance(path, str) else None,
            error.message,
            details,
            None if hint is None else str(hint),
        )
    if isinstance(error, OSError) and error.strerror:
        place = None if error.filename is None else _name(error.filename)
        details = {} if place is None else {"path": place}
        return _Told(FAILED, "failed", place, error.strerror, details)
    if isinstance(error, RuntimeError) and "thread" in str(error):
        return _Told(FAILED, "failed", None, "no thread can be started: raise the limit", {})
    if isinstance(error, MemoryError):
        return _Told(FAILED, "failed", None, "out of memory", {})
    if isinstance(error, ImportError):
        message = f"the installation is not whole: {error}"
        return _Told(FAILED, "failed", None, message, {}, "install agentmove-tools again")
    return _Told(FAILED, "failed", None, _unforeseen(error), {})


def _name(filename: object) -> str:
    if isinstance(filename, str | bytes):
        return os.fsdecode(filename)
    return f"descriptor {filename}"


def _unforeseen(error: BaseException) -> str:
    """Say where it happened but not what the exception says: that may hold a secret's value."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        file = os.path.abspath(trace.tb_frame.f_code.co_filename)
        if file.startswith(_PACKAGE + os.sep):
            where = f" at {os.path.relpath(file, _PACKAGE)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"this is a mistake in the program, please report it: {type(error).__name__}{where}"


def _json_line(told: _Told) -> str:
    import json  # noqa: PLC0415  (only an error in JSON needs it)

    message = told.message
    if told.place is not None and told.place not in told.details.values():
        message = f"{told.place}: {message}"
    details = told.details if told.hint is None else {**told.details, "hint": told.hint}
    return json.dumps({"error": {"message": _clean(message), "details": _clean(details)}}) + "\n"


def _clean(value: object) -> object:
    """Make a value one that any JSON reader takes (no lone surrogates), without a secret key."""
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if not isinstance(value, str):
        return value
    value = _SECRET.sub("(a secret key)", value)
    return "".join(_escaped(ord(c)) if "\ud800" <= c <= "\udfff" else c for c in value)


def _write(text: str) -> None:
    """Write to standard error at once, so that the lines of a pipeline do not mix."""
    data = text.encode("utf-8", "backslashreplace")
    with suppress(OSError):  # there is nowhere left to say it; the exit status still does
        while data:
            data = data[os.write(2, data) :]
