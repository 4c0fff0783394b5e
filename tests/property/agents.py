"""A strategy for agents' folders of every shape."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from hypothesis import strategies as st

from agentmove_tools.package.names import caseless, composed
from agentmove_tools.package.session_names import channel_and_user, scope_of

# Few of them, so that names often differ only in case or Unicode form.
_COMMON: Final = ("a", "A", "b", "bob", "Bob", "notes", "x y", "\u00e9", "e\u0301", "\u00c9")
_ODD: Final = (
    "-rf",
    " ",
    "...",
    "%",
    "%41",
    "%2e",
    "a:b",
    ":",
    "\n",
    "\u202e",
    "*",
    ".x",
    "\u212a",
)
_COMBINING: Final = ("\u0301", "\u0323", "\u0307", "\u0338")
_RANGES: Final = ((1, 128), (0x80, 0x250), (0x300, 0x370), (0x1F00, 0x2200), (0x1F600, 0x1F650))
_CHANNELS: Final = ("telegram", "matrix", "Matrix", "a:b", "..", "\u00e9")
_TYPES: Final = ("user", "assistant", "tool_call", "tool_result", "summary")
_MARK: Final = "a-value-of-a-secret"

_Thing = TypeVar("_Thing")


@dataclass
class Agent:
    """An agent's folder.

    ``files``: its content by path, as it lies on the disk; ``runnable`` are those with an x bit.
    ``verbatim``: those that come back byte for byte. ``events``: each chat's, in their order.
    ``secrets``: names by scope. ``left_out``: paths that no package takes.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    runnable: set[str] = field(default_factory=set)
    verbatim: dict[str, bytes] = field(default_factory=dict)
    events: dict[tuple[str, str], list[object]] = field(default_factory=dict)
    secrets: dict[str, set[str]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)

    def put(self, folder: Path, order: Callable[[list[str]], Iterable[str]] = sorted) -> Path:
        """Write it below a folder, which is made, its files in this order."""
        folder.mkdir(parents=True)
        for path in order(list(self.files)):
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.files[path])
            file.chmod(0o755 if path in self.runnable else 0o644)
        return folder


