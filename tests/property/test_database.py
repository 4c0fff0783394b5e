"""Agents of every shape through the database: what comes out is what went in, and only that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmove_tools.package.contents import Package
from agentmove_tools.package.names import composed
from agentmove_tools.package.pack import pack
from agentmove_tools.package.session_names import scope_files, session_files
from agentmove_tools.refusals import Refusal
from tests.database.databases import Database, Server
from tests.database.teams import Files, SharedDatabase, Team, changes
from tests.package.packages import ALL
from tests.property.agents import Agent, Maker, makers

few = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
)
_numbers: Final = count()
CONFIG: Final = "agent.config.json"


@pytest.fixture(scope="module")
def held(db_server: Server, template: str) -> Iterator[Database]:
    """A database in which each example has a team of its own."""
    with db_server.database(template) as made, closing(SharedDatabase(made.parameters)) as database:
        yield database


def package_of(agent: Agent) -> Package:
    """The package of an agent's own folder."""
    files = {composed(path): content for path, content in agent.files.items()}
    return Package(Files(files, [composed(path) for path in agent.runnable]), ALL)


def packed(agent: Agent) -> bytes:
    """Its archive, without files of secrets that hold no name: of these there is no row."""
    others = {
        path: content
        for path, content in agent.files.items()
        if not path.startswith("data/secrets/")
    }
    kept = Agent(others, agent.runnable)
    names = scope_files(scope for scope, found in agent.secrets.items() if found)
    kept.files |= {
        f"data/secrets/{name}": json.dumps(sorted(agent.secrets[scope])).encode()
        for scope, name in names.items()
    }
    return b"".join(pack(package_of(kept)))


@few
@given(makers)
def test_an_agent_comes_back(held: Database, maker: Maker) -> None:
    """As ``pack`` writes it, and the second import of it, or of what came out, writes nothing."""
    agent = maker.agent()
    team = Team(held, f"{next(_numbers)}")
    assert team.bring_in_package(package_of(agent)).result == "created"
    archive = team.archive()
    assert archive == packed(agent)
    before = team.stand()
    assert team.bring_in_package(package_of(agent)).result == "unchanged"
    assert changes(before, team.stand()) == []
    assert held.bring_in(archive, team.name, reading=ALL).result == "unchanged"
    assert changes(before, team.stand()) == []


def later(one: Agent, maker: Maker) -> Agent:
    """The same agent later on: parts of it are gone, others changed, and there are new ones."""
    random = maker.random
    other = maker.agent()
    files: dict[str, bytes] = {}
    files |= {
        path: content
        for path, content in one.files.items()
        if path in ("SOUL.md", CONFIG) or random.random() < 0.6
    }
    files |= {
        path: content
        for path, content in other.files.items()
        if path not in files or random.random() < 0.5
    }
    config = json.loads(files[CONFIG])
    config["id"] = json.loads(one.files[CONFIG])["id"]
    files[CONFIG] = json.dumps(config).encode()
    runnable = {path for path in files if path in one.runnable | other.runnable}
    return Agent(_shaken(files, maker), runnable)


def _shaken(files: dict[str, bytes], maker: Maker) -> dict[str, bytes]:
    """Sessions with some events more or less, in another order, and rarely with another event."""
    random = maker.random
    for path, content in files.items():
        if path.startswith("data/sessions/") and random.random() < 0.6:
            events = [line for line in content.split(b"\n") if line]
            events += [maker.json_line(maker.event(number)) for number in range(100, 103)]
            if random.random() < 0.5:
                random.shuffle(events)
            events = events[random.randrange(3) :]
            if random.random() < 0.2:
                value = json.loads(events[0])
                value["data"] = {"other": True}
                events[0] = maker.json_line(value)
            files[path] = b"\n".join(events)
    return files


