from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest

from agentmove_tools import large_json
from agentmove_tools.canonical import is_canonical
from agentmove_tools.package import events as module
from agentmove_tools.package.events import (
    FIRST_TIME,
    LAST_TIME,
    TYPES,
    Budget,
    Chat,
    Event,
    lines_of,
    read_events,
)
from agentmove_tools.package.limits import MAX_ID, MAX_JSON
from agentmove_tools.refusals import Refusal
from tests.package.packages import (
    DROP,
    PLAIN,
    checked,
    contents,
    event,
    refusal_of,
    told,
    warnings_of,
)

PATH = "data/sessions/t:u.jsonl"
TORN = b'{"id":"e9","type":"us'


def lines(*events: bytes) -> bytes:
    return b"".join(line + b"\n" for line in events)


def chat_of(text: bytes, *, drop: bool = False) -> Chat:
    """What was found in a session of this text, which is whole."""
    package = checked({PATH: text}, DROP if drop else PLAIN)
    return package.found.chats[PATH]


def written(text: bytes, *, drop: bool = False) -> bytes:
    """The session that a written package has for this text."""
    return contents(checked({PATH: text}, DROP if drop else PLAIN))[PATH]


def events_of(text: bytes, *, drop: bool = False, forms: bool = True) -> list[Event]:
    reading = read_events(
        lambda: (text,), Chat("t", "u", PATH), Budget(), drop_torn_line=drop, forms=forms
    )
    return [found for found, _ in reading]


def refused(text: bytes, *, drop: bool = False) -> tuple[str, object, object]:
    """The code, field and line of a session that is refused; its path is always there."""
    refusal = refusal_of({PATH: text}, DROP if drop else PLAIN)
    code, path, field, line = told(refusal)
    assert path == PATH
    assert refusal.place == f"{PATH}: line {line}"
    with pytest.raises(Refusal) as caught:  # the same without the forms, as in a check
        events_of(text, drop=drop, forms=False)
    assert told(caught.value) == told(refusal)
    with pytest.raises(Refusal) as caught:
        events_of(text, drop=drop, forms=True)
    assert told(caught.value) == told(refusal)
    return code, field, line


def without(name: str) -> bytes:
    value = json.loads(event())
    del value[name]
    return json.dumps(value).encode()


def with_member(name: str, value: object) -> bytes:
    return json.dumps({**json.loads(event("b")), name: value}).encode()


def large(event_id: str = "e1", ts: int = 1, size: int = large_json.LARGE, **more: object) -> bytes:
    """The line of an event that is read in windows."""
    return event(event_id, ts, data={"text": "x " * (size // 2)}, **more)


# -- what is taken


def test_every_type_is_taken_and_counted() -> None:
    """There are five; a type that did not come counts none."""
    assert TYPES == ("user", "assistant", "tool_call", "tool_result", "summary")
    text = lines(*(event(f"e{number}", type=kind) for number, kind in enumerate(TYPES)))
    assert chat_of(text).types == dict.fromkeys(TYPES, 1)
    assert chat_of(lines(event("a"), event("b"))).types == {**dict.fromkeys(TYPES, 0), "user": 2}


def test_an_event_is_read() -> None:
    """With its members, its line and the whole of its value."""
    text = lines(event("a", 5, type="summary", data={"x": [1]}, more=None), event("b", -5))
    first, second = events_of(text)
    assert (first.id, first.type, first.ts, first.line) == ("a", "summary", 5, 1)
    assert first.value == {"id": "a", "type": "summary", "ts": 5, "data": {"x": [1]}, "more": None}
    assert (second.id, second.ts, second.line) == ("b", -5, 2)


def test_events_come_out_in_their_order_and_the_one_form() -> None:
    """The file's, whatever their times say; fields beyond the four are kept."""
    text = lines(
        b' {"ts": 9, "id": "b", "type": "user", "data": {"\\u00e9": 1.50}, "z": -0.0} ',
        b'{"data":{},"id":"a","ts":-3,"type":"user","deep":{"b":[{}],"a":1e-7}}\r',
        b'\t{"type":"user","ts":9,"data":{},"id":"c","data":{"k":12345678901234567890123}}',
    )
    assert written(text) == lines(
        '{"data":{"\u00e9":1.5},"id":"b","ts":9,"type":"user","z":-0.0}'.encode(),
        b'{"data":{},"deep":{"a":1e-7,"b":[{}]},"id":"a","ts":-3,"type":"user"}',
        b'{"data":{"k":12345678901234567890123},"id":"c","ts":9,"type":"user"}',
    )
    assert written(written(text)) == written(text)


def test_the_one_form_of_a_large_event_is_written_too() -> None:
    """One over a MiB is read in windows."""
    text = lines(event("a"), large("b", 7, z={"b": 1.50, "a": [1, "\u00e9"]}), event("c"))
    out = written(text)
    assert out.count(b"\n") == 3
    assert all(is_canonical(line) for line in out.splitlines())
    assert [json.loads(line) for line in out.splitlines()] == [
        json.loads(line) for line in text.splitlines()
    ]
    found = events_of(text)
    assert [(each.id, each.type, each.ts) for each in found][1] == ("b", "user", 7)
    assert chat_of(text).last == 7


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"", 0),
        (lines(event("a")), 1),
        (event("a"), 1),
        (lines(event("a")) + event("b"), 2),
        (lines(event("a"), event("b")).replace(b"\n", b"\r\n"), 2),
        (event("a") + b"\r", 1),
    ],
    ids=range(6),
)
def test_a_last_line_needs_no_end(text: bytes, count: int) -> None:
    """One that is whole JSON is an event; only a line feed ends a line, and no text is no event."""
    chat = chat_of(text)
    assert (chat.events, chat.torn, chat.repeats) == (count, False, 0)
    assert written(text).count(b"\n") == count
    assert chat.types["user"] == count