class Maker:
    """Makes an agent of a random number generator's choices."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self._size = size

    def _some(self, make: Callable[[], _Thing], most: int = 3) -> list[_Thing]:
        return [make() for _ in range(self.random.randrange(min(most, self._size) + 1))]

    def text(self, most: int = 5) -> str:
        """A few characters of any script, no NUL among them."""
        count = self.random.randrange(most + 1)
        return "".join(
            chr(self.random.randrange(*self.random.choice(_RANGES))) for _ in range(count)
        )

    def name(self) -> str:
        """What a file may be called."""
        name = self._word().replace("/", "_").replace("\\", "_")
        return name if name.strip(".") else "_" + name

    def _word(self) -> str:
        kind = self.random.randrange(10)
        if kind < 5:
            return self.random.choice(_COMMON)
        if kind < 7:
            return self.random.choice(_ODD)
        if kind < 8:
            return self.random.choice("./\\%\x1dAJe") + self.random.choice(_COMBINING)
        return self.text() or "x"

    def _spelled(self, text: str) -> str:
        """A part of a session's file name: encoded where it must be, and here and there."""
        must_be = "/\\%"
        spelled = "".join(
            self._percent(c)
            if c in must_be or (at == 0 and c == ".") or self.random.random() < 0.2
            else c
            for at, c in enumerate(text)
        )
        # An accent would go to the last digit of what is encoded before it.
        if spelled != text and composed(spelled) != spelled:
            return self._percent(text)
        return spelled

    def _percent(self, text: str) -> str:
        digits = self.random.choice(("%%%02x", "%%%02X"))
        return "".join(digits % byte for byte in text.encode())

    def content(self) -> bytes:
        """The bytes of a text, often short."""
        lines = self._some(lambda: self.text(30))
        return self.random.choice(("\n", "\r\n")).join(lines).encode() + b"\n" * len(lines)

    def value(self, depth: int = 0) -> object:
        """A JSON value."""
        kind = self.random.randrange(8 if depth < 3 else 6)
        if kind == 6:
            return self._some(lambda: self.value(depth + 1))
        if kind == 7:
            return {self.text(): self.value(depth + 1) for _ in range(self.random.randrange(3))}
        return self.random.choice(
            (None, True, -1, 10**20, 0.5, 1e-7, self.text(), "\u2028 \\u0000")
        )

    def json(self, value: object) -> bytes:
        """A value as somebody may have written it."""
        indent = self.random.choice((None, None, 1))
        return json.dumps(value, ensure_ascii=self.random.random() < 0.5, indent=indent).encode()

    def event(self, number: int) -> dict[str, object]:
        members: list[tuple[str, object]] = [
            ("id", f"{self.text()}{number}"),
            ("type", self.random.choice(_TYPES)),
            ("ts", self.random.choice((0, -5, 1_700_000_000_000 + self.random.randrange(9)))),
            ("data", {self.text(): self.value() for _ in range(self.random.randrange(3))}),
            *(("x" + self.text(), self.value()) for _ in range(self.random.randrange(2))),
        ]
        self.random.shuffle(members)
        return dict(members)

    def agent(self) -> Agent:
        """A whole agent."""
        agent = Agent()
        config = {"x": self.value(), "id": "agent-" + self.text(), "name": self.text()}
        self._keep(agent, "SOUL.md", self.content())
        self._keep(agent, "agent.config.json", self.json(config))
        for path in ("USER.md", "HEARTBEAT.md", "MEMORY.md"):
            if self.random.random() < 0.5:
                self._keep(agent, path, self.content())
        for path in ("data/access.json", "data/usage.json"):
            if self.random.random() < 0.5:
                self._keep(agent, path, self.json({"t:u": self.value()}))
        for name in self._names():
            self._keep(agent, f"browser-state/{name}.json", self.json(self.value()))
        for name in (*self._names(), *self._some(self._day, 1)):
            self._keep(agent, f"memory/{name}.md", self.content())
        for folder in self._names():
            self._keep(agent, f"memory/in {folder}/a.md", self.content())
        self._put_skills(agent)
        self._put_sessions(agent)
        self._put_secrets(agent)
        self._put_rest(agent)
        return agent

    def with_threads(self, agent: Agent) -> Agent:
        """The agent, with more in its configuration of what a Home says elsewhere."""
        chats = [":".join(map(quoted, chat)) for chat in agent.events]
        keys = [*chats, "thread:main", "thread:u.jsonl", "a%3Ab:%40u", "nobody", ":", "a:%FF"]
        settings: tuple[object, ...] = ({"tools": ["b", "a"]}, {"tools": []}, {}, {"x": 1}, 1)
        members: dict[str, object] = {
            "harness": self.random.choice(("claude", "", None, 7, self.text())),
            "owner": self.random.choice(("Olga", "", None, [], self.text())),
            "runtimeProfile": self.random.choice(("p", None, "")),
            "threads": {
                key: self.random.choice(settings)
                for key in self.random.sample(keys, self.random.randrange(len(keys)))
            },
        }
        config = json.loads(agent.files["agent.config.json"])
        config |= {name: each for name, each in members.items() if self.random.random() < 0.7}
        self._keep(agent, "agent.config.json", self.json(config))
        for name in ("main", "thread:main", "%2e"):
            if self.random.random() < 0.3:
                self._keep(agent, f"data/sessions/thread:{name}.jsonl", b"")
        return agent

    def _names(self) -> list[str]:
        """Names of which no disk takes two for one."""
        return list({caseless(name): name for name in self._some(self.name)}.values())

    def _day(self) -> str:
        return f"2026-0{self.random.randrange(1, 10)}-1{self.random.randrange(10)}-slug"

    def _keep(self, agent: Agent, path: str, content: bytes) -> None:
        agent.files[path] = content
        agent.verbatim[composed(path)] = content

    def _put_skills(self, agent: Agent) -> None:
        for name in self._names():
            folder = self.random.choice((f"skills/s {name}", f"skills/group/{name}"))
            head = "---\nname: x\n---\n" if self.random.random() < 0.5 else ""
            self._keep(agent, f"{folder}/SKILL.md", head.encode() + self.content())
            for asset in self._names():
                path = f"{folder}/{self.random.choice(('', 'lib/'))}a {asset}"
                size = self.random.choice((0, 10, 1000, 1000, 1_100_000))
                self._keep(agent, path, self.random.randbytes(size))
                if self.random.random() < 0.5:
                    agent.runnable.add(path)

    def _put_sessions(self, agent: Agent) -> None:
        for _ in range(self.random.randrange(self._size + 1)):
            channel = self.random.choice(_CHANNELS).replace(":", "%3A")
            user = self._word()
            name = f"{self._spelled_channel(channel)}:{self._spelled(user)}.jsonl"
            chat = channel_and_user(composed(name), name)
            if chat in agent.events:
                continue
            events: list[object] = [self.event(n) for n in range(self.random.randrange(4))]
            lines = [self.json_line(event) for event in events]
            if lines and self.random.random() < 0.3:
                lines.append(self.json_line(self.random.choice(events)))  # it counts once
            text = b"\n".join(lines)
            if lines and self.random.random() < 0.7:
                text += b"\n"
            agent.files[f"data/sessions/{name}"] = text
            agent.events[chat] = events

    def _spelled_channel(self, channel: str) -> str:
        return channel if "%" in channel else self._spelled(channel)

    def json_line(self, value: object) -> bytes:
        """An event's line, as somebody may have written it."""
        return json.dumps(value, ensure_ascii=self.random.random() < 0.5).encode()

    def _put_secrets(self, agent: Agent) -> None:
        for _ in range(self.random.randrange(self._size + 1)):
            stem = self.random.choice(("shared", "agent", "user-", "u "))
            if stem in ("user-", "u "):
                stem += self._spelled(self._word())
            path = f"data/secrets/{stem}.json"
            if path in agent.files:
                continue
            names = {self.text() or "A" for _ in range(self.random.randrange(4))} - {"pendingKeys"}
            forms: tuple[object, ...] = (
                dict.fromkeys(names, _MARK),
                sorted(names),
                {"pendingKeys": sorted(names)},
                {**dict.fromkeys(sorted(names)[:1], (_MARK,)), "pendingKeys": sorted(names)[1:]},
            )
            agent.files[path] = self.json(self.random.choice(forms))
            scope = scope_of(composed(f"{stem}.json"), path)
            agent.secrets.setdefault(scope, set()).update(names)

    def _put_rest(self, agent: Agent) -> None:
        rest = ["AGENTS.md", "data/memory.sqlite", "notes/x", ".DS_Store", "memory/a.txt", "data/x"]
        for path in self.random.sample(rest, self.random.randrange(len(rest))):
            agent.files[path] = b"left out"
            agent.left_out.add(path)


def quoted(text: str) -> str:
    """A part of a chat's name, all of it percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in text.encode())


makers = st.builds(Maker, st.integers(0, 2**32 - 1), st.integers(1, 5))
agents = makers.map(Maker.agent)


def set_times(folder: Path, random: Random) -> None:
    """Give everything in a folder another time."""
    for path in folder.rglob("*"):
        os.utime(path, (random.randrange(2**31), random.randrange(2**31)))
