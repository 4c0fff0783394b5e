from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentmove_tools.home.receiver import Options
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    Events,
    File,
    entries_of,
    have_of,
    made_stream,
    make_home,
    move,
    put,
    snapshot,
    stream_of,
    take,
)

EVENTS = b"harness/conversations/t/events.jsonl"
ONE, TWO, THREE = b'{"n":1}\n', b'{"n":2}\n', b'{"n":3}\n'
KEEP_BOTH = Options(keep_both=True)


def pair(here: Path, theirs: Events, own: Events | None) -> tuple[Path, Path]:
    """A sender and a receiver that have one thread each, ``t``; the receiver may have none."""
    sender = make_home(here / "sender", conversations={"t": theirs})
    home = make_home(here / "home", conversations={} if own is None else {"t": own})
    return sender, home


def events_of(home: Path, thread: str = "t") -> bytes:
    return (home / "harness" / "conversations" / thread / "events.jsonl").read_bytes()


@pytest.mark.parametrize("by_copy", [False, True])
@pytest.mark.parametrize(
    ("theirs", "own", "result", "appended"),
    [
        (ONE + TWO, None, ONE + TWO, 2),
        (ONE + TWO, b"", ONE + TWO, 2),
        (ONE + TWO, ONE, ONE + TWO, 1),
        (ONE, ONE, ONE, 0),
        (b"", ONE, ONE, 0),
        (b"", None, b"", 0),
        (b"", b"", b"", 0),
        (ONE, ONE + TWO, ONE + TWO, 0),
        (ONE + TWO, b'{ "n" : 1 }\n', b'{ "n" : 1 }\n' + TWO, 1),
        (ONE + TWO, b'{ "n" : 1 }', b'{ "n" : 1 }\n' + TWO, 1),
        (ONE, b'{ "n" : 1 }', b'{ "n" : 1 }', 0),
        (b'{"b": 1, "a": 2}\n', b'{"a":2,"b":1}\n', b'{"a":2,"b":1}\n', 0),
        ('[1.0]\n"\u2028"\n'.encode(), b"[1.0]\n", '[1.0]\n"\u2028"\n'.encode(), 1),
        (b"null\nnull\n", b"null\n", b"null\nnull\n", 1),
    ],
)
def test_append(
    here: Path, theirs: bytes, own: bytes | None, result: bytes, appended: int, by_copy: bool
) -> None:
    """The missing events are appended, and what an end has stays byte for byte as it is."""
    sender, home = pair(here, theirs, own)
    if by_copy:
        move(sender, home, "copy")
    report = move(sender, home, "switch")
    assert events_of(home) == result
    assert report.events["appended"] in (appended, 0 if by_copy and own is None else appended)
    counts = report.events
    assert counts["in"] == counts["appended"] + counts["already_there"] + counts["kept_beside"]


def test_the_mode_of_an_own_conversation_stays(here: Path) -> None:
    """One that is appended to is no more readable than before."""
    sender, home = pair(here, ONE + TWO, None)
    put(home, EVENTS, File(ONE, 0o600))
    move(sender, home, "switch")
    assert snapshot(home)[EVENTS] == ("file", 0o600, ONE + TWO)


@pytest.mark.parametrize("by_copy", [False, True])
@pytest.mark.parametrize(
    ("theirs", "own", "line"),
    [(ONE + TWO, ONE + THREE, 2), (ONE, TWO, 1), (ONE + TWO + THREE, ONE + THREE, 2)],
)
def test_diverged(here: Path, theirs: bytes, own: bytes, line: int, by_copy: bool) -> None:
    """The thread and the line are named, and nothing has changed."""
    sender, home = pair(here, theirs, own)
    if by_copy:
        move(sender, home, "copy")
    before = snapshot(home)
    with pytest.raises(Refusal) as caught:
        move(sender, home, "switch")
    assert caught.value.code == "conversation-diverged"
    assert (caught.value.details["thread"], caught.value.details["line"]) == ("t", line)
    assert caught.value.details["path"] == EVENTS.decode()
    assert snapshot(home) == before
    # What was staged is still there, so the way out needs no second copy.
    move(sender, home, "switch", options=KEEP_BOTH)
    assert events_of(home) == own
    assert events_of(home, "t-01234567") == theirs


def test_keep_both(here: Path) -> None:
    """The sender's thread, settings included, stands beside; a name that is taken is not reused."""
    sender, home = pair(here, ONE + TWO, ONE + THREE)
    put(sender, "harness/conversations/t/thread.json", '{"tools":["theirs"]}')
    put(home, "harness/conversations/t/thread.json", '{"tools":["own"]}')
    put(home, "harness/conversations/t-01234567/events.jsonl", THREE)
    report = move(sender, home, "switch", options=KEEP_BOTH)
    after = snapshot(home)
    assert report.kept_beside == ["t-01234567-2"]
    assert events_of(home) == ONE + THREE
    assert after[b"harness/conversations/t/thread.json"][2] == b'{"tools":["own"]}'
    assert events_of(home, "t-01234567") == THREE
    assert events_of(home, "t-01234567-2") == ONE + TWO
    assert after[b"harness/conversations/t-01234567-2/thread.json"][2] == b'{"tools":["theirs"]}'
    assert report.events == {"in": 2, "appended": 0, "already_there": 0, "kept_beside": 2}


