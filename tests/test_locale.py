"""A move works the same under ``LC_ALL=C``: names are bytes, and text is UTF-8."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from tests.conftest import RunTool
from tests.home.builder import (
    MOVE,
    File,
    Link,
    Snapshot,
    full_home,
    put,
    snapshot,
    take_away,
    travelling,
)

_NAMES = (
    "größe",
    "ключ",
    "日本語/ファイル",
    "emoji 🎉🏳️‍🌈",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "right-to-left \u202e txt",
    "line\u2028separator",
    "\ufeffbom",
    "tab\tand\nline",
)


def _sender(folder: Path) -> Path:
    home = full_home(folder)
    for name in _NAMES:
        put(home, f"files/{name}", File(name.encode(), 0o644))
    put(home, "files/to", Link("größe".encode()))
    put(home, "harness/skills/schlüssel/SKILL.md", "größe")
    put(home, "harness/conversations/gespräch/events.jsonl", '{"text":"größe 🎉"}\n')
    put(home, "connections/schlüssel.json", '{"a":"ß"}')
    put(home, "schedule/waiting/später.json", '{"id":"später"}')
    put(home, "agent.json", '{"id":"ä1","name":"Zoë \\ud83c\\udf89","harness":"x"}')
    return home


def _moved(tool: RunTool, folder: Path, env: dict[str, str]) -> tuple[Snapshot, list[bytes]]:
    """A whole two-phase move; the Home that came of it, and all that was printed on the way."""
    said: list[bytes] = []

    def run(name: str, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        done = tool(name, *arguments, stdin=stdin, env=env, cwd=folder)
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
        return done.stdout

    home = folder / "heim größe"
    have = folder / "have"
    for phase in ("copy", "switch"):
        have.write_bytes(run("lnk-have", home))
        said.append(have.read_bytes())
        manifest = run("lnk-manifest", "ada", "--phase", phase, "--move", MOVE, "--have", "have")
        said.append(manifest)
        stream = run("lnk-tar-create", "ada", "--have", "have", stdin=manifest)
        said.append(stream)
        if phase == "switch":
            said += [run("lnk-tar-list", stdin=stream), run("lnk-manifest", stdin=stream)]
            stream = run("lnk-tar-verify", stdin=stream)
        said.append(run("lnk-tar-apply", home, stdin=stream))
    found = snapshot(home)
    take_away(home)
    take_away(folder / ".heim größe.lnk-move")
    return found, said


def test_a_move_is_the_same_in_every_locale(here: Path, tool: RunTool) -> None:
    """Every byte that the tools print is, and so is the Home that comes of it."""
    sender = _sender(here / "ada")
    names = ("LANG", "LC_CTYPE", "LANGUAGE", "PYTHONUTF8", "PYTHONIOENCODING")
    plain = dict.fromkeys(names, "")
    expected = _moved(tool, here, {**plain, "LC_ALL": "C.UTF-8"})
    assert travelling(expected[0]) == travelling(snapshot(sender))
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"}):
        assert _moved(tool, here, {**plain, **env}) == expected, env


def test_a_package_is_the_same_in_every_locale(here: Path, tool: RunTool) -> None:
    """Its bytes, the folder that it becomes, and every word that the tools say of it."""
    (here / "ada").mkdir()
    for path, text in {
        "SOUL.md": "größe",
        "agent.config.json": '{"id": "ä1", "name": "Zoë 🎉"}',
        "memory/日本語/ключ.md": "x",
        "skills/schlüssel/größe": "x",
        "skills/schlüssel/SKILL.md": "no front matter",
        "data/sessions/web:Zoë.jsonl": '{"id":"é","type":"user","ts":1,"data":{"text":"🎉"}}\n',
        "data/secrets/user-é.json": '["schlüssel"]',
        "größe.txt": "unknown",
    }.items():
        put(here / "ada", path, text)

    def moved(env: dict[str, str]) -> tuple[Snapshot, list[bytes]]:
        packed = tool("agentfy-pack", "ada", env=env, cwd=here)
        verified = tool("agentfy-verify", "--report", stdin=packed.stdout, env=env)
        out = here / "heim größe"
        unpacked = tool("agentfy-unpack", out, stdin=packed.stdout, env=env)
        assert (packed.returncode, verified.returncode, unpacked.returncode) == (0, 0, 0)
        found = snapshot(out)
        take_away(out)
        every = (packed, verified, unpacked)
        return found, [text for done in every for text in (done.stdout, done.stderr)]

    expected = moved({"LC_ALL": "C.UTF-8"})
    assert "data/sessions/web:Zoë.jsonl".encode() in expected[0]
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"}):
        assert moved(env) == expected, env


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "tr_TR.UTF-8", "no_SUCH"])
def test_a_refusal_is_the_same_in_every_locale(here: Path, tool: RunTool, locale: str) -> None:
    """A name that is no UTF-8 is shown escaped, one that is as it is, whatever the terminal."""
    home = _sender(here / "ada")
    put(home, b"files/b\xff\xc3", "not UTF-8")
    done = tool("lnk-have", home, env={"LC_ALL": locale})
    assert done.returncode == 1
    assert b"refused: home-path: " in done.stderr
    assert rb"b\xff\xc3" in done.stderr
    (home / os.fsdecode(b"files/b\xff\xc3")).unlink()
    done = tool("lnk-have", here / "größe" / "🎉", env={"LC_ALL": locale})
    assert done.returncode == 3
    assert "größe/🎉".encode() in done.stderr