def test_other_ends_of_a_line_are_text() -> None:
    """U+2028, U+0085 and form feeds stay where they are."""
    text = event("a", data={"t": "\u2028\u0085\x0c"}, k="\u2029")
    raw = json.dumps(json.loads(text), ensure_ascii=False).encode()
    assert chat_of(lines(raw)).events == 1
    assert json.loads(written(lines(raw))) == json.loads(text)


def test_the_earliest_and_the_latest_time_are_told() -> None:
    """Wherever they stand; without events there are none."""
    chat = chat_of(lines(event("a", 5), event("b", -7), event("c", 9), event("d", 0)))
    assert (chat.first, chat.last, chat.events) == (-7, 9, 4)
    chat = chat_of(lines(event("a", 5)))
    assert (chat.first, chat.last) == (5, 5)
    chat = chat_of(b"")
    assert (chat.first, chat.last, chat.events) == (None, None, 0)


@pytest.mark.parametrize("ts", [FIRST_TIME, LAST_TIME, 0, -1])
def test_a_time_that_a_database_holds_is_taken(ts: int) -> None:
    """From 4713 BC to 294276 AD, to the millisecond."""
    chat = chat_of(lines(event(ts=ts)))
    assert (chat.first, chat.last) == (ts, ts)
    assert chat_of(lines(large(ts=ts))).first == ts


def test_the_edges_are_those_of_timestamptz() -> None:
    """The first moment of 4714-11-24 BC, and the last millisecond of 294276 AD."""
    day = 86_400_000
    julian_day_zero = 2_440_588  # the day 1970-01-01, counted from 4714-11-24 BC
    assert -julian_day_zero * day == FIRST_TIME
    years = 294_277 - 1970
    days = years * 365 + sum(
        1 for y in range(1970, 294_277) if y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)
    )
    assert days * day - 1 == LAST_TIME


# -- what is refused: the members


@pytest.mark.parametrize("text", [b"[]", b"1", b"null", b'"x"', b"true", b"[{}]"])
def test_an_event_is_an_object(text: bytes) -> None:
    """Any other JSON is refused."""
    assert refused(lines(event("a"), text)) == ("field-json", "message", 2)


@pytest.mark.parametrize("name", ["id", "type", "ts", "data"])
def test_a_missing_member_is_named(name: str) -> None:
    """Each of the four must be there; in a large event too."""
    assert refused(lines(event("a"), without(name))) == ("field-json", f"message.{name}", 2)
    if name != "data":
        value = json.loads(large())
        del value[name]
        text = json.dumps(value).encode()
        assert refused(lines(text)) == ("field-json", f"message.{name}", 1)


