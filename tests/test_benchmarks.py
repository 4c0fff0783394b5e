"""``make bench`` runs and says what it should; what it measures is looked at by people."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks.bridge_memory import BRIDGE_MEMORY_ROWS
from tests.benchmarks.bridge_rows import BRIDGE_ROWS
from tests.benchmarks.database_memory import DATABASE_MEMORY_ROWS
from tests.benchmarks.database_rows import DATABASE_ROWS
from tests.benchmarks.databases import Databases
from tests.benchmarks.homes import Data
from tests.benchmarks.measure import Times, Work
from tests.benchmarks.memory import MEMORY_ROWS
from tests.benchmarks.package_memory import PACKAGE_MEMORY_ROWS
from tests.benchmarks.rows import ROWS, Row
from tests.conftest import ROOT, lacking

_TIMES = re.compile(
    r"(?P<row>[a-z-]+) +(?P<against>.+?) +[0-9.]+ s +[0-9.]+ s +(?P<ratio>[0-9]+\.[0-9]{2})"
    r" +[0-9.]+-[0-9.]+ +(?P<most>[0-9.]+)  (?P<verdict>holds|<- OVER)"
)
_PEAK = re.compile(
    r"(?P<row>[a-z-]+) +(?P<tool>(?:lnk|agentfy)-[A-Za-z0-9, -]+?) +(?P<peak>[0-9]+)"
    r" +(?P<most>[0-9]+)  (?P<verdict>holds|<- OVER)"
)


def run_benchmarks(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run them with all their data below ``folder``."""
    quick = ("--scale", "0.0005", "--repeat", "1")
    places = ("--memory-folder", folder, "--disk-folder", folder)
    return subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *quick, *places, *arguments],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def check_status(done: subprocess.CompletedProcess[str]) -> None:
    """The status says whether a row is over its limit, and nothing failed."""
    assert done.stderr == ""
    assert "FAILED" not in done.stdout, done.stdout
    assert done.returncode == (1 if "<- OVER" in done.stdout else 0)


def check_times(done: subprocess.CompletedProcess[str], rows: tuple[Row, ...]) -> None:
    """Each row has a line with its ratio, its limit and whether it holds."""
    if "is not installed" in done.stdout:
        lacking(next(line for line in done.stdout.splitlines() if "is not installed" in line))
    found = [match for line in done.stdout.splitlines() if (match := _TIMES.fullmatch(line))]
    assert [(match["row"], float(match["most"])) for match in found] == [
        (row.name, row.most) for row in rows
    ]
    for match in found:
        assert (match["verdict"] == "holds") == (float(match["ratio"]) <= float(match["most"]))
    check_status(done)


def test_every_row_of_times_is_measured(tmp_path: Path) -> None:
    """Each has a line with its ratio, its limit and whether it holds; nothing is left behind."""
    check_times(run_benchmarks(tmp_path, *(row.name for row in ROWS)), ROWS)
    assert list(tmp_path.iterdir()) == []


def test_every_row_between_stream_and_package_is_measured(tmp_path: Path) -> None:
    """The same for those of one agent in two forms."""
    check_times(run_benchmarks(tmp_path, *(row.name for row in BRIDGE_ROWS)), BRIDGE_ROWS)
    assert list(tmp_path.iterdir()) == []


def test_every_row_of_a_database_is_measured(tmp_path: Path) -> None:
    """The same for those with a database."""
    check_times(run_benchmarks(tmp_path, *(row.name for row in DATABASE_ROWS)), DATABASE_ROWS)
    assert list(tmp_path.iterdir()) == []


