"""``lnk-tar-create HOME``: a manifest becomes the Move Stream of a Home."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import Exclude, Have, JsonErrors, Links, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress

_NAME = "lnk-tar-create"


def command(
    home: Annotated[str, typer.Argument(metavar="HOME", help="The agent's Home.")],
    have: Have = None,
    exclude: Exclude = None,
    links: Links = "inside",
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read a manifest of HOME (lnk-manifest) and write its Move Stream."""
    from agentmove_tools.cli.have_file import read_have  # noqa: PLC0415  (--help needs none of it)
    from agentmove_tools.home.sender import Sender  # noqa: PLC0415
    from agentmove_tools.stream.manifest import read_manifest  # noqa: PLC0415
    from agentmove_tools.stream.paths import check_links_option  # noqa: PLC0415

    any_links = check_links_option(links)
    manifest = read_manifest(open_input("a manifest (from lnk-manifest)"))
    held = read_have(have)

    def left_out(path: bytes, reason: str) -> None:
        say(_NAME, f"{os.fsdecode(path)}: {reason}")

    with (
        open_output(output, binary=True, what="a Move Stream") as sink,
        progress(_NAME, quiet) as meter,
        Sender(
            os.fsencode(home), exclude=exclude or [], say=left_out, own=sink.identities
        ) as sender,
    ):
        sender.send(meter.watch_sink(sink), manifest, have=held, any_links=any_links)
