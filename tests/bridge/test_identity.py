from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from agentmove_tools.bridge.identity import (
    ChatKey,
    Identity,
    Tools,
    config_with,
    identity_in,
    settings_of,
    tools_in,
    unread_narrowings,
)
from agentmove_tools.large_json import LARGE
from agentmove_tools.refusals import Refusal

NOTHING: Mapping[ChatKey, Tools] = {}
TEXT = (
    b'{ "owner" : "Olga", "x": 1.50, "id":"a1",\r\n\t"threads": {"t:u": {"tools": ["b", "a"]}},'
    b' "harness": "claude", "name": "\\u0041da", "x": -0.0 }\n\n'
)
SAID = Identity("a1", "Ada", "claude", "Olga", {("t", "u"): ("b", "a")})


def config(**members: object) -> bytes:
    return json.dumps(members).encode()


def large(**members: object) -> bytes:
    """A configuration over 1 MiB."""
    return config(**members, zz=["filling" * 200] * 800)


def members_of(text: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(text)
    return found


def rewritten(text: bytes, **differs: object) -> dict[str, object]:
    """What a configuration says when the stream says something else than it."""
    identity = identity_in(text)._replace(**differs)  # type: ignore[arg-type]
    new = config_with(text, identity)
    assert new != text
    assert config_with(new, identity) == new
    return members_of(new)


# -- what a configuration says


def test_all_of_it_is_read() -> None:
    """ID, name, harness, owner, and the tools of threads."""
    assert identity_in(TEXT) == SAID


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"id": "a"}, Identity("a", "a", "default", None, NOTHING)),
        ({"id": "a", "name": ""}, Identity("a", "a", "default", None, NOTHING)),
        ({"id": "a", "name": None}, Identity("a", "a", "default", None, NOTHING)),
        ({"id": "a", "runtimeProfile": "p"}, Identity("a", "a", "p", None, NOTHING)),
        (
            {"id": "a", "runtimeProfile": "p", "harness": "h"},
            Identity("a", "a", "h", None, NOTHING),
        ),
        ({"id": "a", "harness": 7, "owner": {}}, Identity("a", "a", "default", None, NOTHING)),
        ({"id": "a", "harness": "", "owner": ""}, Identity("a", "a", "default", None, NOTHING)),
        ({}, Identity("told", "told", "default", None, NOTHING)),
        ({"name": "Ada"}, Identity("told", "Ada", "default", None, NOTHING)),
    ],
    ids=repr,
)
def test_what_is_missing_has_its_place_taken(members: dict[str, object], said: Identity) -> None:
    """The name by the ID, the ID by the one that was told, the harness by the profile."""
    assert identity_in(config(**members), "told") == said


@pytest.mark.parametrize(
    ("threads", "tools"),
    [
        ({"a:u:v": {"tools": []}}, {("a", "u:v"): ()}),
        ({"a%3Ab:%40u%2Fv": {"tools": ["x"]}}, {("a:b", "@u/v"): ("x",)}),
        ({"a:u": {"tools": ["x"]}, "a:%75": {"tools": ["y"]}}, {("a", "u"): ("x",)}),
        ({"a:u.jsonl": {"tools": ["x"]}}, {("a", "u.jsonl"): ("x",)}),
        ({"a:u": {"tools": ["x"], "color": 1}}, {("a", "u"): ("x",)}),
        ({"nobody": {"tools": ["x"]}, ":u": {"tools": ["x"]}, "a:": {"tools": ["x"]}}, {}),
        ({"a:%FF": {"tools": ["x"]}}, {}),
        ({"a:u": {"tools": ["x", 1]}, "b:u": {"tools": {}}, "c:u": ["x"], "d:u": {}}, {}),
        ([{"tools": ["x"]}], {}),
        ("a:u", {}),
        (None, {}),
    ],
    ids=repr,
)
def test_tools_of_threads(threads: object, tools: Mapping[ChatKey, Tools]) -> None:
    """By channel and user, decoded; the first of two for one; what is no list of names is none."""
    assert identity_in(config(id="a", threads=threads)).tools == tools
    assert identity_in(large(id="a", threads=threads)).tools == tools


@pytest.mark.parametrize("text", [b"", b"[]", b'"a"', b"{", b"null", b'{"id":"\xff"}'], ids=repr)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    """With the package's path, in both ways of use."""
    for refused in (lambda: identity_in(text), lambda: config_with(text, SAID)):
        with pytest.raises(Refusal) as caught:
            refused()
        assert caught.value.code in ("field-json", "field-encoding")
        assert caught.value.details["path"] == "agent.config.json"


def test_a_text_that_is_too_long_to_be_an_owner_is_none() -> None:
    """In a configuration over 1 MiB so long a text is not read; it is the platform's, and stays."""
    text = large(id="a", owner="o" * 400_000, harness="h" * 400_000, name="Ada")
    said = identity_in(text)
    assert said == Identity("a", "Ada", "default", None, NOTHING)
    assert config_with(text, said) == text
    assert rewritten(text, name="Eve") == {**members_of(text), "name": "Eve"}


