"""JSON texts of many MiB, read in windows, so that memory goes by the window and not by the values.

What Python makes of a dense text takes twenty times the text's own size. Here a text is cut at
commas, each piece is closed with the brackets that are open at its end and opened with those that
are open at its start, and the scanner of ``json_values`` reads it as a text of its own. The pieces
hold if and only if the whole does.
"""

from __future__ import annotations

import codecs
import heapq
import io
import json
import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from agentmove_tools.json_values import (
    MAX_DEPTH,
    NO_BRACKETS,
    NO_VALUE,
    NOT_UTF8,
    SPACE,
    STRINGS,
    check_start,
    check_surrogates,
    form_of,
    form_of_scanned,
    parse,
    refusal,
    said,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

LARGE: Final = 1 << 20  # bytes of a text from which on it is worth it

_WINDOW: Final = 1 << 18
_PIECE: Final = 1 << 20
_BLANKS: Final = SPACE.encode()

# Neither can be in a text, in which a lone surrogate is refused.
_CHILD: Final = "\ud800"  # the key of a member that began in an earlier window
ELIDED: Final = "\ud801"  # stands for a string that was too long for a window
_CHILD_KEY: Final = b'{"\\ud800":'
_ELIDED_TEXT: Final = b'"\\ud801"'

# From a place outside strings on, as far as no string is cut; it never tries a second way.
_OUTSIDE: Final = re.compile(rb'(?:[^"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_VALID_STRING: Final = re.compile(
    rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
)
# Between two commas at most so many containers end, so many begin, each with a key, and a value.
_TOKENS: Final = re.compile(STRINGS.pattern + rb"|[][{}]")
_MOST_TOKENS: Final = 4 * MAX_DEPTH


# What the scanner gives for a list or an object.
_Container: TypeAlias = Any


class _Window(NamedTuple):
    """A piece of the text as a value: the outermost container, as far as it is in this window.

    ``held``: how many containers were open at its start; each is the first in the one around it.
    ``least``: how many of these stayed open all through. ``open``: how many are at its end; from
    ``least`` on each is the last in the one around it.
    """

    value: _Container
    held: int
    least: int
    open: int


def outline(text: bytes, wanted: Collection[str]) -> object:
    """The value of a text without what is in it; all of the text is checked.

    A list comes empty. An object comes with those of the ``wanted`` members that it has, and a list
    or an object among these comes empty too, and a string of over 256 KiB as ``ELIDED``. Raises
    ``Refusal`` (canon-json).
    """
    found: object = None
    for window in _windows(text, elide=True):
        new = _outline_of(window.value, wanted)
        if isinstance(found, dict) and isinstance(new, dict):
            found |= new
        else:
            found = new
    return found


def _outline_of(value: object, wanted: Collection[str]) -> object:
    if isinstance(value, dict):
        return {key: _emptied(value[key]) for key in wanted if key in value}
    return _emptied(value)


def _emptied(value: object) -> object:
    if isinstance(value, dict):
        return {}
    return [] if isinstance(value, list) else value


def names_in(text: bytes) -> Iterator[str]:
    """The keys of an object's members, or the strings of a list, as they come.

    One of over 256 KiB is left out. Raises ``Refusal`` (canon-json).
    """
    for window in _windows(text, elide=True):
        for name in window.value if isinstance(window.value, dict | list) else ():
            if isinstance(name, str) and name not in (_CHILD, ELIDED):
                yield name


def form(text: bytes) -> bytes:
    """The one form of a text. Raises ``Refusal`` (canon-json)."""
    return bytes(_formed(text).whole)


def members(text: bytes, wanted: Collection[str]) -> dict[str, bytes] | None:
    """The one forms of these members of an object, as far as it has them; None for another value.

    Raises ``Refusal`` (canon-json).
    """
    former = _formed(text, wanted=wanted)
    if former.found is not None or not former.whole.startswith(b"{"):
        return former.found
    value = parse(bytes(former.whole))  # of few members, since it came in one window
    return {n: form_of(value[n]) for n in wanted if n in value} if isinstance(value, dict) else None


def with_members(text: bytes, changed: Mapping[str, bytes | None]) -> bytes:
    """The one form of an object in which these members have these forms; None takes one out.

    Raises ``Refusal`` (canon-json), ``TypeError`` for another value than an object.
    """
    former = _formed(text, changed=changed)
    if former.found is not None:
        return bytes(former.whole)
    value = parse(bytes(former.whole))  # as above
    if not isinstance(value, dict):
        raise TypeError
    for name, form_ in changed.items():
        value.pop(name, None)
        if form_ is not None:
            value[name] = parse(form_)
    return form_of(value)


def _formed(
    text: bytes, *, wanted: Collection[str] = (), changed: Mapping[str, bytes | None] | None = None
) -> _Former:
    former = _Former(wanted, changed or {})
    for window in _windows(text, elide=False):
        former.take(window)
    return former


# -- windows


def _windows(text: bytes, *, elide: bool) -> Iterator[_Window]:
    _check_utf8(text)
    check_start(text)
    check_surrogates(text)
    stack = bytearray()  # the opening brackets of what is open
    for start, piece, is_last in _pieces(text, elide=elide):
        _check_ends(piece, start, is_last=is_last, is_open=bool(stack))
        prefix = _opened(stack)
        held = len(stack)
        least = _follow(piece, stack)
        if is_last and stack:
            raise refusal("it ends before its value does")
        decoded = (prefix + piece.strip(_BLANKS) + _closed(stack)).decode()
        try:
            value, end = scan(decoded, 0, ordered=not elide)
        except json.JSONDecodeError as error:
            raise refusal(f"{said(error, at=False)} in what follows byte {start}") from None
        if end != len(decoded) or not (is_last or stack):
            raise refusal(f"something follows the value, after byte {start}")
        yield _Window(value, held, least, len(stack))


def _pieces(text: bytes, *, elide: bool) -> Iterator[tuple[int, bytes, bool]]:
    """The text cut at commas outside strings: where each piece starts, it, whether it is the last.

    The commas themselves are left out. With ``elide`` a string that is longer than a window is
    checked where it is, and ``ELIDED`` stands for it.
    """
    head = b""  # of a piece with a long string, up to the string's end
    at = start = 0
    size = _WINDOW
    while at + size < len(text):
        window = head + text[at : at + size]
        outside = _end_of_outside(window, len(window))
        cut = _last_comma(window, outside)
        if cut >= 0:
            yield start, window[:cut], False
            at += cut + 1 - len(head)
            start = at
            head = b""
            size = _WINDOW
            continue
        _check_sparse(window, outside)
        size *= 2
        if elide and outside < len(window):
            string = _VALID_STRING.match(text, at + outside - len(head))
            if string is None:
                raise refusal(f"a string that is not closed or not valid, after byte {start}")
            if string.end() - string.start() > _WINDOW:
                head = window[:outside] + _ELIDED_TEXT
                at = string.end()
                size = _WINDOW
    yield start, head + text[at:], True


def _check_sparse(window: bytes, end: int) -> None:
    """Refuse a piece without a comma that holds more than what can be between two."""
    tokens = islice(_TOKENS.finditer(window, 0, end), _MOST_TOKENS + 1)
    if sum(1 for _ in tokens) > _MOST_TOKENS:
        raise refusal(f"nested over {MAX_DEPTH} deep, or without commas")


def _end_of_outside(window: bytes, end: int) -> int:
    match = _OUTSIDE.match(window, 0, end)
    return 0 if match is None else match.end()


def _last_comma(window: bytes, end: int) -> int:
    """Where the last comma outside strings is, before ``end``, which is outside; -1 without one."""
    comma = window.rfind(b",", 0, end)
    if comma < 0 or _end_of_outside(window, comma) == comma:
        return comma
    # It is in a string, and so may be those before it: look once more, with all strings masked.
    masked = STRINGS.sub(lambda string: b'"' * len(string.group()), window[:end])
    return masked.rfind(b",")


def _check_ends(piece: bytes, start: int, *, is_last: bool, is_open: bool) -> None:
    """See that there is a value on both sides of each comma that the text was cut at."""
    bare = piece.strip(_BLANKS)
    if not bare and start == 0 and is_last:
        raise refusal(NO_VALUE)
    if start and not is_open:
        raise refusal(f"something follows the value, before byte {start}")
    if not bare or (start and bare[0] in b"]}") or (not is_last and bare[-1] in b"[{"):
        raise refusal(f"a comma without a value, after byte {start}")


def _follow(piece: bytes, stack: bytearray) -> int:
    """Open and close what a piece does, and give how few containers were open meanwhile."""
    least = len(stack)
    for bracket in STRINGS.sub(b"", piece).translate(None, NO_BRACKETS):
        if bracket in b"[{":
            stack.append(bracket)
            if len(stack) > MAX_DEPTH:
                raise refusal(f"it is nested over {MAX_DEPTH} deep")
        elif stack:
            stack.pop()  # whether the brackets are of one kind the scanner sees
            least = min(least, len(stack))
        else:
            raise refusal("it closes more brackets than it opens")
    return least


def _opened(stack: bytearray) -> bytes:
    outer = b"".join(_CHILD_KEY if bracket == ord("{") else b"[" for bracket in stack[:-1])
    return outer + bytes(stack[-1:])


def _closed(stack: bytearray) -> bytes:
    return bytes(stack).translate(bytes.maketrans(b"[{", b"]}"))[::-1]


def _check_utf8(text: bytes) -> None:
    if text.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(text), _PIECE):
            decoder.decode(text[at : at + _PIECE], final=at + _PIECE >= len(text))
    except UnicodeDecodeError:
        raise refusal(NOT_UTF8) from None


