from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT, RunTool, lacking

MAN: Final = ROOT / "man"
TOOLS: Final = sorted(path.name for path in (ROOT / "bin").iterdir())
PAGES: Final = sorted(path for path in MAN.glob("man*/*"))

# these two come from typer and are the same everywhere: agentmove(7) has them
COMPLETION: Final = {"--install-completion", "--show-completion"}


def in_help(text: str) -> set[str]:
    """Give the options that a help text lists, short and long."""
    _, _, options = text.partition("\nOptions:\n")
    found: set[str] = set()
    for line in options.splitlines():
        if line.startswith("  -"):
            names = re.split(r"\s{2,}| [A-Z]", line.strip())[0]
            found.update(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", names))
    return found


def options_of(tool: RunTool, name: str) -> set[str]:
    """Give the options of a tool, and of its commands where it has some."""
    text = tool(name, "--help").stdout.decode()
    found = in_help(text)
    for command in re.findall(r"^  (\w+)  ", text.partition("\nCommands:\n")[2], re.MULTILINE):
        found |= in_help(tool(name, command, "--help").stdout.decode())
    return found


def flags(line: str) -> set[str]:
    """Give the options that a line of mdoc marks up, as ``Fl r`` and ``Fl -recipient``."""
    line = line.replace("Fl Fl ", "Fl -").replace("\\-", "-").replace("\\&", "")
    return {f"-{name}" for name in re.findall(r"\bFl (-?[a-zA-Z][\w-]*)", line)}


def in_page(page: Path, macros: tuple[str, ...]) -> set[str]:
    lines = page.read_text().splitlines()
    return {flag for line in lines if line.startswith(macros) for flag in flags(line)}


def page_of(name: str) -> Path:
    return MAN / "man1" / f"{name}.1"


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_a_page_with_its_options(tool: RunTool, name: str) -> None:
    """The page lists every option of the help, and no other."""
    helped = options_of(tool, name)
    assert {"-h", "--help", "--version", "--json-errors"} <= helped
    listed = in_page(page_of(name), (".It Fl",))
    assert listed - COMPLETION == helped - COMPLETION


@pytest.mark.parametrize("name", TOOLS)
def test_a_synopsis_has_no_option_that_the_tool_has_not(tool: RunTool, name: str) -> None:
    """A mistyped option in a page's synopsis is found."""
    text = page_of(name).read_text()
    synopsis = text.partition(".Sh SYNOPSIS\n")[2].partition("\n.Sh ")[0]
    assert f".Nm {name}" in text
    assert flags(synopsis) <= options_of(tool, name)


def test_the_overview_has_the_options_for_completion() -> None:
    """The pages leave them to agentmove(7)."""
    assert in_page(MAN / "man7" / "agentmove.7", (".It Fl",)) >= COMPLETION


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_is_well_formed(page: Path) -> None:
    """``mandoc`` has no warning, and no style message, for it."""
    if shutil.which("mandoc") is None:
        lacking("mandoc is not installed")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, check=False
    )
    assert done.stdout.decode() == ""
    assert done.returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_that_a_page_refers_to_is_there(page: Path) -> None:
    """A reference to a page of this project leads somewhere."""
    for name, section in re.findall(
        r"^\.Xr (lnk-\S+|agent\S+) (\d)", page.read_text(), re.MULTILINE
    ):
        assert (MAN / f"man{section}" / f"{name}.{section}").exists()


def test_the_options_are_found_in_both_forms() -> None:
    """The two readers above are what the other tests rest on."""
    text = "Usage: x\n\nOptions:\n  -r, --recipient KEY  See --other.\n  --n INTEGER\n   --no\n"
    assert in_help(text) == {"-r", "--recipient", "--n"}
    assert flags(".It Fl r Ar KEY , Fl -recipient Ns = Ns Ar KEY") == {"-r", "--recipient"}
    assert flags(".It Fl Fl version , Fl \\-no") == {"--version", "--no"}
