"""Putting a new Home in the place of the old one (Move Stream, section 5).

The new Home is built in ``incoming/tree`` of the working state and exchanged with the Home in one
step, so at every instant the Home is either the old agent or the new one, whole. The record of the
last move names the new Home's inode and is written before the exchange: it is true from the very
instant in which the Home is that inode.

Where no exchange can be had, ``journal.json`` says what is to be put in place, and the next command
that looks at the Home completes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from agentmove_tools.home.folders import OPEN_FOLDER, kind_at, names, open_below, remove
from agentmove_tools.home.layout import AGENT_FILE, MOVED
from agentmove_tools.home.state import INCOMING, TREE, read_json, write_json
from agentmove_tools.home.system import NO_EXCHANGE, exchange, sync_file_system

if TYPE_CHECKING:
    from agentmove_tools.home.state import HomePlace

LAST_MOVE: Final = b"last-move.json"
JOURNAL: Final = b"journal.json"
OLD: Final = b"old"

Way: TypeAlias = Literal["exchange", "rename", "journal"]
MoveRecord: TypeAlias = dict[str, object]


def last_move(place: HomePlace, state: int) -> MoveRecord | None:
    """The record of the move that the Home came to be by, or None. Raises ``OSError``."""
    if not place.exists:
        return None
    inode = os.stat(place.path).st_ino
    for record in reversed(_records(state)):
        if record.get("inode") == inode:
            return record
    return None


def _records(state: int) -> list[MoveRecord]:
    value = read_json(state, LAST_MOVE)
    records = value.get("moves") if value is not None else None
    return [r for r in records if isinstance(r, dict)] if isinstance(records, list) else []


def put_in_place(
    place: HomePlace, state: int, record: MoveRecord, *, keep_old: bytes | None
) -> Way:
    """Make ``incoming/tree`` the Home, durably, and say which way was taken.

    ``record`` is what is remembered of the move. ``keep_old`` is a path on the same file system
    that the old Home is moved to. Raises ``OSError``; before the exchange that leaves the Home as
    it was.
    """
    tree_path = os.path.join(place.state_path, INCOMING, TREE)
    tree = os.open(tree_path, OPEN_FOLDER)
    try:
        record = {**record, "inode": os.fstat(tree).st_ino, "keep_old": _text(keep_old)}
        valid = last_move(place, state)
        before = [] if valid is None else [valid]
        if place.beside:
            write_json(state, LAST_MOVE, {"moves": [*before, record]})
        sync_file_system(tree)
    finally:
        os.close(tree)
    way: Way | None = None
    if place.beside:
        way = _swap(place, tree_path)
    if way is None:
        _write_journal(place, state, record)
        complete_journal(place, state)
        return "journal"
    _sync_folder(place.parent)
    clear_away(state, place)
    return way


def _swap(place: HomePlace, tree_path: bytes) -> Way | None:
    if not place.exists:
        # A folder that somebody fills meanwhile is not replaced: only an empty one can be.
        os.rename(tree_path, place.path)
        return "rename"
    try:
        exchange(tree_path, place.path)
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        return None
    return "exchange"


def _sync_folder(path: bytes) -> None:
    fd = os.open(path, OPEN_FOLDER)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _text(path: bytes | None) -> str | None:
    return None if path is None else os.fsdecode(path)


def clear_away(state: int, place: HomePlace) -> None:
    """Remove the old Home, which lies in ``incoming`` now, or move it where it is to be kept.

    Raises ``OSError``; the next receiver tries again.
    """
    if kind_at(state, INCOMING) is not None:
        remove(state, OLD)
        os.rename(INCOMING, OLD, src_dir_fd=state, dst_dir_fd=state)
    record = last_move(place, state)
    kept = record.get("keep_old") if record is not None else None
    if isinstance(kept, str) and kind_at(state, OLD + b"/" + TREE) is not None:
        # The user asked for it, so it is never removed because it could not be moved there.
        os.rename(OLD + b"/" + TREE, os.fsencode(kept), src_dir_fd=state)
    remove(state, OLD)


# -- where no exchange can be had


def _write_journal(place: HomePlace, state: int, record: MoveRecord) -> None:
    incoming = open_below(state, INCOMING)
    home = os.open(place.path, OPEN_FOLDER) if place.exists else None
    try:
        tree = os.open(TREE, OPEN_FOLDER, dir_fd=incoming)
        try:
            new = [name for name in names(tree) if name in (*MOVED, AGENT_FILE)]
        finally:
            os.close(tree)
        gone: list[bytes] = []
        if home is not None:
            gone = [n for n in MOVED if n not in new and kind_at(home, n) is not None]
    finally:
        os.close(incoming)
        if home is not None:
            os.close(home)
    journal: dict[str, object] = {
        "replace": [name.decode() for name in new],
        "remove": [name.decode() for name in gone],
        "record": record,
    }
    write_json(state, JOURNAL, journal)


def complete_journal(place: HomePlace, state: int) -> None:
    """Do what the journal says, from wherever it was left. Raises ``OSError``."""
    journal = read_json(state, JOURNAL)
    if journal is None:
        return
    if not place.exists:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.path, 0o700)
    home = os.open(place.path, OPEN_FOLDER)
    incoming = open_below(state, INCOMING)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(OLD, 0o700, dir_fd=incoming)
        tree = os.open(TREE, OPEN_FOLDER, dir_fd=incoming)
        old = os.open(OLD, OPEN_FOLDER, dir_fd=incoming)
        try:
            for name in _listed(journal, "remove"):
                _set_aside(home, old, name)
            for name in _listed(journal, "replace"):
                # What is no longer in the tree is in the Home already.
                if kind_at(tree, name) is not None:
                    _set_aside(home, old, name)
                    os.rename(name, name, src_dir_fd=tree, dst_dir_fd=home)
        finally:
            os.close(tree)
            os.close(old)
        os.fsync(home)
        record = journal.get("record")
        if isinstance(record, dict):
            record = {**record, "inode": os.fstat(home).st_ino}
            write_json(state, LAST_MOVE, {"moves": [record]})
            kept = record.get("keep_old")
            if isinstance(kept, str) and kind_at(incoming, OLD) is not None:
                os.rename(OLD, os.fsencode(kept), src_dir_fd=incoming)
    finally:
        os.close(home)
        os.close(incoming)
    os.unlink(JOURNAL, dir_fd=state)
    remove(state, INCOMING)


def _set_aside(home: int, old: int, name: bytes) -> None:
    if kind_at(home, name) is not None:
        try:
            os.rename(name, name, src_dir_fd=home, dst_dir_fd=old)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                raise
            os.rename(name, name + b".again", src_dir_fd=home, dst_dir_fd=old)


def _listed(journal: dict[str, object], key: str) -> list[bytes]:
    value = journal.get(key)
    allowed = (*MOVED, AGENT_FILE)
    names_ = [os.fsencode(v) for v in value if isinstance(v, str)] if isinstance(value, list) else []
    return [name for name in names_ if name in allowed]
