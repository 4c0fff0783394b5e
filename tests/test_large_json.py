from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable

import pytest

from agentmove_tools import json_values, large_json
from agentmove_tools.canonical import canonical
from agentmove_tools.refusals import Refusal

MEMBERS = ("id", "type", "ts", "data")
WHOLE = 3 << 19


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut texts every few bytes, and let ``canonical`` read every text whole."""
    monkeypatch.setattr(large_json, "_WINDOW", 8)
    monkeypatch.setattr(large_json, "LARGE", 1 << 40)


@pytest.mark.parametrize(
    "text",
    [
        b"1",
        b' "a text, longer than a window" ',
        b"[]",
        b"[1,2,3,4,5,6,7,8,9,10]",
        b"[[1,2],[3,4],[[5,6],7],[[[8]]]]",
        b"[[[[1,2,3],4,5],6,7],8,9]",
        b'{"b":1,"a":2,"c":{"z":1,"y":2,"x":[1,{"q":1,"p":2}]},"aa":3}',
        b'{"a":1,"b":[1,2,3,4,5,6,7,8,9],"a":[1,2,3,4,5,6],"b":2}',
        b'{"a":[1,2,3,4,5,6,7,8,9],"a":1}',
        b'[{"a":1,"a":[1,2,3,4,5,6,7,8,9,0]},{"a":{},"b":{}}]',
        b'{"k,":{"k,":{"k,":{"k,":"v,"}}}}',
        b'{"":1,"":{"":[0,1,2,3,4,5,6,7,8]}}',
        b'["a,b","c]d","e}f","g\\"h,","\\\\",",,,,,,,,,,,,,,,",""]',
        b'[ 1 , 2 , 3 ,  {  "a" : 1 , "b" : [ ] } , [ ] , { } ]  ',
        b"[1e-5,0.000001,-0,1E400000]",
        b"[1e-5,0.000001,-0,-0.0,1e21,100000000000000000000000]",
        b"[" + b"9" * 700 + b"," + b"8" * 700 + b"]",
        '["é","😀","\\u00e9","\\ud83d\\ude00,","ééééééééé"]'.encode(),
        b'["\\u2028","\\n","\\u0000","\\b\\f"]',
    ],
)
def test_a_text_has_the_form_that_it_has_in_one_reading(text: bytes) -> None:
    """Wherever it is cut: in what is nested, in front of a closing bracket, in a key's value."""
    try:
        whole = canonical(text)
    except Refusal:
        with pytest.raises(Refusal):
            large_json.form(text)
        return
    assert large_json.form(text) == whole
    assert json_values.form_of(json_values.parse(large_json.form(text))) == whole


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "there is no value"),
        (b" \n\t ", "there is no value"),
        (b"[1,2,3,4,5,6,7,", "ends before|comma without"),
        (b"[1,2,3,4,5,6,7,8", "ends before"),
        (b'{"a":[1,2,3,4,5,6', "ends before"),
        (b"[1,2,3,4,5,6,7,]", "comma without a value|expecting value"),
        (b"[1,,2,3,4,5,6,7]", "comma without a value|expecting value"),
        (b"[[[,1,2,3,4,5,6],1],1]", "comma without a value|expecting value"),
        (b'{"a":1,"b":2,}', "comma without a value|property name|trailing comma"),
        (b'{"a":1,2,"b":2}', "property name"),
        (b'["a":1,"b":2,"c":3]', "delimiter"),
        (b"[1,2,3,4,5}", "delimiter"),
        (b'{"a":1,"b":2,"c":3]', "delimiter"),
        (b"[1,2,3],[4,5,6]", "something follows|closes more"),
        (b"[1,2,3]]]]],4,5,6", "closes more"),
        (b"1,2,3,4,5,6,7,8,9", "something follows"),
        (b"[1,2,3,4,5,6] x", "something follows"),
        (b'["a,","b,","c,",NaN,"d,"]', "NaN is no JSON value"),
        (b"[1,2,3,1e999,4,5]", "past the range"),
        (b'["a","b","c","\\ud800"]', "a lone surrogate"),
        (b'["a","b","c","\xe9"]', "it is not UTF-8"),
        (b'["a","b","c","\xc3', "it is not UTF-8"),
        (b'["a","b","c","tab\there, and more of it"]', "control character|not valid"),
        (b'["a","b","c","a bad escape \\x here"]', "escape|not valid"),
        (b'["a","b","c","never closed and long', "ends before|not closed"),
        (b'["a,""b,""c,""d,"]', "delimiter|without a comma"),
        (b"[" * 128 + b"]" * 128, "nested over 127 deep"),
        (b"[" * 100 + b"1,2,3,4,[" + b"[" * 30, "nested over 127 deep"),
        (b'["' + b'a,""' * 300 + b'"]', "delimiter|without a comma"),
    ],
)
@pytest.mark.parametrize(
    "read", [large_json.form, lambda text: large_json.outline(text, MEMBERS)], ids=["form", "out"]
)
def test_what_is_no_value_is_refused(
    text: bytes, why: str, read: Callable[[bytes], object]
) -> None:
    """Cut in pieces that would each hold, the whole is refused as it is in one reading."""
    with pytest.raises(Refusal) as whole:
        json_values.parse(text)
    with pytest.raises(Refusal) as caught:
        read(text)
    assert caught.value.code == whole.value.code == "canon-json"
    assert re.search(why, caught.value.why)


