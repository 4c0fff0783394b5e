"""``agentfy-pack FOLDER``: an agent's folder becomes a package."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.packages import (
    DropTornLine,
    ExternalId,
    StrictOfFolder,
    With,
    check_external_id,
    tell,
    wanted,
)
from agentmove_tools.cli.pipes import open_output
from agentmove_tools.refusals import UsageError

_NAME = "agentfy-pack"


def command(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The agent's folder, such as .agent.")
    ],
    with_: With = None,
    strict: StrictOfFolder = False,
    drop_torn_line: DropTornLine = False,
    external_id: ExternalId = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Write the agent package of FOLDER, a ZIP archive.

    The same folder gives the same bytes. Secrets go by name only. What a package has no place
    for is named on standard error and left out.
    """
    from agentmove_tools.package.contents import Options, Package  # noqa: PLC0415 (not for --help)
    from agentmove_tools.package.folder import FolderSource, open_folder  # noqa: PLC0415
    from agentmove_tools.package.pack import pack  # noqa: PLC0415

    check_external_id(external_id)
    options = Options(
        drop_torn_line=drop_torn_line,
        strict=strict,
        external_id=external_id,
        wanted=wanted(with_),
    )
    if not folder:
        raise UsageError("FOLDER is empty: a variable that is not set?")
    with open_output(output, binary=True, what="an agent package") as sink:
        try:
            root = open_folder(os.fsencode(folder))
        except NotADirectoryError:
            raise UsageError(f"{folder} is a file: name a folder") from None
        source = FolderSource(root, identities=sink.identities, wanted=options.wanted)
        package = Package(source, options)
        pieces = pack(package)
        tell(_NAME, package)
        sink.write(b"".join(pieces))
