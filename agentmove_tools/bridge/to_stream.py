"""An agent package as a Move Stream: the package is the store at the sending end.

(Move Stream, sections 1 to 3; Agent package, sections 1 and 2.)
"""

from __future__ import annotations

from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agentmove_tools import __version__
from agentmove_tools.bridge.crossing import Crossing
from agentmove_tools.bridge.identity import identity_in, settings_of, unread_narrowings
from agentmove_tools.bridge.places import stream_path, thread_path
from agentmove_tools.bridge.threads import thread_of
from agentmove_tools.home.contract import NOTHING_HELD, Record
from agentmove_tools.home.layout import EVENTS, THREAD, part_of
from agentmove_tools.home.passing import Sending, records_of
from agentmove_tools.package.layout import CONFIG, ON_REQUEST, PASSED_OVER
from agentmove_tools.stream.manifest import Agent, Manifest, new_move_id
from agentmove_tools.stream.paths import FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agentmove_tools.package.contents import File, Package
    from agentmove_tools.stream.paths import Collection
    from agentmove_tools.streams import ByteSink

# What a package speaks for; the jobs of the Home that it reaches stay.
COLLECTIONS: Final[tuple[Collection, ...]] = (
    "instructions",
    "skills",
    "notes",
    "conversations",
)
_MTIME: Final = 315_532_800  # 1980-01-01, the one time in a package, in seconds since 1970
_PLAIN: Final = 0o644
_EXECUTABLE: Final = 0o755
_SMALL: Final = 1 << 20  # bytes of a content that is handed over whole
_by_path: Final = attrgetter("path")


def write_stream(
    package: Package, sink: ByteSink, *, move: str | None = None, strict: bool = False
) -> Crossing:
    """Write the switch that puts a package's agent in place; what crossed.

    ``move`` is a new ID where none is given. The same package gives the same bytes, but for that.
    ``strict``: what has no place is refused, before anything is written. Raises ``Refusal`` as
    reading the package does, bridge-loss, entry-path for a path that is too long with what comes
    before it, and what the sink raises; the stream then has no end.
    """
    package.begin()
    package.check_rest()
    source = PackageSource(package)
    identity = source.identity
    manifest = Manifest(
        phase="switch",
        move=move or new_move_id(),
        version=__version__,
        agent=Agent(identity.id, identity.name, identity.owner),
        harness=identity.harness,
        collections=COLLECTIONS,
    )
    crossing = Crossing(manifest.agent)
    for why in source.unread_narrowings:
        crossing.lose(CONFIG.encode(), why)
    _leave_out(package, crossing)
    if strict:
        package.forbid_values()
        package.check()
        found = Crossing(manifest.agent)
        found.take_from(package.found, str.encode)
        for path, why in found.lost:
            crossing.lose(path, why)
        crossing.check_nothing_lost()
        package.begin()
    sending = Sending(sink, manifest, any_links=False)
    for record in records_of(source, manifest, NOTHING_HELD):
        sending.add(record)
        crossing.count(part_of(record.path), "written")
        crossing.look_at_name(record.path)
    sending.end()
    crossing.take_from(package.found, str.encode)
    return crossing


class PackageSource:
    """A package's source side (``CollectionSource``), and of what else a stream carries.

    Raises ``Refusal`` as reading the package does.
    """

    def __init__(self, package: Package) -> None:
        self._package = package
        self._files: dict[str, list[tuple[bytes, File]]] = {}
        for file in package.files:
            if file.part == "session":
                path = thread_path(thread_of(*file.chat), EVENTS)
            else:
                path = stream_path(file.path)
            self._files.setdefault(part_of(path), []).append((path, file))
        (config,) = (file for file in package.files if file.part == "config")
        text = b"".join(package.content(config))
        self.identity = identity_in(text, package.options.external_id)
        self.unread_narrowings = unread_narrowings(text)

    def records(
        self, collection: Collection, held: Mapping[bytes, bytes] = NOTHING_HELD
    ) -> Iterator[Record]:
        """The records of one collection (``CollectionSource``)."""
        if collection == "conversations":
            return self._conversations(held)
        return self._records(collection)

    def package(self) -> Iterator[Record]:
        """What has no other place in a Home."""
        return self._records("package")

    def connections(self) -> Iterator[Record]:
        """None: a package knows their names, and no more."""
        return iter(())

    def files(self, held: Mapping[bytes, bytes]) -> Iterator[Record]:
        """None: a package has no place for them."""
        del held
        return iter(())

    def memory(self, held: Mapping[bytes, bytes], *, notes: bool) -> Iterator[Record]:
        """The notes, where they are asked for."""
        del held
        return self.records("notes") if notes else iter(())

    def _records(self, part: str) -> Iterator[Record]:
        for path, file in sorted(self._files.get(part, ()), key=_first):
            yield self._record(path, file)

    def _conversations(self, held: Mapping[bytes, bytes]) -> Iterator[Record]:
        threads: dict[bytes, File | bytes] = dict(self._files.get("conversations", ()))
        for chat, tools in (self.identity.tools or {}).items():
            threads[thread_path(thread_of(*chat), THREAD)] = settings_of(tools)
        for path in sorted(threads):
            what = threads[path]
            record = _held(path, (what,)) if isinstance(what, bytes) else self._record(path, what)
            if held.get(path) == record.digest:
                record.content = None
            yield record

    def _record(self, path: bytes, file: File) -> Record:
        """A file's record. Its hash goes before its content, which is read twice if it is large.

        Only a session is held, since its events count each time that they are read.
        """
        package = self._package
        if file.part == "session" or sum(item.size for item in file.items) <= _SMALL:
            return _held(path, package.content(file), executable=file.executable)
        record = _held(path, (), executable=file.executable)
        digest = sha256()
        for piece in package.content(file):
            digest.update(piece)
            record.size += len(piece)
        record.digest = digest.digest()
        record.content = package.content(file)
        return record


def _first(pair: tuple[bytes, File]) -> bytes:
    return pair[0]


def _held(path: bytes, content: Iterable[bytes], *, executable: bool = False) -> Record:
    pieces = list(content)
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    size = sum(map(len, pieces))
    held = b"".join(pieces) if size <= _SMALL else pieces
    mode = _EXECUTABLE if executable else _PLAIN
    return Record(path, FILE, mode, _MTIME, size, digest.digest(), content=held)


def _leave_out(package: Package, crossing: Crossing) -> None:
    """Account for what is no part of the package."""
    for path in package.unknown:
        crossing.lose(path.encode("utf-8", "surrogateescape"), PASSED_OVER["unknown"])
        crossing.count("other", "passed_over")
    for each in package.passed_over:
        path_ = each.path.encode("utf-8", "surrogateescape")
        if each.part in ON_REQUEST:
            crossing.leave_out_unasked(path_, each.why)
        else:
            crossing.lose(path_, each.why)
        crossing.count("other", "passed_over")