# -- forms


class _Array:
    """A list whose end has not come yet; its elements are there in the one form."""

    def __init__(self) -> None:
        self._form = bytearray(b"[")

    def add(self, form: bytes | bytearray) -> None:
        """Add one element."""
        if len(self._form) > 1:
            self._form += b","
        self._form += form

    def extend(self, values: list[object]) -> None:
        """Add elements that were scanned last."""
        if values:
            self.add(form_of_scanned(values)[1:-1].encode())

    def close(self) -> bytearray:
        """The form of the whole."""
        self._form += b"]"
        return self._form


class _Object:
    """An object whose end has not come yet.

    Its members, of which none holds a line feed in the one form, are the lines of ``_runs``; each
    run is sorted by key, and a member of a later run takes the place of one before.
    """

    def __init__(self) -> None:
        self._runs: list[bytes | bytearray] = []
        self.key = ""  # of the member whose end has not come yet

    def add(self, form: bytes | bytearray) -> None:
        """Add the member whose end had not come."""
        self._runs.append(form_of_scanned(self.key).encode() + b":" + form)

    def extend(self, members: dict[str, object]) -> None:
        """Add members that were scanned last."""
        if members:
            lines = (
                f"{form_of_scanned(key)}:{form_of_scanned(members[key])}" for key in sorted(members)
            )
            self._runs.append("\n".join(lines).encode())

    def close(self) -> bytearray:
        """The form of the whole."""
        return self.close_with((), {})[0]

    def close_with(
        self, wanted: Collection[str], changed: Mapping[str, bytes | None]
    ) -> tuple[bytearray, dict[str, bytes]]:
        """The form of the whole, with some members ``changed``, and the forms of the ``wanted``."""
        for name in sorted(changed):
            self.key = name
            self.add(changed[name] or b"")
        form = bytearray(b"{")
        found: dict[str, bytes] = {}
        held = b""
        held_key = None
        merged = heapq.merge(*map(_members, self._runs), key=lambda member: member[0])
        for key, line in chain(merged, ((None, b""),)):
            if held_key is not None and key != held_key:
                if held_key in wanted:
                    found[held_key] = held[len(form_of_scanned(held_key).encode()) + 1 :]
                if changed.get(held_key, held) is not None:
                    form += held
                    form += b","
            held_key, held = key, line
        if len(form) > 1:
            form.pop()
        form += b"}"
        return form, found