WRONG: dict[str, list[object]] = {
    "id": [None, True, 0, 1.5, "", [], {}, ["a"]],
    "type": [None, True, 0, [], {}, ["user"]],
    "ts": [None, True, False, "1", "", 1.0, 0.5, -1.5, 1e3, [], {}, [1]],
    "data": [None, True, 0, "x", [], [{}]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_member_of_a_wrong_type_is_named(name: str, value: object) -> None:
    """True is no number, a fraction no whole one, and a number no text."""
    assert refused(lines(event("a"), with_member(name, value))) == (
        "field-json",
        f"message.{name}",
        2,
    )


@pytest.mark.parametrize("ts", [b"-0", b"-0.0", b"1e3", b"1E3", b"1.0", b"0e0"])
def test_a_time_that_is_written_as_a_fraction_is_refused(ts: bytes) -> None:
    """The one form makes a fraction of it, ``-0`` too."""
    text = event(ts=77).replace(b"77", ts)
    assert refused(lines(text)) == ("field-json", "message.ts", 1)


@pytest.mark.parametrize("ts", [b"01", b"+1", b"1_0", b"0x1", b".5", b"1.", b"NaN", b"Infinity"])
def test_a_time_that_is_no_json_is_refused(ts: bytes) -> None:
    """As any line that is none."""
    text = event(ts=77).replace(b"77", ts)
    assert refused(lines(text)) == ("field-json", "message", 1)


@pytest.mark.parametrize(
    "ts",
    [
        *(str(FIRST_TIME - 1), str(LAST_TIME + 1), str(1 << 63), str(-(1 << 63) - 1)),
        *("1" * 600, "9" * 5000, "-" + "9" * 5000),
    ],
    ids=range(7),
)
def test_a_time_that_no_database_holds_is_refused(ts: str) -> None:
    """One past either edge, and integers of any length, which are never converted."""
    text = event(ts=77).replace(b"77", ts.encode())
    assert refused(lines(event("a"), text)) == ("field-timestamp", "message.ts", 2)
    text = large(ts=77).replace(b"77", ts.encode())
    assert refused(lines(event("a"), text)) == ("field-timestamp", "message.ts", 2)


@pytest.mark.parametrize("kind", ["", "User", "user ", "system", "us\u00e9r", "x" * 10_000])
def test_an_unknown_type_is_refused(kind: str) -> None:
    """There are five; the error names them, and not what stands there."""
    text = lines(event("a"), event("b", type=kind))
    assert refused(text) == ("event-type", "message.type", 2)
    refusal = refusal_of({PATH: text})
    assert all(name in refusal.why for name in TYPES)
    assert len(refusal.message) < 200


def test_of_a_repeated_member_the_last_counts() -> None:
    """As in the one form."""
    text = event("b").replace(b'"type": "user"', b'"type": "x", "type": "summary", "id": "c"')
    assert chat_of(lines(text)).types["summary"] == 1
    text = event("b").replace(b'"type": "user"', b'"type": "user", "type": "x"')
    assert refused(lines(text)) == ("event-type", "message.type", 1)


# -- what is refused: the text


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        event()[:-1],
        event() + b"x",
        event() + event("b"),
        event() + b"\0",
        b"\0",
        b"\xef\xbb\xbf" + event(),
        event(x="y").replace(b'"y"', b"'y'"),
        event(x="y").replace(b'"y"', b"1e400"),
        event(x="y").replace(b'"y"', b"-Infinity"),
        event(x="y").replace(b'"y"', b'"a\tb"'),
        event(x="y").replace(b'"y"', b"[" * 127 + b"]" * 127),
        b"[" * 100_000,
        b"",
        b" ",
        b"\r",
    ],
    ids=range(16),
)
def test_a_line_that_is_no_json_is_refused(text: bytes) -> None:
    """An empty line too, wherever it stands; the line is told."""
    assert refused(lines(event("a"), text, event("b"))) == ("field-json", "message", 2)
    assert refused(lines(text)) == ("field-json", "message", 1)
    assert refused(lines(event("a"), event("b"), text)) == ("field-json", "message", 3)


