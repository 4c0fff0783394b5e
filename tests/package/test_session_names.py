from __future__ import annotations

import pytest

from agentmove_tools.package.names import caseless, composed
from agentmove_tools.package.session_names import (
    channel_and_user,
    scope_files,
    scope_of,
    session_files,
)
from agentmove_tools.refusals import Refusal
from tests.package.packages import checked, contents, event, refusal_of, told

HELD = "data/sessions/"

READ = {
    "telegram:u42.jsonl": ("telegram", "u42"),
    "agent:main:group:77.jsonl": ("agent", "main:group:77"),
    "a::b.jsonl": ("a", ":b"),
    "a::.jsonl": ("a", ":"),
    "matrix:@bob%3Aexample.org%2Froom.jsonl": ("matrix", "@bob:example.org/room"),
    "a%3Ab:c.jsonl": ("a:b", "c"),
    "x:%2f%2F.jsonl": ("x", "//"),
    "x:%5c%5C.jsonl": ("x", "\\\\"),
    "x:%2e%2E.jsonl": ("x", ".."),
    "%2E%2E:%2e%2e%2F%2e%2e.jsonl": ("..", "../.."),
    "x:%2e.jsonl": ("x", "."),
    "x:...jsonl": ("x", ".."),
    ".x:y.jsonl": (".x", "y"),
    "x:%25.jsonl": ("x", "%"),
    "x:%2541.jsonl": ("x", "%41"),
    "x:100%.jsonl": ("x", "100%"),
    "x:%4.jsonl": ("x", "%4"),
    "x:%zz%4g.jsonl": ("x", "%zz%4g"),
    "x:%41%62C.jsonl": ("x", "AbC"),
    "x:%c3%a9%C3%89.jsonl": ("x", "\u00e9\u00c9"),
    "x:\u00e9%F0%9F%98%80.jsonl": ("x", "\u00e9\U0001f600"),
    "x:%0a%7F%c2%85.jsonl": ("x", "\n\x7f\x85"),
    "x:a+b c.jsonl": ("x", "a+b c"),
    "x:y.jsonl.jsonl": ("x", "y.jsonl"),
    "x:y.JSONL": ("x", "y.JSONL"),
}


