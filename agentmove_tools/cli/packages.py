"""What the tools of packages share: options, and how warnings are told."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import check_name
from agentmove_tools.cli.pipes import STDOUT, open_output
from agentmove_tools.cli.terminal import print_lines
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from agentmove_tools.bridge.crossing import Crossing
    from agentmove_tools.cli.pipes import OutputPipe
    from agentmove_tools.package.contents import Package
    from agentmove_tools.package.layout import Part

DropTornLine: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--drop-torn-line",
        help="Leave out a session's last line that was cut short, as by a crash.",
    ),
]

_LEFT_OUT: Final = "left out"
_TOO_MANY: Final = "which are too many to be named"
_PASSED: Final = "no part of the agent"
_STRICT: Final = "Refuse paths that a package has no place for"

StrictOfFolder: TypeAlias = Annotated[bool, typer.Option("--strict", help=f"{_STRICT}.")]

Strict: TypeAlias = Annotated[
    bool, typer.Option("--strict", help=f"{_STRICT}, and values of secrets.")
]

ExternalId: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--external-id",
        metavar="ID",
        help="The agent's ID, where the configuration has none; another one is refused.",
        show_default=False,
    ),
]

CrossingReport: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Without FOLDER: write what crossed and what did not into FILE, as JSON.",
        show_default=False,
    ),
]

With: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="usage,browser-state",
        help="Take these too, which are left out otherwise.",
        show_default=False,
    ),
]


def wanted(values: list[str] | None) -> frozenset[Part]:
    """What ``--with`` asks for. Raises ``UsageError``."""
    from agentmove_tools.package.layout import ON_REQUEST  # noqa: PLC0415 (not for --help)

    asked = {name.strip() for value in values or () for name in value.split(",")}
    unknown = sorted(asked.difference(ON_REQUEST))
    if unknown:
        given = repr(unknown[0]) if unknown[0] else "nothing"
        raise UsageError(f"--with takes {' and '.join(ON_REQUEST)}, not {given}")
    return frozenset(part for part in ON_REQUEST if part in asked)


def check_external_id(external_id: str | None) -> None:
    """Raise ``UsageError`` for an ID that no configuration could have."""
    check_name("--external-id", external_id)


def tell(name: str, package: Package, *, passed: bool = False) -> None:
    """Write the warnings, and the paths that are not taken, to standard error.

    ``passed``: the package goes on as it is, with all that is in it.
    """
    from agentmove_tools.package.layout import ON_REQUEST  # noqa: PLC0415 (not for --help)

    for path, warnings in sorted(package.found.warnings.items()):
        for warning in warnings:
            say(name, f"warning: {path}: {warning}")
    fate = _PASSED if passed else _LEFT_OUT
    for path in package.unknown:
        say(name, f"{fate}: {path}: a package has no place for it")
    for each in package.passed_over:
        if each.part in ON_REQUEST:
            say(name, f"{fate}: {each.path}: {each.why}")


def tell_crossing(name: str, crossing: Crossing) -> None:
    """Write what did not cross, the events that were skipped, and warnings, to standard error."""
    from agentmove_tools.bridge.crossing import shown  # noqa: PLC0415 (not for --help)

    for path, warning in crossing.warnings:
        say(name, f"warning: {path}: {warning}")
    for skipped in crossing.skipped:
        say(name, f"skipped: {shown(skipped.path)}: line {skipped.line}: {skipped.why}")
    if crossing.skipped_more:
        say(name, f"skipped: {crossing.skipped_more} events more, {_TOO_MANY}")
    for lost in (*crossing.lost, *crossing.not_asked):
        say(name, f"{_LEFT_OUT}: {shown(lost.path)}: {lost.why}")
    if crossing.lost_more:
        say(name, f"{_LEFT_OUT}: {crossing.lost_more} more, {_TOO_MANY}")
    if crossing.not_asked_more:
        say(name, f"{_LEFT_OUT}: {crossing.not_asked_more} more, not asked for, {_TOO_MANY}")
    for note in crossing.notes:
        say(name, f"note: {note}")


def write_crossing(report: OutputPipe | None, crossing: Crossing) -> None:
    """Write the report of a crossing as JSON, if it is wanted."""
    import json  # noqa: PLC0415 (not for --help)

    if report is not None:
        report.write(json.dumps(crossing.to_json(), ensure_ascii=False).encode() + b"\n")


def open_report(
    report: Path | None, output: Path | None
) -> AbstractContextManager[OutputPipe | None]:
    """The file that a crossing's report goes to.

    Raises ``UsageError`` where the result itself goes there, and ``OSError`` from the block's
    start.
    """
    if report is None:
        return nullcontext()
    if str(report) == "-":
        raise UsageError("--report needs a file: the result goes to standard output")
    if _is_output(report, output):
        raise UsageError(f"--report {report} is where the result goes: name another file")
    return open_output(report, binary=False)


def _is_output(report: Path, output: Path | None) -> bool:
    """Whether the report would be written over the result, or among it."""
    if output is not None and str(output) != "-":
        return os.path.realpath(report) == os.path.realpath(output)
    try:
        there, result = os.stat(report), os.fstat(STDOUT)
    except OSError:
        return False
    # nothing is spoilt in a device such as /dev/null
    return os.path.samestat(there, result) and not stat.S_ISCHR(there.st_mode)


def only_of_streams(option: str, folder: str | None, *, given: bool) -> None:
    """Raise ``UsageError`` for an option that goes without FOLDER only."""
    if given and folder is not None:
        raise UsageError(f"{option} is for a Move Stream: leave FOLDER out")


def print_not_taken(report: dict[str, Any], *, passed: bool = False) -> None:
    """Print a report's warnings, and the paths that are not taken, one a line; as ``tell``."""
    fate = _PASSED if passed else _LEFT_OUT
    lines = [f"warning: {each['path']}: {each['warning']}" for each in report["warnings"]]
    lines += [f"{fate}: {path}: a package has no place for it" for path in report["unknown"]]
    lines += [f"{fate}: {each['path']}: {each['why']}" for each in report["passed_over"]]
    if lines:
        print_lines(["", *lines])
