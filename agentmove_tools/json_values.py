"""A JSON text's value, and the one form of that (Move Stream, section 7).

Python's own scanner and encoder, which are written in C, give the one form for nearly every text;
the hooks below notice the rest: small numbers, which Python lays out otherwise, and integers too
long for it, which a slower writer of ours writes.
"""

from __future__ import annotations

import json
import math
import re
import threading
from dataclasses import dataclass
from typing import Final

from agentmove_tools.refusals import Refusal

MAX_DEPTH: Final = 127
# What a refusal's ``why`` is for these.
LONE_SURROGATE: Final = "a lone surrogate"
NOT_UTF8: Final = "it is not UTF-8"
NO_VALUE: Final = "there is no value"
# Python converts fewer digits than this whatever its limit is set to; with none, in quadratic time.
_LONG_INTEGER: Final = 640

# A string, or what there is of one that does not end. It never tries a second way to match, which
# would be quadratic in a text made for it.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
STRINGS: Final = re.compile(_STRING.encode())
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
# How Python writes the numbers that the one form writes with fewer zeros, or with more.
_SMALL: Final = re.compile(_STRING + r"|([0-9])(?:\.([0-9]+))?e-0([5-9])")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F](?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD].)[0-9a-fA-F]{2})"
)


@dataclass(frozen=True, slots=True)
class LongInteger:
    """An integer of very many digits, kept as its JSON text."""

    digits: str


class _Bad(ValueError):
    """The text holds what the one form cannot."""


def value_and_form(text: bytes) -> tuple[object, bytes]:
    """What ``parse`` gives, and its one form, in one reading of the text.

    Raises ``Refusal`` (canon-json).
    """
    value = parse(text)
    return value, form_of_scanned(value).encode()


def form_of_scanned(value: object) -> str:
    """The one form of the value that ``scan`` or ``parse`` gave last in this thread."""
    if _hooks.long:
        return _write(value)
    form = _encode(value)
    return _SMALL.sub(_laid_out, form) if _hooks.small else form


def parse(text: bytes) -> object:
    """The value of a JSON text that the one form can hold, as Python's ``json`` gives it.

    An integer of over 640 digits comes as a ``LongInteger``. Raises ``Refusal`` (canon-json).
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise refusal(NOT_UTF8) from None
    check_start(text)
    # The scanner goes as deep as Python's stack; this also bounds it before it starts.
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_too_deep(text):
        raise refusal(f"it is nested over {MAX_DEPTH} deep")
    check_surrogates(text)
    start = len(decoded) - len(decoded.lstrip(SPACE))
    if start == len(decoded):
        raise refusal(NO_VALUE)
    try:
        value, end = scan(decoded, start)
    except json.JSONDecodeError as error:
        raise refusal(said(error)) from None
    if end != len(decoded) and decoded[end:].strip(SPACE):
        raise refusal(f"something follows the value, from character {end + 1} on")
    return value


def check_start(text: bytes) -> None:
    """Raise ``Refusal`` (canon-json) for a byte order mark, which JSON does not have."""
    if text.startswith(b"\xef\xbb\xbf"):
        raise refusal("it starts with a byte order mark: remove that")


def check_surrogates(text: bytes) -> None:
    """Raise ``Refusal`` (canon-json) where a string of the text holds a lone surrogate."""
    # A value under a key that comes again is dropped, so its surrogates are looked for here.
    if (
        rb"\u" in text
        and _SURROGATE.search(text)
        and _LONE_SURROGATE.search(text.replace(rb"\\", b"--"))
    ):
        raise refusal(LONE_SURROGATE)


def scan(text: str, start: int, *, ordered: bool = False) -> tuple[object, int]:
    """The value that starts there, and where it ends, of a text that is not nested too deep.

    With ``ordered`` the members of an object come in the order of their last appearances. Raises
    ``json.JSONDecodeError``, and ``Refusal`` (canon-json) for what the one form cannot hold.
    """
    hooks = _hooks
    hooks.small = hooks.long = False
    try:
        return hooks.scan_ordered(text, start) if ordered else hooks.scan(text, start)
    except _Bad as error:
        raise refusal(str(error)) from None


def form_of(value: object) -> bytes:
    """The one form of a value that ``parse`` gave, or one made of the same types.

    Raises ``Refusal`` (canon-json) for a lone surrogate, NaN and an infinity.
    """
    try:
        return _write(value).encode()
    except UnicodeEncodeError:
        raise refusal(LONE_SURROGATE) from None
    except ValueError:
        raise refusal("NaN or an infinity is no JSON value") from None


def refusal(why: str, *, path: bytes | None = None, line: int | None = None) -> Refusal:
    """The refusal of a text that the one form cannot hold (canon-json)."""
    place = None if line is None else f"line {line}"
    return Refusal("canon-json", why, path=path, place=place, line=line)


class _Hooks(threading.local):
    """What Python's scanner calls for each number; notices what its encoder gets wrong."""

    def __init__(self) -> None:
        self.small = False  # there is a number that Python may lay out otherwise
        self.long = False  # there is a ``LongInteger``
        self.scan = json.JSONDecoder(
            parse_float=self.real, parse_int=self.integer, parse_constant=self.constant
        ).raw_decode
        self.scan_ordered = json.JSONDecoder(
            parse_float=self.real,
            parse_int=self.integer,
            parse_constant=self.constant,
            object_pairs_hook=_by_last_appearance,
        ).raw_decode

    def real(self, text: str) -> float:
        value = float(text)
        if -1e-4 < value < 1e-4:
            self.small = True
        elif math.isinf(value):
            raise _Bad("a number past the range of a double")
        return value

    def integer(self, text: str) -> int | float | LongInteger:
        if text == "-0":
            return -0.0
        if len(text) > _LONG_INTEGER:
            self.long = True
            return LongInteger(text)
        return int(text)

    def constant(self, text: str) -> object:
        raise _Bad(f"{text} is no JSON value")


def _by_last_appearance(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):  # a key that comes again keeps its first place
        members.clear()
        for key, value in pairs:
            members.pop(key, None)
            members[key] = value
    return members


_hooks = _Hooks()
_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
SPACE: Final = " \t\n\r"


def said(error: json.JSONDecodeError, *, at: bool = True) -> str:
    """What the scanner says, and ``at`` which character."""
    what = error.msg.removesuffix(" at")
    what = what[:1].lower() + what[1:]
    return f"{what} at character {error.pos + 1}" if at else what


def _is_too_deep(text: bytes) -> bool:
    depth = 0
    for bracket in STRINGS.sub(b"", text).translate(None, NO_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        else:
            depth -= 1
    return False


def _write(value: object) -> str:
    """Write a value part by part, so that it may hold what Python's encoder does not take."""
    if isinstance(value, dict):
        members = (f"{_encode(key)}:{_write(value[key])}" for key in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, LongInteger):
        return value.digits
    text = _encode(value)
    return _SMALL.sub(_laid_out, text) if isinstance(value, float) else text


def _laid_out(match: re.Match[str]) -> str:
    first, rest, power = match.groups("")
    if not first:
        return match.group()  # a string
    if power == "5":
        return f"0.0000{first}{rest}"
    return f"{first}.{rest}e-{power}" if rest else f"{first}e-{power}"
