"""The data that is measured, made once and the same each time: Homes, streams and packages."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.benchmarks.databases import Databases
from tests.benchmarks.measure import run, tool
from tests.benchmarks.packages import in_a_child, make_agent, talk, write_package

MIB: Final = 1 << 20
GIB: Final = 1 << 30

_MOVE: Final = "0123456789abcdef0123456789abcdef"
_MTIME: Final = 1_600_000_000_123_456_789  # nanoseconds
_PIECE: Final = 8 * MIB
_PACK_AGAIN: Final = (
    f'{tool("agentfy-unpack")} "$HERE" < "$IN" > /dev/null'
    f' && {tool("agentfy-pack")} "$HERE" -o "$OUT" && rm -r "$HERE"'
)


def random_pieces(size: int, seed: int) -> Iterator[bytes]:
    """``size`` bytes in pieces, from a seed: nothing that could be compressed."""
    source = random.Random(seed)
    while size > 0:
        piece = source.randbytes(min(size, _PIECE))
        size -= len(piece)
        yield piece


def make_home(home: Path) -> Path:
    """A Home with nothing in it but ``files/``."""
    (home / "files").mkdir(parents=True)
    agent = '{"harness": "bench", "id": "agent-1", "name": "Bench"}\n'
    (home / "agent.json").write_text(agent, encoding="utf-8")
    return home


def add_files(home: Path, count: int, size: int | None, per_folder: int, seed: int = 1) -> None:
    """Add ``count`` files to a Home: of about 1 KB, or of ``size`` zeros that take no room."""
    source = random.Random(seed)
    for number in range(count):
        folder = home / "files" / f"folder-{number // per_folder:05}"
        if number % per_folder == 0:
            folder.mkdir()
        path = f"{folder}/file-{number:07}.txt"
        with open(path, "wb") as file:
            if size is None:
                file.write(source.randbytes(source.randint(512, 1536)))
            elif size:
                file.truncate(size)
        os.utime(path, ns=(_MTIME, _MTIME))


def add_large(home: Path, size: int, seed: int | None) -> None:
    """Add a file of ``size`` bytes from a seed, or of zeros that take no room."""
    path = home / "files" / f"large-{seed or 0}.bin"
    with path.open("wb") as file:
        if seed is None:
            file.truncate(size)
        else:
            for piece in random_pieces(size, seed):
                file.write(piece)
    os.utime(path, ns=(_MTIME, _MTIME))


def manifest_of(home: Path, phase: str, output: Path) -> Path:
    """Make a Home's manifest."""
    made = f'{tool("lnk-manifest")} "$HERE" --phase {phase} --move {_MOVE} > "$OUT"'
    run(made, HERE=home, OUT=output)
    return output


def stream_of(home: Path, manifest: Path, output: Path) -> Path:
    """Make a Home's stream."""
    run(f'{tool("lnk-tar-create")} "$HERE" < "$IN" > "$OUT"', HERE=home, IN=manifest, OUT=output)
    return output