def session_refusal(name: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        channel_and_user(name, HELD + name)
    return caught.value


def scope_refusal(name: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        scope_of(name, "data/secrets/" + name)
    return caught.value


# -- sessions, read


@pytest.mark.parametrize("name", READ, ids=str)
def test_a_file_name_is_a_channel_and_a_user(name: str) -> None:
    """Split at the first colon and then decoded, so that nothing decoded is a separator."""
    assert channel_and_user(name, HELD + name) == READ[name]


@pytest.mark.parametrize("name", [".jsonl", "telegram.jsonl", ":u.jsonl", "t:.jsonl", ":.jsonl"])
def test_a_name_that_is_no_channel_and_user_is_refused(name: str) -> None:
    """One without a colon, and one with nothing on a side of it."""
    refusal = session_refusal(name)
    assert told(refusal) == ("session-name", HELD + name, None, None)
    assert "rename" in refusal.why


@pytest.mark.parametrize(
    "name",
    ["x:%ff.jsonl", "x:%C3.jsonl", "%80:y.jsonl", "x:%c3(%a9.jsonl", "x:%ed%a0%80.jsonl"],
)
def test_what_is_encoded_and_not_utf8_is_refused(name: str) -> None:
    """A cut character and a surrogate are none."""
    refusal = session_refusal(name)
    assert told(refusal) == ("session-name", HELD + name, None, None)
    assert refusal.why == "what is percent-encoded in it is not UTF-8"


@pytest.mark.parametrize(
    ("name", "field"), [("a%00:u.jsonl", "chat.channel"), ("a:%00.jsonl", "chat.user")]
)
def test_a_nul_in_a_name_is_refused(name: str, field: str) -> None:
    """No database holds it; the error says in which part it is."""
    assert told(session_refusal(name)) == ("field-nul", HELD + name, field, None)
    assert told(refusal_of({HELD + name: b""})) == ("field-nul", HELD + name, field, None)


def test_a_name_of_a_session_is_seen_before_any_content() -> None:
    """A package with such a file is refused, whatever is in it."""
    assert refusal_of({HELD + "noname.jsonl": b"{"}).code == "session-name"


@pytest.mark.parametrize(
    ("one", "other"), [("x:a", "x:%61"), ("x:%2f", "x:%2F"), ("x:%C3%A9", "x:\u00e9")]
)
def test_two_files_of_one_chat_are_refused(one: str, other: str) -> None:
    """However their names are spelled; the error names both."""
    names = sorted((f"{HELD}{one}.jsonl", f"{HELD}{other}.jsonl"))
    # the two that differ in case only meet in the archive already
    refusal = refusal_of(dict.fromkeys(names, b""))
    assert (refusal.code, refusal.details["path"]) == ("package-duplicate", names[1])
    if one.lower() != other.lower():
        assert refusal.why == f"{names[0]!r} is of the same channel and user"


# -- sessions, written


@pytest.mark.parametrize(
    ("chat", "name"),
    [
        (("telegram", "u42"), "telegram:u42.jsonl"),
        (("agent", "main:group:77"), "agent:main:group:77.jsonl"),
        (("a:b", "c"), "a%3Ab:c.jsonl"),
        (("matrix", "@bob:x/room"), "matrix:@bob:x%2Froom.jsonl"),
        (("a\\b", "c\\d"), "a%5Cb:c%5Cd.jsonl"),
        (("100%", "%41"), "100%25:%2541.jsonl"),
        (("..", ".."), "%2E.:%2E..jsonl"),
        ((".", "."), "%2E:%2E.jsonl"),
        (("a.b", "c."), "a.b:c..jsonl"),
        (("\n", "\x1f\x7f\x80\x9f"), "%0A:%1F%7F%C2%80%C2%9F.jsonl"),
        (("A", "B c"), "A:B c.jsonl"),
        (("\u00e9", "\U0001f600\u00a0"), "\u00e9:\U0001f600\u00a0.jsonl"),
        (("a", ":"), "a::.jsonl"),
        (("e\u0301", "\u037e"), "e%CC%81:%CD%BE.jsonl"),
    ],
    ids=range(14),
)
def test_a_chat_has_one_file_name(chat: tuple[str, str], name: str) -> None:
    """What a file name cannot hold is encoded in capitals, and nothing else; it reads back."""
    assert session_files([chat]) == {chat: name}
    assert channel_and_user(name, name) == chat


@pytest.mark.parametrize(
    "users",
    [
        ("bob", "Bob"),
        ("bob", "Bob", "BOB", "bOb"),
        ("\u00e9", "\u00c9"),
        ("\u00e9", "e\u0301"),
        ("\u00e9", "e\u0301", "\u00c9", "E\u0301"),
        ("ss", "\u00df", "SS", "\u1e9e"),
        ("k", "K", "\u212a"),
        ("\u03c3", "\u03c2", "\u03a3"),
        (";", "\u037e"),
        ("A%41", "a%41", "A", "a"),
        ("\u00e9A", "e\u0301A", "\u00e9a", "%C3%A9a", "%c3%a9%41"),
        ("\u0130", "i\u0307", "I\u0307"),
        ("J\u0301", "j\u0301"),
        ("a\u0345", "a\u03b9", "a\u1fbe"),
        ("\ufb01", "fi", "FI"),
    ],
    ids=range(15),
)
def test_chats_whose_names_would_meet_are_encoded_until_none_does(users: tuple[str, ...]) -> None:
    """By case and by Unicode form; each reads back, and the others keep their names."""
    chats = [*(("x", user) for user in users), *((user, "x") for user in users), ("x", "other")]
    names = session_files(chats)
    read = [channel_and_user(composed(name), name) for name in names.values()]
    assert read == chats
    assert len({caseless(name) for name in names.values()}) == len(chats)
    assert names["x", "other"] == "x:other.jsonl"
    assert session_files(reversed(chats)) == names


def test_only_capitals_of_names_that_meet_are_encoded() -> None:
    """The small ones stay readable, and so does a name that meets none."""
    names = session_files([("x", "bob"), ("x", "Bob"), ("x", "Carol")])
    assert list(names.values()) == ["x:bob.jsonl", "x:%42ob.jsonl", "x:Carol.jsonl"]
    names = session_files([("x", "\u03c3"), ("x", "\u03c2"), ("x", "e\u0301")])
    assert list(names.values()) == ["x:\u03c3.jsonl", "x:%CF%82.jsonl", "x:e%CC%81.jsonl"]


def test_a_package_gives_its_sessions_their_written_names() -> None:
    """A name that was encoded otherwise comes out in the one form, with its chat."""
    package = checked({HELD + "x:%61%2fb.jsonl": event(), HELD + "y:%42ob.jsonl": event()})
    paths = {file.path: file.chat for file in package.files if file.part == "session"}
    assert paths == {HELD + "x:a%2Fb.jsonl": ("x", "a/b"), HELD + "y:Bob.jsonl": ("y", "Bob")}


@pytest.mark.parametrize(
    "encoded",
    [
        *("e%CC%81", "%CD%BE", "%E2%84%AB", "a%CC%81%CC%A3", "%CC%81"),
        *("%2F%CC%87", "%2E%CC%81", "%5C%CC%81", "%1D%CC%87", "a%2F%CC%87"),
    ],
)
def test_a_user_keeps_a_name_that_is_not_composed(encoded: str) -> None:
    """A file name is composed as it is read; what was encoded is not, and is written so again."""
    package = checked({f"{HELD}x:{encoded}.jsonl": event()})
    chats = [file.chat for file in package.files if file.part == "session"]
    again = checked(contents(package))
    assert [file.chat for file in again.files if file.part == "session"] == chats


# -- scopes of secrets


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("shared.json", "shared"),
        ("agent.json", "agent"),
        ("user-u42.json", "user-u42"),
        ("u99.json", "user-u99"),
        ("Shared.json", "user-Shared"),
        ("user-shared.json", "user-shared"),
        ("user-user-x.json", "user-user-x"),
        ("%73hared.json", "user-shared"),
        ("user-%2F%2e%2E.json", "user-/.."),
        ("...json", "user-.."),
        ("user-a:b.json", "user-a:b"),
        ("user-%C3%a9.json", "user-\u00e9"),
        ("user-%zz.json", "user-%zz"),
    ],
)
def test_a_file_of_secrets_has_a_scope(name: str, scope: str) -> None:
    """Two are of the agent; whatever else is a user's ID, with ``user-`` before it or without."""
    assert scope_of(name, "data/secrets/" + name) == scope


