"""Packages put into folders within this process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.folder import FolderSource, open_folder
from agentmove_tools.package.layout import ON_REQUEST, Part
from agentmove_tools.package.pack import pack
from agentmove_tools.package.sources import ArchiveSource
from agentmove_tools.package.unpack import unpack
from agentmove_tools.package.unpacked import Unpacked, UnpackOptions
from tests.home.builder import Snapshot, Thing, put, snapshot
from tests.package.zips import MINIMAL, zipped

EVERYTHING: frozenset[Part] = frozenset(ON_REQUEST)


def event(number: int | str, text: str = "hello", *, ts: int = 0) -> bytes:
    """An event's line in the one form."""
    data = {"data": {"text": text}, "id": f"e{number}", "ts": ts, "type": "user"}
    return json.dumps(data, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def names(*pending: str, **entered: str) -> bytes:
    """A file of secrets in the one form."""
    value: dict[str, object] = {**entered}
    if pending or not entered:
        value["pendingKeys"] = sorted(pending)
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def package(
    files: Mapping[str, bytes],
    *,
    wanted: frozenset[Part] = frozenset(),
    drop_torn_line: bool = False,
) -> Package:
    """The package of an archive of these files and the two that must be there."""
    options = Options(wanted=wanted, drop_torn_line=drop_torn_line)
    return Package(ArchiveSource(Archive(zipped({**MINIMAL, **files}))), options)


def into(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    update: bool = False,
    delete: bool = False,
    wanted: frozenset[Part] = frozenset(),
    drop_torn_line: bool = False,
) -> Unpacked:
    """Put these files into ``folder``."""
    options = UnpackOptions(update=update or delete, delete=delete)
    made = package(files, wanted=wanted, drop_torn_line=drop_torn_line)
    return unpack(made, os.fsencode(folder), options)


def packed(folder: Path, *, wanted: frozenset[Part] = EVERYTHING) -> bytes:
    """The archive of a folder."""
    root = open_folder(os.fsencode(folder))
    source = FolderSource(root)
    try:
        return b"".join(pack(Package(source, Options(wanted=wanted))))
    finally:
        source.close()
        os.close(root)


def made(folder: Path, files: Mapping[str, Thing]) -> Path:
    """A folder of an agent, with the two files that must be there."""
    folder.mkdir(exist_ok=True)
    for path, thing in {**MINIMAL, **files}.items():
        put(folder, path, thing)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by path."""
    return {
        path.decode(): data for path, (kind, _, data) in snapshot(folder).items() if kind == "file"
    }


def modes(folder: Path) -> dict[str, int]:
    """The permission bits of a folder's files, by path."""
    return {
        path.decode(): mode for path, (kind, mode, _) in snapshot(folder).items() if kind == "file"
    }


def whole(folder: Path) -> Snapshot | None:
    """All of a folder; None where there is none."""
    return snapshot(folder) if folder.exists() else None
