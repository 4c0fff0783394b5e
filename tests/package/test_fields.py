from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from agentmove_tools import large_json
from agentmove_tools.package import contents as reading
from agentmove_tools.package.fields import checked_text, json_text, json_value, member
from agentmove_tools.package.layout import Part
from agentmove_tools.package.limits import MAX_JSON
from agentmove_tools.refusals import Refusal
from tests.package.packages import (
    AGENT,
    ALL,
    checked,
    contents,
    package_in,
    refusal_of,
    told,
    zipped,
)

TEXTS = {
    "SOUL.md": "agent.soul",
    "USER.md": "agent.user",
    "HEARTBEAT.md": "agent.heartbeat",
    "MEMORY.md": "memory.content",
    "memory/a/b.md": "memory.content",
    "skills/x/SKILL.md": "skill.content",
}
JSONS = {
    "agent.config.json": "agent.config",
    "data/access.json": "access.list",
    "data/usage.json": "usage",
    "data/secrets/agent.json": "secret.names",
    "browser-state/main.json": "account",
}


def refusal_by(*pieces: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        list(checked_text(pieces, "SOUL.md", "agent.soul"))
    return caught.value


def json_refusal(text: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        json_value(text, "x.json", "x", line=7)
    return caught.value


# -- texts


@pytest.mark.parametrize("path", TEXTS, ids=str)
def test_a_text_is_any_utf8_without_a_nul(path: str) -> None:
    """A byte order mark, controls and no end of line are kept, byte for byte."""
    text = "\ufeff\u00e9\U0001f600\r\n\x01\x1b\u2028\ufffe last".encode()
    assert contents(checked({path: text}))[path] == text
    assert contents(checked({path: b""}))[path] == b""


@pytest.mark.parametrize("path", TEXTS, ids=str)
def test_a_nul_in_a_text_is_refused(path: str) -> None:
    """The error names the file, the database's field and the line."""
    refusal = refusal_of({path: b"a\nb\n\xc3\xa9\0\n\0"})
    assert told(refusal) == ("field-nul", path, TEXTS[path], 3)
    assert refusal.place == f"{path}: line 3"


@pytest.mark.parametrize("path", TEXTS, ids=str)
@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xe9x", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
)
def test_a_text_that_is_not_utf8_is_refused(path: str, bad: bytes) -> None:
    """Latin-1, a cut character, a surrogate, and a byte too many; with its line."""
    refusal = refusal_of({path: b"a\n\xc3\xa9 " + bad})
    assert told(refusal) == ("field-encoding", path, TEXTS[path], 2)


def test_a_character_may_lie_across_two_pieces() -> None:
    """However a text comes, it comes out so."""
    text = "a\u00e9\n\U0001f600\n".encode()
    for at in range(len(text) + 1):
        assert list(checked_text((text[:at], text[at:]), "x", "x")) == [text[:at], text[at:]]
    pieces = [text[at : at + 1] for at in range(len(text))]
    assert list(checked_text(pieces, "x", "x")) == pieces


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        ((b"a\n", b"b\n\xff"), 3),
        ((b"\xe2\x82", b"\xac\n\xff\n\n"), 2),
        ((b"\xe2\x82", b"\xac\xff\n\n"), 1),
        ((b"\xe2\x82", b"\n\xac"), 1),
        ((b"\xf0\x9f\x98", b"\x80\xff\n\n\n"), 1),
        ((b"\n\xe2", b"\x82"), 2),
        ((b"\n\xe2", b"\x82\n"), 2),
        ((b"a\n\n", b"\xe2"), 3),
    ],
    ids=range(8),
)
def test_the_line_of_a_byte_is_told_across_pieces(pieces: tuple[bytes, ...], line: int) -> None:
    """The line that holds the byte, not one after it."""
    assert told(refusal_by(*pieces)) == ("field-encoding", "SOUL.md", "agent.soul", line)


def test_the_line_of_a_nul_is_told_across_pieces() -> None:
    """Lines of the pieces before count."""
    assert refusal_by(b"\n\n", b"a\n", b"b\0").details["line"] == 4


# -- JSON


@pytest.mark.parametrize("path", JSONS, ids=str)
@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" \n", b"{", b'{"a":}', b"{}x", b"{} {}", b"'a'", b"\xef\xbb\xbf{}"),
        *(b'{"a":NaN}', b"[1e400]", b'["a\nb"]', b"[" * 128 + b"]" * 128, b"[" * 100_000),
    ],
    ids=range(13),
)
def test_what_is_no_json_is_refused(path: str, text: bytes) -> None:
    """One value and nothing else, not too deep; the error names the file and the field."""
    refusal = refusal_of({path: text}, ALL)
    assert told(refusal) == ("field-json", path, JSONS[path], None)
    assert refusal.why