@pytest.mark.parametrize("name", [".json", "user-.json"])
def test_an_empty_user_is_refused(name: str) -> None:
    """It would be a name of nobody."""
    refusal = scope_refusal(name)
    assert told(refusal) == ("package-path", "data/secrets/" + name, None, None)
    assert refusal.why == "a user's ID is empty"


def test_a_scope_that_cannot_be_decoded_is_refused() -> None:
    """What is not UTF-8, and a NUL."""
    refusal = scope_refusal("user-%ff.json")
    assert told(refusal) == ("package-path", "data/secrets/user-%ff.json", None, None)
    refusal = scope_refusal("u%00.json")
    assert told(refusal) == ("field-nul", "data/secrets/u%00.json", "secret.scope", None)


def test_scopes_have_file_names_that_read_back() -> None:
    """Encoded as users are, where two would meet too."""
    scopes = ["shared", "agent", "user-shared", "user-Bob", "user-bob", "user-../x", "user-user-"]
    names = scope_files(scopes)
    assert [scope_of(name, name) for name in names.values()] == scopes
    assert list(names.values()) == [
        "shared.json",
        "agent.json",
        "user-shared.json",
        "user-%42ob.json",
        "user-bob.json",
        "user-%2E.%2Fx.json",
        "user-user-.json",
    ]


def test_files_of_one_scope_become_one() -> None:
    """Their names are put together, under the written name."""
    package = checked(
        {
            "data/secrets/u9.json": b'["B", "A"]',
            "data/secrets/user-u9.json": b'["C", "B"]',
            "data/secrets/user-%75%39.json": b'["D"]',
        }
    )
    assert package.found.secrets == {"user-u9": ["A", "B", "C", "D"]}
    held = contents(package)
    assert held["data/secrets/user-u9.json"] == b'{"pendingKeys":["A","B","C","D"]}\n'
    assert len(held) == 3


def test_a_name_that_is_taken_is_not_given() -> None:
    """Another file may have it already; then more is encoded, until it has one of its own."""
    chat = ("x", "b\u00e9")
    taken: set[str] = set()
    for name in ("x:b\u00e9.jsonl", "x:b%C3%A9.jsonl", "%78:%62%C3%A9.jsonl"):
        assert session_files([chat], taken=taken) == {chat: name}
        assert channel_and_user(name, name) == chat
        taken.add(caseless(name))
    assert scope_files(["user-u"], taken={"user-u.json"}) == {"user-u": "user-%75.json"}
