"""Texts and JSON that a database has to hold: checked here, with the field's name (section 4)."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agentmove_tools import json_values, large_json
from agentmove_tools.package.limits import MAX_JSON, MAX_NAME
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_LONGEST_KEY: Final = 40  # characters of a key that an error shows
_ESCAPED_NUL: Final = b"\\u0000"
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")


def checked_text(pieces: Iterable[bytes], path: str, field: str) -> Iterable[bytes]:
    """The pieces of a text as they come, checked.

    Raises ``Refusal`` (field-encoding, field-nul).
    """
    if isinstance(pieces, tuple) and len(pieces) == 1 and b"\0" not in pieces[0]:
        # nearly every file is so, and this is the quick way
        if pieces[0].isascii():
            return pieces
        with suppress(UnicodeDecodeError):
            pieces[0].decode()
            return pieces
    return _checked_pieces(pieces, path, field)


def _checked_pieces(pieces: Iterable[bytes], path: str, field: str) -> Iterator[bytes]:
    decoder = None
    line = 1
    for piece in pieces:
        if b"\0" in piece:
            line += piece.count(b"\n", 0, piece.index(b"\0"))
            raise _refusal("field-nul", path, field, line)
        if decoder is not None or not piece.isascii():
            decoder = decoder or codecs.getincrementaldecoder("utf-8")()
            held = len(decoder.getstate()[0])  # of a character that began in the piece before
            try:
                decoder.decode(piece)
            except UnicodeDecodeError as error:
                line += piece.count(b"\n", 0, max(0, error.start - held))
                raise _refusal("field-encoding", path, field, line) from None
        line += piece.count(b"\n")
        yield piece
    if decoder is not None:
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise _refusal("field-encoding", path, field, line) from None


def json_text(pieces: Iterable[bytes], path: str, field: str, *, longest: int = MAX_JSON) -> bytes:
    """The whole text of a JSON file. Raises ``Refusal`` (field-json) over ``longest`` bytes."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > longest:
            raise too_long(path, field, longest=longest)
    return held[0] if len(held) == 1 else b"".join(held)


def json_value(
    text: bytes,
    path: str,
    field: str,
    *,
    wanted: Collection[str] = (),
    secret: bool = False,
    line: int | None = None,
) -> object:
    """The value of a JSON text that a database can hold; the ``outline`` of a large one.

    Of a ``secret`` one errors name no key: it may be part of a value. Raises ``Refusal``
    (field-json, field-encoding, field-surrogate, field-nul).
    """
    try:
        if len(text) > large_json.LARGE:
            value = large_json.outline(text, wanted)
        else:
            value = json_values.parse(text)
    except Refusal as refusal:
        raise of_json(refusal, path, field, line=line) from None
    check_no_nul(text, None if secret else value, path, field, line=line)
    return value


def of_json(refusal: Refusal, path: str, field: str, *, line: int | None = None) -> Refusal:
    """What a refusal of the one form (canon-json) is called in a package."""
    code = _CODES.get(refusal.why, "field-json")
    why = "" if code != "field-json" else refusal.why
    if why == json_values.NO_VALUE and line is not None:
        why = "it is an empty line: remove it"
    return _refusal(code, path, field, line, why)


_CODES: Final = {
    json_values.LONE_SURROGATE: "field-surrogate",
    json_values.NOT_UTF8: "field-encoding",
}


def check_no_nul(
    text: bytes, value: object, path: str, field: str, *, line: int | None = None
) -> None:
    """Raise ``Refusal`` (field-nul) where a string or a key of ``text``'s value holds a NUL.

    The error names the member of ``value`` that does.
    """
    if _ESCAPED_NUL in text and _NUL.search(text):
        # in a large text, or below a key that comes again, it may be nowhere in the value
        raise _refusal("field-nul", path, _nul_in(value, field) or field, line)


def _nul_in(value: object, field: str) -> str | None:
    """The member of ``value`` that holds a NUL, below ``field``."""
    if isinstance(value, str):
        return field if "\0" in value else None
    if isinstance(value, dict):
        for key, item in value.items():
            if "\0" in key:
                return field
            where = _nul_in(item, f"{field}.{key[:_LONGEST_KEY]}")
            if where is not None:
                return where
    elif isinstance(value, list):
        for item in value:
            where = _nul_in(item, field)
            if where is not None:
                return where
    return None


def member(value: dict[str, object], name: str, path: str, field: str) -> str | None:
    """The string ``name`` of an object, None where it is missing or null.

    Raises ``Refusal`` (field-json) for anything else.
    """
    found = value.get(name)
    if isinstance(found, str) and (len(found) > MAX_NAME or found == large_json.ELIDED):
        raise wrong_shape(path, f"{field}.{name}", f"its {name} is over {MAX_NAME} characters long")
    if found is None or isinstance(found, str):
        return found
    raise wrong_shape(path, f"{field}.{name}", f"its {name} is no text")


def wrong_shape(path: str, field: str, why: str, *, line: int | None = None) -> Refusal:
    """The refusal of JSON that is of another shape than it must be."""
    return _refusal("field-json", path, field, line, why)


def too_long(path: str, field: str, *, longest: int = MAX_JSON, line: int | None = None) -> Refusal:
    """The refusal of JSON that is over the limit."""
    return _refusal("field-json", path, field, line, f"it is longer than {longest >> 20} MiB")


def _refusal(code: str, path: str, field: str, line: int | None, why: str = "") -> Refusal:
    place = None if line is None else f"line {line}"
    return Refusal(code, why, path=path.encode(), place=place, field=field, line=line)
