"""What a package holds: the one place where it is checked, be it read or made (section 1).

A source's files become parts, under the paths that a written package has. Each part is checked as
its content is read, and only then is known what it says: ``Package`` keeps that for the report.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.json_values import form_of
from agentmove_tools.large_json import LARGE, names_in
from agentmove_tools.package.events import Budget, Chat, Event, read_events
from agentmove_tools.package.fields import (
    checked_text,
    json_text,
    json_value,
    member,
    too_long,
    wrong_shape,
)
from agentmove_tools.package.front_matter import HEAD, FrontMatter, read_front_matter
from agentmove_tools.package.layout import (
    FIELDS,
    OF_HOME,
    ON_REQUEST,
    PASSED_OVER,
    REQUIRED,
    SECRETS,
    SESSIONS,
    Layout,
    Part,
    memory_date,
)
from agentmove_tools.package.limits import MAX_ID, MAX_NAMES, MAX_SECRETS
from agentmove_tools.package.names import Paths, check_path
from agentmove_tools.package.secrets import read_names, secrets_text, written
from agentmove_tools.package.session_names import (
    channel_and_user,
    scope_files,
    scope_of,
    session_files,
)
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from agentmove_tools.package.sources import Item, Source

DEFAULT_PROFILE: Final = "default"
_OF_CONFIG: Final = ("id", "name", "runtimeProfile", "accessStrategy", "limits")
_FORMS: Final = 1 << 18  # bytes of events that are handed on at once


class Options(NamedTuple):
    """How a package is read.

    ``drop_torn_line``: a session's last line that was cut short is left out. ``strict``: paths that
    a package has no place for, and values of secrets in one, are refused. ``external_id``: the ID
    that it is told; ``told_by`` says in an error where that comes from. ``wanted``: which of
    ``ON_REQUEST`` are parts.
    """

    drop_torn_line: bool = False
    strict: bool = False
    external_id: str | None = None
    wanted: frozenset[Part] = frozenset()
    told_by: str = "--external-id names"


class Config(NamedTuple):
    """What is read out of ``agent.config.json``.

    ``id`` may be the one that was told instead; ``own_id`` is the configuration's. ``limits`` is
    JSON in the one form, None where there are none or the configuration is a large one.
    """

    id: str | None = None
    own_id: str | None = None
    name: str | None = None
    profile: str = DEFAULT_PROFILE
    access_strategy: str | None = None
    limits: bytes | None = None


class File(NamedTuple):
    """A part of a package: a file that a written package has.

    ``path``: in a written package. ``items``: the source's files that it is made of, one but for
    the names of secrets. ``skill``: the folder of the skill that it belongs to. ``scope``: of
    secrets. ``chat``: channel and user.
    """

    path: str
    part: Part
    executable: bool
    items: tuple[Item, ...]
    skill: str = ""
    scope: str = ""
    chat: tuple[str, str] = ("", "")


class Known(NamedTuple):
    """The start of a session that is known to hold: ``events`` lines, ``size`` bytes together."""

    events: int
    size: int


class PassedOver(NamedTuple):
    """A file that is no part of the package, and why."""

    path: str
    part: Part
    why: str


@dataclass(slots=True)
class Found:
    """What the parts said as they were read, by their paths in a written package."""

    config: Config = field(default_factory=Config)
    skills: dict[str, FrontMatter] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of memories, bytes
    chats: dict[str, Chat] = field(default_factory=dict)
    secrets: dict[str, list[str]] = field(default_factory=dict)  # scope -> names
    warnings: dict[str, list[str]] = field(default_factory=dict)


class Package:
    """The parts of a package, in the order of their paths.

    Making one looks at the paths only. Raises ``Refusal``: package-required, -path, -duplicate,
    -type, -entries, memory-date, session-name, field-nul; and what ``source`` raises.

    ``files``: its parts. ``unknown``: paths that a package has no place for. ``passed_over``: other
    files that are not parts. ``found``: what the parts read so far said.
    """

    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self.options = options
        self.unknown: list[str] = []
        self._rest: list[Item] = []
        self.passed_over: list[PassedOver] = []
        self.found = Found()
        self._budget = Budget()
        self._readers: dict[Part, Callable[[File], Iterable[bytes]]] = {
            "soul": self._text,
            "user": self._text,
            "heartbeat": self._text,
            "memory": self._memory,
            "config": self._config,
            "skill": self._skill,
            "asset": self._asset,
            "secrets": self._secrets,
            "access": self._access,
            "usage": self._any_json,
            "browser-state": self._any_json,
            "session": self._session,
        }
        self.files = self._survey(source.items())
        if options.strict and self.unknown:
            raise Refusal("package-path", "--strict", path=_raw(self.unknown[0]))

    # -- paths

    def _survey(self, items: Iterable[Item]) -> list[File]:
        items = sorted(items, key=lambda item: item.path)
        layout = Layout(item.path for item in items)
        files: list[File] = []
        sessions: dict[tuple[str, str], Item] = {}
        secrets: dict[str, list[Item]] = {}
        for item in items:
            part, skill = layout.place(item.path)
            if part == "unknown":
                self.unknown.append(item.path)
                self._rest.append(item)
            elif part in PASSED_OVER:
                self.passed_over.append(PassedOver(item.path, part, PASSED_OVER[part]))
                self._rest.append(item)
            elif part in ON_REQUEST and part not in self.options.wanted:
                why = f"only with --with {part}"
                self.passed_over.append(PassedOver(item.path, part, why))
                self._rest.append(item)
            elif part == "session":
                _add_session(sessions, item)
            elif part == "secrets":
                scope = scope_of(item.path[len(SECRETS) :], item.path)
                secrets.setdefault(scope, []).append(item)
            else:
                if part == "memory":
                    memory_date(item.path)
                executable = item.executable and part == "asset"
                files.append(File(item.path, part, executable, (item,), skill=skill))
        names = session_files(sessions)
        for chat, item in sessions.items():
            files.append(File(SESSIONS + names[chat], "session", False, (item,), chat=chat))
        names_of_scopes = scope_files(secrets)
        for scope, parts in secrets.items():
            path = SECRETS + names_of_scopes[scope]
            files.append(File(path, "secrets", False, tuple(parts), scope=scope))
        self.unknown += self._source.passed_over()
        self.unknown.sort()
        files.sort(key=lambda file: file.path)
        self._check_paths(files)
        return files

    def _check_paths(self, files: list[File]) -> None:
        held = {file.path for file in files}
        for path in REQUIRED:
            if path not in held:
                raise Refusal("package-required", path=path.encode(), hint=self._hint(path))
        if self._source.is_folder:  # an archive's were checked as they came
            paths = Paths()
            for file in files:
                check_path(file.path)
                paths.add(file.path, is_folder=False)

    def _hint(self, missing: str) -> str | None:
        """What may be meant where ``missing`` is not there."""
        for path in self.unknown:
            if path == ".agent/":
                return "give its .agent folder"
            if path == OF_HOME:
                return "it is a Home, and no agent's folder: lnk-manifest sends it"
            if path.casefold() == missing.casefold():
                return f"{path} is there: rename it"
            if path.endswith("/" + missing):
                return f"{path} is there: pack the folder that it lies in"
        return "name the agent's own folder, .agent" if self._source.is_folder else None

    # -- contents

    def expect(self, external_id: str, told_by: str) -> None:
        """Take only an agent of this ID from now on; ``told_by`` as in ``Options``."""
        self.options = self.options._replace(external_id=external_id, told_by=told_by)

    def forbid_values(self) -> None:
        """Refuse values of secrets from now on, as a package that is ``strict`` from the start."""
        self.options = self.options._replace(strict=True)

    def check(self) -> None:
        """Check every part. Raises ``Refusal``, and what the source raises."""
        self.begin()
        for file in self.files:
            if file.part == "session":
                deque(self.events(file, forms=False), maxlen=0)
            else:
                deque(self.content(file), maxlen=0)
        self.check_rest()

    def check_rest(self) -> None:
        """Check what is in an archive and no part of the package: it could be damaged too.

        Raises ``Refusal`` (package-damaged).
        """
        if not self._source.is_folder:
            for item in self._rest:
                deque(item.pieces(), maxlen=0)

    def begin(self) -> None:
        """Begin to read the parts, each once; what an earlier reading found is forgotten."""
        self.found = Found()
        self._budget = Budget()

    def content(self, file: File) -> Iterable[bytes]:
        """The content that a written package has, checked as it comes, to its end.

        Raises ``Refusal``: field-*, agent-id, skill-front-matter, event-type, event-duplicate,
        package-damaged, package-entries; and what the source raises.
        """
        return self._readers[file.part](file)

    def _text(self, file: File) -> Iterable[bytes]:
        return checked_text(file.items[0].pieces(), file.path, FIELDS[file.part])

    def _memory(self, file: File) -> Iterable[bytes]:
        self.found.sizes[file.path] = file.items[0].size
        return self._text(file)

    def _asset(self, file: File) -> Iterable[bytes]:
        return file.items[0].pieces()

    def _skill(self, file: File) -> Iterator[bytes]:
        head = bytearray()
        for piece in self._text(file):
            if len(head) < HEAD:
                head += piece[: HEAD - len(head)]
            yield piece
        read = read_front_matter(bytes(head), file.path)
        self.found.skills[file.path] = read
        for warning in read.warnings:
            self._warn(file.path, warning)

    def _config(self, file: File) -> Iterator[bytes]:
        text, value = self._json(file, _OF_CONFIG)
        name = FIELDS["config"]
        if not isinstance(value, dict):
            raise wrong_shape(file.path, name, "it is no object")
        limits = value.get("limits")
        if limits is not None and not isinstance(limits, dict):
            raise wrong_shape(file.path, f"{name}.limits", "its limits are no object")
        own_id = member(value, "id", file.path, name) or None
        whole = limits is not None and len(text) <= LARGE
        config = Config(
            id=own_id or self.options.external_id,
            own_id=own_id,
            name=member(value, "name", file.path, name),
            profile=member(value, "runtimeProfile", file.path, name) or DEFAULT_PROFILE,
            access_strategy=member(value, "accessStrategy", file.path, name),
            limits=form_of(limits) if whole else None,
        )
        self._check_id(config, file.path)
        self.found.config = config
        yield text

    def _check_id(self, config: Config, path: str) -> None:
        told = self.options.external_id
        if config.id is None:
            raise Refusal(
                "agent-id",
                "it has no id",
                path=path.encode(),
                field="agent.config.id",
                hint="give it one, or name one with --external-id",
            )
        if len(config.id.encode()) > MAX_ID:
            why = f"its id is longer than {MAX_ID} bytes"
            raise wrong_shape(path, "agent.config.id", why)
        if told not in (None, config.id):
            why = f"its id is {config.id!r}, and {self.options.told_by} {told!r}"
            raise Refusal("agent-id", why, path=path.encode(), field="agent.config.id")

    def _access(self, file: File) -> Iterator[bytes]:
        text, value = self._json(file)
        if not isinstance(value, dict | list):
            raise wrong_shape(file.path, FIELDS["access"], "it is no object and no list")
        yield text

    def may_speak(self) -> list[str]:
        """Each ``<channel>:<user>`` in the list of who may speak to the agent, sorted."""
        found: set[str] = set()
        for file in self.files:
            if file.part == "access":
                text = b"".join(self.content(file))
                found |= {n for n in names_in(text) if 0 < n.find(":") < len(n) - 1}
        return sorted(found)

    def _any_json(self, file: File) -> Iterator[bytes]:
        yield self._json(file)[0]

    def _json(self, file: File, wanted: Collection[str] = ()) -> tuple[bytes, object]:
        name = FIELDS[file.part]
        text = json_text(file.items[0].pieces(), file.path, name)
        return text, json_value(text, file.path, name, wanted=wanted)

    def _secrets(self, file: File) -> Iterator[bytes]:
        names: set[str] = set()
        for item in file.items:
            text = secrets_text(item.pieces(), item.path)
            read = read_names(text, item.path)
            names |= read.all
            if read.entered and not self._source.is_folder:
                self._found_values(item.path, len(read.entered))
        self.found.secrets[file.scope] = sorted(names)
        if sum(map(len, self.found.secrets.values())) > MAX_NAMES:
            why = f"the secrets have over {MAX_NAMES} names"
            raise wrong_shape(file.path, FIELDS["secrets"], why)
        text = written(names)
        if len(text) > MAX_SECRETS:
            raise too_long(file.path, FIELDS["secrets"], longest=MAX_SECRETS)
        yield text

    def _found_values(self, path: str, count: int) -> None:
        values = "a value" if count == 1 else f"{count} values"
        if self.options.strict:
            why = f"it holds {values}, and a package holds only names"
            raise wrong_shape(path, FIELDS["secrets"], why)
        self._warn(path, f"it holds {values}: only names are taken, but this archive has them")

    def _session(self, file: File) -> Iterator[bytes]:
        return joined(form for _, form in self.events(file, forms=True))

    def events(
        self, file: File, *, forms: bool, known: Known | None = None
    ) -> Iterator[tuple[Event, bytes]]:
        """The events of a session and, with ``forms``, each one's one form, in the file's order.

        Those at its start that are ``known`` are left out, and not in what is found. Raises
        ``Refusal`` as ``read_events`` does, and what the source raises.
        """
        item = file.items[0]
        chat = Chat(*file.chat, item.path)
        content, after = item.pieces, 0
        if known is not None:
            content, after = partial(_from, item.pieces, known.size), known.events
        drop = self.options.drop_torn_line
        yield from read_events(
            content, chat, self._budget, drop_torn_line=drop, forms=forms, after=after
        )
        self.found.chats[file.path] = chat
        if chat.torn:
            self._warn(item.path, "its last line was cut short, and is left out")

    def pass_known(self, file: File, known: Known) -> None:
        """Pass a session over all of which is ``known``. Raises ``Refusal`` (package-entries)."""
        self._budget.take(known.events, file.items[0].path)

    def _warn(self, path: str, warning: str) -> None:
        self.found.warnings.setdefault(path, []).append(warning)


def _from(content: Callable[[], Iterable[bytes]], start: int) -> Iterator[bytes]:
    """A content without its first ``start`` bytes."""
    for piece in content():
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))


def joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines with their ends, in pieces."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > _FORMS:
            held.append(b"")
            yield b"\n".join(held)
            held.clear()
            size = 0
    held.append(b"")
    yield b"\n".join(held)


def _add_session(sessions: dict[tuple[str, str], Item], item: Item) -> None:
    chat = channel_and_user(item.path[len(SESSIONS) :], item.path)
    other = sessions.setdefault(chat, item)
    if other is not item:
        why = f"{other.path!r} is of the same channel and user"
        raise Refusal("package-duplicate", why, path=item.path.encode())


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
