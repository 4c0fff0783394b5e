"""The rows whose time is measured: a tool's work, and what another takes for the like."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from tests.benchmarks.homes import Data, quoted, settle
from tests.benchmarks.measure import Work, tool

Pair: TypeAlias = tuple[Work, Work]


@dataclass(frozen=True)
class Row:
    """One row: ours against theirs, and the most that ours may take of it.

    ``needs``: programs that are not on every machine. ``times``: how many pairs are run for each
    that is asked for.
    """

    name: str
    against: str
    most: float
    make: Callable[[Data], Pair]
    needs: tuple[str, ...] = ()
    times: int = 1


def _seal(data: Data) -> Pair:
    return _piped(
        data,
        data.large_stream,
        f"{tool('lnk-seal')} -r {data.recipient}",
        data.large_stream,
        f"age -r {data.age_recipient}",
    )


def _unseal(data: Data) -> Pair:
    return _piped(
        data,
        data.sealed,
        f"{tool('lnk-unseal')} -i {quoted(data.identity)}",
        data.aged,
        f"age -d -i {quoted(data.age_identity)}",
    )


def _piped(data: Data, given: Path, ours: str, given_theirs: Path, theirs: str) -> Pair:
    place = data.memory / "nothing"
    return (
        Work(f"cat {quoted(given)} | {ours} | cat > /dev/null", place),
        Work(f"cat {quoted(given_theirs)} | {theirs} | cat > /dev/null", place),
    )


def _verify_large(data: Data) -> Pair:
    given, place = quoted(data.large_stream), data.memory / "nothing"
    return (
        Work(f"{tool('lnk-tar-verify')} < {given} > /dev/null", place),
        Work(f"openssl dgst -sha256 < {given} > /dev/null", place),
    )


def _verify_small(data: Data) -> Pair:
    given, place = quoted(data.small_copy), data.memory / "verify-small"
    return (
        Work(f"{tool('lnk-tar-verify')} < {given} > /dev/null", place),
        Work(f'{EXTRACT} -C "$NEW" < {given}', place),
    )


def _create(data: Data) -> Pair:
    home, manifest = quoted(data.small_home), quoted(data.small_manifest)
    place = data.memory / "nothing"
    return (
        Work(f"{tool('lnk-tar-create')} {home} < {manifest} | cat > /dev/null", place),
        Work(f"tar -c -C {home} . | cat > /dev/null", place),
    )


def _apply(data: Data) -> Pair:
    given, place = quoted(data.small_switch), data.disk / "apply"
    rest = partial(settle, data.disk)
    return (
        Work(f'{tool("lnk-tar-apply")} "$NEW/home" < {given} > /dev/null', place, rest),
        Work(f'{EXTRACT} -C "$NEW" < {given} && sync -f "$NEW"', place, rest),
    )


def _have(data: Data) -> Pair:
    home, place = data.small_home, data.memory / "nothing"
    state = home.parent / f".{home.name}.lnk-move"
    away = data.memory / "states"
    away.mkdir(exist_ok=True)

    def forget() -> None:
        if state.exists():
            state.rename(away / str(len(os.listdir(away))))

    # Again comes before the first time, so the working state has to be there to start with; a
    # file that is younger than the clock's step would be hashed each time.
    time.sleep(0.2)
    script = f"{tool('lnk-have')} {quoted(home)} > /dev/null"
    return Work(script, place), Work(script, place, forget)


def _switch(data: Data) -> Pair:
    home, manifest = quoted(data.mixed_home), quoted(data.mixed_manifest)
    place, rest = data.disk / "switch", partial(settle, data.disk)
    ours = (
        f"{tool('lnk-tar-create')} {home} < {manifest}",
        f"{tool('lnk-seal')} -r {data.recipient}",
        f"{tool('lnk-unseal')} -i {quoted(data.identity)}",
        tool("lnk-tar-verify"),
        f'{tool("lnk-tar-apply")} "$NEW/home" > /dev/null',
    )
    theirs = (
        f"tar -c -C {home} .",
        f"age -r {data.age_recipient}",
        f"age -d -i {quoted(data.age_identity)}",
        'tar -x -C "$NEW" && sync -f "$NEW"',
    )
    return Work(" | ".join(ours), place, rest), Work(" | ".join(theirs), place, rest)


def _start(data: Data) -> Pair:
    given, place = quoted(data.tiny_stream), data.memory / "nothing"
    python = shlex.quote(sys.executable)
    return (
        Work(f"{tool('lnk-tar-verify')} < {given} > /dev/null", place),
        Work(f"{python} -c 'import typer'", place),
    )


def _pack(data: Data) -> Pair:
    agent, place = quoted(data.agent), data.memory / "packed"
    return (
        Work(f'{tool("agentfy-pack")} {agent} -o "$NEW/agent.zip"', place),
        Work(f'cd {agent} && zip -q -r "$NEW/agent.zip" .', place),
    )


def _verify_package(data: Data) -> Pair:
    given, place = quoted(data.talk_package), data.memory / "nothing"
    python = shlex.quote(sys.executable)
    return (
        Work(f"{tool('agentfy-verify')} < {given} > /dev/null", place),
        Work(f"{python} -I -S -c {shlex.quote(READ_SESSIONS)} {given}", place),
    )


def _unpack(data: Data) -> Pair:
    # in memory: unzip leaves it to the system when a disk gets what it wrote
    given, place = quoted(data.agent_package), data.memory / "unpacked"
    return (
        Work(f'{tool("agentfy-unpack")} "$NEW/agent" < {given} > /dev/null', place),
        Work(f'unzip -q {given} -d "$NEW/agent"', place),
    )


# what is the least that a reader of sessions does
READ_SESSIONS: Final = """
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    for name in archive.namelist():
        if name.endswith(".jsonl"):
            for line in archive.read(name).splitlines():
                json.loads(line)
"""

# the hashes in a Move Stream are no keyword of tar's
EXTRACT: Final = "tar -x --warning=no-unknown-keyword"

ROWS: Final = (
    Row("seal", "age -r", 0.6, _seal, ("age",)),
    Row("unseal", "age -d", 0.6, _unseal, ("age",)),
    Row("verify-large", "openssl dgst -sha256", 1.2, _verify_large, ("openssl",)),
    Row("verify-small", "tar -x", 1.0, _verify_small, ("tar",)),
    Row("create", "tar -c", 2.5, _create, ("tar",)),
    Row("apply", "tar -x && sync -f", 1.5, _apply, ("tar",)),
    Row("have", "the first time", 0.25, _have),
    Row("switch", "tar | age | age -d | tar", 1.5, _switch, ("age", "tar")),
    Row("start", "import typer", 1.3, _start, times=3),
    Row("package-pack", "zip -q -r", 2.0, _pack, ("zip",)),
    Row("package-verify", "zipfile, json.loads", 2.0, _verify_package),
    Row("package-unpack", "unzip -q", 2.0, _unpack, ("unzip",)),
)
