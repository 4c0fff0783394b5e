from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentmove_tools.package.names import caseless, composed
from agentmove_tools.package.session_names import (
    channel_and_user,
    scope_files,
    scope_of,
    session_files,
)
from agentmove_tools.package.unpack import unpack
from agentmove_tools.package.unpacked import UnpackOptions
from agentmove_tools.refusals import Refusal
from tests.conftest import MEMORY
from tests.package.packages import ALL, contents, package_in, packed
from tests.property.agents import Agent, Maker, agents, makers, set_times

few = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
many = settings(max_examples=400, deadline=None, derandomize=True)
# What a name may be: any text but a NUL. Those that disks take for one are often side by side.
texts = st.one_of(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6
    ),
    st.text(
        st.sampled_from("aAbB\u00e9\u00c9e\u0301\u0323\u0307\u212akJ./\\%:41\x1d\u037e;"),
        min_size=1,
    ),
)


@contextmanager
def folder() -> Iterator[Path]:
    # In memory where that can be had: what is unpacked is synced.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


def unpacked(data: bytes, where: Path) -> Path:
    """A new folder with what is in an archive."""
    unpack(package_in(data, ALL), os.fsencode(where), UnpackOptions())
    return where


def read_back(where: Path, agent: Agent) -> Agent:
    """What of an agent is in a folder that was unpacked."""
    found = Agent()
    for path in sorted(where.rglob("*")):
        if path.is_dir():
            continue
        name = path.relative_to(where).as_posix()
        content = path.read_bytes()
        if name.startswith("data/sessions/"):
            chat = channel_and_user(composed(path.name), name)
            found.events[chat] = [json.loads(line) for line in content.splitlines()]
        elif name.startswith("data/secrets/"):
            found.secrets[scope_of(composed(path.name), name)] = set(
                json.loads(content)["pendingKeys"]
            )
        else:
            found.verbatim[name] = content
            if path.stat().st_mode & 0o111:
                found.runnable.add(name)
    return found


@few
@given(agents)
def test_a_package_brings_the_agent_back(agent: Agent) -> None:
    """Any agent's folder is packed, taken and unpacked, and what comes out is equal to it."""
    with folder() as here:
        data = packed(agent.put(here / "agent"), ALL)
        package_in(data, ALL).check()
        other = unpacked(data, here / "other")
        found = read_back(other, agent)
        assert found.verbatim == agent.verbatim
        assert found.events == agent.events
        assert found.secrets == agent.secrets
        assert found.runnable == {composed(path) for path in agent.runnable}
        assert packed(other, ALL) == data


@few
@given(agents)
def test_no_value_of_a_secret_is_packed(agent: Agent) -> None:
    """Names only, and nothing of what has no place."""
    with folder() as here:
        package = package_in(packed(agent.put(here / "agent"), ALL), ALL)
        assert package.unknown == []
        assert package.passed_over == []
        assert all(b"a-value-of-a-secret" not in content for content in contents(package).values())
        assert not package.found.warnings.keys() & {
            file.path for file in package.files if file.part == "secrets"
        }


@few
@given(makers)
def test_the_same_agent_is_the_same_bytes(maker: Maker) -> None:
    """Whatever order its folders list things in, and whenever they were written."""
    agent = maker.agent()

    def shuffled(paths: list[str]) -> list[str]:
        maker.random.shuffle(paths)
        return paths

    with folder() as here:
        one = agent.put(here / "one")
        other = agent.put(here / "other", shuffled)
        set_times(other, maker.random)
        assert packed(one, ALL) == packed(other, ALL)


@few
@given(agents, st.randoms(use_true_random=False))
def test_an_altered_byte_is_refused_or_changes_nothing(agent: Agent, random: Random) -> None:
    """What is read of an archive is what was packed, or it is not read."""
    for path, content in agent.files.items():
        if path.startswith("skills/"):
            agent.files[path] = content[:2000]  # headers are what is to be hit most
    with folder() as here:
        data = packed(agent.put(here / "agent"), ALL)
    expected = read(data)
    assert expected
    for _ in range(20):
        at = random.randrange(len(data))
        altered = bytearray(data)
        altered[at] ^= random.randrange(1, 256)
        assert read(bytes(altered)) in (None, expected)


def read(data: bytes) -> dict[str, bytes] | None:
    """The files of an archive, None where it is refused."""
    try:
        package = package_in(data, ALL)
        package.check()
        return contents(package)
    except Refusal:
        return None


@many
@given(st.sets(st.tuples(texts, texts), max_size=6))
@example({("x", "e\u0301"), ("x", "\u00e9"), ("x", "\u00c9")})
@example({("x", ".\u0301")})
@example({("/\u0307", "y")})
def test_a_chat_s_file_name_gives_its_names_back(chats: set[tuple[str, str]]) -> None:
    """Any channel and user; no two names are one on any disk, and none leads elsewhere."""
    names = session_files(sorted(chats))
    assert {chat: channel_and_user(composed(name), name) for chat, name in names.items()} == {
        chat: chat for chat in chats
    }
    assert len({caseless(name) for name in names.values()}) == len(chats)
    assert not any(set(name) & {"/", "\\", "\0"} or name.startswith(".") for name in names.values())


@many
@given(st.sets(st.one_of(st.sampled_from(["shared", "agent"]), texts.map("user-".__add__))))
@example({"user-\u0338", "user-shared", "shared"})
def test_a_scope_s_file_name_gives_it_back(scopes: set[str]) -> None:
    """Any user's, and the two that are the agent's own."""
    names = scope_files(sorted(scopes))
    assert {scope: scope_of(composed(name), name) for scope, name in names.items()} == {
        scope: scope for scope in scopes
    }
    assert len({caseless(name) for name in names.values()}) == len(scopes)