def test_keep_both_after_a_switch_that_failed(here: Path) -> None:
    """The sender's thread is put beside once, however often the switch is tried."""
    sender, home = pair(here, ONE + TWO, ONE + THREE)
    put(sender, "harness/conversations/bad/events.jsonl", ONE)
    put(home, "harness/conversations/bad/events.jsonl", b'{"torn')
    move(sender, home, "copy")
    for _ in range(2):
        with pytest.raises(Refusal):
            move(sender, home, "switch", options=KEEP_BOTH)
    put(home, "files/own", "x")
    with pytest.raises(Refusal) as caught:
        move(sender, home, "switch", options=KEEP_BOTH, with_have=False)
    assert caught.value.code == "tree-mismatch"
    put(home, "harness/conversations/bad/events.jsonl", b"")
    move(sender, home, "switch", options=KEEP_BOTH)
    assert sorted(os.listdir(home / "harness" / "conversations")) == ["bad", "t", "t-01234567"]
    assert events_of(home) == ONE + THREE
    assert events_of(home, "t-01234567") == ONE + TWO


def test_keep_both_of_a_long_name(here: Path) -> None:
    """A name that leaves no room for the move's ID is cut, between two characters."""
    name = "\u00fc" * 127
    sender = make_home(here / "sender", conversations={name: [1]})
    home = make_home(here / "home", conversations={name: [2]})
    report = move(sender, home, "switch", options=KEEP_BOTH)
    assert report.kept_beside == ["\u00fc" * 120 + "-01234567"]
    assert events_of(home, report.kept_beside[0]) == b"1\n"


def test_keep_both_when_nothing_diverged(here: Path) -> None:
    """It is a way out of a divergence only."""
    sender, home = pair(here, ONE + TWO, ONE)
    report = move(sender, home, "switch", options=KEEP_BOTH)
    assert report.kept_beside == []
    assert os.listdir(home / "harness" / "conversations") == ["t"]


def test_settings_travel_with_each_thread(here: Path) -> None:
    """One without events included; those of a thread that the stream does not hold stay."""
    sender = make_home(
        here / "sender", conversations={"t": ONE}, threads={"t": {"tools": []}, "s": {"x": 1}}
    )
    home = make_home(
        here / "home",
        conversations={"t": ONE, "own": TWO},
        threads={"t": {"tools": ["old"]}, "own": {"o": 1}},
        other={"harness/conversations/t/scratch": "own", "harness/conversations/readme": "own"},
    )
    for phase in ("copy", "switch"):
        move(sender, home, phase)
    after = snapshot(home)
    assert after[b"harness/conversations/t/thread.json"][2] == b'{"tools": []}'
    assert after[b"harness/conversations/s/thread.json"][2] == b'{"x": 1}'
    assert b"harness/conversations/s/events.jsonl" not in after
    assert after[b"harness/conversations/own/thread.json"][2] == b'{"o": 1}'
    assert after[b"harness/conversations/own/events.jsonl"][2] == TWO
    assert after[b"harness/conversations/t/scratch"][2] == b"own"
    assert after[b"harness/conversations/readme"][2] == b"own"


def test_a_conversation_is_never_sent_again_for_its_form(here: Path) -> None:
    """By the hash of its one form, however either end wrote it down."""
    sender, home = pair(here, b'{"n": 1}\n{"n":2}\n', ONE + b' {"n":2}\n')
    have = have_of(home)
    for phase in ("copy", "switch"):
        assert EVENTS not in entries_of(stream_of(sender, phase, have=have))
    have_of(sender)  # once its index knows it, it is not even read
    assert EVENTS not in entries_of(stream_of(sender, "switch", have=have))
    take(home, stream_of(sender, "switch", have=have))
    assert events_of(home) == ONE + b' {"n":2}\n'


def test_an_own_torn_event(here: Path) -> None:
    """It is refused with its file and line: what it was to be, nobody knows."""
    sender, home = pair(here, ONE + TWO, ONE + b'{"n":')
    before = snapshot(home)
    with pytest.raises(Refusal) as caught:
        move(sender, home, "switch")
    assert caught.value.code == "canon-json"
    assert caught.value.place == EVENTS.decode() + ": line 2"
    assert "own" in caught.value.why
    assert snapshot(home) == before


@pytest.mark.parametrize("text", [b'{"n":1}\n{"n":\n', b"\xff\n", b"NaN\n", b"\n"])
def test_events_that_are_none(here: Path, text: bytes) -> None:
    """A sender that skips its part is found out by the switch; the Home stays as it was."""
    home = make_home(here / "home", conversations={"own": ONE})
    before = snapshot(home)
    made = Manifest(
        phase="switch", move=MOVE, version="1", agent=Agent("a1", "Ada"), harness="claude"
    )
    with pytest.raises(Refusal) as caught:
        take(home, made_stream(made, [(EVENTS, text)]))
    assert caught.value.code == "canon-json"
    assert snapshot(home) == before


def test_there_and_back(here: Path) -> None:
    """A conversation goes on at one end and then at the other, and comes back whole."""
    sender, home = pair(here, ONE, None)
    move(sender, home, "switch")
    with (home / "harness/conversations/t/events.jsonl").open("ab") as file:
        file.write(b'{ "n": 2 }\n')
    move(home, sender, "switch", move_id=OTHER_MOVE)
    assert events_of(sender) == ONE + TWO
    with (sender / "harness/conversations/t/events.jsonl").open("ab") as file:
        file.write(THREE)
    report = move(sender, home, "switch", move_id="1" * 32)
    assert events_of(home) == ONE + b'{ "n": 2 }\n' + THREE
    assert report.events == {"in": 3, "appended": 1, "already_there": 2, "kept_beside": 0}


def test_many_and_long(here: Path) -> None:
    """Events longer than what is read at once, and more of them, are cut at their newlines only."""
    long = b'{"text":"' + b"x" * 700_000 + b'"}\n'
    many = b"".join(b'{"n":%d}\n' % number for number in range(30_000))
    sender, home = pair(here, long + many + long, long + many)
    report = move(sender, home, "switch")
    assert events_of(home) == long + many + long
    assert report.events["appended"] == 1