@pytest.mark.parametrize("text", [b"\n", b"\n\n", b"\r\n", b" \n"])
def test_a_file_of_empty_lines_is_refused(text: bytes) -> None:
    """A blank line is no event."""
    assert refused(text) == ("field-json", "message", 1)
    assert refused(text, drop=True) == ("field-json", "message", 1)


BAD_TEXTS: dict[str, list[bytes]] = {
    "field-nul": [rb"\u0000", rb"a\u0000b", rb"\\\u0000"],
    "field-surrogate": [rb"\ud800", rb"\uDFFF", rb"\udc00\ud800", rb"\ud83dx"],
    "field-encoding": [b"\xff", b"\xed\xa0\x80", b"\xe9"],
}
PLACES = {
    "id": b'{"id":"a?","type":"user","ts":1,"data":{}}',
    "data": b'{"id":"a","type":"user","ts":1,"data":{"text":"?"}}',
    "deep": b'{"id":"a","type":"user","ts":1,"data":{"l":[{"m":["?"]}]}}',
    "more": b'{"id":"a","type":"user","ts":1,"data":{},"more":"?"}',
    "key": b'{"id":"a","type":"user","ts":1,"data":{"?":1}}',
    "own-key": b'{"id":"a","type":"user","ts":1,"data":{},"?":1}',
    "repeated": b'{"id":"a","type":"user","ts":1,"data":"?","data":{}}',
}


@pytest.mark.parametrize(
    ("code", "bad"), [(code, bad) for code, bads in BAD_TEXTS.items() for bad in bads]
)
@pytest.mark.parametrize("place", PLACES)
def test_text_that_a_database_cannot_hold_is_refused(place: str, code: str, bad: bytes) -> None:
    """Wherever it stands, in keys and under a key that comes again; in a large event too."""
    line = PLACES[place].replace(b"?", bad)
    fields = {"id": "id", "data": "data.text", "deep": "data.l.m", "more": "more", "key": "data"}
    field = "message"
    if code == "field-nul" and place in fields:
        field += "." + fields[place]
    assert refused(lines(event("z"), line)) == (code, field, 2)
    long = line[:-1] + b',"f":"' + b"x" * large_json.LARGE + b'"}'
    assert refused(lines(event("z"), long))[::2] == (code, 2)


@pytest.mark.parametrize("text", [rb"\\u0000", rb"\\\\u0000", rb"\\ud800", rb"\ud83d\ude00"])
def test_what_only_looks_so_is_taken(text: bytes) -> None:
    """An escaped backslash before ``u0000`` makes no NUL, and a pair is a character."""
    for place in ("id", "data", "key", "own-key"):
        line = PLACES[place].replace(b"?", text)
        assert chat_of(lines(line)).events == 1
        assert json.loads(written(lines(line))) == json.loads(line)


# -- repeated events


SAME = (
    b'{"id":"a","type":"user","ts":1,"data":{"x":1.5,"y":"\xc3\xa9"},"z":10}',
    b'{"z":10,"data":{"y":"\\u00e9","x":1.50},"ts":1,"type":"user","id":"a"}',
    b' {"id":"\\u0061","type":"user","ts":1,"data":{"y":"\xc3\xa9","x":15e-1},"z":10} \r',
    b'{"id":"b","type":"user","ts":1,"data":{"x":1,"x":1.5,"y":"\xc3\xa9"},"z":10,"id":"a"}',
)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_events_of_one_id_count_once(count: int) -> None:
    """Equal in the one form: whatever their spelling and the order of keys; the first is kept."""
    text = lines(event("x"), *SAME[:count], event("y", 9))
    chat = chat_of(text)
    assert (chat.events, chat.repeats, chat.types["user"]) == (3, count - 1, 3)
    assert [json.loads(line)["id"] for line in written(text).splitlines()] == ["x", "a", "y"]
    assert [found.line for found in events_of(text)] == [1, 2, count + 2]


OTHER = (
    SAME[0].replace(b"1.5", b"1.6"),
    SAME[0].replace(b'"z":10', b'"z":10.0'),
    SAME[0].replace(b'"z":10', b'"z":"10"'),
    SAME[0].replace(b',"z":10', b""),
    SAME[0].replace(b'"ts":1', b'"ts":2'),
    SAME[0].replace(b'"user"', b'"summary"'),
    SAME[0].replace(b"\xc3\xa9", b"e\xcc\x81"),
    SAME[0].replace(b"}", b',"m":null}', 1),
)


