"""What can be told of the server of a data folder without starting it, and how it is stopped."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from agentmove_tools.database.embedded.cluster import version_of
from agentmove_tools.database.embedded.locks import Patience, is_held, try_take
from agentmove_tools.database.embedded.places import Places
from agentmove_tools.database.embedded.postmaster import (
    Ending,
    clear_leftovers,
    postmaster,
)
from agentmove_tools.database.embedded.socket_folder import drop_socket, find_socket


class State(NamedTuple):
    """The state of a data folder.

    ``version`` is the data's major version, None where there are none yet; ``pid`` the server's;
    ``socket`` the folder of its socket; ``in_use`` says whether a command holds it.
    """

    folder: str
    version: str | None
    running: bool
    pid: int | None
    socket: str | None
    in_use: bool


def server_state(folder: str | None = None) -> State:
    """Tell the state of the data folder ``folder``, or of ``data_folder()``; it changes nothing.

    Raises ``MachineError`` for a name that no data folder has, and ``OSError``.
    """
    places = Places(folder)
    running = is_held(places.server)
    pid = postmaster(places) if running else None
    running = pid is not None
    socket = None
    if running:
        socket = find_socket(places, os.stat(places.cluster).st_uid)
    in_use = running and is_held(places.clients, by_any=True)
    return State(places.folder, version_of(places), running, pid, socket, in_use)


def stop_server(folder: str | None = None) -> bool:
    """Stop the server of the data folder ``folder``, or of ``data_folder()``; wait until it has.

    Its sessions end, and what they had not committed is rolled back. It gives True if one ran,
    with a keeper or without. Raises ``MachineError`` where it runs out of this process's reach,
    and ``OSError``.
    """
    places = Places(folder)
    patience = Patience(None)
    told: int | None = None
    ending: Ending | None = None
    uid = os.geteuid()
    with suppress(FileNotFoundError):
        uid = os.stat(places.cluster).st_uid
    while is_held(places.keeper) or is_held(places.server):
        pid = postmaster(places)
        if pid is not None and told is None:
            told = pid
            ending = Ending(places, find_socket(places, uid))
            ending.push(pid)
        elif pid is not None and pid != told:
            return True  # the next command has started one of its own
        elif pid is not None and ending is not None:
            ending.push(pid)
        elif pid is None and not is_held(places.keeper):
            clear_leftovers(places, uid)  # a killed server has no keeper that would
        patience.wait("the database server stops")
    _tidy(places, uid)
    return told is not None


def _tidy(places: Places, uid: int) -> None:
    """Remove the socket folder of a server whose keeper was killed, unless one is starting."""
    if not os.path.lexists(places.start):
        return
    start = try_take(places.start)
    if start is None:
        return
    try:
        socket = find_socket(places, uid)
        if socket is not None and not is_held(places.keeper) and not is_held(places.server):
            drop_socket(places, socket)
    finally:
        os.close(start)
