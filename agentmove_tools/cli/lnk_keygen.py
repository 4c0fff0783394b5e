"""``lnk-keygen``: make an identity, or show an identity's recipient."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import JsonErrors, Quiet, Version
from agentmove_tools.cli.pipes import STDOUT, open_input, open_output, write_text
from agentmove_tools.envelope.key_files import FILE_LIMIT, read_identity
from agentmove_tools.envelope.keys import Identity
from agentmove_tools.refusals import MachineError, UsageError
from agentmove_tools.streams import ByteSource


def command(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the identity to FILE, which must not exist, and print its recipient.",
            show_default=False,
        ),
    ] = None,
    convert: Annotated[
        bool, typer.Option("-y", help="Read an identity and print its recipient.")
    ] = False,
    json_errors: JsonErrors = False,
    quiet: Quiet = False,
    version: Version = False,
) -> None:
    """Make a new identity, the secret key that opens what is sealed to its recipient."""
    if convert:
        if output is not None:
            raise UsageError("-y prints a recipient: it takes no -o")
        key = read_identity(_read_all(open_input("an identity")), "standard input")
        write_text(f"{key.recipient}\n")
        return
    key = Identity.new()
    if output is None or str(output) == "-":
        _warn_if_exposed()
        write_text(key.to_file())
        return
    try:
        with open_output(output, binary=False, secret=True, fresh=True) as file:
            file.write(key.to_file().encode())
    except FileExistsError:
        raise MachineError(
            "it is there already, and may be the only key to something",
            path=str(output),
            hint="lnk-keygen -y < FILE prints its recipient; else choose another name",
        ) from None
    write_text(f"{key.recipient}\n")


def _read_all(source: ByteSource) -> bytes:
    """Read up to the end, or a byte more than a key file may have."""
    content = bytearray(FILE_LIMIT + 1)
    view = memoryview(content)
    filled = 0
    while filled < len(content) and (count := source.readinto(view[filled:])):
        filled += count
    return bytes(view[:filled])


def _warn_if_exposed() -> None:
    """Say when the secret goes into a file that others may read: the shell made it, not we."""
    status = os.fstat(STDOUT)
    if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
        say("lnk-keygen", "warning: others may read the file that the secret is written to: use -o")
