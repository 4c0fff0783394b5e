from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import ROOT, clean_environment


def run_without_packages(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a tool under a Python that has none of the packages it needs."""
    return subprocess.run(
        [sys.executable, "-S", ROOT / "bin" / "lnk-have", *arguments],
        env=clean_environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        check=False,
    )


def test_a_package_that_is_missing_is_told_in_one_line() -> None:
    """It is the machine's failure, with a hint and no traceback."""
    done = run_without_packages("agent")
    assert done.returncode == 3
    assert done.stdout == b""
    assert done.stderr.decode() == (
        "lnk-have: failed: the installation is not whole: No module named 'typer'\n"
        "lnk-have: hint: install agentmove-tools again\n"
    )


def test_a_package_that_is_missing_is_told_in_json_too() -> None:
    """``--json-errors`` holds before the command line can be parsed."""
    done = run_without_packages("agent", "--json-errors")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "typer" in json.loads(line)["error"]["message"]
