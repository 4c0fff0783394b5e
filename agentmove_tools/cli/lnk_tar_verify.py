"""``lnk-tar-verify``: a Move Stream passes through, checked."""

from __future__ import annotations

from agentmove_tools.cli.options import (
    JsonErrors,
    Links,
    MaxBytes,
    MaxEntries,
    Output,
    Quiet,
    Version,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress


def command(
    links: Links = "inside",
    max_bytes: MaxBytes = None,
    max_entries: MaxEntries = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read a Move Stream, check all of it, and write the same bytes.

    What is refused gets no end, so that a later stage refuses it too.
    """
    from agentmove_tools.stream.paths import check_links_option  # noqa: PLC0415 (not for --help)
    from agentmove_tools.stream.verify import verify  # noqa: PLC0415

    any_links = check_links_option(links)
    source = open_input("a Move Stream")
    with (
        open_output(output, binary=True, what="a Move Stream") as sink,
        progress("lnk-tar-verify", quiet) as meter,
    ):
        verify(
            meter.watch(source),
            sink,
            any_links=any_links,
            max_bytes=max_bytes,
            max_entries=max_entries,
        )