def test_a_depth_of_127_is_taken() -> None:
    """The limit is that of the whole text, not of a window."""
    text = b"[1,2,3,4,5," * 127 + b"]" * 127
    text = text.replace(b",]", b"]", 1)
    assert large_json.form(text) == text


def test_an_outline_has_the_members_that_are_wanted() -> None:
    """Each with its last value; what they hold is checked and dropped."""
    text = b'{"id":"e","more":[1,2,3],"data":1,"ts":5,"data":{"a":[1,2],"id":3},"type":"user"}'
    found = large_json.outline(text, MEMBERS)
    assert found == {"id": "e", "data": {}, "ts": 5, "type": "user"}
    assert large_json.outline(b"[1,2,3,4,5,6,7,8]", MEMBERS) == []
    assert large_json.outline(b' "a" ', MEMBERS) == "a"


def test_members_come_in_the_one_form_and_can_be_changed() -> None:
    """The last of a repeated one; what is added comes where its key belongs."""
    text = b'{"id":"e", "more":[1,2,3], "data":1, "ts":5.0, "data":{ "b":2,"a":[1,2]}, "z":"u"}'
    assert large_json.members(text, ("data", "id", "none")) == {
        "data": b'{"a":[1,2],"b":2}',
        "id": b'"e"',
    }
    changed = {"data": b"null", "more": None, "none": None, "middle": b"[]", "zz": b"0"}
    assert large_json.with_members(text, changed) == (
        b'{"data":null,"id":"e","middle":[],"ts":5.0,"z":"u","zz":0}'
    )
    assert large_json.with_members(b'{"a":1,"b":[1,2,3,4]}', {"a": None, "b": None}) == b"{}"
    for other in (b"[1,2,3,4,5,6,7,8]", b"1", b'"a text, longer than a window"'):
        assert large_json.members(other, MEMBERS) is None
        with pytest.raises(TypeError):
            large_json.with_members(other, changed)


@pytest.mark.parametrize("before", range(12))
def test_a_key_is_found_wherever_a_window_ends(before: int) -> None:
    """A short string at a window's end is read, and not taken for a long one."""
    text = b"{" + b" " * before + b'"id":"ab","data":{}}'
    assert large_json.outline(text, MEMBERS) == {"id": "ab", "data": {}}


def test_a_string_longer_than_a_window_is_told_by_what_no_string_is() -> None:
    """What it says is not kept; it is checked all the same."""
    text = b'{"id":"an id \\u0041 that is long","x":"text, that is long","data":{}}'
    outline = large_json.outline(text, MEMBERS)
    assert outline == {"id": large_json.ELIDED, "data": {}}
    with pytest.raises(UnicodeEncodeError):
        large_json.ELIDED.encode()


def test_the_work_goes_by_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many strings with commas lie before a window's end, it is looked over a few times."""
    looked: list[int] = []
    real = large_json._OUTSIDE

    class Counted:
        def match(self, window: bytes, start: int, end: int) -> object:
            looked.append(end - start)
            return real.match(window, start, end)

    monkeypatch.setattr(large_json, "_WINDOW", 4096)
    monkeypatch.setattr(large_json, "_OUTSIDE", Counted())
    keys = b'{"k,":' * 100 + b"1" + b"}" * 100
    text = b"[" + b",".join([b'"' + b"x" * 3300 + b'"', keys] * 50) + b"]"
    assert large_json.outline(text, MEMBERS) == []
    assert sum(looked) < 4 * len(text)


def test_the_names_of_an_object_and_of_a_list_come() -> None:
    """Keys of the outermost object, and the strings of a list."""
    text = b'{"a:1":{"no:1":1},"b:2":[1,2,3,4,5,6,7],"c:3":null}'
    assert list(large_json.names_in(text)) == ["a:1", "b:2", "c:3"]
    assert list(large_json.names_in(b'["a:1",7,["no:1"],"b:2",{"no:2":1}]')) == ["a:1", "b:2"]
    assert list(large_json.names_in(b"12")) == []


@pytest.mark.parametrize("unit", [b"{},", b"1.5,", b'"\\u00e9,",', b"[[1,2]],"])
def test_memory_goes_by_the_window(monkeypatch: pytest.MonkeyPatch, unit: bytes) -> None:
    """A dense text is checked in less memory than it has bytes itself."""
    monkeypatch.setattr(large_json, "_WINDOW", 1 << 14)
    text = b'{"data":[' + unit * (WHOLE // len(unit)) + b"1]}"
    tracemalloc.start()
    try:
        assert large_json.outline(text, MEMBERS) == {"data": []}
        assert tracemalloc.get_traced_memory()[1] < WHOLE
        tracemalloc.reset_peak()
        form = large_json.form(text)
        assert tracemalloc.get_traced_memory()[1] < 4 * WHOLE
    finally:
        tracemalloc.stop()
    assert form == canonical(text)


def test_a_large_text_is_read_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """``canonical`` hands over what is large, and the form is the same."""
    text = b'{"b":[1, 2, 3],"a":"x"}'
    small = canonical(text)
    monkeypatch.setattr(large_json, "LARGE", 4)
    monkeypatch.setattr(json_values, "parse", None)
    assert canonical(text) == small == b'{"a":"x","b":[1,2,3]}'
