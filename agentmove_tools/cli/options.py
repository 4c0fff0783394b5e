"""The options that every tool has, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias
from unicodedata import category

import typer

from agentmove_tools import __version__
from agentmove_tools.refusals import UsageError

_LONGEST: Final = 1024  # bytes, as of every ID


def _show_version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        typer.echo(f"{context.info_name} {__version__}")
        raise typer.Exit


# --json-errors is acted on before the command line is parsed (see tool.py), so that a mistake in
# the command line is told in JSON too; here it is only declared, for the help and the completion.
JsonErrors: TypeAlias = Annotated[
    bool,
    typer.Option("--json-errors", help="Tell errors as JSON (also: AGENTMOVE_ERRORS=json)."),
]

Quiet: TypeAlias = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Show no progress."),
]

Version: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
]

# the default is None: standard output
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write FILE, whole or not at all, instead of standard output.",
        show_default=False,
    ),
]

Have: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--have",
        metavar="FILE",
        help="What the other end holds: the output of its lnk-have.",
        show_default=False,
    ),
]

Exclude: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="GLOB",
        help="Leave paths under files/ out; the same for lnk-manifest and lnk-tar-create.",
        show_default=False,
    ),
]

Links: TypeAlias = Annotated[
    str,
    typer.Option(
        "--links",
        metavar="inside|any",
        help="Refuse links that leave their folder, or take any as they are.",
    ),
]

MaxBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-bytes", metavar="N", min=0, help="Refuse a longer stream.", show_default=False
    ),
]

MaxEntries: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-entries",
        metavar="N",
        min=0,
        help="Refuse a stream of more entries.",
        show_default=False,
    ),
]


def check_name(option: str, value: str | None) -> None:
    """Raise ``UsageError`` for a name or an ID on the command line that no row can have."""
    if value == "":
        raise UsageError(f"{option} is empty: a variable that is not set?")
    if value is not None and any(category(c) in ("Cc", "Cs") for c in value):
        raise UsageError(f"{option} holds what is no text, or a control character")
    if value is not None and len(value.encode()) > _LONGEST:
        raise UsageError(f"{option} is longer than {_LONGEST} bytes")
