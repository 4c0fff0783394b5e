from __future__ import annotations

import json
import traceback
from contextlib import suppress
from pathlib import Path

import pytest

from agentmove_tools import large_json
from agentmove_tools.package import contents as reading
from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.layout import FIELDS
from agentmove_tools.package.limits import MAX_SECRETS
from agentmove_tools.package.report import report_of
from agentmove_tools.package.secrets import (
    Names,
    read_names,
    secrets_text,
    with_pending,
    written,
)
from agentmove_tools.refusals import Refusal
from tests.package.packages import (
    AGENT,
    PLAIN,
    STRICT,
    checked,
    contents,
    package_at,
    packed,
    put,
    refusal_of,
    told,
    warnings_of,
    zipped,
)

PATH = "data/secrets/agent.json"
FIELD = "secret.names"
MARK = "XYZZY-hunter2"  # a value that must be nowhere


def read(text: bytes) -> Names:
    return read_names(text, PATH)


def names(entered: str = "", pending: str = "") -> Names:
    return Names(frozenset(entered.split()), frozenset(pending.split()))


# -- the forms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"A":"v","B":"w"}', names("A B")),
        (b'["B","A"]', names("", "A B")),
        (b'["A","A"]', names("", "A")),
        (b'{"pendingKeys":["B","A","B"]}', names("", "A B")),
        (b"{}", names()),
        (b"[]", names()),
        (b'{"pendingKeys":[]}', names()),
        (b'{"A":"v","pendingKeys":["B"]}', names("A", "B")),
        (b'{"pendingKeys":["A","B"],"A":"v"}', names("A", "B")),
        (b'{"A":"","B":null,"C":"v"}', names("C", "A B")),
        (b'{"A":null,"pendingKeys":["A"]}', names("", "A")),
        (b'{"A":0,"B":false,"C":[],"D":{},"E":0.0}', names("A B C D E")),
        (b'{"A":{"user":"u","pass":"p"},"B":["x"]}', names("A B")),
        (b'{"pendingKeys":"v"}', names("pendingKeys")),
        (b'{"pendingKeys":{"A":"v"}}', names("pendingKeys")),
        (b'{"pendingKeys":null,"A":"v"}', names("A", "pendingKeys")),
        (b'["pendingKeys"]', names("", "pendingKeys")),
        (b'{"pendingKeys":["pendingKeys"]}', names("", "pendingKeys")),
        (b'{"A":"v","A":""}', names("", "A")),
        (b'{"A":1' + b"0" * 700 + b"}", names("A")),
        (b' {"\\u0041" : "v"}\r\n', names("A")),
        ('["\u00e9","%"]'.encode(), names("", "\u00e9 %")),
    ],
    ids=range(22),
)
def test_names_are_read_in_every_form(text: bytes, expected: Names) -> None:
    """With values, without, and both together; an empty value and null are none."""
    assert read(text) == expected
    assert read(text).all == expected.entered | expected.pending
    assert json.loads(written(read(text).all)) == {"pendingKeys": sorted(expected.all)}


def test_names_are_written_in_one_form() -> None:
    """Sorted, as compact JSON with an end of line; it reads back as pending."""
    assert written(["b", "a", "\u00e9", "B"]) == '{"pendingKeys":["B","a","b","\u00e9"]}\n'.encode()
    assert written([]) == b'{"pendingKeys":[]}\n'
    assert read(written(["b", "a"])) == names("", "a b")


@pytest.mark.parametrize(
    "text",
    [
        *(b"1", b"null", b'"A"', b"true", b"[1]", b"[null]", b'[["A"]]', b'[{"A":"v"}]', b'[""]'),
        *(b'{"":"v"}', b'{"pendingKeys":[1]}', b'{"pendingKeys":[""]}', b'{"pendingKeys":[["A"]]}'),
    ],
    ids=range(13),
)
def test_another_shape_is_refused(text: bytes) -> None:
    """A name is a text that is not empty."""
    assert told(refusal_of({PATH: text})) == ("field-json", PATH, FIELD, None)


def test_a_file_over_a_mib_is_refused() -> None:
    """To the byte."""
    text = b"[" + b" " * (MAX_SECRETS - 2) + b"]"
    assert checked({PATH: text}).found.secrets == {"agent": []}
    refusal = refusal_of({PATH: text + b" "})
    assert told(refusal) == ("field-json", PATH, FIELD, None)
    assert refusal.why == "it is longer than 1 MiB"
    assert secrets_text((b"a", b"b"), PATH) == b"ab"