def test_the_server_of_databases_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With all its data."""
    monkeypatch.delenv("AGENTFY_TEST_SERVER", raising=False)
    databases = Databases(tmp_path)
    place = Path(databases.ask("postgres", "SHOW data_directory"))
    assert place.is_dir()
    databases.close()
    assert not place.parent.parent.exists()


def test_every_package_is_weighed_with_a_database(tmp_path: Path) -> None:
    """Each goes in, again, and out, or is refused as it should, in little memory."""
    rows = {"database-text", "database-entries", "database-refused"}  # of each kind one
    assert rows <= {row.name for row in DATABASE_MEMORY_ROWS}
    done = run_benchmarks(tmp_path, *sorted(rows))
    lines = done.stdout.splitlines()[2:]
    found = [match for line in lines if (match := _PEAK.fullmatch(line))]
    assert len(found) == len(lines)
    assert {match["row"] for match in found} == rows
    taken = [match["tool"] for match in found if match["row"] == "database-text"]
    assert taken == [
        "agentfy-import, 128 MiB",
        "agentfy-import, again, 128 MiB",
        "agentfy-export, 128 MiB",
    ]
    for match in found:
        assert 1 < int(match["peak"]) <= int(match["most"]) == 300
        assert match["verdict"] == "holds"
    check_status(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "shown", "good"),
    [(1.3, "1.30", True), (1.3049, "1.30", True), (1.31, "1.31", False)],
)
def test_a_verdict_is_of_the_ratio_that_is_shown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    seconds: float,
    shown: str,
    good: bool,
) -> None:
    """No line says 1.30, at most 1.30, and that it is over."""
    work = Work("true", tmp_path)
    row = Row("start", "true", 1.3, lambda _: (work, work))
    monkeypatch.setattr(benchmarks, "take_turns", lambda *_: Times([seconds], [1.0]))
    assert benchmarks._time(row, Data(tmp_path, tmp_path, 1.0), 1) is good
    line = capsys.readouterr().out.split()
    assert shown in line
    assert ("holds" in line) is good


def test_every_stream_filter_is_weighed(tmp_path: Path) -> None:
    """Each has a line with its peak in MiB; a filter of a tiny stream holds its limit."""
    done = run_benchmarks(tmp_path, "--memory-only")
    found = [match for line in done.stdout.splitlines() if (match := _PEAK.fullmatch(line))]
    assert {match["row"] for match in found} == {row.name for row in MEMORY_ROWS if not row.huge}
    tools = {match["tool"] for match in found if match["row"] == "memory-large"}
    assert tools == {
        "lnk-manifest",
        "lnk-manifest, of it",
        "lnk-seal",
        "lnk-tar-apply",
        "lnk-tar-create",
        "lnk-tar-list",
        "lnk-tar-verify",
        "lnk-unseal",
    }
    for match in found:
        assert 1 < int(match["peak"]) <= int(match["most"])
        assert match["verdict"] == "holds"
    check_status(done)


@pytest.mark.parametrize("name", [row.name for row in PACKAGE_MEMORY_ROWS])
def test_every_package_is_weighed(name: str, tmp_path: Path) -> None:
    """Both tools take each package of a row, or refuse it as they should, in little memory."""
    row = next(row for row in PACKAGE_MEMORY_ROWS if row.name == name)
    done = run_benchmarks(tmp_path, name)
    lines = done.stdout.splitlines()[2:]
    found = [match for line in lines if (match := _PEAK.fullmatch(line))]
    assert len(found) == len(lines) > 0
    tools = [match["tool"].split(", ")[0] for match in found]
    assert tools == ["agentfy-verify", "agentfy-unpack"] * (len(found) // 2)
    for match in found:
        assert (match["row"], int(match["most"])) == (name, row.most >> 20)
        assert 1 < int(match["peak"]) <= int(match["most"])
        assert match["verdict"] == "holds"
    check_status(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [row.name for row in BRIDGE_MEMORY_ROWS])
def test_every_stream_and_package_is_weighed(name: str, tmp_path: Path) -> None:
    """Each stream is taken, and its package too, or refused as it should be, in little memory."""
    row = next(row for row in BRIDGE_MEMORY_ROWS if row.name == name)
    done = run_benchmarks(tmp_path, name)
    lines = done.stdout.splitlines()[2:]
    found = [match for line in lines if (match := _PEAK.fullmatch(line))]
    assert len(found) == len(lines) > 0
    tools = {match["tool"].split(", ")[0] for match in found}
    one = {"agentfy-unpack"} if name == "bridge-unpack-bad" else {"agentfy-pack"}
    assert tools == (one if name.endswith("-bad") else {"agentfy-pack", "agentfy-unpack"})
    for match in found:
        assert (match["row"], int(match["most"])) == (name, row.most >> 20)
        assert 1 < int(match["peak"]) <= int(match["most"])
    check_status(done)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_chosen_by_a_pattern(tmp_path: Path) -> None:
    """All that fit it are measured, and no others."""
    done = run_benchmarks(tmp_path, "package-[lt]*")
    found = [match for line in done.stdout.splitlines() if (match := _PEAK.fullmatch(line))]
    rows = {"package-text", "package-text-bad", "package-long-bad"}
    assert {match["row"] for match in found} == rows
    assert not [line for line in done.stdout.splitlines() if _TIMES.fullmatch(line)]
    check_status(done)


@pytest.mark.parametrize("arguments", [("no-such-row",), ("no-*",), ("--repeat", "0", "start")])
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A row that is not there, or no run at all, measures nothing."""
    done = run_benchmarks(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
