from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentmove_tools.database.embedded import hold_server, server_state
from agentmove_tools.database.embedded.account import ServerUser
from agentmove_tools.database.embedded.settings import user_map
from agentmove_tools.refusals import MachineError
from tests.database.embedded.holding import ask
from tests.home.machine import NOBODY, only_root


def test_data_of_another_major_version(data: Path) -> None:
    """They are refused, with both versions and what to do, and left as they are."""
    (data / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(MachineError, match=r"the data are PostgreSQL 17's.* is PostgreSQL 18"):
        hold_server(str(data))
    assert server_state(str(data)).version == "17"
    (data / "postgres" / "PG_VERSION").write_text("18\n")
    with hold_server(str(data)) as held:
        assert ask(held.parameters, "SELECT number FROM kept") == [(7,)]


def test_data_that_are_none(data: Path) -> None:
    """They are told of, and no new ones are made over them."""
    (data / "postgres" / "PG_VERSION").unlink()
    with pytest.raises(MachineError, match="the data folder holds no database"):
        hold_server(str(data))
    assert (data / "postgres" / "global").is_dir()


@only_root
def test_data_of_an_account_that_was_made_anew(data: Path) -> None:
    """As in a new container, where it has another number: they are given to it, no more."""
    outside = data.parent / "outside"
    outside.write_text("")
    (data / "postgres" / "link").symlink_to(outside)
    for folder, folders, files in os.walk(data / "postgres"):
        for name in (*folders, *files, "."):
            os.lchown(os.path.join(folder, name), NOBODY, NOBODY)
    with hold_server(str(data)) as held:
        assert ask(held.parameters, "SELECT number FROM kept") == [(7,)]
    assert outside.stat().st_uid == 0


@only_root
def test_a_link_in_the_place_of_a_settings_file(data: Path) -> None:
    """Root does not write through it, where the account may have put it."""
    target = data.parent / "target"
    target.write_text("precious")
    target.chmod(0o600)
    (data / "postgres" / "pg_hba.conf").unlink()
    (data / "postgres" / "pg_hba.conf").symlink_to(target)
    with hold_server(str(data)) as held:
        assert ask(held.parameters, "SELECT number FROM kept") == [(7,)]
    assert target.read_text() == "precious"


@pytest.mark.parametrize(
    "name",
    ['a "b" c', "DOM\\me", "größe, #1", "all", "+group"],
    ids=["quotes", "backslash", "comma", "all", "plus"],
)
def test_the_user_map_quotes_names(data: Path, name: str) -> None:
    """Whatever the user is called, the server reads a map of that one name."""
    with hold_server(str(data)) as held:
        path = data / "postgres" / "pg_ident.conf"
        path.write_text(user_map(ServerUser(name, 1, 1, separate=False)), encoding="utf-8")
        query = "SELECT map_name, sys_name, pg_username, error FROM pg_ident_file_mappings"
        assert ask(held.parameters, query) == [("agentfy", name, "agentfy", None)]
