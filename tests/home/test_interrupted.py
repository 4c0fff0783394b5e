"""A stream that stops half-way: what arrived whole is staged, and found again (section 5)."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from agentmove_tools.home import receiver
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import Phase
from tests.conftest import RunTool
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    Snapshot,
    entries_of,
    full_home,
    have_of,
    make_home,
    move,
    put,
    snapshot,
    stream_of,
    take,
    travelling,
)

_AT_REST = {"lock", "last-move.json", "index", "index.staged"}


def _sender(folder: Path) -> Path:
    home = full_home(folder)
    for number in range(30):
        put(home, f"files/many/{number:02}", b"%d" % number * 300)
    put(home, "files/large", b"large" * 500_000)
    put(home, "memory/engine/large", b"memory" * 100_000)
    return home


def _old(folder: Path) -> Path:
    return make_home(folder, files={"a.txt": "old", "own": "own"}, other={"logs/a": "log"})


def _whole_in(stream: bytes, cut: int) -> dict[bytes, bytes]:
    """The files of ``have`` whose content lies whole in the first ``cut`` bytes."""
    found: dict[bytes, bytes] = {}
    for path, (kind, _, content) in entries_of(stream).items():
        held = path.startswith((b"files/", b"memory/")) and path != b"memory/notes.md"
        if kind == "file" and (held or path.endswith(b"/events.jsonl")):
            at = stream.index(content) if len(content) > 100 else stream.index(path)
            if at + len(content) + 1024 <= cut:
                found[path] = hashlib.sha256(content).digest()
    return found


def _end(stream: bytes) -> int:
    """Where the stream's last entry ends; after it come zeros."""
    return stream.rindex(b"lnk-move-4.end") + 512


