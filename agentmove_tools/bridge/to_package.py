"""A Move Stream as an agent package: the package is the store at the receiving end.

A stream is held only as far as a package may be big; what it has no place for is looked at and not
held. No content of a credential is looked at or kept: its name is in its path. (Move Stream,
sections 1 to 3; Agent package, sections 1 to 3.)
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.bridge.crossing import Crossing
from agentmove_tools.bridge.identity import Identity, config_with, identity_in, tools_in
from agentmove_tools.bridge.places import AGENT_SECRETS, KEPT_CONFIG, kept_part
from agentmove_tools.bridge.skipping import holdable_lines
from agentmove_tools.bridge.threads import chat_of
from agentmove_tools.home.layout import (
    CONNECTIONS,
    CONVERSATIONS,
    HARNESS,
    INSTRUCTIONS,
    PACKAGE,
    SKILLS,
    THREAD,
    has_place,
    part_of,
)
from agentmove_tools.home.passing import hand_over
from agentmove_tools.large_json import LARGE
from agentmove_tools.package.contents import Package
from agentmove_tools.package.fields import json_text, wrong_shape
from agentmove_tools.package.layout import (
    CONFIG,
    CURATED,
    FIELDS,
    ON_REQUEST,
    SECRETS,
    SESSIONS,
    SOUL,
)
from agentmove_tools.package.limits import (
    MAX_ENTRIES,
    MAX_EVENTS,
    MAX_ID,
    MAX_NAME,
    MAX_SECRETS,
    MAX_UNPACKED,
)
from agentmove_tools.package.names import composed
from agentmove_tools.package.pack import pack
from agentmove_tools.package.secrets import read_names, secrets_text, written
from agentmove_tools.package.session_names import session_files
from agentmove_tools.package.sources import Item, MadeSource
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import COLLECTIONS, FOLDER, LINK, MANIFEST_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentmove_tools.bridge.identity import ChatKey, Tools
    from agentmove_tools.home.layout import Part
    from agentmove_tools.package.contents import Options
    from agentmove_tools.stream.manifest import Manifest
    from agentmove_tools.stream.paths import Collection
    from agentmove_tools.stream.tar_reader import Entry, MoveReader

_AROUND: Final = 16  # bytes around a name in the configuration, more than there can be
_MOST_FOLDERS: Final = 100_000  # that are remembered while nothing lies in them
_MOST_BYTES: Final = 16 << 20  # of their paths
_LONGEST_FIELD: Final = 80  # characters of a field's name that are told
_TOOLS_TOO_LONG: Final = "the settings of all threads together are over 1 MiB"
_NO_PLACE: Final[dict[Part, str]] = {
    "files": "a package holds none of the agent's own files",
    "memory": "a package holds no index of a memory engine",
    "jobs": "a package holds no schedule",
    "other": "it has no place in a Home",
}
_LAID_OUT: Final = (HARNESS, SKILLS, CONVERSATIONS, PACKAGE, CONNECTIONS)
_NO_SKILL: Final = "it lies in no folder with a SKILL.md, and is of no skill"
_NOT_KNOWN: Final = "a {} carries no connections: the names of these secrets are not known"


class Crossed(NamedTuple):
    """A package out of a stream, its archive in ``pieces``, and the report."""

    package: Package
    pieces: list[bytes]
    crossing: Crossing


def package_of(reader: MoveReader, options: Options, *, skip_events: bool = False) -> Crossed:
    """The package of the agent that a stream brings, complete or refused.

    ``options.strict``: what a package has no place for is refused. ``skip_events``: events that it
    cannot hold are left out. Raises ``Refusal``: as the reader does; as ``Package`` and ``pack``
    do, a limit of a package as it is passed, each with the stream's paths in the place of the
    package's; package-required and bridge-loss.
    """
    receiver = PackageReceiver(reader.manifest, options, skip_events=skip_events)
    hand_over(reader, receiver)
    receiver.complete(receiver.collections)
    return receiver.packed()


class PackageReceiver:
    """A package's receiver side (``CollectionReceiver``), and of what else a stream may bring."""

    def __init__(self, manifest: Manifest, options: Options, *, skip_events: bool = False) -> None:
        self.crossing = Crossing(manifest.agent)
        named = manifest.collections
        self.collections: tuple[Collection, ...] = COLLECTIONS if named is None else named
        self._manifest = manifest
        self._options = options
        self._skip_events = skip_events
        self._items: list[Item] = []
        # Where each file of the package comes from, which is what errors and reports name.
        self._origins: dict[str, bytes] = {}
        self._sessions: dict[ChatKey, tuple[bytes, list[bytes]]] = {}
        self._tools: dict[ChatKey, Tools] = {}
        self._connections: set[str] = set()
        self._config: list[bytes] | None = None
        # Folders in which nothing came so far: files/a is one until files/a/b/c comes.
        self._empty: OrderedDict[bytes, Part] = OrderedDict()
        self._empty_bytes = 0
        self._size = 0
        self._count = 0
        self._events = 0
        self._names_size = 0
        self._tools_size = 0

    # -- what comes

    def receive(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        """Take one entry.

        Raises ``Refusal``: package-unpacked-size, package-entries and field-json as a limit is
        passed; field-json and the like for settings of a thread and names of secrets; and what
        ``content`` raises.
        """
        part = part_of(entry.path)
        self._look_at_folders(entry, part)
        if entry.kind == FOLDER:
            return
        crossing = self.crossing
        unasked = self._unasked(part, entry)
        if unasked is not None:
            crossing.leave_out_unasked(entry.path, f"only with --with {unasked}")
            crossing.count(part, "passed_over")
            return
        why = self._why_not(part, entry) or self._take(part, entry, content)
        if why is not None:
            crossing.lose(entry.path, why)
        crossing.count(part, "written" if why is None else "passed_over")

    def _unasked(self, part: Part, entry: Entry) -> str | None:
        """What would have to be asked for so that this file is taken."""
        kept = kept_part(_place(entry.path)) if part == "package" else None
        return kept if kept in ON_REQUEST and kept not in self._options.wanted else None

    def _look_at_folders(self, entry: Entry, part: Part) -> None:
        """Remember folders while nothing lies in them, the last ones only where they are many."""
        above = entry.path.rpartition(b"/")[0]
        while self._empty and above:
            if self._empty.pop(above, None) is not None:
                self._empty_bytes -= len(above)
            above = above.rpartition(b"/")[0]
        if entry.kind != FOLDER or not entry.path.count(b"/") or entry.path in _LAID_OUT:
            return
        self._empty[entry.path] = part
        self._empty_bytes += len(entry.path)
        while len(self._empty) > _MOST_FOLDERS or self._empty_bytes > _MOST_BYTES:
            self._lose_first_folder()

    def _lose_first_folder(self) -> None:
        path, part = self._empty.popitem(last=False)
        self._empty_bytes -= len(path)
        self.crossing.lose(path, _NO_PLACE.get(part, "a package holds no empty folders"))

    def _why_not(self, part: Part, entry: Entry) -> str | None:
        """Why a package has no place for it, None where it may have one."""
        if not has_place(part, entry.path, entry.kind):
            return _NO_PLACE["other"]
        if part in COLLECTIONS and part not in self.collections:
            return f"the stream does not speak for {part}"
        why = _NO_PLACE.get(part)
        if why is None and entry.kind == LINK:
            why = "a package holds no symbolic links"
        if why is None and part == "package" and kept_part(_place(entry.path)) is None:
            why = "a package has no place for it, or another one"
        return why

    def _take(self, part: Part, entry: Entry, content: Iterable[bytes | memoryview]) -> str | None:
        """Take a file; why it, or something of it, cannot be taken."""
        path = entry.path.decode()
        if part == "conversations":
            return self._take_of_thread(entry, content)
        if part == "connections":
            return self._take_connection(path)
        if part == "instructions":
            self._add(SOUL, entry, content)
        elif part == "notes":
            self._add(CURATED, entry, content)
        elif part == "skills":
            self._add(path.removeprefix("harness/"), entry, content)
        elif entry.path == KEPT_CONFIG:
            self._config = self._hold(entry, content)
            self._origins[CONFIG] = entry.path
        else:
            self._add(_place(entry.path), entry, content)
        return None

    def _take_connection(self, path: str) -> str | None:
        name = path[len(CONNECTIONS) + 1 :].removesuffix(".json")
        if not name or not path.endswith(".json"):
            return "a connection is a .json file with a name"
        self._names_size += len(name.encode())
        if self._names_size > MAX_SECRETS:
            why = f"the names of all connections are longer than {MAX_SECRETS >> 20} MiB"
            raise wrong_shape(path, FIELDS["secrets"], why)
        self._connections.add(name)
        return None

    def _take_of_thread(self, entry: Entry, content: Iterable[bytes | memoryview]) -> str | None:
        folder, _, name = entry.path.rpartition(b"/")
        chat = chat_of(folder[len(CONVERSATIONS) + 1 :].decode())
        if name != THREAD:
            self._sessions[chat] = (entry.path, self._hold_events(entry, content))
            return None
        path = entry.path.decode()
        if entry.size > LARGE:
            raise wrong_shape(path, "thread", "a thread's settings are over 1 MiB")
        tools, is_all = tools_in(b"".join(bytes(piece) for piece in content), path)
        if tools is not None:
            self._tools_size += sum(_AROUND + len(tool.encode()) for tool in (*tools, *chat))
            if self._tools_size > LARGE:
                raise wrong_shape(path, "thread.tools", _TOOLS_TOO_LONG)
            self._tools[chat] = tools
        if is_all:
            return None
        return "of a thread's settings, a package holds a list of tools' names, and nothing else"

    def _add(self, path: str, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        place = composed(path)
        if place != path:
            self.crossing.lose(entry.path, "its name is put into Unicode's composed form")
        self._origins.setdefault(place, entry.path)
        pieces = tuple(self._hold(entry, content))
        if place.startswith(SECRETS):
            self._look_for_values(place, entry.path, pieces)
        executable = entry.mode & 0o111 != 0
        self._items.append(Item(place, executable, entry.size, lambda: pieces))

    def _look_for_values(self, place: str, path: bytes, pieces: tuple[bytes, ...]) -> None:
        with self._as_of_stream():
            count = len(read_names(secrets_text(pieces, place), place).entered)
        if count:
            values = "its value is" if count == 1 else f"its {count} values are"
            self.crossing.lose(path, f"{values} left out: a package holds only names")

    def _hold(self, entry: Entry, content: Iterable[bytes | memoryview]) -> list[bytes]:
        """Hold a content, within the limits of a package."""
        self._count_file(entry)
        self._count_bytes(entry, entry.size)
        return [bytes(piece) for piece in content]

    def _hold_events(self, entry: Entry, content: Iterable[bytes | memoryview]) -> list[bytes]:
        """Hold a conversation; only what a package can hold of it, where that is asked for."""
        self._count_file(entry)
        pieces: Iterable[bytes] = (bytes(piece) for piece in content)
        if self._skip_events:
            skip = partial(self.crossing.skip_event, entry.path)
            pieces = holdable_lines(pieces, entry.path.decode(), skip)
        else:
            self._count_bytes(entry, entry.size)
        held: list[bytes] = []
        for piece in pieces:
            if self._skip_events:
                self._count_bytes(entry, len(piece))
            self._events += piece.count(b"\n")
            if self._events > MAX_EVENTS:
                why = f"there are more than {MAX_EVENTS} events"
                raise Refusal("package-entries", why, path=entry.path)
            held.append(piece)
        return held

    def _count_file(self, entry: Entry) -> None:
        self._count += 1
        if self._count > MAX_ENTRIES:
            why = f"the stream has more than {MAX_ENTRIES} files for a package"
            raise Refusal("package-entries", why, path=entry.path)

    def _count_bytes(self, entry: Entry, size: int) -> None:
        self._size += size
        if self._size > MAX_UNPACKED:
            raise Refusal("package-unpacked-size", path=entry.path)

    # -- the end

    def complete(self, collections: Iterable[str]) -> None:
        """Put together what many entries bring, of the collections that the stream speaks for.

        The package is then there for ``packed``. Raises ``Refusal``: package-required; field-json
        and the like for the manifest and the configuration.
        """
        while self._empty:
            self._lose_first_folder()
        names = session_files(self._sessions)
        for chat, (path, lines) in self._sessions.items():
            self._put(SESSIONS + names[chat], path, tuple(lines))
        if self._connections:
            self._put(AGENT_SECRETS, CONNECTIONS, (written(self._connections),))
        elif self._manifest.phase != "switch":
            self.crossing.notes.append(_NOT_KNOWN.format(self._manifest.phase))
        if SOUL not in self._origins:
            why = f"the stream does not bring it, and a package has it as its {SOUL}"
            raise Refusal("package-required", why, path=INSTRUCTIONS)
        _check_manifest(self._manifest)
        with self._as_of_stream():
            text = self._config_text(speaks_for_threads="conversations" in collections)
        self._put(CONFIG, MANIFEST_NAME, (text,))

    def _put(self, path: str, origin: bytes, content: tuple[bytes, ...]) -> None:
        self._items.append(Item(path, False, sum(map(len, content)), lambda: content))
        self._origins.setdefault(path, origin)

    def _config_text(self, *, speaks_for_threads: bool) -> bytes:
        manifest = self._manifest
        agent = manifest.agent
        identity = Identity(
            id=agent.id,
            name=agent.name or agent.id,
            harness=manifest.harness,
            owner=agent.owner,
            tools=self._tools if speaks_for_threads else None,
        )
        came = (b"{}",) if self._config is None else self._config
        text = config_with(json_text(came, CONFIG, FIELDS["config"]), identity)
        said = identity_in(text)
        if said.harness != identity.harness:
            self._lose_field("harness")
        if said.owner != identity.owner:
            self._lose_field("agent.owner")
        for name in manifest.unknown:
            self._lose_field(name)
        for name in manifest.unknown_of_agent:
            self._lose_field(f"agent.{name}")
        return text

    def _lose_field(self, name: str) -> None:
        short = name if len(name) <= _LONGEST_FIELD else f"{name[:_LONGEST_FIELD]}..."
        self.crossing.lose(MANIFEST_NAME, f"a package has no place for its field {short!r}")

    def packed(self) -> Crossed:
        """The package of what came, and its archive. Raises ``Refusal`` as ``package_of``."""
        crossing = self.crossing
        with self._as_of_stream():
            # what has no place is told here, and refused, by the stream's paths
            package = Package(MadeSource(self._items), self._options._replace(strict=False))
            for path in package.unknown:
                self._left_out(path, _NO_SKILL)
            for each in package.passed_over:
                self._left_out(each.path, each.why)
            pieces = pack(package)
        crossing.take_from(package.found, self._origins.__getitem__)
        if self._options.strict:
            crossing.check_nothing_lost()
        return Crossed(package, pieces, crossing)

    def _left_out(self, path: str, why: str) -> None:
        origin = self._origins[path]
        self.crossing.lose(origin, why)
        self.crossing.count_as_passed_over(part_of(origin))

    @contextmanager
    def _as_of_stream(self) -> Iterator[None]:
        """Let refusals name the stream's paths, which are what the reader of an error knows."""
        try:
            yield
        except Refusal as refusal:
            origin = self._origins.get(str(refusal.details.get("path")))
            if origin is None:
                raise
            raise refusal.of(origin) from None


def _place(path: bytes) -> str:
    """Where in a package a file below ``harness/package/`` belongs."""
    return path[len(PACKAGE) + 1 :].decode()


def _check_manifest(manifest: Manifest) -> None:
    """Refuse (field-nul, field-json) an agent that no configuration can name."""
    agent = manifest.agent
    path = MANIFEST_NAME.decode()
    named = {"agent.id": agent.id, "agent.name": agent.name, "agent.owner": agent.owner}
    for field, value in {**named, "harness": manifest.harness}.items():
        if "\0" in (value or ""):
            raise Refusal("field-nul", path=MANIFEST_NAME, field=field)
        if len(value or "") > MAX_NAME:
            raise wrong_shape(path, field, f"{field} is over {MAX_NAME} characters long")
    if len(agent.id.encode()) > MAX_ID:
        raise wrong_shape(path, "agent.id", f"the agent's ID is longer than {MAX_ID} bytes")