@pytest.mark.parametrize("other", OTHER, ids=range(len(OTHER)))
def test_two_different_events_of_one_id_are_refused(other: bytes) -> None:
    """The later line is told, wherever the two stand, and however often the first came again."""
    duplicate = ("event-duplicate", "message.id")
    assert refused(lines(SAME[0], other)) == (*duplicate, 2)
    assert refused(lines(other, event("x"), SAME[1])) == (*duplicate, 3)
    assert refused(lines(SAME[0], event("x"), SAME[1], event("y"), other)) == (*duplicate, 5)
    assert refused(lines(SAME[0], other, SAME[1])) == (*duplicate, 2)
    assert refused(lines(SAME[0]) + other) == (*duplicate, 2)


def test_large_events_are_compared_too() -> None:
    """In their one form, which is not held."""
    one = large("a", more=1)
    same = one.replace(b'"more": 1', b'"more":1').replace(b'"id": "a", ', b"")[:-1] + b',"id":"a"}'
    assert len(same) != len(one)
    chat = chat_of(lines(one, same, event("b")))
    assert (chat.events, chat.repeats) == (2, 1)
    other = one.replace(b'"more": 1', b'"more": 2')
    assert refused(lines(one, event("b"), other)) == ("event-duplicate", "message.id", 3)


def test_other_faults_are_told_before_events_that_differ() -> None:
    """Events are compared when all of the file has been read."""
    assert refused(lines(SAME[0], OTHER[0], b"{")) == ("field-json", "message", 3)


def test_one_id_in_two_chats_is_two_events() -> None:
    """An ID is unique in its chat only."""
    package = checked({PATH: lines(event("a")), "data/sessions/t:v.jsonl": lines(event("a", 2))})
    assert [chat.events for chat in package.found.chats.values()] == [1, 1]


# -- a last line cut short


CUT = [event("b", data={"t": "\u00e9"})[:at] for at in range(1, len(event("b")))]


@pytest.mark.parametrize(
    "torn",
    [
        b"{",
        TORN,
        event("b")[:-1],
        b'{"id":"b","type":"user","ts":1,"data":{"t":"\xc3',
        b'{"id":"b","type":"user","ts":1,"data":{"t":"\\ud83d',
        b'{"id":"b","type":"user","ts":1,"data":{"t":"\\u00',
        b"\0\0\0\0",
        b" ",
        large("b")[:-1],
    ],
    ids=range(9),
)
def test_a_last_line_cut_short_is_refused_and_can_be_left_out(torn: bytes) -> None:
    """By default its line is told, and what leaves it out; with that, it is said that it was."""
    text = lines(event("a")) + torn
    assert refused(text) == ("field-json", "message", 2)
    refusal = refusal_of({PATH: text})
    assert refusal.why == "its last line was cut short, as by a crash"
    assert refusal.hint == "--drop-torn-line leaves it out"
    package = checked({PATH: text}, DROP)
    chat = package.found.chats[PATH]
    assert (chat.events, chat.torn, chat.last) == (1, True, 1)
    assert warnings_of(package) == [f"{PATH}: its last line was cut short, and is left out"]
    assert written(text, drop=True) == written(lines(event("a")))


def test_a_line_may_be_cut_anywhere() -> None:
    """None of what is left of an event is taken for one."""
    for torn in CUT:
        assert refused(lines(event("a")) + torn) == ("field-json", "message", 2)
        assert chat_of(lines(event("a")) + torn, drop=True).torn


def test_a_file_may_be_one_line_cut_short() -> None:
    """Then nothing is left."""
    chat = chat_of(TORN, drop=True)
    assert (chat.events, chat.torn, chat.first) == (0, True, None)
    assert written(TORN, drop=True) == b""


