from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools import __version__
from tests.cli.conftest import PRIVATE, RunPrivate, RunShell
from tests.conftest import ROOT, RunTool, clean_environment

TOOLS: Final = sorted(path.name for path in (ROOT / "bin").iterdir())


def test_there_are_tools() -> None:
    """The tests of each tool have something to test."""
    assert "lnk-seal" in TOOLS


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_the_same_on_any_width(private: RunPrivate, option: str) -> None:
    """Help goes to standard output, and does not depend on the terminal."""
    wide = private(option, env={"COLUMNS": "300"})
    narrow = private(option, env={"COLUMNS": "20", "TERM": "dumb", "LC_ALL": "C"})
    assert wide.returncode == 0
    assert wide.stdout.startswith(b"Usage: private [OPTIONS]")
    assert wide.stdout == narrow.stdout
    assert wide.stderr == b""
    assert max(map(len, wide.stdout.splitlines())) <= 80


def test_version(private: RunPrivate) -> None:
    """The version is the package's."""
    done = private("--version")
    assert done.stdout.decode() == f"private {__version__}\n"
    assert done.returncode == 0


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_a_tool_imports_nothing_slow_that_it_does_not_need(arguments: list[str]) -> None:
    """Neither a plain run nor the help loads rich, logging, json or cryptography."""
    done = subprocess.run(
        [PRIVATE[0], "-X", "importtime", PRIVATE[1], *arguments],
        input=b"",
        capture_output=True,
        env=clean_environment(),
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()}
    assert b"typer" in loaded
    assert not loaded & {b"rich", b"logging", b"json", b"cryptography", b"dataclasses", b"asyncio"}


def test_a_file_that_should_be_standard_input_is_told(tool: RunTool, tmp_path: Path) -> None:
    """The commonest mistake with a filter."""
    (tmp_path / "a.zip").write_bytes(b"")
    done = tool("agentfy-verify", "--report", "a.zip", cwd=tmp_path)
    assert done.returncode == 2
    assert b"hint: it reads standard input: agentfy-verify --report < a.zip" in done.stderr
    done = tool("agentfy-verify", "nothing.zip", cwd=tmp_path)
    assert b"hint: try agentfy-verify --help" in done.stderr


@pytest.mark.parametrize("external_id", ["", "a\nb", "\udcff"])
def test_an_id_that_is_no_text_is_a_usage_error(tool: RunTool, external_id: str) -> None:
    """Before anything is read or written."""
    done = tool("agentfy-verify", "--external-id", external_id)
    assert done.returncode == 2
    assert b"--external-id" in done.stderr


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_has_help_and_a_version(tool: RunTool, name: str) -> None:
    """Both end well with nothing on standard error."""
    for option, start in (("--help", f"Usage: {name} "), ("--version", f"{name} {__version__}\n")):
        done = tool(name, option)
        assert done.returncode == 0
        assert done.stdout.decode().startswith(start)
        assert done.stderr == b""


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_tells_a_mistake_in_json(tool: RunTool, name: str) -> None:
    """An unknown option is status 2 and one JSON line."""
    done = tool(name, "--nonesuch", "--json-errors")
    assert done.returncode == 2
    assert done.stderr.startswith(b'{"error": {"message": "no such option: --nonesuch"')
    assert done.stderr.count(b"\n") == 1


def test_the_completion_script_for_bash_completes_options(shell: RunShell) -> None:
    """``--show-completion`` gives a script that, once run, completes an option's name."""
    script = f"""
        private() {{ "{sys.executable}" "{PRIVATE[1]}" "$@"; }}
        lines=$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 private --show-completion bash)
        eval "$lines"
        complete -p private
        COMP_WORDS=(private --js) COMP_CWORD=1 COMP_LINE='private --js'
        export -f private
        env COMP_WORDS='private --js' COMP_CWORD=1 _PRIVATE_COMPLETE=complete_bash $private
    """
    done = shell(script)
    assert done.stdout.decode().split() == [
        *["complete", "-o", "default", "-F", "_private_completion", "private"],
        "--json-errors",
    ]


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_shows_its_completion_in_bash(shell: RunShell, name: str) -> None:
    """The script is for the tool's own name."""
    done = shell(f"{sys.executable} {ROOT / 'bin' / name} --show-completion; true")
    assert f" {name}".encode() in done.stdout.splitlines()[-1]


def test_an_unknown_shell_for_completions_is_usage(private: RunPrivate) -> None:
    """It is the command line that is wrong: status 2."""
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert private("--show-completion", "cmd", env=env).returncode == 2
