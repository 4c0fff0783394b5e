"""An unpacking that is killed at any instant, or has no room, loses and half-writes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.disk import flush
from agentmove_tools.package import update as update_module
from tests.conftest import RunTool
from tests.home.builder import Snapshot, snapshot
from tests.home.dying import calls_of, die_at
from tests.home.machine import mounted_tmpfs, only_root
from tests.package.folders import contents, event, into, made, names, whole
from tests.package.zips import MINIMAL, zipped

SESSION = "data/sessions/web:alice.jsonl"
SECRETS = "data/secrets/agent.json"
NEW = {
    "USER.md": b"new",
    "memory/a.md": b"a" * 3000,
    "memory/deep/er/b.md": b"b",
    "skills/x/SKILL.md": b"x",
    SESSION: event(1) + event(2),
    SECRETS: names("KEY"),
}
OLD = {
    "USER.md": b"old",
    "memory/gone.md": b"old",
    "skills/old/SKILL.md": b"old",
    SESSION: event(1) + event(3),
    SECRETS: names("OLD", MINE="s3cr3t"),
    "data/memory.sqlite": b"index",
}
UPDATED = {
    **MINIMAL,
    **OLD,
    **NEW,
    SESSION: event(1) + event(2) + event(3),
    SECRETS: names("KEY", "OLD", MINE="s3cr3t"),
}
EXACT = {
    **MINIMAL,
    **NEW,
    "data/memory.sqlite": b"index",
    SECRETS: names("KEY", MINE="s3cr3t"),
}


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process wrote is in the system's cache: a sync would only take time."""

    def sync(fd: int) -> None:
        pass

    for module in (update_module, flush):
        monkeypatch.setattr(module, "sync_file_system", sync)


def every_death(work: Callable[[], object], after: Callable[[], None]) -> int:
    """Kill ``work`` before each of its calls in turn, and look ``after`` each death."""
    number = 1
    while die_at(number, work):
        after()
        number += 1
    return number - 1


def test_a_new_folder_is_there_whole_or_not_at_all(here: Path) -> None:
    """Wherever the process dies; the next one clears up and takes the package."""
    out = here / "out"
    seen = {"none": 0, "whole": 0}

    def after() -> None:
        if out.exists():
            assert contents(out) == {**MINIMAL, **NEW}
            seen["whole"] += 1
            os.rename(out, here / f"done{seen['whole']}")
        else:
            seen["none"] += 1

    deaths = every_death(lambda: into(out, NEW), after)
    assert deaths > 30
    assert seen["none"] > 30
    assert seen["whole"] > 0
    assert contents(out) == {**MINIMAL, **NEW}
    assert not [name for name in os.listdir(here) if name.startswith(".")]


def test_a_killed_filling_of_an_empty_folder_is_completed_by_the_same_command(here: Path) -> None:
    """It cannot show all at once; what is there is whole, and nobody has to clear it away."""
    number = 1
    killed = True
    halves = 0
    while killed:
        out = here / f"out{number}"
        out.mkdir()

        def work(out: Path = out) -> None:
            into(out, NEW)

        killed = die_at(number, work)
        found = {path: data for path, data in contents(out).items() if not path.startswith(".")}
        assert found.items() <= {**MINIMAL, **NEW}.items()
        halves += 0 < len(found) < len({**MINIMAL, **NEW})
        if found != {**MINIMAL, **NEW}:
            assert into(out, NEW).result == "created"
            found = contents(out)
        assert found == {**MINIMAL, **NEW}
        number += 1
    assert halves > 3


@pytest.mark.parametrize("delete", [False, True])
def test_a_killed_update_is_completed_by_the_next(here: Path, delete: bool) -> None:
    """Each file is the old or the new one, whole; no value and no event is lost on the way."""
    expected = EXACT if delete else UPDATED
    number = 1
    killed = True
    while killed:
        out = made(here / f"out{number}", dict(OLD))
        old = contents(out)

        def work(out: Path = out) -> None:
            into(out, NEW, update=True, delete=delete)

        killed = die_at(number, work)
        found = {
            path: data
            for path, data in contents(out).items()
            if not path.startswith(".agentfy-unpack/")
        }
        for path, data in found.items():
            assert data in (old.get(path), expected.get(path)), path
        assert b"s3cr3t" in found[SECRETS]
        assert found["data/memory.sqlite"] == b"index"
        work()
        assert contents(out) == expected
        assert ".agentfy-unpack" not in os.listdir(out)
        number += 1
    assert number > 40


@pytest.mark.parametrize("update", [False, True])
def test_a_call_that_fails_changes_nothing_before_the_end(here: Path, update: bool) -> None:
    """Each call that writes may fail, as on a full disk; only the renames are past the point."""
    reference = here / "reference"
    if update:
        made(reference, dict(OLD))
    made_calls = calls_of(lambda: into(reference, NEW, update=update), here / "log")
    assert made_calls.count("rename") >= 1
    first = made_calls.index("rename")
    failed = 0
    for number, name in enumerate(made_calls[:first]):
        if name not in ("write", "mkdir", "open", "fchmod", "rename"):
            continue
        out = here / f"out{number}"
        if update:
            made(out, dict(OLD))
        before = whole(out)
        with pytest.MonkeyPatch.context() as patch:
            _fail_at(patch, name, made_calls[: number + 1].count(name))
            try:
                into(out, NEW, update=update)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - a thread may have made the call
                failed += 1
                assert _but_working(whole(out)) == before
    assert failed > 10


def _but_working(found: Snapshot | None) -> Snapshot | None:
    """All but the working folder, which stays where removing it was what failed."""
    if found is None:
        return None
    return {path: thing for path, thing in found.items() if not path.startswith(b".agentfy-unpack")}


def _fail_at(patch: pytest.MonkeyPatch, name: str, number: int) -> None:
    real = getattr(os, name)
    count = 0

    def call(*arguments: object, **named: object) -> object:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **named)

    patch.setattr(os, name, call)


@only_root
@pytest.mark.parametrize("update", [False, True])
def test_a_full_disk_is_one_line(tool: RunTool, here: Path, update: bool) -> None:
    """Exit status 3, and everything is as it was."""
    disk = here / "disk"
    disk.mkdir()
    with mounted_tmpfs(disk, "1m"):
        out = disk / "out"
        if update:
            made(out, dict(OLD))
        (disk / "ballast").write_bytes(b"\0" * (700 << 10))
        before = snapshot(disk)
        big = zipped({**MINIMAL, **NEW, "memory/big.md": b"x" * (900 << 10)})
        ran = tool("agentfy-unpack", *(["--update"] if update else []), out, stdin=big)
        assert ran.returncode == 3
        assert ran.stdout == b""
        [line] = ran.stderr.decode().splitlines()
        assert line.startswith("agentfy-unpack: failed: ")
        assert "No space left on device" in line
        assert snapshot(disk) == before
