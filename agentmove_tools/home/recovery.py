"""What a killed receiver left behind, and what becomes of it (Move Stream, section 5)."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from agentmove_tools.home.exchange import (
    JOURNAL,
    OLD,
    clear_away,
    complete_journal,
    last_move,
)
from agentmove_tools.home.folders import kind_at, open_below, remove
from agentmove_tools.home.layout import CONVERSATIONS, FILES, HARNESS, MEMORY
from agentmove_tools.home.state import INCOMING, STAGED, TREE, Lock, read_json
from agentmove_tools.home.walk import walk
from agentmove_tools.stream.paths import FILE

if TYPE_CHECKING:
    from agentmove_tools.home.state import HomePlace

STAGED_MOVE = b"move.json"


def finish_interrupted(place: HomePlace) -> None:
    """Complete a commit that was left half-way, for a command that only reads the Home.

    Only one without an exchange can be; after it the Home is whole. Raises ``Refusal``
    (home-busy), ``MachineError`` and ``OSError``.
    """
    state = place.open_state(make=False)
    if state is None:
        return
    try:
        if kind_at(state, JOURNAL) is None:
            return
        lock = Lock(state, place.shown)
        try:
            complete_journal(place, state)
        finally:
            lock.release()
    finally:
        os.close(state)


def tidy(place: HomePlace, state: int) -> None:
    """Bring the working state of a killed receiver in order; the lock is held.

    A half-way commit is completed, an old Home that was exchanged away is removed, and what was
    being put together from a staged copy becomes that copy again. Raises ``OSError``.
    """
    complete_journal(place, state)
    for name in _temporary_files(state):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=state)
    if kind_at(state, INCOMING) is not None:
        if _was_exchanged(place, state):
            clear_away(state, place)
        elif (read_incoming(state) or {}).get("staged") is True:
            stage_again(state)
        else:
            remove(state, INCOMING)
    if kind_at(state, OLD) is not None:
        clear_away(state, place)


def _temporary_files(state: int) -> list[bytes]:
    return [os.fsencode(n) for n in os.listdir(state) if n.endswith(".tmp")]


def _was_exchanged(place: HomePlace, state: int) -> bool:
    """Whether ``incoming`` holds the old Home, and not a new one that was never put in place."""
    record = last_move(place, state)
    begun = read_incoming(state)
    return record is not None and begun is not None and record.get("move") == begun.get("move")


def read_incoming(state: int) -> dict[str, object] | None:
    """What is known of the move whose new Home is being put together."""
    return _read_move(state, INCOMING)


def read_staged(state: int) -> dict[str, object] | None:
    """What is known of the move that the staged tree came by: ``move``, ``agent``, ``copy``."""
    return _read_move(state, STAGED)


def _read_move(state: int, name: bytes) -> dict[str, object] | None:
    try:
        folder = open_below(state, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return read_json(folder, STAGED_MOVE)
    finally:
        os.close(folder)


def stage_again(state: int) -> None:
    """Make ``incoming`` the staged copy that it came from.

    The old Home's files may already be in it, as hard links; a staged copy shares nothing with the
    Home, so those go, and so does all that is no part of a copy.
    """
    remove(state, STAGED)
    tree = open_below(state, INCOMING + b"/" + TREE)
    try:
        for entry in os.listdir(tree):
            if os.fsencode(entry) not in (FILES, MEMORY, HARNESS):
                remove(tree, os.fsencode(entry))
        for top in (FILES, MEMORY, CONVERSATIONS):
            _drop_shared(tree, top)
    finally:
        os.close(tree)
    os.rename(INCOMING, STAGED, src_dir_fd=state, dst_dir_fd=state)


def _drop_shared(tree: int, top: bytes) -> None:
    try:
        root = open_below(tree, top)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for _, kind, folder, name in walk(root, top):
            if kind == FILE:
                info = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
                if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
                    os.unlink(name, dir_fd=folder.fd)
    finally:
        os.close(root)