def _cuts(stream: bytes) -> list[int]:
    """Places all over a stream, at blocks, within them, and just before its end."""
    end = _end(stream)
    places = [end * part // 12 for part in range(1, 12)]
    ends = [end - 512 * blocks - odd for blocks in (0, 1, 2, 3, 6) for odd in (1, 100)]
    return sorted({cut // 512 * 512 + odd for cut in places for odd in (0, 77)} | {*ends, 5000})


def _holds(home: Path, sender: Path) -> None:
    theirs = travelling(snapshot(sender))
    ours = travelling(snapshot(home))
    assert {path: ours.get(path) for path in theirs} == theirs


@pytest.mark.parametrize("phase", ["copy", "switch"])
@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_a_stream_that_is_cut(here: Path, phase: Phase, old: bool) -> None:
    """The Home is as it was; all that arrived whole is in the next ``have``."""
    sender = _sender(here / "sender")
    home = here / "home"
    if old:
        _old(home)
    before = have_of(home)
    stream = stream_of(sender, phase)
    state = here / ".home.lnk-move"
    known = snapshot(home) if old else None
    for cut in _cuts(stream):
        with pytest.raises(Refusal) as refusal:
            take(home, stream[:cut])
        assert refusal.value.code in ("stream-cut", "stream-not-move"), cut
        assert (snapshot(home) if home.exists() else None) == known
        held = have_of(home)
        arrived = _whole_in(stream, cut)
        assert {path: held.get(path) for path in arrived} == arrived, cut
        assert {path for path in held if path not in arrived} <= {*before, *have_of(sender)}
        shutil.rmtree(state, ignore_errors=True)


@pytest.mark.parametrize("phase", ["copy", "switch"])
def test_a_stream_that_is_refused_in_the_middle(here: Path, phase: Phase) -> None:
    """One bit that is wrong is no file, and hinders none that came before."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    known = snapshot(home)
    stream = bytearray(stream_of(sender, phase))
    at = stream.index(b"largelargelarge") + 1_000_000
    stream[at] ^= 1
    with pytest.raises(Refusal) as refusal:
        take(home, bytes(stream))
    assert refusal.value.code == "hash-mismatch"
    assert snapshot(home) == known
    held = have_of(home)
    assert b"files/large" not in held
    assert held[b"files/a.txt"] == hashlib.sha256(b"alpha").digest()
    put(home, "files/own", "own")
    stream[at] ^= 1
    if phase == "copy":
        assert take(home, bytes(stream)).result == "staged"
        assert have_of(home)[b"files/large"] == have_of(sender)[b"files/large"]


def test_each_try_sends_less(here: Path) -> None:
    """A connection that breaks again and again gets it over all the same."""
    sender = _sender(here / "sender")
    home = here / "home"
    sizes = []
    for _ in range(20):
        stream = stream_of(sender, "copy", have=have_of(home))
        sizes.append(len(stream))
        try:
            take(home, stream[: 3_000_000 if len(sizes) < 3 else 4_000_000])
        except Refusal as refusal:
            assert refusal.code == "stream-cut"  # noqa: PT017 - the try that is whole ends the loop
        else:
            break
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= 5
    assert sizes[-1] < sizes[0]
    assert move(sender, home, "switch").result == "in place"
    _holds(home, sender)


def test_a_staged_copy_is_used_by_its_switch(here: Path) -> None:
    """What the copy brought is not sent again, and counts before what the Home holds."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    (home / "files/own").unlink()
    move(sender, home, "copy")
    held = have_of(home)
    assert held[b"files/a.txt"] == hashlib.sha256(b"alpha").digest()
    switch = stream_of(sender, "switch", have=held)
    assert len(switch) < 60_000
    assert take(home, switch).result == "in place"
    _holds(home, sender)
    assert set(os.listdir(here / ".home.lnk-move")) <= _AT_REST


def test_a_copy_of_a_new_move_takes_an_earlier_one_over(here: Path) -> None:
    """And the switch of the earlier one is refused then."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    (home / "files/own").unlink()
    move(sender, home, "copy")
    early = stream_of(sender, "switch", have=have_of(home))
    again = stream_of(sender, "copy", move=OTHER_MOVE, have=have_of(home))
    assert len(again) < 60_000
    take(home, again)
    before = snapshot(here / ".home.lnk-move/staged")
    with pytest.raises(Refusal) as refusal:
        take(home, early)
    assert refusal.value.code == "move-mismatch"
    assert snapshot(here / ".home.lnk-move/staged") == before
    assert move(sender, home, "switch", move_id=OTHER_MOVE).result == "in place"
    _holds(home, sender)


def test_a_staged_copy_that_is_dropped(here: Path, tool: RunTool) -> None:
    """It is gone from ``have`` and from the disk, and another move's switch is taken."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    (home / "files/own").unlink()
    before = have_of(home)
    known = snapshot(home)
    move(sender, home, "copy")
    done = tool("lnk-tar-apply", "--drop-staged", home)
    assert (done.returncode, done.stdout) == (0, b'{"result": "dropped"}\n')
    assert have_of(home) == before
    assert snapshot(home) == known
    assert set(os.listdir(here / ".home.lnk-move")) <= _AT_REST
    assert not receiver.drop_staged(os.fsencode(home))
    assert move(sender, home, "switch", move_id=OTHER_MOVE).result == "in place"
    _holds(home, sender)


def _volume(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def test_abandoned_moves_do_not_grow(here: Path) -> None:
    """Moves that are begun and never ended, in each way that they can end, leave no more behind."""
    sender = full_home(here / "sender")
    put(sender, "files/large", b"large" * 100_000)
    home = _old(here / "home")
    known = snapshot(home)
    state = here / ".home.lnk-move"
    seen: list[tuple[set[str], int]] = []
    for number in range(6):
        put(sender, "files/large", b"%05d" % number * 100_000)
        sent = f"{number:032x}"
        copy = stream_of(sender, "copy", move=sent)
        with pytest.raises(Refusal):
            take(home, copy[: _end(copy) - 100])
        take(home, copy)
        switch = stream_of(sender, "switch", move=sent)
        with pytest.raises(Refusal):
            take(home, switch[: _end(switch) - 100])
        with pytest.raises(Refusal) as refusal:
            take(home, switch)  # it does not say what becomes of the Home's own file
        assert refusal.value.code == "tree-mismatch"
        with pytest.raises(Refusal):
            take(home, stream_of(sender, "files", move=sent)[:300_000])
        receiver.drop_staged(os.fsencode(here / "none"))
        take(home, copy, receiver.Options(dry_run=True))
        seen.append((set(os.listdir(state)), _volume(state / "staged")))
        assert snapshot(home) == known
    assert seen[1:] == seen[:-1]
    assert seen[0][0] <= {*_AT_REST, "staged"}


def test_switches_that_are_taken_leave_nothing(here: Path) -> None:
    """A Home that is moved to again and again has a working state that does not grow."""
    sender = full_home(here / "sender")
    home = here / "home"
    sizes = []
    for number in range(5):
        put(sender, "files/counter", b"%05d" % number)
        assert move(sender, home, "copy", move_id=f"{number:032x}").result == "staged"
        assert move(sender, home, "switch", move_id=f"{number:032x}").result == "in place"
        state = here / ".home.lnk-move"
        assert set(os.listdir(state)) <= _AT_REST
        sizes.append((state / "last-move.json").stat().st_size)
    assert max(sizes) < 2000


def test_a_cut_switch_over_a_copy_keeps_the_copy(here: Path) -> None:
    """And the whole of it, sent again as it is, is put in place."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    (home / "files/own").unlink()
    known: Snapshot = snapshot(home)
    move(sender, home, "copy")
    put(sender, "files/late", b"late" * 50_000)
    switch = stream_of(sender, "switch", have=have_of(home))
    for cut in _cuts(switch):
        with pytest.raises(Refusal):
            take(home, switch[:cut])
        assert snapshot(home) == known
    assert take(home, switch).result == "in place"
    _holds(home, sender)
    assert take(home, switch[: len(switch)]).result == "already in place"


def test_an_empty_input(here: Path, tool: RunTool) -> None:
    """Nothing at all is no move, and makes nothing, not even a working state."""
    done = tool("lnk-tar-apply", here / "home")
    assert done.returncode == 1
    assert b"lnk-tar-apply: refused: stream-not-move: " in done.stderr
    assert os.listdir(here) == []
    assert MOVE.encode() not in done.stderr
