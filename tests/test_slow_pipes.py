"""Pipes that give a few bytes at a time, end early, or run past a stage that failed."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, RunTool, clean_environment
from tests.home.builder import full_home, put, snapshot, stream_of, travelling

_SIGPIPE = 128 + signal.SIGPIPE


def _shell(script: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script of bash, which is what knows PIPESTATUS."""
    path = f"{Path(sys.executable).parent}:{ROOT / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=folder,
        env=clean_environment({"PATH": path}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


def _trickle(source: Path, target: Path, sizes: Callable[[int], int]) -> threading.Thread:
    """Write a file into a FIFO in small writes, one read of the other end for each."""

    def write() -> None:
        data = source.read_bytes()
        at = 0
        number = 0
        with contextlib.suppress(BrokenPipeError), target.open("wb", buffering=0) as fifo:
            while at < len(data):
                at += fifo.write(data[at : at + sizes(number)])
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.fixture
def ends(here: Path, tool: RunTool) -> Path:
    """A folder with an agent ``ada`` and a key, its recipient in ``to``."""
    home = full_home(here / "ada")
    put(home, "files/large", os.urandom(200_000))
    done = tool("lnk-keygen", "-o", "key", cwd=here)
    (here / "to").write_bytes(done.stdout)
    return here


def _is_moved(folder: Path) -> None:
    assert travelling(snapshot(folder / "home")) == travelling(snapshot(folder / "ada"))


_SIZES: dict[str, Callable[[int], int]] = {
    "one byte": lambda number: 1 if number < 20_000 else 4093,
    "odd": lambda number: (1, 2, 3, 511, 513, 7, 1000, 65_537)[number % 8],
}


@pytest.mark.parametrize(
    ("stage", "sizes"),
    [
        *((stage, "odd") for stage in ("manifest", "seal", "unseal", "verify", "apply")),
        ("unseal", "one byte"),
        ("apply", "one byte"),
    ],
)
def test_short_reads_at_every_stage(ends: Path, stage: str, sizes: str) -> None:
    """A pipe that gives what it likes changes nothing: a whole move goes through it."""
    made = _shell(
        "set -e -o pipefail; lnk-manifest ada --phase switch > manifest;"
        "lnk-tar-create ada < manifest > stream; lnk-seal -R to < stream > sealed; mkfifo pipe",
        ends,
    )
    assert made.returncode == 0, made.stderr
    source, script = {
        "manifest": ("manifest", "lnk-tar-create ada | lnk-tar-verify | lnk-tar-apply home"),
        "seal": ("stream", "lnk-seal -R to | lnk-unseal -i key | lnk-tar-apply home"),
        "unseal": ("sealed", "lnk-unseal -i key | lnk-tar-verify | lnk-tar-apply home"),
        "verify": ("stream", "lnk-tar-verify | lnk-tar-apply home"),
        "apply": ("stream", "lnk-tar-apply home"),
    }[stage]
    thread = _trickle(ends / source, ends / "pipe", _SIZES[sizes])
    done = _shell(f"set -o pipefail; cat pipe | ( {script} )", ends)
    thread.join()
    assert done.returncode == 0, done.stderr
    assert b'"in place"' in done.stdout
    _is_moved(ends)


_PIPELINES = {
    "the sender": (
        "lnk-manifest ada --phase switch | (head -c 100; exit 1) | lnk-tar-create ada",
        "lnk-seal -R to | lnk-unseal -i key | lnk-tar-verify",
    ),
    "a sender that finds no Home": (
        "lnk-manifest ada --phase switch | lnk-tar-create nobody",
        "lnk-seal -R to | lnk-unseal -i key | lnk-tar-verify",
    ),
    "a stream cut before it is sealed": (
        "lnk-manifest ada --phase switch | lnk-tar-create ada | head -c 150000",
        "lnk-seal -R to | lnk-unseal -i key | lnk-tar-verify",
    ),
    "a sealed stream that is cut": (
        "lnk-manifest ada --phase switch | lnk-tar-create ada | lnk-seal -R to | head -c 150000",
        "lnk-unseal -i key | lnk-tar-verify",
    ),
    "a sealed stream without its last byte": (
        "lnk-manifest ada --phase switch | lnk-tar-create ada | lnk-seal -R to | head -c -1",
        "lnk-unseal -i key",
    ),
    "a sealed stream with a byte more": (
        "(lnk-manifest ada --phase switch | lnk-tar-create ada | lnk-seal -R to; echo)",
        "lnk-unseal -i key | lnk-tar-verify",
    ),
    "a changed stream, verified": (
        "lnk-manifest ada --phase switch | lnk-tar-create ada | sed s/hello/HELLO/",
        "lnk-tar-verify",
    ),
    "two streams after each other": (
        "(lnk-manifest ada --phase switch | lnk-tar-create ada; echo more)",
        "lnk-tar-verify",
    ),
}


@pytest.mark.parametrize("name", _PIPELINES)
def test_a_stage_that_fails_makes_the_later_ones_refuse(ends: Path, name: str) -> None:
    """Without ``pipefail`` the shell sees only the last stage, and that one does not say "done"."""
    start, middle = _PIPELINES[name]
    done = _shell(f"{start} | {middle} | lnk-tar-apply home", ends)
    assert done.returncode in (1, 3)
    assert done.stdout == b""
    assert b"lnk-tar-apply: refused: " in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (ends / "home").exists()


_READERS = {
    "lnk-have": "lnk-have ada",
    "lnk-manifest": "lnk-manifest < stream",
    "lnk-tar-create": "lnk-tar-create ada < manifest",
    "lnk-tar-verify": "lnk-tar-verify < stream",
    "lnk-tar-list": "lnk-tar-list < stream",
    "lnk-seal": "lnk-seal -R to < stream",
    "lnk-unseal": "lnk-unseal -i key < sealed",
    "lnk-canon": "yes '[1,2,3]' | lnk-canon",
}


@pytest.mark.parametrize("name", _READERS)
def test_a_reader_that_closes_early(ends: Path, name: str) -> None:
    """``| head`` ends a filter as SIGPIPE does, and it says nothing of it."""
    # A pipe may hold a mebibyte, and what fits into it is written before anybody reads.
    for number in range(4000 if name in ("lnk-have", "lnk-tar-list") else 0):
        put(ends / "ada", f"files/{number:04}-{'long' * 60}", b"")
    put(ends / "ada", "files/large", os.urandom(1_500_000))
    made = _shell(
        "set -e -o pipefail; lnk-manifest ada --phase switch > plain; python3 -c '"
        'import json; m = json.load(open("plain")); m["more"] = "x" * 1500000;'
        "print(json.dumps(m))' > manifest;"
        "lnk-tar-create ada < manifest > stream; lnk-seal -R to < stream > sealed",
        ends,
    )
    assert made.returncode == 0, made.stderr
    done = _shell(f"{_READERS[name]} | head -c 1 | wc -c; echo ${{PIPESTATUS[@]}}", ends)
    count, states = done.stdout.decode().split("\n")[:2]
    assert count.strip() == "1"
    position = _READERS[name].count("|")
    assert states.split()[position] == str(_SIGPIPE), done
    left = [line for line in done.stderr.splitlines() if b"not sent" not in line]
    assert left == []


def test_tee_in_the_middle(ends: Path) -> None:
    """What goes through can be looked at on the way, and is the same afterwards."""
    done = _shell(
        "set -o pipefail; lnk-manifest ada --phase switch | tee m | lnk-tar-create ada | tee s"
        "| lnk-seal -R to | tee e | lnk-unseal -i key | tee u | lnk-tar-verify | tee v"
        "| lnk-tar-apply home; cmp s u && cmp s v",
        ends,
    )
    assert done.returncode == 0, done.stderr
    _is_moved(ends)
    again = _shell("lnk-tar-create ada < m | cmp - s", ends)
    assert again.returncode == 0


def test_a_whole_stream_through_a_slow_reader(ends: Path) -> None:
    """A reader that takes its time blocks the writer, and gets all of it."""
    (ends / "stream").write_bytes(stream_of(ends / "ada", "copy"))
    script = (
        f"{shlex.quote(sys.executable)} -c 'import os\nwhile d := os.read(0, 777): os.write(1, d)'"
    )
    done = _shell(f"set -o pipefail; lnk-tar-verify < stream | {script} | cmp - stream", ends)
    assert done.returncode == 0, done.stderr