# -- values


def leaks(value: object) -> bool:
    """Whether the marker is in what a person or a log could see of a value."""
    return MARK in str(value) or MARK in repr(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"A":"?","B":{"x":"?","?":["?"]},"C":["?",{"?":1}]}',
        '{"A":"?","pendingKeys":["B"]}',
        '{"pendingKeys":"?"}',
        '{"pendingKeys":{"?":"?"}}',
        '{"A":"","A":"?"}',
        '{"A":"?","A":""}',
    ],
)
def test_values_are_thrown_away_as_they_are_read(text: str, here: Path) -> None:
    """Out of a folder and out of an archive, at any depth, nothing that is kept or said has one."""
    data = text.replace("?", MARK).encode()
    files = {PATH: data, "data/secrets/u1.json": data}
    package = checked(files)
    for held in (package.found, package.files, package.found.secrets, contents(package)):
        assert not leaks(held)
    archive = zipped({**AGENT, **files})
    assert not leaks(report_of(package, Archive(archive)))
    put(here, {**AGENT, **files})
    with package_at(here) as package:
        package.check()
        assert not leaks((package.found, package.files, package.unknown))
    out = packed(here)
    assert MARK.encode() not in out
    assert not leaks(read(data))


BAD = {
    "cut": '{"A":"?","B":"?',
    "junk": '{"A":"?"}?',
    "quotes": "{\"A\":'?'}",
    "bare": '{"A":?}',
    "bare-key": '{?:"v"}',
    "control": '{"A":"\n?"}',
    "escape": '{"A":"\\?"}',
    "nan": '{"A":"?","B":NaN}',
    "number": '{"A":"?","B":1e400}',
    "nul": '{"A":"?\\u0000"}',
    "nul-beside": '{"A":"?","B":"\\u0000"}',
    "nul-in-list": '{"A":["?\\u0000"]}',
    "nul-in-object": '{"A":{"?":"?\\u0000"}}',
    "nul-in-inner-key": '{"A":{"?":{"?\\u0000":1}}}',
    "surrogate": '{"A":"?\\ud800"}',
    "bytes": '{"A":"?\udcff"}',
    "shape": '[{"A":"?"}]',
    "shape-of-pending": '{"pendingKeys":[{"A":"?"}]}',
    "text": '"?"',
    "empty-name": '{"":"?"}',
    "pending-nul": '{"pendingKeys":{"?":"\\u0000"}}',
    "deep": '{"A":' + '["?",' * 200 + "1" + "]" * 200 + "}",
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_shows_no_value(name: str) -> None:
    """Whatever is wrong with the file: its message, its details, and what Python prints of it."""
    text = BAD[name].replace("?", MARK).encode("utf-8", "surrogateescape")
    for path in (PATH, "data/secrets/u1.json"):
        refusal = refusal_of({path: text})
        assert refusal.code in ("field-json", "field-nul", "field-surrogate", "field-encoding")
        assert refusal.details["path"] == path
        shown = (refusal.message, refusal.details, refusal.place, refusal.hint, refusal.args)
        assert not leaks(shown)
        assert not leaks("".join(traceback.format_exception(refusal)))


def test_a_large_file_shows_no_value_either() -> None:
    """One at the limit, with a value that is as long."""
    text = b'{"A":"' + (MARK * (MAX_SECRETS // len(MARK) - 2)).encode()
    for ending in (b'"', b'\n"}', b'\\u0000"}', b'\\ud800"}', b'"}x'):
        assert not leaks(traceback.format_exception(refusal_of({PATH: text + ending})))


def test_values_in_an_archive_are_a_warning() -> None:
    """It counts them, and says that they are there still; a folder's own values are none."""
    package = checked({PATH: b'{"A":"v"}', "data/secrets/u1.json": b'{"A":"v","B":1,"C":null}'})
    assert warnings_of(package) == [
        f"{PATH}: it holds a value: only names are taken, but this archive has them",
        "data/secrets/u1.json: it holds 2 values: only names are taken, but this archive has them",
    ]
    assert warnings_of(checked({PATH: b'{"A":null,"B":"","pendingKeys":["C"]}'})) == []
    assert warnings_of(checked({PATH: b'["A"]'})) == []


def test_values_in_an_archive_are_refused_when_it_is_strict() -> None:
    """It counts them, and names none."""
    refusal = refusal_of({PATH: f'{{"A":"{MARK}","B":"{MARK}"}}'.encode()}, STRICT)
    assert told(refusal) == ("field-json", PATH, FIELD, None)
    assert refusal.why == "it holds 2 values, and a package holds only names"
    assert not leaks(traceback.format_exception(refusal))
    checked({PATH: b'{"A":null,"pendingKeys":["B"]}'}, STRICT)


def test_values_in_a_folder_are_stripped(here: Path) -> None:
    """Without a word, strict or not; the folder keeps them."""
    text = f'{{"B":"{MARK}","A":{{"x":"{MARK}"}}}}'.encode()
    put(here, {**AGENT, PATH: text})
    for options in (STRICT, PLAIN):
        with package_at(here, options) as package:
            assert contents(package)[PATH] == b'{"pendingKeys":["A","B"]}\n'
            assert warnings_of(package) == []
    assert (here / PATH).read_bytes() == text


def test_the_field_of_an_error_is_the_database_s() -> None:
    """As for the other parts."""
    assert FIELDS["secrets"] == FIELD


# -- a folder's own file


@pytest.mark.parametrize(
    ("text", "pending", "expected"),
    [
        (b'["A"]', "A", b'["A"]'),
        (b'["A"]', "A B", b'{"pendingKeys":["A","B"]}\n'),
        (b'{"pendingKeys":["A"]}', "", b'{"pendingKeys":[]}\n'),
        (b' {"A":"v"} ', "", b' {"A":"v"} '),
        (b' {"A":"v"} ', "A", b' {"A":"v"} '),
        (b'{"A":"v"}', "A B", b'{"A":"v","pendingKeys":["B"]}\n'),
        (b'{"B":{"x":1.50},"pendingKeys":["A"]}', "C", b'{"B":{"x":1.5},"pendingKeys":["C"]}\n'),
        (b'{"A":"v","B":null}', "B", b'{"A":"v","B":null}'),
        (b'{"A":"v","B":null}', "", b'{"A":"v"}\n'),
        (b'{"A":"v","pendingKeys":["A"]}', "A", b'{"A":"v","pendingKeys":["A"]}'),
    ],
    ids=range(10),
)
def test_what_is_pending_in_a_folder_s_own_file_is_set(
    text: bytes, pending: str, expected: bytes
) -> None:
    """Its values stay, none of them is pending again, and where nothing changes no byte does."""
    new = with_pending(text, PATH, pending.split())
    assert new == expected
    assert read(new).entered == read(text).entered
    assert read(new).pending == set(pending.split()) - read(text).entered


def test_a_secret_that_is_named_as_the_list_is_keeps_its_value() -> None:
    """A value under ``pendingKeys`` that is no list is a secret's, and is not written over."""
    text = b'{"pendingKeys":"v"}'
    assert with_pending(text, PATH, ["pendingKeys"]) == text
    with suppress(Refusal):  # the two cannot stand in one file
        assert read(with_pending(text, PATH, ["A"])).entered == {"pendingKeys"}


@pytest.mark.parametrize("text", [b"{", b"1", b'[""]', b'["\\u0000"]'])
def test_a_folder_s_own_file_that_cannot_be_read_is_refused(text: bytes) -> None:
    """It is not written over."""
    with pytest.raises(Refusal) as caught:
        with_pending(text, PATH, ["A"])
    assert caught.value.details["path"] == PATH


def test_the_names_of_all_scopes_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are remembered until all of the package has been read."""
    monkeypatch.setattr(reading, "MAX_NAMES", 5)
    files = {f"data/secrets/user-{n}.json": b'["A", "B"]' for n in range(2)}
    assert checked(files).found.secrets == {"user-0": ["A", "B"], "user-1": ["A", "B"]}
    refusal = refusal_of({**files, "data/secrets/agent.json": b'["C", "D"]'})
    assert refusal.code == "field-json"


def test_what_is_written_for_secrets_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form that is written is longer than a plain list, and of two files of one scope."""
    monkeypatch.setattr(reading, "MAX_SECRETS", 40)
    taken = checked({"data/secrets/agent.json": b'["AAAAAAAAAAAAAAAA"]'})
    assert taken.found.secrets == {"agent": ["A" * 16]}
    refusal = refusal_of({"data/secrets/agent.json": b'["AAAAAAAAAAAAAAAAAAAAAAAAA"]'})
    assert refusal.code == "field-json"


def test_a_file_of_secrets_is_never_read_in_part() -> None:
    """A large text's outline would have no names."""
    assert MAX_SECRETS <= large_json.LARGE
