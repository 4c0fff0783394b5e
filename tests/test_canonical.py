from __future__ import annotations

import hashlib
import io
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools import canonical as canonical_module
from agentmove_tools import json_values
from agentmove_tools.canonical import (
    MAX_LINE,
    canonical,
    canonical_lines,
    hash_lines,
    is_canonical,
)
from agentmove_tools.json_values import MAX_DEPTH, LongInteger, form_of, parse
from agentmove_tools.refusals import Refusal
from tests.conftest import VECTORS

INDEX: Final = VECTORS / "canonical" / "index.jsonl"

# What a refusal says, by the reason that a vector gives; "value" is malformed in any way.
SAID: Final = {
    "after": "follows the value",
    "control": "control character",
    "depth": "deep",
    "range": "range",
    "surrogate": "surrogate",
    "value": "",
}


@dataclass(frozen=True)
class Row:
    line: int
    text: bytes
    form: bytes | None
    why: str


def rows() -> list[Row]:
    """Give the vectors, none where they are not there."""
    if not INDEX.exists():
        return []
    found = []
    for number, line in enumerate(INDEX.read_text(encoding="utf-8").split("\n"), 1):
        if line:
            row = json.loads(line)
            form = row.get("canonical")
            assert (form is None) == (row.get("refusal") == "canon-json")
            text = row["input"].encode()
            form = None if form is None else form.encode()
            found.append(Row(number, text, form, row.get("why", "")))
    return found


def refused(text: bytes) -> str:
    """Give why a text is refused."""
    with pytest.raises(Refusal) as caught:
        canonical(text)
    assert caught.value.code == "canon-json"
    assert caught.value.place is None
    return caught.value.why


def lines_of(data: bytes) -> list[tuple[int, bytes, bool]]:
    return list(canonical_lines(io.BytesIO(data)))


def test_there_are_vectors(vectors: Path) -> None:
    """The test below is not empty, and has both kinds."""
    found = rows()
    assert sum(row.form is not None for row in found) > 300
    assert {row.why for row in found if row.form is None} == set(SAID)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"line {row.line}")
def test_a_vector_holds(row: Row) -> None:
    """The form is the vector's, and is its own form; or the refusal says what is wrong."""
    if row.form is None:
        assert SAID[row.why] in refused(row.text)
        assert not is_canonical(row.text)
        return
    assert canonical(row.text) == row.form
    assert form_of(parse(row.text)) == row.form
    assert is_canonical(row.form)
    assert is_canonical(row.text) == (row.text == row.form)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b"1e-4", b"0.0001"),
        (b"1e-5", b"0.00001"),
        (b"-1.5E-05", b"-0.000015"),
        (b"9.999999999999999e-5", b"0.00009999999999999999"),
        (b"0.00000999", b"9.99e-6"),
        (b"1e-9", b"1e-9"),
        (b"1e-10", b"1e-10"),
        (b"1.25e-100", b"1.25e-100"),
        (b"9999999999999998.0", b"9999999999999998.0"),
        (b"1e22", b"1e+22"),
        (b"1.7976931348623157e308", b"1.7976931348623157e+308"),
        (b"2.5e-324", b"5e-324"),
        (b"1e-400", b"0.0"),
        (b"-1e-99999999999999999999", b"-0.0"),
        (b"0e99999999999999999999", b"0.0"),
        (b"-0", b"-0.0"),
        (b"-0.0", b"-0.0"),
        (b"0.1000000000000000055511151231257827", b"0.1"),
        (b"100.0", b"100.0"),
        (b"1E+2", b"100.0"),
    ],
)
def test_a_number_is_laid_out_in_one_way(text: bytes, form: bytes) -> None:
    """The shortest decimal that reads back as the same double, in a value and alone."""
    assert canonical(text) == form
    assert form_of(parse(text)) == form
    assert canonical(b'[ %s ,{"a": %s}]' % (text, text)) == b'[%s,{"a":%s}]' % (form, form)
    assert is_canonical(form)


