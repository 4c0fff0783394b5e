"""``lnk-have HOME``: what a receiver holds already."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_output
from agentmove_tools.cli.progress import progress

_NAME = "lnk-have"


def command(
    home: Annotated[
        str, typer.Argument(metavar="HOME", help="The agent's Home; it need not be there yet.")
    ],
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Print the path and hash of each file that HOME holds, as JSON.

    A sender that is given it (--have) sends only what is new. What an earlier copy staged counts
    too. Without a Home it is {}.
    """
    from agentmove_tools.home.have import holdings_of  # noqa: PLC0415  (--help needs none of it)
    from agentmove_tools.stream.have import write_have  # noqa: PLC0415

    def unreadable(path: bytes) -> None:
        say(_NAME, f"{os.fsdecode(path)}: left out: it cannot be read")

    with open_output(output, binary=False) as sink, progress(_NAME, quiet) as meter:
        write_have(holdings_of(os.fsencode(home), unreadable), meter.watch_sink(sink))