@pytest.mark.parametrize("path", JSONS, ids=str)
def test_json_that_a_database_cannot_hold_is_refused(path: str) -> None:
    """Each by its own code, in a key and in a value."""
    for code, bad in (
        ("field-encoding", b"\xff"),
        ("field-surrogate", rb"\ud800"),
        ("field-surrogate", rb"\udc00\ud800"),
        ("field-nul", rb"\u0000"),
        ("field-nul", rb"\\\u0000"),
    ):
        refusal = refusal_of({path: b'{"A' + bad + b'":"v"}'}, ALL)
        assert told(refusal) == (code, path, JSONS[path], None)
    for code, bad in (("field-encoding", b"\xff"), ("field-surrogate", rb"\ud800")):
        refusal = refusal_of({path: b'{"A":"v' + bad + b'"}'}, ALL)
        assert told(refusal) == (code, path, JSONS[path], None)
    refusal = refusal_of({path: rb'{"A":"v\u0000"}'}, ALL)
    shown = "" if "secrets" in path else ".A"  # there a key may be part of a value
    assert told(refusal) == ("field-nul", path, JSONS[path] + shown, None)


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("shape", [rb'"%su0000"', rb'{"%su0000":1}', rb'["a%su0000b"]'])
def test_only_an_odd_backslash_makes_a_nul(shape: bytes, count: int) -> None:
    """After an even number of them it is text of five characters, as Python reads it too."""
    text = shape % (b"\\" * count)
    if count % 2:
        assert told(json_refusal(text)) == ("field-nul", "x.json", "x", 7)
    else:
        assert json_value(text, "x.json", "x") == json.loads(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (rb'{"a":{"b":[1,{"c":"\u0000"}]}}', "x.a.b.c"),
        (rb'{"a":[["\u0000"]]}', "x.a"),
        (rb'{"a":{"\u0000":1}}', "x.a"),
        (rb'["\u0000"]', "x"),
        (rb'"\u0000"', "x"),
        (rb'{"a":"\u0000","a":1}', "x"),
        (rb'{"%s":"\u0000"}' % (b"k" * 100), "x." + "k" * 40),
    ],
    ids=range(7),
)
def test_the_member_with_the_nul_is_named(text: bytes, field: str) -> None:
    """By its keys, shortened; also where a later one of the same key is what counts."""
    assert told(json_refusal(text)) == ("field-nul", "x.json", field, 7)


@pytest.mark.parametrize(
    "text",
    [
        rb'{"a":"\u0000"',
        rb'{"a":"\u0000"}x',
    ],
)
def test_what_is_no_json_is_told_before_a_nul_in_it(text: bytes) -> None:
    """Nothing can be said of its members."""
    assert json_refusal(text).code == "field-json"