class Model:
    """What an agent is after some imports, by the rules."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.runnable: set[str] = set()
        self.secrets: dict[str, set[str]] = {}
        self.chats: dict[tuple[str, str], dict[str, object]] = {}

    def take(self, package: Package) -> bool:
        """Import one; whether its events agree with those that are there."""
        package.begin()
        skills = {file.skill for file in package.files if file.part == "skill"}
        kept = {
            path: content
            for path, content in self.files.items()
            if not any(path.startswith(f"{skill}/") for skill in skills)
        }
        self.files = kept
        self.runnable &= kept.keys()
        agree = True
        for file in package.files:
            if file.part == "session":
                agree &= self._take_session(package, file.chat, file.path)
                continue
            content = b"".join(package.content(file))
            if file.part == "secrets":
                names = package.found.secrets[file.scope]
                self.secrets.setdefault(file.scope, set()).update(names)
                continue
            self.files[file.path] = content
            if file.executable:
                self.runnable.add(file.path)
        return agree

    def _take_session(self, package: Package, chat: tuple[str, str], path: str) -> bool:
        (file,) = [file for file in package.files if file.path == path]
        came = {event.id: form for event, form in package.events(file, forms=True)}
        held = self.chats.setdefault(chat, {})
        agree = all(held[name] == came[name] for name in held.keys() & came.keys())
        if held.keys() <= came.keys():
            self.chats[chat] = dict(came)
        else:
            self.chats[chat] = {**held, **{n: e for n, e in came.items() if n not in held}}
        return agree

    def archive(self) -> bytes:
        """The package of what there is."""
        files = dict(self.files)
        scopes = {scope: names for scope, names in self.secrets.items() if names}
        for scope, name in scope_files(scopes).items():
            files[f"data/secrets/{name}"] = json.dumps(sorted(scopes[scope])).encode()
        for chat, name in session_files(self.chats).items():
            events = (bytes(form) + b"\n" for form in self.chats[chat].values())  # type: ignore[call-overload]
            files[f"data/sessions/{name}"] = b"".join(events)
        return b"".join(pack(Package(Files(files, sorted(self.runnable)), ALL)))


def archive_of(model: Model) -> bytes | Refusal:
    """The package of what there is, or why there can be none."""
    try:
        return model.archive()
    except Refusal as refusal:
        return refusal


@few
@given(makers, st.integers(1, 3))
def test_one_import_after_another(held: Database, maker: Maker, times: int) -> None:
    """What comes out is the last one, and what only those before it had, by the rules."""
    team = Team(held, f"{next(_numbers)}")
    model = Model()
    agent = maker.agent()
    model.take(package_of(agent))
    team.bring_in_package(package_of(agent))
    for _ in range(times):
        agent = later(agent, maker)
        try:
            package = package_of(agent)
            package.check()
        except Refusal:
            break  # two files of one chat, names that differ by case, another's event of one ID
        before = team.stand()
        if not model.take(package):
            with pytest.raises(Refusal) as caught:
                team.bring_in_package(package_of(agent))
            assert caught.value.code == "event-duplicate"
            assert changes(before, team.stand()) == []
            return
        team.bring_in_package(package_of(agent))
        before = team.stand()
        assert team.bring_in_package(package_of(agent)).result == "unchanged"
        assert changes(before, team.stand()) == []
    expected = archive_of(model)
    if isinstance(expected, Refusal):
        with pytest.raises(Refusal) as caught:
            team.archive()
        assert caught.value.code == expected.code
        return
    assert team.archive() == expected
    before = team.stand()
    assert held.bring_in(expected, team.name, reading=ALL, prune=True).counts["agent"].written == 0
    left = [change for change in changes(before, team.stand()) if not change.startswith("~chat")]
    assert left == []


@few
@given(makers)
def test_prune_leaves_what_the_package_has(held: Database, maker: Maker) -> None:
    """Of skills, memories and pending names; chats, texts and other scopes stay."""
    one = maker.agent()
    other = later(one, maker)
    for path in [path for path in other.files if path.startswith("data/sessions/")]:
        del other.files[path]
    try:
        package_of(other).check()
    except Refusal:
        return
    team = Team(held, f"{next(_numbers)}")
    team.bring_in_package(package_of(one))
    team.bring_in_package(package_of(other), prune=True)
    package = package_of(other)
    found = {
        (table, path)
        for table in ("skill", "memory")
        for (path,) in team.rows(f"SELECT path FROM agentfy.{table} WHERE team_id = %(team)s")
    }
    assert found == {
        (file.part, file.skill or file.path)
        for file in package.files
        if file.part in ("skill", "memory")
    }
    package.begin()
    for file in package.files:
        b"".join(package.content(file))
    held_names: dict[str, set[str]] = {}
    for scope, name in team.rows("SELECT scope, name FROM agentfy.secret WHERE team_id = %(team)s"):
        held_names.setdefault(scope, set()).add(name)
    expected = {scope: names for scope, names in one.secrets.items() if names}
    expected |= {scope: set(names) for scope, names in package.found.secrets.items()}
    assert held_names == {scope: names for scope, names in expected.items() if names}
    chats = team.rows("SELECT id FROM agentfy.chat WHERE team_id = %(team)s")
    assert len(chats) == len(one.events)