@pytest.mark.parametrize("digits", [640, 641, 4300, 4301, 100_000])
@pytest.mark.parametrize("sign", [b"", b"-"])
@pytest.mark.parametrize("limit", [640, 4300, 0])
def test_an_integer_keeps_its_digits(digits: int, sign: bytes, limit: int) -> None:
    """Whatever Python's limit on integers is set to, and the limit is left as it is."""
    number = sign + b"7" * digits
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        assert canonical(b'{"n":[%s,1e-5]}' % number) == b'{"n":[%s,0.00001]}' % number
        assert form_of(parse(number)) == number
        assert sys.get_int_max_str_digits() == limit
    finally:
        sys.set_int_max_str_digits(before)


def test_a_long_integer_is_no_text() -> None:
    """Whoever asks for text and gets such a number sees that it is another type."""
    value = parse(b"9" * 5000)
    assert value == LongInteger("9" * 5000)
    assert str not in type(value).__mro__


def test_numbers_in_text_are_left_alone() -> None:
    """What looks like a number that Python lays out otherwise is not touched in a string."""
    text = rb'["1e-05",",1e-07,","\\\"",1e-5,"\"1e-05","a\\",1e-7,{"1e-05":1e-05}]'
    form = rb'["1e-05",",1e-07,","\\\"",0.00001,"\"1e-05","a\\",1e-7,{"1e-05":0.00001}]'
    assert canonical(text) == form
    assert form_of(parse(text)) == form


