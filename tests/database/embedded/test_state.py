from __future__ import annotations

import os
from pathlib import Path

from agentmove_tools.database.embedded import hold_server, server_state, stop_server
from tests.database.embedded.holding import Holder, commands, keeper_of, kill, server_of


def test_the_state_makes_nothing(place: Path) -> None:
    """Nor does stopping what does not run."""
    missing = place / "data"
    assert server_state(str(missing)) == (str(missing), None, False, None, None, False)
    assert not stop_server(str(missing))
    assert list(place.iterdir()) == []


def test_the_state_of_a_server(data: Path) -> None:
    """It says whether it runs and is held; the major version of the data is there in any case."""
    assert server_state(str(data))[1:] == ("18", False, None, None, False)
    with hold_server(str(data)) as held:
        state = server_state(str(data))
        assert state.running
        assert state.in_use
        assert state.socket == held.parameters["host"]
    assert not server_state(str(data)).in_use
    assert server_state(str(data)).running


def test_stopping(data: Path) -> None:
    """All is gone when it returns, and it says whether there was anything to stop."""
    with hold_server(str(data)) as held:
        pass
    assert stop_server(str(data))
    assert not commands("postgres -D", str(data))
    assert not os.path.exists(held.parameters["host"])
    assert not stop_server(str(data))


def test_stopping_what_is_in_use(data: Path) -> None:
    """The user asked for it; whoever held it may go on to the next one."""
    with Holder(data) as holder:
        assert holder.said()
        assert stop_server(str(data))
        with hold_server(str(data)):
            assert server_state(str(data)).running


def test_stopping_without_a_keeper(data: Path) -> None:
    """The socket folder goes too."""
    with hold_server(str(data)) as held:
        kill(keeper_of(data))
    assert stop_server(str(data))
    assert not os.path.exists(held.parameters["host"])
    assert not server_state(str(data)).running


def test_stopping_what_was_killed(data: Path) -> None:
    """Nothing ran, but what it left in /tmp is removed."""
    with hold_server(str(data)) as held:
        kill(keeper_of(data), server_of(data))
    assert not stop_server(str(data))
    assert not os.path.exists(held.parameters["host"])
