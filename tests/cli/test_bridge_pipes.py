"""An agent on a laptop reaches the platform, and comes back, each way in one pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.cli.agents import tools
from tests.cli.conftest import RunShell
from tests.cli.test_agentfy_pack_stream import SKILL, TOKEN, laptop
from tests.database.databases import Database
from tests.database.whole import all_rows
from tests.home.builder import File, Snapshot, make_home, one_form, put, snapshot
from tests.package.folders import event
from tests.package.packages import contents, package_in

_THERE: Final = """
there() {
    touch agent/schedule/paused  # the agent is stopped here
    lnk-manifest agent --phase switch | lnk-tar-create agent | agentfy-pack |
        agentfy-import --team t1 --create-team
}
"""
_BACK: Final = 'agentfy-export "$ID" | agentfy-unpack | lnk-tar-apply agent'
# what the platform's users say meanwhile
_SAID: Final = """
agentfy-export "$ID" | agentfy-unpack there > report &&
    for user in alice new; do cat more >> there/data/sessions/web:$user.jsonl; done &&
    agentfy-pack there | agentfy-import --team t1
"""
EVENTS: Final = b"harness/conversations/web:alice/events.jsonl"


class Machine:
    """The laptop: a folder with a Home, and a database that its tools are pointed at."""

    def __init__(self, shell: RunShell, folder: Path, database: Database) -> None:
        self._shell = shell
        self.folder = folder
        self.home = folder / "agent"
        self.database = database
        self.id = ""

    def run(self, script: str) -> bytes:
        """Run a script that ends well; give what it wrote."""
        done = self._shell(
            f"{tools()} {_THERE} {script}",
            cwd=self.folder,
            env={"AGENTFY_DATABASE_URL": self.database.url, "ID": self.id},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def bring_there(self) -> str:
        """Bring the agent into the database; give the import's result."""
        report = json.loads(self.run("there"))
        self.id = report["agent"]["id"]
        return str(report["result"])

    def bring_back(self) -> dict[str, object]:
        """Bring it back into the Home; give the report."""
        report = json.loads(self.run(_BACK))
        assert isinstance(report, dict)
        return report

    def hear(self, more: bytes) -> None:
        """Let the platform add these events to a chat, and to a new one."""
        (self.folder / "more").write_bytes(more)
        self.run(_SAID)


@pytest.fixture
def machine(shell: RunShell, here: Path, database: Database) -> Machine:
    """The laptop with the agent, and the platform without."""
    laptop(here / "agent")
    return Machine(shell, here, database)


def own(found: Snapshot) -> Snapshot:
    """What of a Home no package has a place for, and what the platform leaves alone.

    ``agent.json`` counts by what it says; that the schedule is paused is for the move only.
    """
    kept = (b"files", b"connections", b"schedule", b"memory/engine", b"agent.json", b"logs")
    own = {k: v for k, v in found.items() if any(k == p or k.startswith(p + b"/") for p in kept)}
    own.pop(b"schedule/paused", None)
    own.pop(b"connections")  # nobody else may look into it afterwards
    kind, mode, text = own[b"agent.json"]
    own[b"agent.json"] = (kind, mode, one_form(json.loads(text)))
    return own


def test_there_and_back(machine: Machine) -> None:
    """Jobs, files, links, connections and ``agent.json`` stay; what was said there is appended."""
    put(machine.home, "logs/today", "log")
    assert machine.bring_there() == "created"
    before = snapshot(machine.home)
    assert {b"files/link", b"files/empty", b"connections/mail.json", b"schedule/day.json"} <= set(
        own(before)
    )
    machine.hear(event(3) + event(4))
    report = machine.bring_back()
    assert report["result"] == "in place"
    assert not (machine.home / "schedule/paused").exists()
    after = snapshot(machine.home)
    assert own(after) == own(before)
    assert after[EVENTS] == ("file", 0o644, event(1) + event(2) + event(3) + event(4))
    assert after[b"harness/conversations/web:new/events.jsonl"][2] == event(3) + event(4)
    changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert changed == {
        EVENTS,
        b"harness/conversations/web:new",
        b"harness/conversations/web:new/events.jsonl",
        b"harness/conversations/main/thread.json",  # in another form
        b"harness/package/agent.config.json",
        b"harness/package/data/secrets",
        b"harness/package/data/secrets/agent.json",
        b"agent.json",  # in another form
        b"connections",
        b"schedule/paused",
    }
    assert json.loads(after[b"harness/conversations/main/thread.json"][2]) == {"tools": ["read"]}


