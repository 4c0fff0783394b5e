"""``agentfy-verify``: an agent package passes through, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.packages import (
    DropTornLine,
    ExternalId,
    Strict,
    check_external_id,
    print_not_taken,
    tell,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import is_terminal, print_lines, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = "agentfy-verify"


def command(
    report: Annotated[
        bool, typer.Option("--report", help="Print what is in it, instead of the package.")
    ] = False,
    strict: Strict = False,
    drop_torn_line: DropTornLine = False,
    external_id: ExternalId = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read an agent package, check all of it, and write the same bytes.

    Of one that is refused nothing is written.
    """
    from agentmove_tools.package.archive_reader import Archive, read_upload  # noqa: PLC0415
    from agentmove_tools.package.contents import Options, Package  # noqa: PLC0415
    from agentmove_tools.package.layout import ON_REQUEST  # noqa: PLC0415
    from agentmove_tools.package.report import report_of  # noqa: PLC0415
    from agentmove_tools.package.sources import ArchiveSource  # noqa: PLC0415

    check_external_id(external_id)
    options = Options(
        drop_torn_line=drop_torn_line,
        strict=strict,
        external_id=external_id,
        wanted=frozenset(ON_REQUEST),
    )
    source = open_input("an agent package")
    with (
        open_output(output, binary=not report, what="an agent package") as sink,
        progress(_NAME, quiet) as meter,
    ):
        archive = Archive(read_upload(meter.watch(source)))
        package = Package(ArchiveSource(archive), options)
        package.check()
        if not report:
            tell(_NAME, package, passed=True)
            sink.write(archive.data)
        elif output is None and is_terminal(1):
            _print(report_of(package, archive))
        else:
            import json  # noqa: PLC0415

            text = json.dumps(report_of(package, archive), ensure_ascii=False)
            sink.write(text.encode() + b"\n")


def _print(report: dict[str, Any]) -> None:
    """Print the report as a person reads it."""
    agent, archive = report["agent"], report["archive"]
    print_lines(
        [
            f"agent {agent['id'] or 'without an ID'}{_named(agent['name'])}",
            f"runtime profile {agent['runtimeProfile']}, access {agent['accessStrategy'] or '-'}",
            f"{archive['entries']} entries in {archive['bytes']} bytes",
        ]
    )
    _table(
        ("skill", "assets", "description"),
        [
            (skill["path"], str(skill["assets"]), _first_line(skill["description"]))
            for skill in report["skills"]
        ],
    )
    _table(
        ("memory", "date", "bytes"),
        [(m["path"], m["date"] or "", str(m["bytes"])) for m in report["memories"]],
    )
    _table(
        ("channel", "user", "events", "first, UTC", "last, UTC"),
        [
            (c["channel"], c["user"], str(c["events"]), _time(c["first"]), _time(c["last"]))
            for c in report["chats"]
        ],
    )
    _table(
        ("secrets to be entered", "names"),
        [(scope, ", ".join(names)) for scope, names in report["pending_secrets"].items() if names],
    )
    _table(
        ("may speak to it",),
        [(key,) for key in report["access"]],
    )
    print_not_taken(report, passed=True)


def _table(columns: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    if rows:
        print_lines([""])
        print_table(columns, rows)


def _named(name: str | None) -> str:
    return "" if name is None else f", {name}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _time(milliseconds: int | None) -> str:
    """A time as a person reads it, in UTC; one that the calendar lacks, as it came."""
    if milliseconds is None:
        return ""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 (only for a terminal)

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S")
