"""The one form of a JSON value (Move Stream, section 7).

Two senders must hash the same event the same. Python's own scanner and encoder, which are written
in C, give the one form for nearly every text; the hooks below notice the rest (numbers that Python
lays out otherwise, or cannot hold), and only then a slower writer of ours is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.streams import ByteSource

MAX_DEPTH: Final = 127
MAX_LINE: Final = 64 << 20  # bytes of one line
_PIECE: Final = 1 << 18
_LONG_INTEGER: Final = 4000  # digits; Python converts up to 4300, in quadratic time

# Everything in a text that is neither a string nor a bracket is passed over.
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_ESCAPES: Final = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class _Digits(str):
    """An integer that is kept as its digits."""

    __slots__ = ()


class _Odd(Exception):  # noqa: N818 - it is no error
    """Python's encoder would not give the one form."""


class _Bad(ValueError):
    """The text holds what the one form cannot."""


def canonical(text: bytes) -> bytes:
    """The one form of a text that holds one JSON value, with white space around it or none.

    Raises ``Refusal`` (canon-json), whose ``why`` says what was seen.
    """
    value, odd = _parse(text)
    try:
        if odd:
            return _write(value).encode()
        return _encode(value).encode()
    except UnicodeEncodeError:
        raise _refusal("a lone surrogate") from None


def parse(text: bytes) -> object:
    """The value of a JSON text that the one form can hold, as Python's ``json`` gives it.

    An integer over 4000 digits comes as its digits. Raises ``Refusal`` (canon-json).
    """
    return _parse(text)[0]


def form_of(value: object) -> bytes:
    """The one form of a value that ``parse`` gave, or one made of the same types.

    Raises ``Refusal`` (canon-json) for a lone surrogate.
    """
    try:
        return _write(value).encode()
    except UnicodeEncodeError:
        raise _refusal("a lone surrogate") from None


def is_canonical(text: bytes) -> bool:
    """Whether the text is a value in the one form."""
    try:
        return canonical(text) == text
    except Refusal:
        return False


def canonical_lines(
    source: ByteSource, *, path: bytes | None = None, drop_unended: bool = False
) -> Iterator[tuple[int, bytes, bool]]:
    r"""The one form of each line of ``source``: its number from 1, the form, whether it had a \n.

    Only a \n ends a line. A last line without one is a value like the others; with
    ``drop_unended`` it is not looked into and comes as ``b""``. Raises ``Refusal`` (canon-json)
    naming ``path`` and the line, and what ``source`` raises.
    """
    number = 0
    for line, ended in _lines(source, path):
        number += 1
        if not ended and drop_unended:
            yield number, b"", False
            return
        try:
            form = canonical(line)
        except Refusal as refusal:
            raise _refusal(refusal.why, path=path, line=number) from None
        yield number, form, ended


def hash_lines(source: ByteSource) -> bytes:
    r"""The SHA-256 of the one form of every line of ``source``, each ended by a \n.

    Raises ``Refusal`` (canon-json).
    """
    digest = hashlib.sha256()
    forms: list[bytes] = []
    size = 0
    for _, form, _ in canonical_lines(source):
        forms.append(form)
        size += len(form)
        if size > _PIECE:
            digest.update(b"\n".join(forms) + b"\n")
            forms.clear()
            size = 0
    if forms:
        digest.update(b"\n".join(forms) + b"\n")
    return digest.digest()


def _lines(source: ByteSource, path: bytes | None) -> Iterator[tuple[bytes, bool]]:
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    pieces: list[bytes] = []  # of a line whose end has not come yet
    size = 0
    number = 0
    while count := source.readinto(view):
        lines = bytes(view[:count]).split(b"\n")
        pieces.append(lines[0])
        size += len(lines[0])
        if size > MAX_LINE:
            raise _refusal("it is longer than 64 MiB", path=path, line=number + 1)
        if len(lines) > 1:
            yield b"".join(pieces), True
            number += len(lines) - 1
            for line in lines[1:-1]:
                yield line, True
            pieces = [lines[-1]]
            size = len(lines[-1])
    last = b"".join(pieces)
    if last:
        yield last, False


def _refusal(why: str, *, path: bytes | None = None, line: int | None = None) -> Refusal:
    place = None if line is None else f"line {line}"
    return Refusal("canon-json", why, path=path, place=place, line=line)


class _Hooks(threading.local):
    """What Python's scanner calls for each number; notices what its encoder gets wrong."""

    def __init__(self) -> None:
        self.odd = False
        self.scan = json.JSONDecoder(
            parse_float=self.real, parse_int=self.integer, parse_constant=self.constant
        ).scan_once

    def real(self, text: str) -> float:
        value = float(text)
        if math.isinf(value):
            msg = "a number past the range of a double"
            raise _Bad(msg)
        if "e-" in repr(value):
            self.odd = True
        return value

    def integer(self, text: str) -> int | float | _Digits:
        if text == "-0":
            return -0.0
        if len(text) > _LONG_INTEGER:
            self.odd = True
            return _Digits(text)
        return int(text)

    def constant(self, text: str) -> object:
        msg = f"{text} is no JSON value"
        raise _Bad(msg)


_hooks = _Hooks()
_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
_SPACE: Final = " \t\n\r"


def _parse(text: bytes) -> tuple[object, bool]:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise _refusal("it is not UTF-8") from None
    # The scanner goes as deep as Python's stack; this also bounds it before it starts.
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _refusal(f"it is nested over {MAX_DEPTH} deep")
    # A value under a key that comes again is dropped, so its surrogates are looked for here.
    if _SURROGATE.search(text) and _has_lone_surrogate(text):
        raise _refusal("a lone surrogate")
    stripped = decoded.strip(_SPACE)
    if not stripped:
        raise _refusal("there is no value")
    _hooks.odd = False
    try:
        value, end = _hooks.scan(stripped, 0)
    except StopIteration:
        raise _refusal("this is no JSON value") from None
    except _Bad as error:
        raise _refusal(str(error)) from None
    except json.JSONDecodeError as error:
        raise _refusal(_said(error)) from None
    if end != len(stripped):
        raise _refusal("something follows the value")
    return value, _hooks.odd


def _said(error: json.JSONDecodeError) -> str:
    if _CONTROL.match(error.doc[error.pos : error.pos + 1].encode("utf-8", "replace")):
        return "a control character in a string"
    return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"


def _depth(text: bytes) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        token = match.group()
        if token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"]}":
            depth -= 1
    return deepest


def _has_lone_surrogate(text: bytes) -> bool:
    high_end = -1  # where a high surrogate ended that still needs its low one
    for match in _ESCAPES.finditer(text):
        code = match.group(1)
        unit = int(code, 16) if code else 0
        if 0xDC00 <= unit <= 0xDFFF:
            if match.start() != high_end:
                return True
            high_end = -1
        else:
            if high_end >= 0:
                return True
            if 0xD800 <= unit <= 0xDBFF:
                high_end = match.end()
    return high_end >= 0


def _write(value: object) -> str:
    """Write a value whose numbers Python's encoder would lay out otherwise."""
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, float):
        return _write_float(value)
    if isinstance(value, dict):
        members = (f"{_encode(key)}:{_write(value[key])}" for key in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    return _encode(value)


def _write_float(value: float) -> str:
    text = repr(value)
    mantissa, _, exponent = text.partition("e-")
    if not exponent:
        return text
    power = int(exponent)
    if power != 5:  # noqa: PLR2004 - the one exponent that is written out and Python is not
        return f"{mantissa}e-{power}"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}0.0000{mantissa.lstrip('-').replace('.', '')}"
