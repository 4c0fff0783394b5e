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
import os
import stat
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from agentmove_tools.disk.folders import OPEN_FOLDER, kind_at, names, open_below, remove
from agentmove_tools.disk.system import NO_EXCHANGE, birth_of, exchange, sync_file_system
from agentmove_tools.home.layout import AGENT_FILE, MOVED
from agentmove_tools.home.state import INCOMING, TREE, read_json, read_move, write_json
from agentmove_tools.refusals import MachineError

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
    home = os.open(place.path, OPEN_FOLDER)
    try:
        identity = _identity(home)
    finally:
        os.close(home)
    for record in reversed(_records(state)):
        if all(record.get(key) == value for key, value in identity.items()):
            return record
    return None


def _identity(folder: int) -> MoveRecord:
    """What tells a folder from every other one: a number that is freed is given again."""
    return {"inode": os.fstat(folder).st_ino, "born": birth_of(folder)}


def _records(state: int) -> list[MoveRecord]:
    value = read_json(state, LAST_MOVE)
    records = value.get("moves") if value is not None else None
    return [r for r in records if isinstance(r, dict)] if isinstance(records, list) else []


def was_exchanged(state: int) -> bool:
    """Whether ``incoming`` holds the old Home, and not a new one that was never put in place.

    It goes by what lies there, and not by the Home, which may have been moved away since. Raises
    ``OSError``.
    """
    record = _record_of(state, INCOMING)
    if record is None:
        return False  # it never came so far
    try:
        tree = open_below(state, INCOMING + b"/" + TREE)
    except FileNotFoundError:
        return True  # there was no old one
    try:
        return any(record.get(key) != value for key, value in _identity(tree).items())
    finally:
        os.close(tree)


def _record_of(state: int, name: bytes) -> MoveRecord | None:
    """The record of the run that made the folder ``name`` of the working state."""
    begun = read_move(state, name)
    run = begun.get("run") if begun is not None else None
    if run is None:
        return None
    return next((r for r in reversed(_records(state)) if r.get("run") == run), None)


def put_in_place(
    place: HomePlace, state: int, home: int | None, record: MoveRecord, *, keep_old: bytes | None
) -> tuple[Way, str | None]:
    """Make ``incoming/tree`` the Home, durably: which way was taken, and what went wrong after.

    ``home`` is the open old Home. ``record`` is what is remembered of the move. ``keep_old`` is a
    path on the same file system that the old Home is moved to. Raises ``OSError`` and
    ``MachineError``, which leave the Home as it was.
    """
    tree_path = os.path.join(place.state_path, INCOMING, TREE)
    tree = os.open(tree_path, OPEN_FOLDER)
    try:
        record = {**record, **_identity(tree), "keep_old": _text(keep_old)}
        valid = last_move(place, state)
        before = [] if valid is None else [valid]
        if place.beside:
            write_json(state, LAST_MOVE, {"moves": [*before, record]})
        sync_file_system(tree)
    finally:
        os.close(tree)
    if home is not None and not place.is_home(home):
        msg = "it was moved away, or another put in its place, during the switch"
        raise MachineError(msg, path=place.shown)
    way: Way | None = None
    if place.beside:
        way = _swap(place, tree_path)
    if way is None:
        _write_journal(place, state, record)
        complete_journal(place, state)
        return "journal", None
    try:
        _sync_folder(place.parent)
        clear_away(state, place)
    except (OSError, MachineError) as error:
        # The new Home is in place, whatever becomes of the old one now.
        return way, f"the old Home still lies in {os.fsdecode(place.state_path)}: {error}"
    return way, None


def _swap(place: HomePlace, tree_path: bytes) -> Way | None:
    if not place.exists:
        # A folder that somebody fills meanwhile is not replaced: only an empty one can be.
        os.rename(tree_path, place.path)
        return "rename"
    home, tree = _unlock(place.path), _unlock(tree_path)
    new, old = tree_path, place.path
    try:
        exchange(tree_path, place.path)
        new, old = old, new
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        return None
    finally:
        # The old one may be on its way out, or stay.
        for path, mode in ((new, tree), (old, home)):
            if mode is not None:
                os.chmod(path, mode)
    return "exchange"


