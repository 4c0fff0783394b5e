"""A sender: the manifest of a Home, and its Move Stream (Move Stream, sections 3, 4a and 6)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from agentmove_tools import __version__
from agentmove_tools.disk.folders import open_below
from agentmove_tools.disk.stage import PLAIN_MODE
from agentmove_tools.disk.walk import inode_in, mode_in, walk
from agentmove_tools.home.contract import NOTHING_HELD
from agentmove_tools.home.digests import hash_file
from agentmove_tools.home.exclude import Exclusion
from agentmove_tools.home.have import Holdings
from agentmove_tools.home.index import Index
from agentmove_tools.home.layout import (
    FILES,
    MEMORY,
    NOTES,
    PACKAGE,
    SKILLS,
    agent_of,
    is_held,
    read_agent,
)
from agentmove_tools.home.passing import Sending, records_of
from agentmove_tools.home.recovery import finish_interrupted
from agentmove_tools.home.snapshot import SnapshotReader
from agentmove_tools.home.source import FileSource, check_paused
from agentmove_tools.home.state import HOME_INDEX, HomePlace
from agentmove_tools.home.tree import TreeDigest
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.manifest import Manifest, new_move_id
from agentmove_tools.stream.paths import FILE, LINK, check_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agentmove_tools.disk.walk import Folder
    from agentmove_tools.home.contract import Record
    from agentmove_tools.stream.paths import Phase
    from agentmove_tools.streams import ByteSink


class Sender:
    """A Home that is to be sent.

    ``say`` is told, by path and reason, what is left out. ``own`` holds device and inode of the
    program's own output, which is never packed. Raises ``OSError``, ``Refusal`` (home-missing) and
    ``MachineError``.
    """

    def __init__(
        self,
        home: bytes,
        *,
        exclude: Sequence[str] = (),
        say: Callable[[bytes, str], None],
        own: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self._place = HomePlace(home)
        self._exclude = Exclusion(exclude)
        self._say = say
        self._own = own
        finish_interrupted(self._place)
        self._home = self._place.open()
        self._fields = read_agent(self._home, self._place.shown)

    def close(self) -> None:
        """Close the Home."""
        os.close(self._home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the manifest

    def manifest(
        self, phase: Phase, *, move: str | None = None, have: Mapping[bytes, bytes] | None = None
    ) -> Manifest:
        """A new manifest of the Home for ``phase`` (section 3).

        A switch's says what the other end must remove, by its ``have``, and what the Home will be
        then (``tree``); that takes the hash of every file. ``move`` is a new ID where none is
        given. Raises ``Refusal`` (schedule-running, home-path), ``MachineError``, ``OSError``.
        """
        agent, harness = agent_of(self._fields, self._place.shown)
        if phase == "switch":
            check_paused(self._home, self._place.shown)
        tree: str | None = None
        removed: tuple[bytes, ...] | None = None
        modes: dict[bytes, int] | None = None
        if phase == "switch" or (phase == "files" and have):
            held = dict.fromkeys(have or ())
            whole = TreeDigest()
            modes = {}
            for path, kind, mode, what in self._held(
                (FILES, MEMORY) if phase == "switch" else (FILES,)
            ):
                if kind == LINK:
                    whole.link(path, what)
                    continue
                whole.file(path, mode, what)
                if path in held:
                    del held[path]
                    listed = mode != PLAIN_MODE or phase == "files"
                    if listed and have is not None and have[path] == what:
                        modes[path] = mode
            if phase == "switch":
                tree = whole.hexdigest()
                removed = tuple(sorted(path for path in held if is_held(path))) or None
        return Manifest(
            phase=phase,
            move=move or new_move_id(),
            version=__version__,
            agent=agent,
            harness=harness,
            removed=removed,
            tree=tree,
            modes=modes,
        )

    def _held(self, tops: tuple[bytes, ...]) -> Iterator[tuple[bytes, str, int, bytes]]:
        """What lies under ``tops``, sorted: path, kind, mode, and digest or target."""
        leave_out = self._exclude or None
        state = self._place.state_for_index()
        holdings = Holdings(state)
        try:
            # Two threads hash what the index lacks; the walk in order then finds all of it there.
            for _ in holdings.refresh(self._home, HOME_INDEX, *tops, leave_out=leave_out):
                pass
            for path in holdings.unreadable:
                msg = "it cannot be read"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
            for top in tops:
                yield from self._held_below(top, holdings.index, leave_out)
        finally:
            holdings.close()
            if state is not None:
                os.close(state)

    def _held_below(
        self, top: bytes, index: Index, leave_out: Callable[[bytes], bool] | None
    ) -> Iterator[tuple[bytes, str, int, bytes]]:
        def look_up(folder: Folder) -> None:
            folder.digests = bytes(index.resolve(folder))

        try:
            root = open_below(self._home, top)
        except (FileNotFoundError, NotADirectoryError):
            return
        # A pipe's inode number may well be a file's: the device tells them apart.
        device = os.fstat(root).st_dev
        inodes = {inode for own_device, inode in self._own if own_device == device}
        try:
            for path, kind, folder, name in walk(
                root, top, signs=True, leave_out=leave_out, entered=look_up
            ):
                if path == NOTES:
                    continue
                if kind == LINK:
                    yield path, kind, 0o777, os.readlink(name, dir_fd=folder.fd)
                elif kind == FILE:
                    sign = folder.signs[name]
                    if inode_in(sign) in inodes:
                        continue
                    digest = folder.digest(name) or hash_file(folder.fd, name)
                    if digest is None:
                        msg = "it vanished, or cannot be read: stop the agent first"
                        raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
                    yield path, kind, mode_in(sign), digest
        finally:
            os.close(root)

    # -- the stream

    def send(
        self,
        sink: ByteSink,
        manifest: Manifest,
        *,
        have: Mapping[bytes, bytes] | None = None,
        any_links: bool = False,
    ) -> None:
        """Write the Home's Move Stream to ``sink`` (sections 2, 4a).

        What ``have`` holds the same is not sent again. Raises ``Refusal``, ``MachineError`` (a
        file cannot be read, or the Home changed during a switch) and ``OSError``; the stream then
        has no end, so that no receiver takes it.
        """
        agent, _ = agent_of(self._fields, self._place.shown)
        if manifest.agent.id != agent.id:
            raise Refusal(
                "home-other-agent",
                f"the manifest is for {manifest.agent.id!r}",
                place=self._place.shown,
            )
        if manifest.phase == "switch":
            check_paused(self._home, self._place.shown)
        state = self._place.state_for_index()
        index = Index(state, HOME_INDEX)
        try:
            still = manifest.phase == "switch"
            source = FileSource(
                self._home,
                SnapshotReader(still=still, spool=state, own=self._own),
                still=still,
                index=index,
                exclude=self._exclude,
                say=self._say,
            )
            for path in source.not_sent():
                self._say(path, "not sent: it is no part of a move")
            sending = Sending(sink, manifest, any_links=any_links)
            for record in records_of(source, manifest, have or NOTHING_HELD):
                if record.kind == LINK and not any_links:
                    self._check_link(record)
                sending.add(record)
            sending.end()
        finally:
            index.close()
            if state is not None:
                os.close(state)

    def _check_link(self, record: Record) -> None:
        """Raise ``Refusal`` (entry-link) naming every link that leaves its folder."""
        try:
            check_link(record.path, record.target)
        except Refusal:
            bad = [record.path, *self._bad_links(after=record.path)]
            shown = [path.decode("utf-8", "backslashreplace") for path in bad]
            more = f"; {len(bad) - 1} more like it (details.paths)" if len(bad) > 1 else ""
            raise Refusal(
                "entry-link",
                f"it points to {record.target.decode('utf-8', 'backslashreplace')!r}{more}; "
                "--links any, at both ends, takes links as they are",
                path=record.path,
                paths=shown,
            ) from None

    def _bad_links(self, *, after: bytes) -> Iterator[bytes]:
        leave_out = self._exclude or None
        for top in (FILES, PACKAGE, SKILLS, MEMORY):
            try:
                root = open_below(self._home, top)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                for path, kind, folder, name in walk(root, top, leave_out=leave_out):
                    if kind == LINK and path > after:
                        try:
                            check_link(path, os.readlink(name, dir_fd=folder.fd))
                        except Refusal:
                            yield path
            finally:
                os.close(root)