def test_a_line_cut_short_is_the_last_one_and_has_no_end() -> None:
    """Any other that is no JSON is refused, and no word is said of a crash."""
    for text in (lines(event("a"), TORN), lines(TORN, event("a")), lines(TORN) + TORN):
        assert refused(text, drop=True)[0] == "field-json"
        assert refusal_of({PATH: text}, DROP).hint is None


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (b"1", "field-json"),
        (b"{}", "field-json"),
        (event("b", type="x"), "event-type"),
        (event("b", ts=LAST_TIME + 1), "field-timestamp"),
        (event("b\0"), "field-nul"),
        (event("a", 2), "event-duplicate"),
    ],
    ids=range(6),
)
def test_a_last_line_that_is_whole_json_is_never_left_out(last: bytes, code: str) -> None:
    """Without an end it is an event as the others are, and refused for the same."""
    assert refused(lines(event("a")) + last)[::2] == (code, 2)
    assert refused(lines(event("a")) + last, drop=True)[::2] == (code, 2)


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (event("b", x="y").replace(b'"y"', rb'"\ud83d"'), "field-surrogate"),
        (event("b", x="y").replace(b'"y"', b"1e400"), "field-json"),
        (event("b", x="y").replace(b'"y"', b"[" * 200 + b"]" * 200), "field-json"),
        (event("b", x="y").replace(b'"y"', rb'"\u0000"'), "field-nul"),
        (event("b", type="joke"), "event-type"),
    ],
    ids=range(5),
)
def test_a_last_line_that_is_json_was_not_cut(last: bytes, code: str) -> None:
    """It is refused for what it is, and nothing leaves it out."""
    text = lines(event("a")) + last
    assert refused(text)[0] == code
    with pytest.raises(Refusal) as caught:
        chat_of(text, drop=True)
    assert caught.value.code == code
    assert "cut short" not in caught.value.message


@pytest.mark.parametrize("last", [b'{"a":"\\ud83d', b'{"a":"x\\ud83d\\ude', b'{"a":"\xc3'])
def test_a_line_cut_within_a_character_was_cut(last: bytes) -> None:
    """Half a surrogate pair, or half of a character's bytes, is no other fault."""
    text = lines(event("a")) + last
    assert refused(text) == ("field-json", "message", 2)
    assert chat_of(text, drop=True).torn


def test_a_whole_file_is_the_same_when_a_torn_line_may_be_left_out() -> None:
    """The option changes nothing else."""
    text = lines(*SAME, event("b")) + event("c")
    assert written(text, drop=True) == written(text)
    assert not chat_of(text, drop=True).torn


def test_repeats_are_compared_before_a_line_cut_short() -> None:
    """What is left out is not looked into a second time."""
    text = lines(*SAME, event("b")) + TORN
    chat = chat_of(text, drop=True)
    assert (chat.events, chat.repeats, chat.torn) == (2, 3, True)
    assert refused(lines(SAME[0], OTHER[0]) + TORN, drop=True) == (
        "event-duplicate",
        "message.id",
        2,
    )


# -- lines and pieces


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"\n", b"a\n\nbb\nc", b"\n\n", b"ab\ncd\n"])
def test_lines_do_not_depend_on_the_pieces(text: bytes) -> None:
    """However the file comes, its lines are the same; an end without more is no line."""
    expected = [(line, True) for line in text.split(b"\n")]
    expected[-1] = (expected[-1][0], False)
    if not expected[-1][0]:
        expected.pop()
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            pieces = (text[:first], text[first:second], text[second:])
            assert list(lines_of(pieces, "x")) == expected
    assert list(lines_of([text[at : at + 1] for at in range(len(text))], "x")) == expected


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_line_at_the_limit_is_taken_and_one_over_it_refused(before: int) -> None:
    """10 MiB without its end, in pieces as sources give them; its line is told."""
    start = b"a\n" * before
    line = b"x" * MAX_JSON
    for end in (b"\n", b"", b"\nb"):
        assert list(lines_of(cut(start + line + end), "x"))[before][0] == line
        with pytest.raises(Refusal) as caught:
            list(lines_of(cut(start + line + b"x" + end), PATH))
        assert told(caught.value) == ("field-json", PATH, "message", before + 1)
        assert caught.value.why == "it is longer than 10 MiB"


def cut(text: bytes) -> list[bytes]:
    return [text[at : at + (1 << 20)] for at in range(0, len(text), 1 << 20)]