def test_a_large_json_is_checked_as_a_small_one() -> None:
    """Over a MiB it is read in windows, and refused for the same."""
    filler = b'{"f":[' + b"1," * (large_json.LARGE // 2) + b"1],"
    assert json_value(filler + b'"id":"a"}', "x", "x", wanted=("id",)) == {"id": "a"}
    for code, bad in (
        ("field-json", b'"a":}'),
        ("field-json", b'"a":1e400}'),
        ("field-encoding", b'"a":"\xff"}'),
        ("field-surrogate", rb'"a":"\ud800"}'),
        ("field-nul", rb'"a":"\u0000"}'),
        ("field-nul", rb'"\u0000":1}'),
    ):
        assert told(json_refusal(filler + bad)) == (code, "x.json", "x", 7)
    package = checked({"agent.config.json": filler + b'"name":"N","id":"large"}'})
    assert (package.found.config.id, package.found.config.name) == ("large", "N")


def test_a_json_file_over_the_limit_is_refused() -> None:
    """To the byte, and as soon as it is seen: what comes after is not read."""
    assert json_text((b"ab", b"cd"), "x", "x", longest=4) == b"abcd"
    assert json_text((), "x", "x") == b""

    def pieces() -> Iterator[bytes]:
        yield b"x" * MAX_JSON
        yield b"x"
        pytest.fail("it was read on")

    with pytest.raises(Refusal) as caught:
        json_text(pieces(), "data/access.json", "access.list")
    assert told(caught.value) == ("field-json", "data/access.json", "access.list", None)
    assert caught.value.why == "it is longer than 10 MiB"


@pytest.mark.parametrize("path", [path for path in JSONS if "secrets" not in path], ids=str)
def test_json_comes_back_byte_for_byte(path: str) -> None:
    """Its order, spelling and white space are kept; of a repeated key the last is read."""
    text = b' {"z" : 1.0, "id":"x","a":"\\u00e9", "id" : "agent-of-tests"}\r\n'
    package = checked({path: text}, ALL)
    assert contents(package)[path] == text
    assert package.found.config.id == "agent-of-tests"


def test_a_member_is_text_or_missing() -> None:
    """Null is as missing; anything else is refused, by its name."""
    assert member({"a": "x"}, "a", "p", "f") == "x"
    assert member({"a": None}, "a", "p", "f") is None
    assert member({}, "a", "p", "f") is None
    wrongs: list[object] = [1, True, [], {}, 1.5]
    for wrong in wrongs:
        with pytest.raises(Refusal) as caught:
            member({"a": wrong}, "a", "p", "f")
        assert told(caught.value) == ("field-json", "p", "f.a", None)
        assert caught.value.why == "its a is no text"


# -- the configuration and the list of who may speak


def test_the_configuration_is_read() -> None:
    """Its profile has a default; what else is in it is kept and means nothing."""
    config = {
        "id": "a-1",
        "name": "Ada",
        "runtimeProfile": "fast",
        "accessStrategy": "list",
        "limits": {"tokens": 1},
        "team": "other",
    }
    found = checked({"agent.config.json": json.dumps(config).encode()}).found.config
    assert found == reading.Config("a-1", "a-1", "Ada", "fast", "list", b'{"tokens":1}')
    found = checked({"agent.config.json": b'{"id":"a","runtimeProfile":null}'}).found.config
    assert found == reading.Config("a", "a", None, "default", None, None)


@pytest.mark.parametrize("name", ["id", "name", "runtimeProfile", "accessStrategy"])
@pytest.mark.parametrize("value", [1, True, 0.5, [], {}, ["x"]], ids=str)
def test_a_member_of_the_configuration_that_is_no_text_is_named(name: str, value: object) -> None:
    """By its whole name."""
    refusal = refusal_of({"agent.config.json": json.dumps({"id": "a", name: value}).encode()})
    assert told(refusal) == ("field-json", "agent.config.json", f"agent.config.{name}", None)


@pytest.mark.parametrize("limits", [b"[]", b"1", b'"x"', b"true"])
def test_limits_are_an_object(limits: bytes) -> None:
    """Null is as missing."""
    refusal = refusal_of({"agent.config.json": b'{"id":"a","limits":' + limits + b"}"})
    assert told(refusal) == ("field-json", "agent.config.json", "agent.config.limits", None)
    checked({"agent.config.json": b'{"id":"a","limits":null}'})


@pytest.mark.parametrize("text", [b"[]", b"1", b"null", b'"x"'])
def test_a_configuration_is_an_object(text: bytes) -> None:
    """Any other JSON is refused."""
    refusal = refusal_of({"agent.config.json": text})
    assert told(refusal) == ("field-json", "agent.config.json", "agent.config", None)
    assert refusal.why == "it is no object"


@pytest.mark.parametrize("text", [b"{}", b'{"id":null}', b'{"id":""}'])
def test_a_configuration_without_an_id_needs_one_told(text: bytes) -> None:
    """An empty one is none; the error says what to do."""
    files = {"agent.config.json": text}
    refusal = refusal_of(files)
    assert told(refusal) == ("agent-id", "agent.config.json", "agent.config.id", None)
    assert "--external-id" in (refusal.hint or "")
    assert checked(files, reading.Options(external_id="e")).found.config.id == "e"


def test_an_id_that_is_told_is_the_configurations() -> None:
    """Another is refused; the same changes nothing."""
    files = {"agent.config.json": b'{"id":"a"}'}
    assert checked(files, reading.Options(external_id="a")).found.config.id == "a"
    refusal = refusal_of(files, reading.Options(external_id="A"))
    assert told(refusal) == ("agent-id", "agent.config.json", "agent.config.id", None)
    assert "--external-id" in refusal.why


@pytest.mark.parametrize("path", ["SOUL.md", "agent.config.json"])
def test_a_package_has_a_soul_and_a_configuration(path: str) -> None:
    """Each is named where it is missing, before any content is read."""
    files = {name: b"\0" for name in (*AGENT, "USER.md") if name != path}
    with pytest.raises(Refusal) as caught:
        package_in(zipped(files))
    assert told(caught.value) == ("package-required", path, None, None)


@pytest.mark.parametrize("text", [b"1", b"null", b'"x"', b"true"])
def test_who_may_speak_is_an_object_or_a_list(text: bytes) -> None:
    """Any other JSON is refused."""
    refusal = refusal_of({"data/access.json": text})
    assert told(refusal) == ("field-json", "data/access.json", "access.list", None)


def test_who_may_speak_is_told_by_channel_and_user() -> None:
    """Keys of an object or texts in a list, each once, sorted; others mean something else."""
    listed = {"t:u": {}, "strategy": "list", "a:b:c": 1, ":x": 1, "x:": 1, ":": 1}
    text = json.dumps(listed).encode()
    assert checked({"data/access.json": text}).may_speak() == ["a:b:c", "t:u"]
    text = b'["t:u", 1, {"x:y": 1}, "t:u", "a:b", "n"]'
    assert checked({"data/access.json": text}).may_speak() == ["a:b", "t:u"]
    assert checked({}).may_speak() == []


# -- what goes only where it is asked for


@pytest.mark.parametrize("path", ["data/usage.json", "browser-state/main.json"])
def test_what_was_not_asked_for_is_not_read(path: str) -> None:
    """It is told of, and any content is as good; asked for, any JSON is."""
    package = checked({path: b"\xff"})
    part: Part = "usage" if "usage" in path else "browser-state"
    assert package.passed_over == [reading.PassedOver(path, part, f"only with --with {part}")]
    assert path not in contents(package)
    assert refusal_of({path: b"\xff"}, ALL).code == "field-encoding"
    for text in (b"1", b"[]", b'"x"', b"{}"):
        assert contents(checked({path: text}, ALL))[path] == text