def test_keys_are_sorted_by_their_bytes() -> None:
    """In UTF-8, where U+FFFF comes before U+10000, and a key before the one it starts."""
    keys = ["", "\0", "A", "a", "a\0", "aa", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000"]
    assert keys == sorted(keys, key=str.encode)
    members = ",".join(f"{json.dumps(key)}:{place}" for place, key in reversed([*enumerate(keys)]))
    form = canonical(("{" + members + "}").encode())
    assert list(json.loads(form).values()) == list(range(len(keys)))


@pytest.mark.parametrize(
    "escape", [rb"\u007F", rb"\u0080", rb"\u2028", rb"\uFEFF", rb"\ud834\udd1e"]
)
def test_a_text_has_no_escape_that_it_can_do_without(escape: bytes) -> None:
    """All but the quote, the backslash and what is under 0x20 stands as it is."""
    assert canonical(b'"%s"' % escape) == b'"%s"' % json.loads(b'"%s"' % escape).encode()


def test_a_control_character_has_one_escape() -> None:
    """The short one where there is one, else lower-case hex."""
    text = b'"' + b"".join(rb"\u%04X" % code for code in range(0x20)) + b'"'
    short = {8: rb"\b", 9: rb"\t", 10: rb"\n", 12: rb"\f", 13: rb"\r"}
    form = b"".join(short.get(code, rb"\u%04x" % code) for code in range(0x20))
    assert canonical(text) == b'"' + form + b'"'
    assert canonical(rb'"\/\u0022\u005C"') == rb'"/\"\\"'


@pytest.mark.parametrize("code", range(0x20))
def test_a_raw_control_character_is_refused(code: int) -> None:
    """Also a tab or a line's end, which are white space elsewhere."""
    assert "control character" in refused(b'{"a":"b%c"}' % code)


@pytest.mark.parametrize("space", [b"\x0b", b"\x0c", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xef\xbb\xbf"])
def test_only_four_characters_are_white_space(space: bytes) -> None:
    """A byte order mark and Unicode's other spaces are none."""
    assert canonical(b" \t\r\n[ \t\r\n1 \t\r\n] \t\r\n") == b"[1]"
    for text in (space + b"1", b"1" + space, b"[" + space + b"1]"):
        assert refused(text)


@pytest.mark.parametrize("text", [b"", b" ", b"\r", b"\t\n "])
def test_nothing_is_no_value(text: bytes) -> None:
    """A blank line is told from a malformed one."""
    assert refused(text) == "there is no value"


@pytest.mark.parametrize(
    "text",
    [
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xe2\x82"',
        b"\xff\xfe1",
    ],
)
def test_what_is_not_utf8_is_refused(text: bytes) -> None:
    """Overlong forms, surrogates and what lies past U+10FFFF too."""
    assert refused(text) == "it is not UTF-8"


@pytest.mark.parametrize(
    "bad",
    [
        b"1e400",
        b"-1e309",
        b"1" * 400 + b".0",
        b"NaN",
        b"-Infinity",
        rb'"\ud800"',
        rb'{"\udfff":1}',
        rb'"\ude00\ud83d"',
        rb'"\ud83d\\ude00"',
        rb'"\ud83d\\\ude00"',
        rb'"\ud83d\ud83d\ude00"',
        rb'"\ud83d\ude00\ude00"',
        rb'"\ud83d\u0041"',
        rb'"\\\ud83d"',
        b'"\x1f"',
        b"[" * 126 + b"]" * 126,
        b"1 1",
        b"[1,]",
        b"1.",
        b".5",
        b"+1",
        b"00",
        b"1e",
        rb'"\x"',
        rb'"\u12g4"',
        rb'"\u 123"',
        rb'"\u+123"',
        b"'a'",
        b"tru",
        b'"',
        b'"\\',
        b"\xd9\xa1",
    ],
)
def test_a_value_that_is_dropped_is_checked_too(bad: bytes) -> None:
    """Else two readers that keep another of the repeated keys see other events."""
    assert canonical(b'{"a":[1],"a":2}') == b'{"a":2}'
    assert refused(b'{"a":[%s],"a":2}' % bad)
    assert refused(b'{"a":1,"a":[%s]}' % bad)


@pytest.mark.parametrize("text", [rb'"\\ud800"', rb'"\\\\udc00"', rb'"\ud83d\ude00\\ud83d"'])
def test_an_escaped_backslash_starts_no_surrogate(text: bytes) -> None:
    """It is text that looks like an escape."""
    assert json.loads(canonical(text)) == json.loads(text)


@pytest.mark.parametrize(("opens", "ends"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]")])
def test_the_depth_is_bounded(opens: bytes, ends: bytes) -> None:
    """127 levels are taken and 128 are not, whatever brackets there are in strings."""
    levels = opens.count(b"[") + opens.count(b"{")
    count = MAX_DEPTH // levels
    text = b"[" * (MAX_DEPTH % levels) + opens * count + b"1" + ends * count
    text += b"]" * (MAX_DEPTH % levels)
    assert canonical(text) == text
    noise = rb'"[[[[{{{{\"[[[[\\"'
    assert canonical(text.replace(b"1", noise)) == text.replace(b"1", noise)
    assert "127" in refused(b"[" + text + b"]")
    assert "127" in refused(b'{"a":' + text + b"}")


def test_width_is_no_depth() -> None:
    """Brackets side by side, and in strings, are counted for what they are."""
    text = b"[" + b"[],{}," * 1000 + b'"' + b"[{" * 1000 + b'"]'
    assert canonical(text) == text


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), [-float("inf")], "\ud800", {"\udc00": 1}]
)
def test_a_value_that_json_cannot_hold_has_no_form(value: object) -> None:
    """A value that a program made is held to the same rules."""
    with pytest.raises(Refusal) as caught:
        form_of(value)
    assert caught.value.code == "canon-json"


def test_only_a_line_feed_ends_a_line() -> None:
    """Not the other characters that Python's ``splitlines`` knows, which may stand in a string."""
    inner = "\u2028\u2029\x85\x7f"
    data = f'["{inner}"]\r\n"{inner}"\n{{}}'.encode()
    assert lines_of(data) == [
        (1, f'["{inner}"]'.encode(), True),
        (2, f'"{inner}"'.encode(), True),
        (3, b"{}", False),
    ]
    assert lines_of(b"") == []


@pytest.mark.parametrize("data", [b"1\n\n2\n", b"1\n \n", b"1\n\r\n2", b"1\n\t"])
def test_a_blank_line_is_refused(data: bytes) -> None:
    """It is no value; the error names it."""
    with pytest.raises(Refusal) as caught:
        lines_of(data)
    assert (caught.value.why, caught.value.place) == ("there is no value", "line 2")


def test_a_refused_line_is_named() -> None:
    """With its file, in the text and as details; the lines before it come first."""
    found = canonical_lines(io.BytesIO(b"1\n[2, 3]\n4 5\n6\n"), path=b"a/events.jsonl")
    assert [next(found), next(found)] == [(1, b"1", True), (2, b"[2,3]", True)]
    with pytest.raises(Refusal) as caught:
        next(found)
    assert caught.value.code == "canon-json"
    assert caught.value.place == "a/events.jsonl: line 3"
    assert caught.value.details == {"refusal": "canon-json", "path": "a/events.jsonl", "line": 3}
    assert "follows the value" in caught.value.why


def test_a_last_line_without_its_end_can_be_left() -> None:
    """It is not looked into then: it may be half of an event."""
    source = io.BytesIO(b'1\n{"a')
    assert list(canonical_lines(source, drop_unended=True)) == [(1, b"1", True), (2, b"", False)]
    with pytest.raises(Refusal):
        lines_of(b'1\n{"a')
    assert list(canonical_lines(io.BytesIO(b"1\n2\n"), drop_unended=True)) == [
        (1, b"1", True),
        (2, b"2", True),
    ]


class Repeated:
    """A source of one byte, again and again; counts what it gave."""

    def __init__(self, byte: bytes) -> None:
        self.given = 0
        self._byte = byte

    def readinto(self, buffer: memoryview | bytearray) -> int:
        buffer[:] = self._byte * len(buffer)
        self.given += len(buffer)
        return len(buffer)


def test_a_line_that_never_ends_is_refused() -> None:
    """Before it fills the memory."""
    source = Repeated(b" ")
    with pytest.raises(Refusal) as caught:
        list(canonical_lines(source, path=b"p"))
    assert (caught.value.code, caught.value.place) == ("canon-json", "p: line 1")
    assert "64 MiB" in caught.value.why
    assert MAX_LINE < source.given < MAX_LINE + (1 << 20)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_the_longest_line_is_taken(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    """One byte more is refused; the count starts again at each line."""
    monkeypatch.setattr(canonical_module, "MAX_LINE", 1_000_000)
    line = b'"' + b"a" * 999_998 + b'"'
    data = b"1\n" + line + b"\n" + line + end
    assert [form for _, form, _ in lines_of(data)] == [b"1", line, line]
    with pytest.raises(Refusal) as caught:
        lines_of(b"1\n" + line + b"\n " + line + end)
    assert caught.value.place == "line 3"


def test_a_source_that_does_not_wait_is_not_at_its_end() -> None:
    """A source with nothing yet is an error: what comes later would be lost."""

    class Hasty:
        def readinto(self, buffer: memoryview | bytearray) -> None:
            assert len(buffer) > 0

    with pytest.raises(BlockingIOError):
        hash_lines(Hasty())


def test_a_hash_is_of_the_one_form_with_every_line_ended() -> None:
    """However the sender wrote it, and over more than one batch."""
    event = b'{"b":"' + b"x" * 300 + b'","a":1e-5}'
    form = b'{"a":0.00001,"b":"' + b"x" * 300 + b'"}\n'
    data = b"\n".join([event] * 3000)
    expected = hashlib.sha256(form * 3000).digest()
    assert hash_lines(io.BytesIO(data)) == expected
    assert hash_lines(io.BytesIO(form * 3000)) == expected
    assert hash_lines(io.BytesIO(b"")) == hashlib.sha256(b"").digest()
    with pytest.raises(Refusal) as caught:
        hash_lines(io.BytesIO(b"1\n2\nx"))
    assert caught.value.place == "line 3"


def test_what_one_text_needs_is_forgotten_for_the_next() -> None:
    """A text that the fast way does not take leaves no trace."""
    for odd in (b"1e-7", b"8" * 5000, b"[1e-7", b"1e-7 " + b"8" * 5000):
        with suppress(Refusal):
            canonical(odd)
        assert json_values._hooks.small or json_values._hooks.long
        assert canonical(b'{"b":"1e-07","a":0.5}') == b'{"a":0.5,"b":"1e-07"}'
        assert not json_values._hooks.small
        assert not json_values._hooks.long