# -- and what it must say


@pytest.mark.parametrize("text", [TEXT, large(id="a1", name="Ada", threads={})], ids=["", "large"])
def test_the_text_stays_where_it_says_the_same(text: bytes) -> None:
    """Byte for byte, white space, repeated keys and all; also where nothing is said of threads."""
    said = identity_in(text)
    assert config_with(text, said) is text
    assert config_with(text, said._replace(tools=None)) is text


@dataclass(frozen=True)
class Change:
    """What differs in the identity, and in the configuration then."""

    identity: Mapping[str, object]
    members: Mapping[str, object]


CHANGES = {
    "id": Change({"id": "a2"}, {"id": "a2"}),
    "name": Change({"name": "Eve"}, {"name": "Eve"}),
    "harness": Change({"harness": "other"}, {"harness": "other"}),
    "owner": Change({"owner": "Otto"}, {"owner": "Otto"}),
    "no owner": Change({"owner": None}, {"owner": None}),
    "tools": Change(
        {"tools": {("t", "u"): ("c",), ("a:b", "x/y"): ()}},
        {"threads": {"t:u": {"tools": ["c"]}, "a%3Ab:x%2Fy": {"tools": []}}},
    ),
    "no tools": Change({"tools": {}}, {"threads": None}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_what_differs_is_written(change: Change, is_large: bool) -> None:
    """That and nothing else, in the one form."""
    before = members_of(TEXT)
    text = large(**before) if is_large else TEXT
    expected = {**members_of(text), **change.members}
    found = rewritten(text, **change.identity)
    assert found == {name: value for name, value in expected.items() if value is not None}
    if not is_large:
        new = config_with(text, SAID._replace(**change.identity))  # type: ignore[arg-type]
        assert new.endswith(b"}\n")
        assert b", " not in new
        assert b'"x":-0.0' in new


def test_an_agent_that_is_named_by_its_id_stays_so() -> None:
    """With another ID there is still no name."""
    assert rewritten(config(id="a"), id="b", name="b") == {"id": "b"}
    assert rewritten(config(id="a", name="a"), id="b", name="b") == {"id": "b", "name": "b"}
    assert rewritten(config(id="a"), id="b", name="a") == {"id": "b", "name": "a"}


def test_the_profile_is_no_harness() -> None:
    """It stays, and the harness is said beside it."""
    found = rewritten(config(id="a", runtimeProfile="p"), harness="h")
    assert found == {"id": "a", "runtimeProfile": "p", "harness": "h"}


@pytest.mark.parametrize("kept", [7, {"a": 1}, ["x"], True], ids=repr)
def test_members_that_are_no_text_are_the_platform_s(kept: object) -> None:
    """A harness or an owner of another kind stays, whatever the stream says."""
    text = config(id="a", harness=kept, owner=kept)
    identity = Identity("a", "a", "claude", "Olga", {})
    assert config_with(text, identity) is text
    found = members_of(config_with(text, identity._replace(id="b", name="b")))
    assert found == {"id": "b", "harness": kept, "owner": kept}


# -- threads


def test_a_narrowing_that_was_removed_goes() -> None:
    """What else is said of that thread stays, and what is said of others, in any form."""
    threads = {
        "t:u": {"tools": ["x"]},
        "t:v": {"tools": ["x"], "color": "blue"},
        "t:w": {"tools": ["x"]},
        "t:empty": {},
        "t:odd": {"tools": "all"},
        "t:list": ["x"],
        "nobody": {"tools": ["x"]},
        "": 1,
    }
    found = rewritten(config(id="a", threads=threads), tools={("t", "w"): ("x",)})
    assert found["threads"] == {
        "t:v": {"color": "blue"},
        "t:w": {"tools": ["x"]},
        "t:empty": {},
        "t:odd": {"tools": "all"},
        "t:list": ["x"],
        "nobody": {"tools": ["x"]},
        "": 1,
    }


def test_a_narrowing_goes_where_its_thread_is_named() -> None:
    """Under the key that is there, however it is encoded."""
    text = config(id="a", threads={"%74:u": {"color": "blue"}})
    found = rewritten(text, tools={("t", "u"): ("x",)})
    assert found["threads"] == {"%74:u": {"color": "blue", "tools": ["x"]}}


def test_a_thread_that_is_named_twice() -> None:
    """The first key has the tools, and the other one loses its own."""
    text = config(id="a", threads={"t:u": {"tools": ["x"]}, "t:%75": {"tools": ["y"], "z": 1}})
    found = rewritten(text, tools={("t", "u"): ("new",)})
    assert found["threads"] == {"t:u": {"tools": ["new"]}, "t:%75": {"z": 1}}


@pytest.mark.parametrize("threads", [None, [], "x", 1], ids=repr)
def test_threads_of_another_kind_stay(threads: object) -> None:
    """They stay; where a thread is narrowed they are no place for that, and it is said."""
    text = config(id="a", threads=threads)
    assert config_with(text, identity_in(text)) == text
    narrowed = identity_in(text)._replace(tools={("t", "u"): ("x",)})
    if threads is None:
        found = rewritten(text, tools={("t", "u"): ("x",)})
        assert found["threads"] == {"t:u": {"tools": ["x"]}}
        return
    for more in (b"", b" " * LARGE):
        with pytest.raises(Refusal, match="a thread's tools belong there") as caught:
            config_with(text + more, narrowed)
        assert caught.value.details["field"] == "agent.config.threads"


def test_what_stands_in_a_thread_s_place_is_not_overwritten() -> None:
    """It is said, where its tools would belong; another thread's stays."""
    text = config(id="a", threads={"t:u": 5, "t:other": "x"})
    with pytest.raises(Refusal, match="'t:u' is no object"):
        config_with(text, identity_in(text)._replace(tools={("t", "u"): ("x",)}))
    found = rewritten(text, tools={("t", "v"): ("x",)})
    assert found["threads"] == {"t:u": 5, "t:other": "x", "t:v": {"tools": ["x"]}}


def test_narrowings_that_cannot_be_told() -> None:
    """Keys that name no chat, tools that are no list, a member that was not read."""
    threads = {
        "main": {"tools": ["x"]},
        "a:%FF": {"tools": []},
        "t:u": {"tools": "x"},
        "t:v": {"tools": [1]},
        "t:w": {"tools": ["x"]},
        "t:x": {"tools": None},
        "t:y": 1,
    }
    assert unread_narrowings(config(id="a", threads=threads)) == [
        f"the tools of {key!r} in threads cannot be told" for key in ("main", "a:%FF", "t:u", "t:v")
    ]
    others: tuple[object, ...] = (None, [], "x", 1, {})
    for other in others:
        assert unread_narrowings(config(id="a", threads=other)) == []
    large = config(id="a", threads={"t:u": {"tools": ["x" * LARGE]}})
    assert unread_narrowings(large) == ["threads is over 1 MiB, and no thread is narrowed by it"]
    assert identity_in(large).tools == {}


@pytest.mark.parametrize(
    "chat",
    [("t", "u.jsonl"), ("thread", "main.jsonl"), ("t", ".jsonl"), ("T", "U"), ("t", "e\u0301")],
    ids=repr,
)
def test_any_chat_s_narrowing_comes_back(chat: ChatKey) -> None:
    """As it was written, beside another of nearly the same name."""
    other = (chat[0].lower() + "x", chat[1])
    tools = {chat: ("x",), other: ("y",)}
    text = config_with(config(id="a"), Identity("a", "a", "default", None, tools))
    assert identity_in(text).tools == tools


# -- settings of a thread


@pytest.mark.parametrize(
    ("settings", "tools", "is_all"),
    [
        (b'{"tools":["a","b"]}', ("a", "b"), True),
        (b'{"tools": []}', (), True),
        (b"{}", None, True),
        (b'{"tools":["a"],"color":1}', ("a",), False),
        (b'{"color":1}', None, False),
        (b'{"tools":null}', None, False),
    ],
    ids=repr,
)
def test_the_tools_in_settings(settings: bytes, tools: Tools | None, is_all: bool) -> None:
    """And whether that is all that they say."""
    assert tools_in(settings, "thread.json") == (tools, is_all)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (b'{"tools":"a"}', "field-json"),
        (b'{"tools":["a",1]}', "field-json"),
        (b'{"tools":{"a":1}}', "field-json"),
        (b"[]", "field-json"),
        (b"", "field-json"),
        (b"{", "field-json"),
        (b'\xef\xbb\xbf{"tools":["a"]}', "field-json"),
        (b'{"tools":["\\ud800"]}', "field-surrogate"),
        (b'{"tools":["\\u0000"]}', "field-nul"),
        (b'{"tools":["\xff"]}', "field-encoding"),
    ],
    ids=repr,
)
def test_tools_that_cannot_be_told(settings: bytes, code: str) -> None:
    """They are refused: without them the thread could use more than it may."""
    with pytest.raises(Refusal) as caught:
        tools_in(settings, "t/thread.json")
    assert (caught.value.code, caught.value.details["path"]) == (code, "t/thread.json")


def test_settings_say_their_tools() -> None:
    """In the one form, and they are read as they were written."""
    assert settings_of(("b", "a")) == b'{"tools":["b","a"]}\n'
    for tools in ((), ("a",), ("\u00e9", "")):
        assert tools_in(settings_of(tools), "t") == (tools, True)