class Data:
    """What the rows share, made when it is first asked for.

    ``memory`` is a folder in memory where the machine has one, ``disk`` one on a disk. All counts
    and sizes are multiplied by ``scale``.
    """

    def __init__(self, memory: Path, disk: Path, scale: float) -> None:
        self.memory = memory
        self.disk = disk
        self.scale = scale
        self._opened = ExitStack()

    def scaled(self, number: int) -> int:
        """A count of files or bytes at this run's scale."""
        return max(1, int(number * self.scale))

    @cached_property
    def identity(self) -> Path:
        """An identity's file; its recipient is in ``recipient``."""
        return self._key("lnk", tool("lnk-keygen") + ' -o "$OUT" > "$PUBLIC"')

    @cached_property
    def recipient(self) -> str:
        """What ``lnk-seal`` seals to."""
        return self.identity.with_suffix(".pub").read_text(encoding="ascii").strip()

    @cached_property
    def age_identity(self) -> Path:
        """The same for age."""
        return self._key("age", 'age-keygen -o "$OUT" && age-keygen -y "$OUT" > "$PUBLIC"')

    @cached_property
    def age_recipient(self) -> str:
        """What age encrypts to."""
        return self.age_identity.with_suffix(".pub").read_text(encoding="ascii").strip()

    @cached_property
    def large_stream(self) -> Path:
        """A Move Stream of 1 GiB in four files."""
        home = make_home(self.memory / "large")
        for seed in range(1, 5):
            add_large(home, self.scaled(GIB // 4), seed)
        manifest = manifest_of(home, "copy", self.memory / "large.json")
        stream = stream_of(home, manifest, self.memory / "large.lnk")
        shutil.rmtree(home)  # it lay in memory, where that costs the next run nothing
        return stream

    @cached_property
    def sealed(self) -> Path:
        """The large stream, sealed."""
        out = self.memory / "large.sealed"
        seal = f'{tool("lnk-seal")} -r {self.recipient} < "$IN" > "$OUT"'
        run(seal, IN=self.large_stream, OUT=out)
        return out

    @cached_property
    def aged(self) -> Path:
        """The large stream, encrypted by age."""
        out = self.memory / "large.age"
        run(f'age -r {self.age_recipient} < "$IN" > "$OUT"', IN=self.large_stream, OUT=out)
        return out

    @cached_property
    def small_home(self) -> Path:
        """A Home of 50 000 files of about 1 KB, in folders of 100."""
        home = make_home(self.memory / "small")
        add_files(home, self.scaled(50_000), None, 100)
        return home

    @cached_property
    def small_manifest(self) -> Path:
        """Its manifest for a copy."""
        return manifest_of(self.small_home, "copy", self.memory / "small.json")

    @cached_property
    def small_copy(self) -> Path:
        """Its stream for a copy."""
        return stream_of(self.small_home, self.small_manifest, self.memory / "small.lnk")

    @cached_property
    def small_switch(self) -> Path:
        """Its stream for a switch."""
        manifest = manifest_of(self.small_home, "switch", self.memory / "small-switch.json")
        return stream_of(self.small_home, manifest, self.memory / "small-switch.lnk")

    @cached_property
    def mixed_home(self) -> Path:
        """A Home of 5 000 files of about 1 KB, and 256 MiB in four files."""
        home = make_home(self.memory / "mixed")
        add_files(home, self.scaled(5_000), None, 100)
        for seed in range(1, 5):
            add_large(home, self.scaled(64 * MIB), seed)
        return home

    @cached_property
    def mixed_manifest(self) -> Path:
        """Its manifest for a switch."""
        return manifest_of(self.mixed_home, "switch", self.memory / "mixed.json")

    @cached_property
    def tiny_stream(self) -> Path:
        """A stream of three small files."""
        home = make_home(self.memory / "tiny")
        add_files(home, 3, None, 3)
        manifest = manifest_of(home, "copy", self.memory / "tiny.json")
        return stream_of(home, manifest, self.memory / "tiny.lnk")

    @cached_property
    def agent(self) -> Path:
        """An agent's folder of 5 000 files of 0.3 to 4 KiB."""
        return make_agent(self.memory / "agent", self.scaled(5_000))

    @cached_property
    def agent_package(self) -> Path:
        """Its package."""
        out = self.memory / "agent.zip"
        run(f'{tool("agentfy-pack")} "$HERE" -o "$OUT"', HERE=self.agent, OUT=out)
        return out

    @cached_property
    def talk_package(self) -> Path:
        """A package of 100 000 events in eight sessions, 20 MiB, and little else."""
        out = self.memory / "talk.zip"
        in_a_child(lambda: write_package(out, talk(self.scaled(100_000), 8)))
        return out

    def packed_talk(self, name: str = "packed", new_at: float | None = None) -> Path:
        """The same as ``agentfy-pack`` writes it; ``new_at``: with one event more, in this place.

        It is made once for each ``name``.
        """
        out = self.memory / f"talk-{name}.zip"
        if not out.exists():
            files = talk(self.scaled(100_000), 8, new_at=new_at)
            loose = self.memory / "loose.zip"
            in_a_child(lambda: write_package(loose, files))
            run(_PACK_AGAIN, IN=loose, OUT=out, HERE=self.memory / f"talk-{name}")
            loose.unlink()
        return out

    @cached_property
    def talk_stream(self) -> Path:
        """The same as a Move Stream."""
        out = self.memory / "talk.lnk"
        made = f'{tool("agentfy-unpack")} --move {_MOVE} < "$IN" > "$OUT"'
        run(made, IN=self.packed_talk(), OUT=out)
        return out

    @cached_property
    def databases(self) -> Databases:
        """The server of databases, which ``close`` stops."""
        made = Databases(self.memory)
        self._opened.callback(made.close)
        return made

    def close(self) -> None:
        """Stop what was started."""
        self._opened.close()

    def _key(self, name: str, script: str) -> Path:
        out = self.memory / f"{name}.key"
        run(script, OUT=out, PUBLIC=out.with_suffix(".pub"))
        return out


def quoted(path: Path) -> str:
    """A path, quoted for a script."""
    return shlex.quote(str(path))


def settle(folder: Path) -> None:
    """Bring a disk to rest: what an earlier run left to be written is no part of the next."""
    subprocess.run(["sync", "-f", folder], check=True)