def _members(run: bytes | bytearray) -> Iterator[tuple[str, bytes]]:
    for line in io.BytesIO(run):
        quoted = STRINGS.match(line)
        if quoted is not None:
            key = quoted.group()
            plain = b"\\" not in key
            yield key[1:-1].decode() if plain else json.loads(key), line.removesuffix(b"\n")


class _Former:
    """Puts the one form together, window by window; ``whole`` is there after the last.

    ``wanted`` and ``changed``: members of an object that is the whole. ``found``: the forms of the
    wanted ones; None where the whole is no object, or came in one window.
    """

    def __init__(self, wanted: Collection[str], changed: Mapping[str, bytes | None]) -> None:
        self._frames: list[_Array | _Object] = []
        self._wanted = wanted
        self._changed = changed
        self.whole: bytes | bytearray = b""
        self.found: dict[str, bytes] | None = None

    def take(self, window: _Window) -> None:
        """Take the next window, while ``form_of_scanned`` is of what was scanned for it."""
        if not window.held:
            self._begin(window.value, window.open)
            return
        spine = [window.value]
        while len(spine) < window.held:
            spine.append(_first(spine[-1]))
        ended: bytes | bytearray | None = None  # the form of what ended one level further in
        for level in range(window.held - 1, max(window.least - 2, -1), -1):
            frame = self._frames[level]
            if ended is not None:
                frame.add(ended)
            new = _without_first(spine[level]) if level < window.held - 1 else spine[level]
            if level < window.least:
                self._extend(frame, new, window.open - window.least)
                return
            frame.extend(new)
            self._frames.pop()
            if level or isinstance(frame, _Array):
                ended = frame.close()
            else:
                ended, self.found = frame.close_with(self._wanted, self._changed)
        if ended is not None:
            self.whole = ended

    def _begin(self, value: object, still_open: int) -> None:
        """Take a value of which so many containers, it among them, have not ended."""
        if not still_open:
            self.whole = form_of_scanned(value).encode()
            return
        frame = _Object() if isinstance(value, dict) else _Array()
        self._frames.append(frame)
        self._extend(frame, value, still_open - 1)

    def _extend(self, frame: _Array | _Object, new: _Container, still_open: int) -> None:
        """Take what is new in a container that has not ended; so many in it have not either."""
        if not still_open:
            frame.extend(new)
            return
        if isinstance(frame, _Object):
            frame.key, last = new.popitem()
        else:
            last = new.pop()
        frame.extend(new)
        self._begin(last, still_open)


def _first(container: _Container) -> _Container:
    return container[_CHILD] if isinstance(container, dict) else container[0]


def _without_first(container: _Container) -> _Container:
    if isinstance(container, dict):
        del container[_CHILD]
        return container
    return container[1:]