def test_the_same_again_changes_nothing(machine: Machine) -> None:
    """In the database, and in the Home, in both directions and after one round."""
    machine.bring_there()
    rows = all_rows(machine.database)
    assert machine.bring_there() == "unchanged"
    assert all_rows(machine.database) == rows
    machine.bring_back()
    home = snapshot(machine.home)
    machine.bring_back()
    assert snapshot(machine.home) == home
    assert machine.bring_there() == "unchanged"
    assert all_rows(machine.database) == rows
    assert TOKEN not in str(rows)


def test_what_changed_on_the_laptop_arrives(machine: Machine) -> None:
    """Instructions, notes, skills, a narrowing, a name; and is there after it came back."""
    machine.bring_there()
    machine.bring_back()
    put(machine.home, "harness/instructions.md", "be kinder\n")
    put(machine.home, "memory/notes.md", "more\n")
    put(machine.home, "harness/skills/bake/SKILL.md", SKILL.replace("cook", "bake"))
    put(machine.home, "harness/conversations/main/thread.json", '{"tools":["read","write"]}\n')
    agent = json.loads((machine.home / "agent.json").read_text())
    put(machine.home, "agent.json", json.dumps({**agent, "name": "Ada L."}))
    assert machine.bring_there() == "updated"
    machine.run('agentfy-export "$ID" > out.zip')
    found = contents(package_in((machine.folder / "out.zip").read_bytes()))
    assert found["SOUL.md"] == b"be kinder\n"
    assert found["MEMORY.md"] == b"more\n"
    assert "skills/bake/SKILL.md" in found
    config = json.loads(found["agent.config.json"])
    assert config["name"] == "Ada L."
    assert config["threads"] == {"thread:main": {"tools": ["read", "write"]}}
    before = snapshot(machine.home)
    machine.bring_back()
    assert own(snapshot(machine.home)) == own(before)
    assert (machine.home / "harness/instructions.md").read_text() == "be kinder\n"


def test_an_agent_of_the_platform_comes_to_a_new_machine(machine: Machine) -> None:
    """Where there is no Home yet, one is made, with its conversations and the secrets' names."""
    machine.bring_there()
    machine.run('agentfy-export "$ID" | agentfy-unpack | lnk-tar-apply new')
    new = snapshot(machine.folder / "new")
    old = snapshot(machine.home)
    for path in (EVENTS, b"harness/instructions.md", b"memory/notes.md"):
        assert new[path] == old[path]
    assert new[b"harness/skills/cook/run.sh"] == ("file", 0o755, b"#!/bin/sh\n")
    assert new[b"harness/package/data/secrets/agent.json"][2] == b'{"pendingKeys":["mail"]}\n'
    assert not [
        path for path in new if path.startswith((b"connections/", b"files/", b"schedule/j"))
    ]
    agent = json.loads(new[b"agent.json"][2])
    assert agent["id"] == "a1"
    assert agent["owner"] == "Olga"


def test_a_conversation_that_went_two_ways(machine: Machine, shell: RunShell) -> None:
    """It is refused by the Home, which stays as it was."""
    machine.bring_there()
    machine.hear(event(3))
    put(machine.home, EVENTS, event(1) + event(2) + event("other"))
    before = snapshot(machine.home)
    done = shell(
        f"{tools()} {_BACK}",
        cwd=machine.folder,
        env={"AGENTFY_DATABASE_URL": machine.database.url, "ID": machine.id},
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"lnk-tar-apply: refused: conversation-diverged: " + EVENTS in done.stderr
    assert snapshot(machine.home) == before


def test_another_agents_home_is_left_alone(machine: Machine, shell: RunShell) -> None:
    """A package of one agent never comes into the Home of another."""
    machine.bring_there()
    home = make_home(machine.folder / "other", "b2", files={"a": File(b"x")})
    before = snapshot(home)
    done = shell(
        f"{tools()} {_BACK.replace('apply agent', 'apply other')}",
        cwd=machine.folder,
        env={"AGENTFY_DATABASE_URL": machine.database.url, "ID": machine.id},
    )
    assert done.returncode == 1
    assert b"lnk-tar-apply: refused: home-other-agent: " in done.stderr
    assert snapshot(home) == before


def test_a_copy_over_a_pipe_becomes_a_package(machine: Machine) -> None:
    """While the agent runs; each stage checks what the one before it gives."""
    machine.run(
        """{ lnk-manifest agent --phase copy | lnk-tar-create agent; } | lnk-tar-verify |
        agentfy-pack 2> said | agentfy-verify > agent.zip"""
    )
    said = (machine.folder / "said").read_text()
    assert "note: a copy carries no connections" in said
    found = contents(package_in((machine.folder / "agent.zip").read_bytes()))
    assert found["data/sessions/web:alice.jsonl"] == event(1) + event(2)
    assert not [path for path in found if path.startswith("data/secrets/")]
