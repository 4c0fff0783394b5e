"""Strategies for Homes of every shape, and for what an agent may do to one between two phases."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

from hypothesis import strategies as st

from tests.home.builder import File, Folder, Link, Thing, event_lines, one_form, put, take_away

# Few of them, so that two trees of one Home often have something at the same path.
_COMMON: Final = ("a", "b", "a-b", "a.b", "a b", "A", "notes.md", "events.jsonl")
_ODD: Final = ("\n", "-rf", "\\", " ", "...", "e\u0301", "\u00e9", "\u202e", "\x01", "*")
_PLAIN: Final = ("main", "side", "x y", "\u00fc", "a", "a-b")
# Names of which no disk takes two for one, and that a package can hold.
_OF_SKILLS: Final = ("s", "a b", "-rf", "...", "\u00fc", "\u202e", "x*", "\x01", "%2F", "Y")
# Threads, with such as are hard to tell apart at the other side.
_THREADS: Final = (
    *("main", "Main", "thread:main", "thread:thread:main", "telegram:u42", "Telegram:u42"),
    *("a%3Ab:x%2Fy", "a%253Ab:x%252Fy", "%2F", ":", "a:", ":a", "u.jsonl", "t:u.jsonl", "t:u"),
    *("\u00e9", "e\u0301", "t:e\u0301", "...", "-rf", "\n", "x\\y:\\"),
)
_MODES: Final = (0o644, 0o600, 0o755, 0o400, 0o666)


@dataclass(frozen=True)
class Climbing:
    """A link whose target starts with up to ``ups`` times ``..``, as many as stay inside."""

    ups: int
    target: str


Leaf: TypeAlias = File | Climbing
Node: TypeAlias = "Leaf | dict[str, Node]"
Tree: TypeAlias = dict[str, Node]
Conversations: TypeAlias = dict[str, tuple[object, ...]]


@dataclass(frozen=True)
class Parts:
    """A Home's parts."""

    files: Tree = field(default_factory=dict)
    memory: Tree = field(default_factory=dict)
    skills: Tree = field(default_factory=dict)
    package: Tree = field(default_factory=dict)
    notes: bytes | None = None
    instructions: bytes | None = None
    conversations: Conversations = field(default_factory=dict)
    threads: dict[str, bytes] = field(default_factory=dict)
    connections: dict[str, bytes] = field(default_factory=dict)
    jobs: dict[str, object] = field(default_factory=dict)
    day: tuple[str, int] | None = None

    def things(self) -> dict[bytes, Thing]:
        """All of it by path, folders before what is in them."""
        found: dict[bytes, Thing] = {}
        for top, tree, link_depth in (
            ("files", self.files, 1),
            ("memory", self.memory, 2),
            ("harness/skills", self.skills, 3),
            ("harness/package", self.package, 99),
        ):
            _flatten(top.encode(), tree, link_depth, found)
        if self.notes is not None:
            found[b"memory/notes.md"] = self.notes
        if self.instructions is not None:
            found[b"harness/instructions.md"] = self.instructions
        for thread, events in self.conversations.items():
            found[f"harness/conversations/{thread}/events.jsonl".encode()] = event_lines(events)
        for thread, settings in self.threads.items():
            found[f"harness/conversations/{thread}/thread.json".encode()] = settings
        for name, secret in self.connections.items():
            found[f"connections/{name}.json".encode()] = File(secret, 0o600)
        for place_and_id, job in self.jobs.items():
            found[f"schedule/{place_and_id}.json".encode()] = one_form(job)
        if self.day is not None:
            found[b"schedule/day.json"] = one_form(self.day)
        return found


def _flatten(path: bytes, tree: Tree, link_depth: int, found: dict[bytes, Thing]) -> None:
    found[path] = Folder()
    for name, node in tree.items():
        below = path + b"/" + name.encode()
        if below == b"memory/notes.md":
            continue  # the notes are a part of their own
        if isinstance(node, dict):
            _flatten(below, node, link_depth, found)
        elif isinstance(node, File):
            found[below] = node
        else:
            depth = below.count(b"/")
            if depth >= link_depth:
                ups = min(node.ups, depth - link_depth)
                found[below] = Link(b"../" * ups + node.target.encode())