def test_a_line_over_the_limit_is_not_read_to_its_end() -> None:
    """It is refused once it is too long, and not held."""

    def pieces() -> Iterator[bytes]:
        yield event("a") + b"\n"
        for _ in range(11):
            yield b"x" * (1 << 20)
        pytest.fail("it was read on")

    def found(pieces: Iterable[bytes]) -> list[object]:
        chat = Chat("t", "u", PATH)
        return list(read_events(lambda: pieces, chat, Budget(), drop_torn_line=True, forms=False))

    with pytest.raises(Refusal) as caught:
        found(pieces())
    assert told(caught.value) == ("field-json", PATH, "message", 2)


# -- how many there may be


@pytest.fixture
def five(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit for all sessions together."""
    monkeypatch.setattr(module, "MAX_EVENTS", 5)


def numbered(*numbers: int) -> bytes:
    return lines(*(event(f"e{number}") for number in numbers))


@pytest.mark.usefixtures("five")
def test_events_are_counted_over_all_sessions() -> None:
    """At the limit they are taken; one more is refused, with its file and line."""
    files = {
        "data/sessions/a:a.jsonl": numbered(1, 2),
        "data/sessions/b:b.jsonl": numbered(1, 2, 3),
    }
    package = checked(files)
    assert sum(chat.events for chat in package.found.chats.values()) == 5
    package.check()  # each reading counts anew
    assert len(contents(package)) == 4
    files["data/sessions/b:b.jsonl"] += event("e4")
    refusal = refusal_of(files)
    assert (refusal.code, refusal.place) == (
        "package-entries",
        "data/sessions/b:b.jsonl: line 4",
    )
    assert refusal.why == "there are more than 5 events"


@pytest.mark.usefixtures("five")
def test_repeated_events_count_too() -> None:
    """Each has to be read."""
    assert chat_of(numbered(1, 1, 1, 1, 1)).repeats == 4
    assert refusal_of({PATH: numbered(1, 1, 1, 1, 1, 1)}).code == "package-entries"
    files = {
        "data/sessions/a:a.jsonl": numbered(1, 1, 1),
        "data/sessions/b:b.jsonl": numbered(1, 2),
    }
    checked(files)
    files["data/sessions/b:b.jsonl"] = numbered(1, 2, 3)
    assert refusal_of(files).code == "package-entries"


@pytest.mark.usefixtures("five")
def test_a_line_that_is_left_out_is_no_event() -> None:
    """It does not count."""
    files = {
        "data/sessions/a:a.jsonl": numbered(1, 2) + TORN,
        "data/sessions/b:b.jsonl": numbered(1, 2, 3),
    }
    assert len(checked(files, DROP).found.chats) == 2
    assert chat_of(numbered(1, 2, 3, 4, 5) + TORN, drop=True).events == 5


def test_the_limit_is_a_million() -> None:
    """As the database's side has it."""
    assert Budget().left == 1_000_000


# -- limits of what is written and remembered


def test_the_form_of_an_event_has_the_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number may be longer in it, and what is written must be taken again."""
    line = event("a", data={"n": [0.5] * 20}).replace(b"0.5", b"1e15")
    monkeypatch.setattr(module, "MAX_JSON", len(line) + 10)
    assert len(events_of(lines(line), forms=False)) == 1
    with pytest.raises(Refusal) as caught:
        events_of(lines(line))
    assert told(caught.value) == ("field-json", PATH, "message", 1)


def test_an_id_has_a_limit() -> None:
    """In a small event and in a large one."""
    assert chat_of(lines(event("a" * MAX_ID))).events == 1
    assert refused(lines(event("a" * (MAX_ID + 1)))) == ("field-json", "message.id", 1)
    assert refused(lines(large("a" * (300 << 10)))) == ("field-json", "message.id", 1)


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        ([b"{}\n{}\n" + b"x" * 60], 3),
        ([b"{}\n{}\n" + b"x" * 60 + b"\n{}"], 3),
        ([b"{}\n" + b"x" * 30, b"x" * 30], 2),
        ([b"x" * 60], 1),
    ],
    ids=range(4),
)
def test_a_long_line_is_found_in_pieces_of_any_size(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], line: int
) -> None:
    """With its own number, before it is held."""
    monkeypatch.setattr(module, "MAX_JSON", 50)
    with pytest.raises(Refusal) as caught:
        list(module.lines_of(pieces, PATH))
    assert caught.value.details["line"] == line
