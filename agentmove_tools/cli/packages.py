"""What the three tools of packages share: options, and how warnings are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import check_name
from agentmove_tools.cli.terminal import print_lines
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
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


def print_not_taken(report: dict[str, Any], *, passed: bool = False) -> None:
    """Print a report's warnings, and the paths that are not taken, one a line; as ``tell``."""
    fate = _PASSED if passed else _LEFT_OUT
    lines = [f"warning: {each['path']}: {each['warning']}" for each in report["warnings"]]
    lines += [f"{fate}: {path}: a package has no place for it" for path in report["unknown"]]
    lines += [f"{fate}: {each['path']}: {each['why']}" for each in report["passed_over"]]
    if lines:
        print_lines(["", *lines])