class Chance:
    """Draws Homes. ``size`` bounds how much is in one, and is what a failure is shrunk by.

    Hypothesis draws the seed and the size only: to let it draw each name takes far longer than
    the moves do.
    """

    def __init__(self, seed: int, size: int) -> None:
        self._random = Random(seed)
        self._size = size

    def name(self) -> str:
        """The name of a file or folder."""
        kind = self._random.randrange(8)
        if kind < 4:
            return self._random.choice(_COMMON)
        if kind < 7:
            return self._random.choice(_ODD)
        return self.text() or "x"

    def text(self) -> str:
        """A few characters of any script, controls among them."""
        count = self._random.randrange(9)
        text = "".join(
            chr(self._random.randrange(*self._random.choice(_RANGES))) for _ in range(count)
        )
        return text.replace("/", "_").replace("\0", "_").strip(".")

    def data(self) -> bytes:
        """Some content, often the same, so that files can be mistaken for each other."""
        return self._random.choice(
            (b"", b"a", b"b", b"a\n", self._random.randbytes(self._random.randrange(2000)))
        )

    def file(self) -> File:
        return File(self.data(), self._random.choice(_MODES))

    def node(self, depth: int) -> Node:
        """A file, a link, or a folder, which may be empty."""
        kind = self._random.randrange(10)
        if kind < 5:
            return self.file()
        if kind < 7:
            return Climbing(self._random.randrange(4), self.name())
        return self.tree(depth + 1) if depth < 4 else {}

    def tree(self, depth: int = 0) -> Tree:
        """What is in a folder."""
        count = self._random.randrange(self._size + 1) if depth < 4 else 0
        return {self.name(): self.node(depth) for _ in range(count)}

    def value(self, depth: int = 0) -> object:
        """A JSON value."""
        kind = self._random.randrange(8 if depth < 3 else 6)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self._random.randrange(3))]
        if kind == 7:
            return {self.text(): self.value(depth + 1) for _ in range(self._random.randrange(3))}
        return self._random.choice((None, True, -1, 10**20, 0.5, 1.25, self.text(), self.text()))

    def events(self) -> tuple[object, ...]:
        return tuple(self.value() for _ in range(self._random.randrange(self._size)))

    def some(self, most: int) -> list[str]:
        """A few plain names."""
        return self._random.sample(_PLAIN, self._random.randrange(min(most, self._size) + 1))

    def maybe(self) -> bytes | None:
        return self.data() if self._random.random() < 0.6 else None

    def parts(self) -> Parts:
        """A whole Home."""
        places = ("waiting", "firing", "ending")
        jobs = {name: self._random.choice(places) for name in self.some(3)}
        return Parts(
            files=self.tree(),
            memory=self.tree(),
            skills={self.name(): self.tree(1) for _ in range(self._random.randrange(3))},
            package=self.tree(2),
            notes=self.maybe(),
            instructions=self.maybe(),
            conversations={name: self.events() for name in self.some(3)},
            threads={name: self.data() for name in self.some(2)},
            connections={name: self.data() for name in self.some(2)},
            jobs={f"{place}/{n}": {"id": n, "v": self.value()} for n, place in jobs.items()},
            day=("2026-01-01", 2) if self._random.random() < 0.5 else None,
        )

    # -- Homes that a package can be made of

    def line(self) -> bytes:
        """Some text."""
        return self.text().encode() + b"\n"

    def agent_parts(self) -> Parts:
        """A whole Home that a package can be made of, though not of all that is in it."""
        return replace(
            self.parts(),
            skills={name: self._skill() for name in self._sample(_OF_SKILLS)},
            package=self._package(),
            notes=self.line() if self._random.random() < 0.6 else None,
            instructions=self.line(),
            conversations={name: self._agent_events() for name in self._sample(_THREADS)},
            threads={name: self._settings() for name in self._sample(_THREADS)},
        )

    def _sample(self, names: Sequence[str]) -> list[str]:
        return self._random.sample(names, self._random.randrange(min(4, self._size) + 1))

    def _skill(self) -> Tree:
        skill: Tree = {name: self.node(3) for name in self._sample(_OF_SKILLS)}
        skill = {n: what for n, what in skill.items() if isinstance(what, File | Climbing)}
        skill["lib"] = {name: self.file() for name in self._sample(_OF_SKILLS)}
        if self._random.random() < 0.8:
            head = self._random.choice((b"", b"---\nname: x\n---\n"))
            skill["SKILL.md"] = File(head + self.line())
        return skill

    def _package(self) -> Tree:
        texts: Tree = {f"{name}.md": File(self.line()) for name in self._sample(_OF_SKILLS)}
        names = one_form([self.text() or "A"])
        tree: Tree = {
            **self.tree(3),
            "USER.md": File(self.line()),
            "memory": texts,
            "data": {"access.json": File(b"{ }"), "secrets": {"user-u.json": File(names)}},
            "agent.config.json": File(self._config()),
        }
        return {name: what for name, what in tree.items() if self._random.random() < 0.6}

    def _config(self) -> bytes:
        members: dict[str, object] = {
            "id": self.text() or "x",
            "name": self.text(),
            "harness": self._random.choice(("claude", 7, None, self.text())),
            "owner": self._random.choice(("Olga", {}, None, self.text())),
            "runtimeProfile": "claude",
            "threads": self._random.choice(
                ({"a:b": {"tools": ["x"], "y": 1}, "thread:main": {"tools": []}}, {}, None)
            ),
            "x" + self.text(): self.value(),
        }
        kept = {name: each for name, each in members.items() if self._random.random() < 0.6}
        return json.dumps(kept, indent=self._random.choice((None, 1))).encode()

    def _agent_events(self) -> tuple[object, ...]:
        return tuple(
            {
                "id": f"{self.text()}{number}",
                "type": self._random.choice(("user", "assistant", "tool_call", "summary")),
                "ts": self._random.choice((0, -5, 1_700_000_000_000)),
                "data": {self.text(): self.value()},
            }
            for number in range(self._random.randrange(self._size))
        )

    def _settings(self) -> bytes:
        tools = [self.text() for _ in range(self._random.randrange(3))]
        return self._random.choice(
            (
                *(json.dumps({"tools": tools}, indent=1).encode(),) * 3,
                one_form({"tools": tools, "color": 1}),
                b"{}",
                one_form({"color": 1}),
            )
        )

    # -- what becomes of a Home

    def edited_tree(self, tree: Tree) -> Tree:
        """A tree after some time: things kept, taken away, replaced by another kind, added."""
        result: Tree = {}
        for name, node in tree.items():
            change = self._random.randrange(8)
            if change == 0:
                continue
            if change == 1:
                result[name] = self.node(1)
            elif change == 2 and isinstance(node, File):
                result[name] = replace(node, mode=self._random.choice(_MODES))
            elif isinstance(node, dict):
                result[name] = self.edited_tree(node)
            else:
                result[name] = node
        if self._random.random() < 0.5:
            result.update(self.tree(2))
        return result

    def edited(self, before: Parts, *, append_only: bool) -> Parts:
        """A Home after some time; its conversations grew, or were cut (not ``append_only``)."""
        after = self.parts()
        conversations: Conversations = {}
        for thread, events in before.conversations.items():
            if append_only:
                conversations[thread] = events + self.events()
            elif self._random.random() < 0.7:
                conversations[thread] = events[: self._random.randrange(len(events) + 1)]
        if append_only:
            conversations = {**after.conversations, **conversations}
        return replace(
            after,
            files=self.edited_tree(before.files),
            memory=self.edited_tree(before.memory),
            conversations=conversations,
        )


_RANGES: Final = ((1, 128), (0x80, 0xD800), (0xE000, 0x110000))

chances = st.builds(Chance, st.integers(0, 2**32 - 1), st.integers(1, 6))


def bring(folder: Path, before: Mapping[bytes, Thing], after: Mapping[bytes, Thing]) -> None:
    """Change the Home from one to the other as an agent would, touching what differs only."""
    root = os.fsencode(folder)
    for path in sorted(before, reverse=True):
        wanted = after.get(path)
        if wanted is None or isinstance(wanted, Folder) != isinstance(before[path], Folder):
            take_away(root + b"/" + path)
    for path in sorted(after):
        if before.get(path) != after[path]:
            put(root, path, after[path])
