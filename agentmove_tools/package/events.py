"""The events of a session, an event a line (Agent package, section 1)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from agentmove_tools import json_values, large_json
from agentmove_tools.canonical import canonical
from agentmove_tools.package.fields import (
    check_no_nul,
    of_json,
    too_long,
    wrong_shape,
)
from agentmove_tools.package.limits import MAX_EVENTS, MAX_ID, MAX_JSON
from agentmove_tools.package.pairs import Pairs
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TYPES: Final = ("user", "assistant", "tool_call", "tool_result", "summary")
# What PostgreSQL's timestamptz holds, in milliseconds since 1970: from 4713 BC to 294276 AD.
FIRST_TIME: Final = -210_866_803_200_000
LAST_TIME: Final = 9_224_318_015_999_999

_FIELD: Final = "message"
_TYPES: Final = frozenset(TYPES)
_SHORT_ID: Final = MAX_ID // 4  # characters, which have at most four bytes each
_MEMBERS: Final = ("id", "type", "ts", "data")
_TORN: Final = "its last line was cut short, as by a crash"
_TORN_HINT: Final = "--drop-torn-line leaves it out"


class Event:
    """One event of a session, checked.

    ``id`` is unique in its chat. ``type`` is one of ``TYPES``. ``ts``: milliseconds since 1970.
    ``value``: the whole event, as ``json_values.parse`` gives it; of a large one the
    ``large_json.outline`` with these members and its data. ``line``: its number in the file.
    """

    __slots__ = ("id", "line", "ts", "type", "value")

    def __init__(self, event_id: str, kind: str, ts: int, value: dict[str, object], line: int):
        self.id = event_id
        self.type = kind
        self.ts = ts
        self.value = value
        self.line = line


class Budget:
    """How many events a package may still hold, over all its sessions, repeated ones too."""

    def __init__(self) -> None:
        self.left = MAX_EVENTS

    def take(self, events: int, path: str) -> None:
        """Count so many events of a session. Raises ``Refusal`` (package-entries)."""
        if events > self.left:
            why = f"there are more than {MAX_EVENTS} events"
            raise Refusal("package-entries", why, path=path.encode())
        self.left -= events


class Chat:
    """One session as it is read: whose it is, and what was found in it.

    ``path`` names its file in errors. ``events`` counts those that differ, ``repeats`` the equal
    ones that came again. ``first`` and ``last``: the earliest and the latest time, milliseconds
    since 1970, None without events. ``torn`` says that a line cut short was left out.
    """

    def __init__(self, channel: str, user: str, path: str) -> None:
        self.channel = channel
        self.user = user
        self.path = path
        self.events = 0
        self.repeats = 0
        self.first: int | None = None
        self.last: int | None = None
        self.types: dict[str, int] = dict.fromkeys(TYPES, 0)
        self.torn = False


def lines_of(pieces: Iterable[bytes], path: str, number: int = 1) -> Iterator[tuple[bytes, bool]]:
    """The lines of a session, and whether each was ended; only a line feed ends one.

    ``number`` is that of the first of them in the file. Raises ``Refusal`` (field-json) for a line
    over the limit, before it is held.
    """
    held: list[bytes] = []  # of a line whose end has not come yet
    size = 0
    for piece in pieces:
        lines = piece.split(b"\n")
        size += len(lines[0])
        if size > MAX_JSON or (len(piece) > MAX_JSON and max(map(len, lines)) > MAX_JSON):
            sizes = [size, *map(len, lines[1:])]
            over = next(at for at, found in enumerate(sizes) if found > MAX_JSON)
            raise too_long(path, _FIELD, line=number + over)
        held.append(lines[0])
        if len(lines) == 1:
            continue
        yield b"".join(held) if len(held) > 1 else lines[0], True
        for line in lines[1:-1]:
            yield line, True
        number += len(lines) - 1
        held = [lines[-1]]
        size = len(lines[-1])
    last = b"".join(held)
    if last:
        yield last, False


def read_events(
    content: Callable[[], Iterable[bytes]],
    chat: Chat,
    budget: Budget,
    *,
    drop_torn_line: bool,
    forms: bool,
    after: int = 0,
) -> Iterator[tuple[Event, bytes]]:
    """Each event of a session and, with ``forms``, its one form, in the file's order.

    One that is there again, equal, does not come again. All is counted in ``chat``. ``content``
    gives the file's pieces, a second time where lines of one ID differ and their forms have to be
    compared, which is done last. ``after``: so many lines come before these and are known to hold
    an event each; they count in the budget. Raises ``Refusal``: field-json, -timestamp, -nul,
    -surrogate, -encoding, event-type, event-duplicate, package-entries; and what ``content``
    raises.
    """
    seen = Pairs()  # the hash of each ID, and that of its line
    compare = False
    path = chat.path
    types = chat.types
    first, last = LAST_TIME + 1, FIRST_TIME - 1
    number = after
    form = b""
    for number, (line, ended) in enumerate(lines_of(content(), path, after + 1), after + 1):
        try:
            if len(line) > large_json.LARGE:
                value = large_json.outline(line, _MEMBERS)
                form = large_json.form(line) if forms else b""
            elif forms:
                value, form = json_values.value_and_form(line)
            else:
                value = json_values.parse(line)
        except Refusal as refusal:
            if ended or not _is_cut(line, refusal):
                raise of_json(refusal, path, _FIELD, line=number) from None
            if not drop_torn_line:
                raise _torn(path, number) from None
            chat.torn = True
            break
        if number > budget.left:
            why = f"there are more than {MAX_EVENTS} events"
            raise Refusal("package-entries", why, path=path.encode(), place=f"line {number}")
        if len(form) > MAX_JSON:  # it may be longer than the line, by its numbers
            raise too_long(path, _FIELD, line=number)
        event = checked_event(value, line, path, number)
        own = hash(line)
        known = seen.keep(hash(event.id), own)
        if known is not None:
            compare |= known != own
            chat.repeats += 1
            continue
        types[event.type] += 1
        ts = event.ts
        if ts < first:  # noqa: PLR1730 (a call for each event takes longer)
            first = ts
        if ts > last:  # noqa: PLR1730
            last = ts
        yield event, form
    chat.events = len(seen)
    budget.left -= number - chat.torn
    if seen:
        chat.first, chat.last = first, last
    if compare:
        _compare_repeats(content(), path, after)


def whole_event(line: bytes, path: str, number: int) -> tuple[Event, bytes]:
    """The event in one line, and its one form: what ``read_events`` takes, and nothing else.

    Raises ``Refusal`` as that does for one event.
    """
    try:
        if len(line) > large_json.LARGE:
            value, form = large_json.outline(line, _MEMBERS), large_json.form(line)
        else:
            value, form = json_values.value_and_form(line)
    except Refusal as refusal:
        raise of_json(refusal, path, _FIELD, line=number) from None
    if len(form) > MAX_JSON:
        raise too_long(path, _FIELD, line=number)
    return checked_event(value, line, path, number), form


def checked_event(value: object, line: bytes, path: str, number: int) -> Event:
    """The event whose JSON ``line`` has this value.

    Raises ``Refusal``: field-json, field-timestamp, field-nul, event-type.
    """
    if type(value) is not dict:
        raise wrong_shape(path, _FIELD, "an event is an object", line=number)
    event_id = value.get("id")
    if type(event_id) is not str or not event_id:
        why = "its id is missing, empty or no text"
        raise wrong_shape(path, "message.id", why, line=number)
    if event_id == large_json.ELIDED or (
        len(event_id) > _SHORT_ID and len(event_id.encode()) > MAX_ID
    ):
        why = f"its id is longer than {MAX_ID} bytes"
        raise wrong_shape(path, "message.id", why, line=number)
    kind = value.get("type")
    if type(kind) is not str or kind not in _TYPES:
        raise _wrong_type(kind, path, number)
    ts = value.get("ts")
    if type(ts) is not int:
        if not isinstance(ts, json_values.LongInteger):
            why = "its ts is missing, or no whole number of milliseconds"
            raise wrong_shape(path, "message.ts", why, line=number)
        raise _out_of_time(path, number)
    if not FIRST_TIME <= ts <= LAST_TIME:
        raise _out_of_time(path, number)
    if type(value.get("data")) is not dict:
        raise wrong_shape(path, "message.data", "its data is missing or no object", line=number)
    check_no_nul(line, value, path, _FIELD, line=number)
    return Event(event_id, kind, ts, value, number)


def _compare_repeats(pieces: Iterable[bytes], path: str, after: int) -> None:
    """See that events whose IDs came again are equal in the one form.

    Two IDs of one hash, which Python keys anew in each process, would be taken for one, and be
    refused. Raises ``Refusal`` (event-duplicate).
    """
    forms = Pairs()
    for number, (line, _) in enumerate(lines_of(pieces, path), after + 1):
        try:
            own = hash(canonical(line))
            known = forms.keep(hash(_id_of(line)), own)
        except Refusal:
            return  # the line cut short, which was left out
        if known not in (None, own):
            why = "an event with its id and another content comes before it"
            raise Refusal(
                "event-duplicate",
                why,
                path=path.encode(),
                place=f"line {number}",
                field="message.id",
                line=number,
            )


def _id_of(line: bytes) -> str:
    large = len(line) > large_json.LARGE
    value = large_json.outline(line, _MEMBERS) if large else json_values.parse(line)
    return str(value.get("id")) if isinstance(value, dict) else ""


def _is_cut(line: bytes, refusal: Refusal) -> bool:
    """Whether a line that was refused is no JSON, so that it may be one that was cut short."""
    if len(line) > large_json.LARGE:  # to read it whole would take very much memory
        return refusal.why != json_values.LONE_SURROGATE or not line.rstrip().endswith(b"}")
    try:
        text = line.decode().strip(json_values.SPACE)
        return json_values.scan(text, 0)[1] != len(text)
    except (UnicodeDecodeError, json.JSONDecodeError):
        return True
    except (Refusal, RecursionError):
        return False


def _torn(path: str, number: int) -> Refusal:
    refusal = wrong_shape(path, _FIELD, _TORN, line=number)
    refusal.hint = _TORN_HINT
    return refusal


def _wrong_type(kind: object, path: str, number: int) -> Refusal:
    if not isinstance(kind, str):
        return wrong_shape(path, "message.type", "its type is missing or no text", line=number)
    return Refusal(
        "event-type",
        f"it is none of {', '.join(TYPES)}",
        path=path.encode(),
        place=f"line {number}",
        field="message.type",
        line=number,
    )


def _out_of_time(path: str, number: int) -> Refusal:
    return Refusal(
        "field-timestamp",
        "ts is in milliseconds since 1970, not in nanoseconds, from 4713 BC to 294276 AD",
        path=path.encode(),
        place=f"line {number}",
        field="message.ts",
        line=number,
    )
