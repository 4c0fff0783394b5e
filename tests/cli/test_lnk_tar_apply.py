from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, RunTool, clean_environment
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    full_home,
    have_of,
    make_home,
    move,
    put,
    snapshot,
    stream_of,
    times,
    travelling,
)

PIPELINE = r"""
set -o pipefail
key=$(lnk-keygen -o move.key) || exit 90
lnk-have agent > have.json || exit 91
lnk-manifest "$1" --phase copy --move "$2" \
  | lnk-tar-create "$1" --have have.json | lnk-tar-verify | lnk-tar-apply agent || exit 92
mkdir -p "$1/schedule" && touch "$1/schedule/paused"; lnk-have agent > have.json || exit 93
echo more >> "$1/files/a.txt"
lnk-manifest "$1" --phase switch --move "$2" --have have.json \
  | lnk-tar-create "$1" --have have.json | lnk-seal -r "$key" \
  | lnk-unseal -i move.key | lnk-tar-verify | lnk-tar-apply agent && rm move.key || exit 94
"""


def test_the_two_phase_move_whole(here: Path) -> None:
    """The pipeline of the manual, but for the ssh, as a shell runs it."""
    sender = full_home(here / "sender", paused=False)
    ran = subprocess.run(
        ["bash", "-c", PIPELINE, "bash", sender, MOVE],
        env=clean_environment({"PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}"}),
        cwd=here,
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    copy, switch = map(json.loads, ran.stdout.splitlines())
    assert (copy["result"], switch["result"]) == ("staged", "in place")
    assert travelling(snapshot(here / "agent")) == travelling(snapshot(sender))
    assert (here / "agent" / "files" / "a.txt").read_text() == "alphamore\n"
    assert not (here / "move.key").exists()


def test_the_report(tool: RunTool, here: Path) -> None:
    """One line of JSON: what came in, what became of it, what was there before."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "files/own", "x")
    put(home, "harness/conversations/main/events.jsonl", b'{"n":1,"text":"hello"}\n')
    ran = tool("lnk-tar-apply", home, stdin=stream_of(sender, "switch", have=have_of(home)))
    assert (ran.returncode, ran.stderr) == (0, b"")
    report = json.loads(ran.stdout)
    assert report["result"] == "in place"
    assert (report["phase"], report["move"]) == ("switch", MOVE)
    assert report["agent"] == {"id": "a1", "name": "Ada"}
    assert report["kinds"]["files"] == {
        "in": 1, "written": 1, "left_alone": 0, "passed_over": 0, "kept": 4, "removed": 1
    }  # fmt: skip
    assert report["events"] == {"in": 2, "appended": 1, "already_there": 1, "kept_beside": 0}
    assert report["carried_over"] == [".env", "logs"]
    assert report["way"] == "exchange"
    again = tool("lnk-tar-apply", home, stdin=stream_of(sender, "switch", have=have_of(home)))
    assert json.loads(again.stdout)["result"] == "already in place"


def test_a_file_for_the_report(tool: RunTool, here: Path) -> None:
    """With ``-o``."""
    stream = stream_of(full_home(here / "sender"), "switch")
    ran = tool("lnk-tar-apply", here / "home", "-o", here / "report.json", stdin=stream)
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert json.loads((here / "report.json").read_text())["result"] == "in place"


def test_a_dry_run(tool: RunTool, here: Path) -> None:
    """Changes nothing at all, and leaves nothing beside the Home."""
    home = full_home(here / "home")
    stream = stream_of(make_home(here / "sender", files={"a": "x"}), "switch", have={})
    before = snapshot(home), times(home), sorted(os.listdir(here))
    ran = tool("lnk-tar-apply", home, "--dry-run", stdin=stream)
    assert ran.stderr.startswith(b"lnk-tar-apply: refused: tree-mismatch: ")
    ran = tool("lnk-tar-apply", here / "absent", "--dry-run", stdin=stream)
    assert json.loads(ran.stdout)["result"] == "would be in place"
    assert (snapshot(home), times(home), sorted(os.listdir(here))) == before


def test_drop_staged(tool: RunTool, here: Path) -> None:
    """A staged copy is thrown away, before the stream that comes after it, if one does."""
    sender = full_home(here / "sender")
    home = here / "home"
    move(sender, home, "copy")
    stream = stream_of(sender, "switch", move=OTHER_MOVE)
    assert tool("lnk-tar-apply", home, stdin=stream).returncode == 1
    ran = tool("lnk-tar-apply", home, "--drop-staged", stdin=stream)
    assert ran.returncode == 0, ran.stderr
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_replace_agent_and_keep_old(tool: RunTool, here: Path) -> None:
    """Another agent's Home is taken when that is asked for, and the old one kept."""
    sender = full_home(here / "sender")
    home = make_home(here / "home", "a2", files={"own": "x"})
    before = snapshot(home)
    stream = stream_of(sender, "switch", have=have_of(home))
    assert tool("lnk-tar-apply", home, stdin=stream).returncode == 1
    assert snapshot(home) == before
    ran = tool("lnk-tar-apply", home, "--replace-agent", "--keep-old", here / "old", stdin=stream)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["old_home"] == str(here / "old")
    assert snapshot(here / "old") == before
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_on_diverged(tool: RunTool, here: Path) -> None:
    """``keep-both`` is the way out that the refusal names."""
    sender = make_home(here / "sender", conversations={"t": [1, 2]})
    home = make_home(here / "home", conversations={"t": [1, 3]})
    stream = stream_of(sender, "switch")
    ran = tool("lnk-tar-apply", home, "--json-errors", stdin=stream)
    error = json.loads(ran.stderr)["error"]
    assert "--on-diverged keep-both" in error["message"]
    assert error["details"] == {
        "refusal": "conversation-diverged",
        "path": "harness/conversations/t/events.jsonl",
        "thread": "t",
        "line": 2,
    }
    ran = tool("lnk-tar-apply", home, "--on-diverged", "keep-both", stdin=stream)
    assert json.loads(ran.stdout)["kept_beside"] == ["t-01234567"]


def test_limits(tool: RunTool, here: Path) -> None:
    """What a stranger may send is bounded."""
    stream = stream_of(full_home(here / "sender"), "switch")
    for limit in (("--max-bytes", "5000"), ("--max-entries", "3")):
        ran = tool("lnk-tar-apply", here / "home", *limit, stdin=stream)
        assert ran.returncode == 1
        assert ran.stderr.startswith(b"lnk-tar-apply: refused: stream-tar: ")
    assert not (here / "home").exists()
    fits = ("--max-bytes", str(len(stream)), "--max-entries", "50")
    assert tool("lnk-tar-apply", here / "home", *fits, stdin=stream).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("HOME", "--on-diverged", "both"),
        ("HOME", "--links", "some"),
        ("HOME", "--max-bytes", "-1"),
        ("HOME", "--keep-old", "HOME"),
        ("HOME", "--keep-old", "HOME/no/such"),
    ],
)
def test_usage(tool: RunTool, here: Path, arguments: tuple[str, ...]) -> None:
    """A wrong command line leaves everything as it was."""
    home = full_home(here / "home")
    stream = stream_of(full_home(here / "sender"), "switch", have=have_of(home))
    before = snapshot(home)
    ran = tool(
        "lnk-tar-apply", *(word.replace("HOME", str(home)) for word in arguments), stdin=stream
    )
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(b"lnk-tar-apply: usage: ")
    assert snapshot(home) == before


def test_under_the_c_locale(tool: RunTool, here: Path) -> None:
    """Names are bytes, and the report is UTF-8."""
    sender = make_home(here / "sender", name="\u00dcrsula", files={"\u00fc\u4e2d": "x"})
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = tool("lnk-tar-apply", here / "home", stdin=stream_of(sender, "switch"), env=env)
    assert json.loads(ran.stdout.decode())["agent"]["name"] == "\u00dcrsula"
    assert travelling(snapshot(here / "home")) == travelling(snapshot(sender))
    assert json.loads((here / "home" / "agent.json").read_bytes())["name"] == "\u00dcrsula"
