"""Strategies for Homes of every shape, and for what an agent may do to one between two phases."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from hypothesis import strategies as st

from tests.home.builder import File, Folder, Link, Thing, event_lines, one_form, put, take_away

# Few of them, so that two trees of one Home often have something at the same path.
_COMMON: Final = ("a", "b", "a-b", "a.b", "a b", "A", "notes.md", "events.jsonl")
_ODD: Final = ("\n", "-rf", "\\", " ", "...", "e\u0301", "\u00e9", "\u202e", "\x01", "*", "\U0001f600")
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


names = st.one_of(
    st.sampled_from(_COMMON),
    st.sampled_from(_ODD),
    st.text(
        st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=9
    ).filter(lambda name: name not in (".", "..")),
)
plain_names = st.sampled_from(("main", "side", "x y", "\u00fc", "a", "a-b"))
leaves = st.one_of(
    st.builds(File, st.binary(max_size=40), st.sampled_from(_MODES)),
    st.builds(Climbing, st.integers(0, 3), names),
)


def _folders(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.dictionaries(names, children, max_size=4)


_nodes: st.SearchStrategy[Node] = st.recursive(leaves, _folders, max_leaves=10)
trees: st.SearchStrategy[Tree] = st.dictionaries(names, _nodes, max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    .map(lambda number: round(number, 3) if abs(number) < 1e9 else 0.5)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    lambda children: st.lists(children, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=4), children,
                      max_size=3),
    max_leaves=5,
)
_events = st.lists(values, max_size=4).map(tuple)
_jobs = st.dictionaries(
    st.tuples(st.sampled_from(("waiting", "firing", "ending")), plain_names), values, max_size=3
).map(
    lambda jobs: {
        f"{place}/{name}": {"id": name, "what": value} for (place, name), value in jobs.items()
    }
)

parts: st.SearchStrategy[Parts] = st.builds(
    Parts,
    files=trees,
    memory=trees,
    skills=st.dictionaries(names, st.dictionaries(names, _nodes, max_size=3), max_size=2),
    package=trees,
    notes=st.none() | st.binary(max_size=20),
    instructions=st.none() | st.binary(max_size=20),
    conversations=st.dictionaries(plain_names, _events, max_size=3),
    threads=st.dictionaries(plain_names, st.just(b"{}") | st.binary(max_size=9), max_size=2),
    connections=st.dictionaries(plain_names, st.binary(max_size=20), max_size=2),
    jobs=_jobs,
    day=st.none() | st.tuples(st.text("0123456789-", max_size=10), st.integers(0, 99)),
)


@st.composite
def edited_trees(draw: Callable[[st.SearchStrategy[object]], object], tree: Tree) -> Tree:
    """A tree after some time: things kept, taken away, changed in kind, put beside, gone into."""
    result: Tree = {}
    for name, node in tree.items():
        change = draw(st.sampled_from(("keep", "keep", "keep", "remove", "replace", "mode", "go in")))
        if change == "keep" or (change == "go in" and not isinstance(node, dict)):
            result[name] = node
        elif change == "mode" and isinstance(node, File):
            result[name] = replace(node, mode=draw(st.sampled_from(_MODES)))  # type: ignore[arg-type]
        elif change == "go in" and isinstance(node, dict):
            result[name] = draw(edited_trees(node))  # type: ignore[assignment]
        elif change != "remove":
            result[name] = draw(_nodes)  # type: ignore[assignment]
    more = draw(trees)
    assert isinstance(more, dict)
    if draw(st.booleans()):
        result.update(more)
    return result


@st.composite
def edited(
    draw: Callable[[st.SearchStrategy[object]], object], before: Parts, *, append_only: bool
) -> Parts:
    """A Home after some time. Its conversations only grew, or (not ``append_only``) are cut too."""
    after = draw(parts)
    assert isinstance(after, Parts)
    conversations: Conversations = {}
    for thread, events in before.conversations.items():
        more = draw(_events)
        assert isinstance(more, tuple)
        if append_only:
            conversations[thread] = events + more
        elif draw(st.booleans()):
            count = draw(st.integers(0, len(events)))
            assert isinstance(count, int)
            conversations[thread] = events[:count]
    for thread, events in after.conversations.items():
        if append_only:
            conversations.setdefault(thread, events)
    files, memory = draw(edited_trees(before.files)), draw(edited_trees(before.memory))
    return replace(after, files=files, memory=memory, conversations=conversations)


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
