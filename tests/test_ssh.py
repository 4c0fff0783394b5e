"""The whole move, as the manual has it, through a real ssh connection to this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.cli.agents import VALUE, make_agent
from tests.conftest import ROOT, clean_environment, lacking
from tests.home.builder import (
    File,
    Link,
    full_home,
    make_home,
    put,
    snapshot,
    take_away,
    travelling,
)
from tests.package.folders import event
from tests.package.packages import contents, package_in

# The two-phase move of the manual; $1 is the move's ID.
_PIPELINE: Final = r"""
set -euo pipefail
move=$1
key=$(ssh box lnk-keygen -o move.key)
ssh box lnk-have agent > have.json
# the copy, while the agent runs
lnk-manifest agent --phase copy --move $move | lnk-tar-create agent --have have.json \
  | ssh box 'lnk-tar-verify | lnk-tar-apply agent' > copied.json
# stop the agent at both ends, and its schedule
mkdir -p agent/schedule && touch agent/schedule/paused; ssh box lnk-have agent > have.json
# the switch, sealed
lnk-manifest agent --phase switch --move $move --have have.json \
  | lnk-tar-create agent --have have.json | lnk-seal -r "$key" > sealed
ssh box 'lnk-unseal -i move.key | lnk-tar-verify | lnk-tar-apply agent' < sealed > report.json
"""
_MOVE: Final = "00112233445566778899aabbccddeeff"


class Box:
    """The other machine: a folder that every remote command starts in."""

    def __init__(self, folder: Path, port: int, environment: dict[str, str]) -> None:
        self.here = folder / "here"
        self.there = folder / "there"
        self.port = port
        self._environment = environment

    def shell(self, script: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run a script at this end."""
        return subprocess.run(
            ["bash", "-c", script, "move", *arguments],
            cwd=self.here,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def ssh(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command at the other end, its input a pipe."""
        return subprocess.Popen(
            ["ssh", "box", command],
            cwd=self.here,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def apply(self, sealed: bytes) -> tuple[int, bytes, bytes]:
        """Send a sealed switch; wait while the Home is busy with what was cut off before."""
        for _ in range(100):
            with self.ssh(_APPLY) as process:
                out, err = process.communicate(sealed, timeout=60)
            if b"home-busy" not in err:
                break
            time.sleep(0.1)
        return process.returncode, out, err


_APPLY: Final = "set -o pipefail; lnk-unseal -i move.key | lnk-tar-verify | lnk-tar-apply agent"


def _program(name: str, *folders: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))
    if found is None:
        lacking(f"{name} is not installed")
    return str(found)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _write(path: Path, lines: Sequence[str], *, mode: int = 0o600) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(mode)
    return path


def _serve(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start an sshd that knows one key, and runs each command in the folder ``there``."""
    sshd = _program("sshd", "/usr/sbin", "/usr/local/sbin", "/sbin")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it does not start without
    path = f"{Path(sys.executable).parent}:{ROOT / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    start = _write(
        folder / "start",
        [
            "#!/bin/sh",
            f"export PATH={shlex.quote(path)} PYTHONPATH={shlex.quote(str(ROOT))}",
            f"cd {shlex.quote(str(folder / 'there'))} || exit 9",
            'exec bash --norc -c "$SSH_ORIGINAL_COMMAND"',  # it would read one under sshd
        ],
        mode=0o755,
    )
    port = _free_port()
    config = _write(
        folder / "sshd_config",
        [
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder / 'host'}",
            f"AuthorizedKeysFile {folder / 'user.pub'}",
            f"PidFile {folder / 'sshd.pid'}",
            f"ForceCommand {start}",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PrintMotd no",
            "StrictModes no",
            "UsePAM no",
        ],
    )
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(config)], stderr=log, stdin=subprocess.DEVNULL
        )
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process, port
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    pytest.fail(f"sshd did not start: {(folder / 'sshd.log').read_text()}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A running sshd, and the folder of its keys."""
    if os.geteuid() != 0:
        lacking("an sshd of its own takes root")
    keygen = _program("ssh-keygen")
    _program("ssh")
    _program("bash")
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host", "user"):
        subprocess.run(
            [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    process, port = _serve(folder)
    try:
        yield folder, port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def box(server: tuple[Path, int]) -> Box:
    """Two machines: ``here`` holds an agent, ``there`` nothing yet."""
    folder, port = server
    client = _write(
        folder / "ssh_config",
        [
            "Host box",
            "  HostName 127.0.0.1",
            f"  Port {port}",
            "  User root",
            f"  IdentityFile {folder / 'user'}",
            "  IdentitiesOnly yes",
            "  StrictHostKeyChecking no",
            f"  UserKnownHostsFile {folder / 'known'}",
            "  LogLevel ERROR",
        ],
    )
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    _write(
        programs / "ssh",
        ["#!/bin/sh", f'exec {_program("ssh")} -F {client} "$@"'],
        mode=0o755,
    )
    # In another place than the Python of a virtual environment, its scripts still find it.
    path = f"{programs}:{Path(sys.executable).parent}:{ROOT / 'bin'}:{os.environ['PATH']}"
    for name in ("here", "there"):
        take_away(folder / name)
        (folder / name).mkdir()
    made = Box(folder, port, clean_environment({"PATH": path}))
    home = full_home(made.here / "agent")
    put(home, "files/größe/ключ \n\u202e", "ünïcödé")
    put(home, "files/large", os.urandom(3_000_000))
    put(home, "files/to", Link("größe".encode()))
    return made


def _is_moved(box: Box) -> None:
    sent = travelling(snapshot(box.here / "agent"))
    assert travelling(snapshot(box.there / "agent")) == sent
    assert not (box.there / "agent/schedule/paused").exists()


def test_a_move_to_a_new_machine(box: Box) -> None:
    """The manual's pipeline, word for word, brings all of the agent, and says nothing else."""
    done = box.shell(_PIPELINE, _MOVE)
    lines = [line for line in done.stderr.decode().splitlines() if ": not sent: " not in line]
    assert (done.returncode, lines) == (0, [])
    assert b'"result": "staged"' in (box.here / "copied.json").read_bytes()
    assert b'"result": "in place"' in (box.here / "report.json").read_bytes()
    _is_moved(box)
    # nearly all of it went with the copy
    assert (box.here / "sealed").stat().st_size < 100_000
    assert (box.there / "move.key").stat().st_mode & 0o777 == 0o600


def test_a_move_to_a_machine_that_held_the_agent_before(box: Box) -> None:
    """What it holds is not sent; what the sender no longer has is gone; its own stays."""
    make_home(
        box.there / "agent",
        files={"large": (box.here / "agent/files/large").read_bytes(), "gone": "x"},
        other={".env": File(b"SECRET=1", 0o600), "logs/a": "log"},
    )
    done = box.shell(_PIPELINE, _MOVE)
    assert done.returncode == 0, done.stderr
    _is_moved(box)
    assert (box.there / "agent/.env").read_text() == "SECRET=1"
    assert (box.there / "agent/logs/a").read_text() == "log"


def test_a_package_goes_and_comes(box: Box) -> None:
    """Out of a folder here into one there, and what was added there comes back into it."""
    make_agent(box.here / ".agent")
    done = box.shell(
        "agentfy-pack .agent | agentfy-verify | ssh box agentfy-unpack agent > report &&"
        " ssh box 'echo more > agent/memory/more.md; agentfy-pack agent'"
        " | agentfy-unpack --update .agent"
    )
    assert done.returncode == 0, done.stderr
    assert (box.here / ".agent/memory/more.md").read_text() == "more\n"
    assert VALUE in (box.here / ".agent/data/secrets/agent.json").read_text()
    assert VALUE not in (box.there / "agent/data/secrets/agent.json").read_text()


def test_a_laptops_agent_becomes_a_package_here(box: Box) -> None:
    """Its stream comes from there, while it runs, and each stage here checks it."""
    home = make_home(
        box.there / "agent",
        instructions="be kind\n",
        files={"large": os.urandom(3_000_000)},
        conversations={"web:alice": event(1)},
        connections={"mail.json": VALUE},
    )
    before = snapshot(home)
    done = box.shell(
        "set -o pipefail; ssh box 'lnk-manifest agent --phase copy | lnk-tar-create agent'"
        " | lnk-tar-verify | agentfy-pack --report report | agentfy-verify > agent.zip"
    )
    assert done.returncode == 0, done.stderr
    assert b"left out: files/large: " in done.stderr
    assert b"note: a copy carries no connections" in done.stderr
    package = package_in((box.here / "agent.zip").read_bytes())
    assert {path: text for path, text in contents(package).items() if path.endswith("l")} == {
        "data/sessions/web:alice.jsonl": event(1)
    }
    assert snapshot(home) == before
    (box.here / "agent.zip").unlink()
    done = box.shell(
        "set -o pipefail; ssh box 'lnk-tar-create agent < /dev/null' | lnk-tar-verify"
        " | agentfy-pack -o agent.zip"
    )
    assert done.returncode == 1
    assert b"agentfy-pack: refused: stream-not-move: " in done.stderr
    assert not (box.here / "agent.zip").exists()


def test_a_refusal_at_the_other_end_is_seen_here(box: Box) -> None:
    """Its exit status and its one line come through ssh."""
    make_home(box.there / "agent", "another")
    done = box.shell(_PIPELINE, _MOVE)
    assert done.returncode == 1
    assert b"lnk-tar-apply: refused: home-other-agent: " in done.stderr
    assert not (box.there / ".agent.lnk-move/staged").exists()


@pytest.mark.parametrize("part", [0.3, 0.999])
def test_a_connection_that_is_lost_half_way_through_a_switch(box: Box, part: float) -> None:
    """The old Home stands, nothing keeps it busy, and the same switch again is put in place."""
    done = box.shell(_PIPELINE.replace("--have have.json", ""), _MOVE)
    assert done.returncode == 0, done.stderr
    sealed = (box.here / "sealed").read_bytes()
    assert len(sealed) > 3_000_000
    take_away(box.there / "agent")
    make_home(box.there / "agent", files={"old": "agent"})
    before = snapshot(box.there / "agent")
    process = box.ssh(_APPLY)
    assert process.stdin is not None
    with process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(sealed[: int(len(sealed) * part)])
            process.stdin.flush()
        time.sleep(0.3)  # let some of it arrive
        process.send_signal(signal.SIGKILL)
    assert snapshot(box.there / "agent") == before
    # The old Home's file is not in the stream, so only its removal keeps the promise of a tree.
    (box.there / "agent/files/old").unlink()
    status, out, err = box.apply(sealed)
    assert (status, err) == (0, b"")
    assert b'"result": "in place"' in out
    _is_moved(box)


def test_a_connection_that_is_lost_after_the_switch(box: Box) -> None:
    """The same switch again says that it is in place, and sets nothing back."""
    done = box.shell(_PIPELINE, _MOVE)
    assert done.returncode == 0, done.stderr
    put(box.there / "agent", "files/lived on", "since")
    before = snapshot(box.there / "agent")
    status, out, err = box.apply((box.here / "sealed").read_bytes())
    assert (status, err) == (0, b"")
    assert b'"result": "already in place"' in out
    assert snapshot(box.there / "agent") == before
