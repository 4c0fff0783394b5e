"""Making a package's archive out of its parts (Agent package, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmove_tools.package.archive_writer import ArchiveWriter

if TYPE_CHECKING:
    from agentmove_tools.package.contents import Package


def pack(package: Package) -> list[bytes]:
    """The archive, in pieces, when all of the package has been checked.

    Raises ``Refusal`` as reading does, the limits of an archive included, and what the package's
    source raises.
    """
    writer = ArchiveWriter()
    package.begin()
    for file in package.files:
        writer.add(file.path, package.content(file), executable=file.executable)
    return writer.finish()
