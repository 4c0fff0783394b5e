"""What a killed receiver left behind, and what becomes of it (Move Stream, section 5)."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from agentmove_tools.disk.folders import OPEN_FOLDER, kind_at, names, open_below, remove
from agentmove_tools.disk.walk import walk
from agentmove_tools.home.exchange import (
    JOURNAL,
    OLD,
    clear_away,
    complete_journal,
    was_exchanged,
)
from agentmove_tools.home.layout import (
    CONVERSATIONS,
    EVENTS,
    FILES,
    HARNESS,
    HARNESS_PARTS,
    MEMORY,
    MOVED,
)
from agentmove_tools.home.state import INCOMING, STAGED, TREE, Lock, read_move
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.paths import FILE, FOLDER

if TYPE_CHECKING:
    from collections.abc import Container

    from agentmove_tools.home.state import HomePlace


def finish_interrupted(place: HomePlace) -> None:
    """Bring in order what a killed receiver left, for a command that only reads the Home.

    After it the Home is whole. Raises ``Refusal`` (home-busy), where a commit without an exchange
    is going on, ``MachineError`` and ``OSError``.
    """
    state = place.open_state(make=False)
    if state is None:
        return
    try:
        if kind_at(state, JOURNAL) is not None:
            with Lock(state, place.shown):
                complete_journal(place, state)
        elif kind_at(state, INCOMING) is not None:
            # The Home is whole already; this finds the staged copy again, if it can be had.
            with contextlib.suppress(OSError, Refusal, MachineError), Lock(state, place.shown):
                tidy(place, state)
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
        if was_exchanged(state):
            clear_away(state, place)
        elif (read_move(state, INCOMING) or {}).get("staged") is True:
            stage_again(state)
        else:
            remove(state, INCOMING)
    if kind_at(state, OLD) is not None:
        clear_away(state, place)


def _temporary_files(state: int) -> list[bytes]:
    return [os.fsencode(n) for n in os.listdir(state) if n.endswith(".tmp")]


def stage_again(state: int) -> None:
    """Make ``incoming`` the staged copy that it came from.

    The old Home's files may already be in it, as hard links; a staged copy shares nothing with the
    Home, so those go, and so does all that ``have`` does not list: it travels in full.
    """
    remove(state, STAGED)
    try:
        tree = open_below(state, INCOMING + b"/" + TREE)
    except FileNotFoundError:
        remove(state, INCOMING)  # it was put in place, and is gone since
        return
    try:
        for name in names(tree):
            if name not in (FILES, MEMORY, HARNESS):
                remove(tree, name)
        _keep_only(tree, HARNESS, CONVERSATIONS.rpartition(b"/")[2:])
        for top in (FILES, MEMORY, CONVERSATIONS):
            _drop_shared(tree, top)
    finally:
        os.close(tree)
    os.rename(INCOMING, STAGED, src_dir_fd=state, dst_dir_fd=state)


def drop_strangers(tree: int) -> None:
    """Remove from a staged tree what no stream brings: it would take the place of the Home's own.

    Raises ``OSError``.
    """
    for name in names(tree):
        if name not in MOVED:
            remove(tree, name)
    _keep_only(tree, HARNESS, HARNESS_PARTS)


def _keep_only(tree: int, path: bytes, kept: Container[bytes]) -> None:
    try:
        folder = _open_own(tree, path)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for name in names(folder):
            if name not in kept:
                remove(folder, name)
    finally:
        os.close(folder)


def _drop_shared(tree: int, top: bytes) -> None:
    try:
        root = _open_own(tree, top)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for _, kind, folder, name in walk(root, top, any_names=True):
            if kind == FILE:
                info = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
                if info.st_nlink > 1 or (top == CONVERSATIONS and name != EVENTS):
                    os.unlink(name, dir_fd=folder.fd)
            elif kind == FOLDER:
                _make_own(folder.fd, name)
    finally:
        os.close(root)


def _open_own(root: int, path: bytes) -> int:
    """As ``open_below``, where the folders may have their last modes already."""
    fd = os.dup(root)
    try:
        for name in path.split(b"/"):
            if kind_at(fd, name) == stat.S_IFDIR:
                _make_own(fd, name)
            below = os.open(name, OPEN_FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_own(folder: int, name: bytes) -> None:
    """Give a folder the mode of a staged one: the one it is to have may lock its owner out."""
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_IMODE(info.st_mode) != 0o700:
        os.chmod(name, 0o700, dir_fd=folder)