def _unlock(path: bytes) -> int | None:
    """Let a folder be moved by its owner, who has to be able to write it; its mode before.

    None where nothing had to be changed.
    """
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if os.geteuid() == 0 or mode & 0o700 == 0o700:
        return None
    os.chmod(path, mode | 0o700)
    return mode


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

    Raises ``OSError`` and ``MachineError``; the next receiver tries again.
    """
    if kind_at(state, INCOMING) is not None:
        _clear_old(state, place)
        os.rename(INCOMING, OLD, src_dir_fd=state, dst_dir_fd=state)
    _clear_old(state, place)


def _clear_old(state: int, place: HomePlace) -> None:
    if kind_at(state, OLD) is None:
        return
    record = _record_of(state, OLD)
    shown = os.fsdecode(os.path.join(place.state_path, OLD, TREE))
    if record is None and kind_at(state, OLD + b"/" + TREE + b"/" + AGENT_FILE) is not None:
        msg = "an old Home, and nothing says what is to become of it: move it away, or remove it"
        raise MachineError(msg, path=shown)
    kept = record.get("keep_old") if record is not None else None
    if isinstance(kept, str) and kind_at(state, OLD + b"/" + TREE) is not None:
        mode = _unlock(os.path.join(place.state_path, OLD, TREE))
        _keep(state, OLD + b"/" + TREE, kept, shown)
        if mode is not None:
            os.chmod(os.fsencode(kept), mode)
    try:
        # What says whose it was goes last: this may be killed at any time.
        old = open_below(state, OLD)
        try:
            remove(old, TREE)
        finally:
            os.close(old)
        remove(state, OLD)
    except OSError as error:
        msg = f"an old Home that cannot be removed: {error.strerror}; remove it by hand"
        raise MachineError(msg, path=shown) from None


def _keep(folder: int, name: bytes, kept: str, shown: str) -> None:
    """Move an old Home to where it is to be kept. It is never removed because it cannot be."""
    try:
        os.rename(name, os.fsencode(kept), src_dir_fd=folder)
    except OSError as error:
        msg = f"the old Home cannot be moved here: {error.strerror}; it is {shown}: move that away"
        raise MachineError(msg, path=kept) from None


# -- where no exchange can be had


def _write_journal(place: HomePlace, state: int, record: MoveRecord) -> None:
    incoming = open_below(state, INCOMING)
    home = os.open(place.path, OPEN_FOLDER) if place.exists else None
    try:
        tree = os.open(TREE, OPEN_FOLDER, dir_fd=incoming)
        try:
            new = [name for name in names(tree) if name in (*MOVED, AGENT_FILE)]
            modes = {name.decode(): _mode_of(tree, name) for name in new}
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
        "modes": modes,
        "remove": [name.decode() for name in gone],
        "mode": stat.S_IMODE(os.lstat(place.path).st_mode) if place.exists else None,
        "record": record,
    }
    write_json(state, JOURNAL, journal)


def complete_journal(place: HomePlace, state: int) -> None:
    """Do what the journal says, from wherever it was left. Raises ``OSError``."""
    if kind_at(state, JOURNAL) is None:
        return
    journal = read_json(state, JOURNAL)
    if journal is None:
        msg = "the journal of a move that was stopped half-way is damaged: the old Home's parts"
        raise MachineError(
            f"{msg} are in incoming/old of that folder, the new one's in incoming/tree",
            path=os.fsdecode(place.state_path),
        )
    if not place.exists:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.path, 0o700)
    mode = journal.get("mode")
    _unlock(place.path)
    home = os.open(place.path, OPEN_FOLDER)
    incoming = open_below(state, INCOMING)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(OLD, 0o700, dir_fd=incoming)
        _unlock(os.path.join(place.state_path, INCOMING, TREE))
        tree = os.open(TREE, OPEN_FOLDER, dir_fd=incoming)
        old = os.open(OLD, OPEN_FOLDER, dir_fd=incoming)
        try:
            record = journal.get("record")
            done = isinstance(record, dict) and _is_last(state, home, record)
            for name in [] if done else _listed(journal, "remove"):
                if kind_at(old, name) is None:  # else it was, and the new agent made another
                    _set_aside(home, old, name)
            for name in _listed(journal, "replace"):
                # What is no longer in the tree is in the Home already.
                if kind_at(tree, name) is not None:
                    _set_aside(home, old, name)
                    _move_to(tree, home, name)
            _give_modes(home, journal)
            kept = record.get("keep_old") if isinstance(record, dict) else None
            if isinstance(mode, int):
                os.fchmod(home, mode & 0o777)
            if isinstance(kept, str):
                # What was carried over is there twice: the old Home is kept with its own.
                for name in names(tree):
                    _set_aside(tree, old, name)
                if names(old):  # else it was moved there before
                    shown = os.fsdecode(os.path.join(place.state_path, INCOMING, OLD))
                    _keep(incoming, OLD, kept, shown)
                if not done and os.path.isdir(kept):
                    _look_alike(os.fsencode(kept), home)
        finally:
            os.close(tree)
            os.close(old)
        os.fsync(home)
        if isinstance(record, dict):
            record = {**record, **_identity(home), "keep_old": None}
            write_json(state, LAST_MOVE, {"moves": [record]})
    finally:
        os.close(home)
        os.close(incoming)
    os.unlink(JOURNAL, dir_fd=state)
    os.fsync(state)  # a journal that came back without its tree would stop every command
    remove(state, INCOMING)


def _is_last(state: int, home: int, record: MoveRecord) -> bool:
    """Whether all of a journal was done, and only the journal itself was left."""
    identity = _identity(home)
    return any(
        known.get("run") == record.get("run") and identity.items() <= known.items()
        for known in _records(state)
    )


def _set_aside(home: int, old: int, name: bytes) -> None:
    if kind_at(home, name) is not None:
        mode = _mode_of(home, name)
        aside = name
        number = 1
        while kind_at(old, aside) is not None:
            # It was set aside before, and has come back since: neither is thrown away here.
            number += 1
            aside = name + b".%d" % number
        _move_to(home, old, name, aside)
        if mode is not None:
            os.chmod(aside, mode, dir_fd=old)


def _mode_of(folder: int, name: bytes) -> int | None:
    """The mode of a folder; None for anything else."""
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return stat.S_IMODE(info.st_mode) if stat.S_ISDIR(info.st_mode) else None


def _move_to(source: int, target: int, name: bytes, new: bytes | None = None) -> None:
    """Rename into another folder. A folder has to be writable for that; its mode is lost."""
    new = name if new is None else new
    try:
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:
        if _mode_of(source, name) is None:
            raise
        os.chmod(name, 0o700, dir_fd=source)
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)


def _give_modes(home: int, journal: dict[str, object]) -> None:
    modes = journal.get("modes")
    for name in _listed(journal, "replace"):
        mode = modes.get(name.decode()) if isinstance(modes, dict) else None
        if isinstance(mode, int) and _mode_of(home, name) not in (None, mode):
            os.chmod(name, mode & 0o777, dir_fd=home)


def _look_alike(path: bytes, other: int) -> None:
    """Give a folder the mode of another, and its owner where the process may."""
    info = os.fstat(other)
    folder = os.open(path, OPEN_FOLDER)
    try:
        if os.geteuid() == 0:
            os.fchown(folder, info.st_uid, info.st_gid)
        os.fchmod(folder, stat.S_IMODE(info.st_mode))
    finally:
        os.close(folder)


def _listed(journal: dict[str, object], key: str) -> list[bytes]:
    value = journal.get(key)
    allowed = (*MOVED, AGENT_FILE)
    listed = value if isinstance(value, list) else []
    found = [os.fsencode(name) for name in listed if isinstance(name, str)]
    return [name for name in found if name in allowed]
