"""Packages made of a few files, out of an archive and out of a folder on the disk."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.folder import FolderSource, open_folder
from agentmove_tools.package.layout import ON_REQUEST
from agentmove_tools.package.pack import pack
from agentmove_tools.package.sources import ArchiveSource
from agentmove_tools.refusals import Refusal

# The smallest agent.
AGENT: Final[Mapping[str, bytes]] = {
    "SOUL.md": b"# A soul\n",
    "agent.config.json": b'{"id": "agent-of-tests"}\n',
}
PLAIN: Final = Options()
ALL: Final = Options(wanted=frozenset(ON_REQUEST))
STRICT: Final = Options(strict=True)
DROP: Final = Options(drop_torn_line=True)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """An archive of these files, as Python's own writer makes it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return data.getvalue()


def package_in(data: bytes, options: Options = PLAIN) -> Package:
    """The package in an archive, of which the paths have been looked at."""
    return Package(ArchiveSource(Archive(data)), options)


def package_of(files: Mapping[str, bytes], options: Options = PLAIN) -> Package:
    """The package of the smallest agent with these files."""
    return package_in(zipped({**AGENT, **files}), options)


def checked(files: Mapping[str, bytes], options: Options = PLAIN) -> Package:
    """As ``package_of``, when each part has been read."""
    package = package_of(files, options)
    package.check()
    return package


def refusal_of(files: Mapping[str, bytes], options: Options = PLAIN) -> Refusal:
    """Why the package of the smallest agent with these files is refused."""
    with pytest.raises(Refusal) as caught:
        checked(files, options)
    return caught.value


def told(refusal: Refusal) -> tuple[str, object, object, object]:
    """A refusal's code, path, field and line."""
    details = refusal.details
    return refusal.code, details.get("path"), details.get("field"), details.get("line")


def contents(package: Package) -> dict[str, bytes]:
    """What a written package has at each path."""
    package.begin()
    return {file.path: b"".join(package.content(file)) for file in package.files}


def warnings_of(package: Package) -> list[str]:
    """All warnings, each with its path."""
    found = package.found.warnings
    return [f"{path}: {warning}" for path in sorted(found) for warning in found[path]]


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder, which is made."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


@contextmanager
def package_at(
    folder: Path, options: Options = PLAIN, *, but: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[Package]:
    """The package of a folder; files of the identities ``but`` are left out."""
    root = open_folder(os.fsencode(folder))
    source = FolderSource(root, identities=but)
    try:
        yield Package(source, options)
    finally:
        source.close()
        os.close(root)


def packed(folder: Path, options: Options = PLAIN) -> bytes:
    """The archive of a folder."""
    with package_at(folder, options) as package:
        return b"".join(pack(package))


def refusal_at(folder: Path, options: Options = PLAIN) -> Refusal:
    """Why a folder cannot be packed."""
    with pytest.raises(Refusal) as caught:
        packed(folder, options)
    return caught.value


def event(event_id: str = "e1", ts: int = 1, **more: object) -> bytes:
    """The line of an event, a good one unless ``more`` says otherwise."""
    return json.dumps({"id": event_id, "type": "user", "ts": ts, "data": {}, **more}).encode()
