"""A receiver: takes a Move Stream into a Home, all or nothing (Move Stream, section 5)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agentmove_tools.disk.behind import WriteBehind
from agentmove_tools.disk.folders import (
    OPEN_FOLDER,
    check_is_folder,
    check_no_links,
    kind_at,
    names,
    open_below,
    remove,
)
from agentmove_tools.disk.stage import Stage
from agentmove_tools.disk.system import mount_points
from agentmove_tools.home.assemble import Assembly
from agentmove_tools.home.exchange import last_move, put_in_place
from agentmove_tools.home.layout import (
    CONNECTIONS,
    CONVERSATIONS,
    FILES,
    HARNESS,
    MEMORY,
    MOVED,
    SCHEDULE,
    WORKING_STATE,
    has_place,
    is_held,
    part_of,
    read_agent,
)
from agentmove_tools.home.passing import hand_over
from agentmove_tools.home.recovery import (
    drop_strangers,
    stage_again,
    tidy,
)
from agentmove_tools.home.report import Report
from agentmove_tools.home.state import (
    INCOMING,
    LOCK,
    MOVE,
    STAGED,
    TREE,
    HomePlace,
    Lock,
    read_move,
    write_json,
)
from agentmove_tools.refusals import MachineError, Refusal, UsageError
from agentmove_tools.stream.paths import COLLECTIONS, FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentmove_tools.stream.manifest import Manifest
    from agentmove_tools.stream.tar_reader import Entry, MoveReader

_DRY_RUN: Final = b"dry-run"
_PROBE: Final = b"probe"
_OTHER_FILE_SYSTEM: Final = "the old Home can only be kept on its own file system"


@dataclass(frozen=True, slots=True)
class Options:
    """How a stream is taken; each is an option of ``lnk-tar-apply``."""

    replace_agent: bool = False
    keep_both: bool = False
    dry_run: bool = False
    keep_old: bytes | None = None


def receive(home: bytes, reader: MoveReader, options: Options) -> Report:
    """Take the stream of ``reader`` into the Home, and report what was done.

    A copy is staged; a switch, and ``files``, are put in place or change nothing. Raises
    ``Refusal``, ``MachineError``, ``UsageError`` and ``OSError``; the Home is then as it was.
    """
    receiver = _Receiver(home, reader, options)
    try:
        return receiver.run()
    except OSError as error:
        if not isinstance(error.filename, str | bytes):
            error.filename = home  # a full disk, say, is told without a name
        raise
    finally:
        receiver.close()


def drop_staged(home: bytes) -> bool:
    """Throw a staged copy away; whether there was one.

    Raises ``Refusal`` (home-busy), ``MachineError`` and ``OSError``.
    """
    place = HomePlace(home)
    state = place.open_state(make=False)
    if state is None:
        return False
    try:
        lock = Lock(state, place.shown)
        try:
            tidy(place, state)
            there = kind_at(state, STAGED) is not None
            remove(state, STAGED)
            return there
        finally:
            lock.release()
    finally:
        os.close(state)


class FileReceiver:
    """A Home's receiver side (``CollectionReceiver``), and of what else a stream may bring."""

    def __init__(
        self,
        stage: Stage,
        reader: MoveReader,
        home: int | None,
        report: Report,
        options: Options,
    ) -> None:
        self._stage = stage
        self._behind = WriteBehind(stage)
        self._report = report
        self._phase = reader.manifest.phase
        self._collections = reader.manifest.collections
        self._keep_both = options.keep_both
        self.assembly = Assembly(
            stage,
            reader,
            home,
            report,
            # An old Home that is kept must not change with the new one.
            share=options.keep_old is None,
            dry=options.dry_run,
        )

    def receive(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        """Take one entry."""
        part = part_of(entry.path)
        if not has_place(part, entry.path, entry.kind):
            if entry.kind is not FOLDER:
                self._report.came_in(entry.path, "passed_over")
            if entry.kind is not FOLDER or part != "other":
                self._report.pass_over(entry.path, "it has no place in a Home")
            return
        if part in COLLECTIONS and self._collections is not None and part not in self._collections:
            if entry.kind != FOLDER:
                self._report.came_in(entry.path, "passed_over")
                self._report.pass_over(entry.path, f"the stream does not speak for {part}")
            return
        mode = 0o600 if part == "connections" else None
        if isinstance(content, tuple):
            self._behind.put(entry, content, mode)
        else:
            self._behind.flush()
            self._stage.put(entry, content, mode=mode)
        if entry.kind is not FOLDER:
            self._report.came_in_part(part, "written")

    def settle(self) -> None:
        """Have all that was received written. Raises ``OSError``."""
        self._behind.flush()

    def stop(self) -> None:
        """Let what was handed over be written, whatever comes of it."""
        self._behind.stop()

    def complete(self, collections: Iterable[str]) -> None:
        """Put the collections together: replaced whole, or appended to."""
        self.assembly.complete_replaced(frozenset(collections))
        self.assembly.complete_conversations(
            spoken_for="conversations" in collections, keep_both=self._keep_both
        )


class _Receiver:
    """One run of ``receive``."""

    def __init__(self, home: bytes, reader: MoveReader, options: Options) -> None:
        self._reader = reader
        self._manifest = reader.manifest
        self._options = options
        self._report = Report(reader.manifest)
        self._run = os.urandom(16).hex()  # tells what this run made from what another one did
        self._place = place = HomePlace(home)
        self._state_is_new = not os.path.lexists(place.state_path)
        if self._state_is_new:
            _whose(place, self._manifest, options)  # a Home that is refused gets no working state
        state = place.open_state(make=True)
        if state is None:
            msg = "its working state cannot be made"
            raise MachineError(msg, path=place.shown)
        self._state = state
        self._open = [state]
        try:
            self._lock = Lock(state, place.shown)
        except BaseException:
            os.close(state)
            raise
        self._stage: Stage | None = None
        try:
            if not HomePlace(home).is_state(state):
                raise Refusal("home-busy", "try again", place=place.shown)
            tidy(place, state)
            if not options.dry_run:
                place.move_state_beside(state)
            self._place = HomePlace(home)  # a commit that was completed may have made it
            self._fields = _whose(self._place, self._manifest, options)
            self._keep_old: bytes | None = None
            self._home = self._place.open() if self._place.exists else None
            if self._home is not None:
                self._open.append(self._home)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back the lock; leave nothing behind that a dry run made."""
        if self._stage is not None:
            self._stage.close()
        if self._options.dry_run:
            remove(self._state, _DRY_RUN)
            if self._state_is_new:
                # Only what this run made: another receiver may have been here since.
                with contextlib.suppress(OSError):
                    if not [n for n in names(self._state) if n != LOCK]:
                        os.unlink(LOCK, dir_fd=self._state)
                        os.rmdir(self._place.state_path)
        self._lock.release()
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def run(self) -> Report:
        """Take the stream."""
        last = last_move(self._place, self._state)
        switch = last.get("switch") if last is not None else None
        phase = self._manifest.phase
        if (
            phase == "switch"
            and isinstance(switch, dict)
            and switch.get("move") == self._manifest.move
        ):
            return self._already_in_place(switch)
        self._keep_old = _checked_keep_old(self._place, self._state, self._options.keep_old)
        if phase == "switch":
            self._check_staged()
        if self._options.dry_run:
            self._begin(_DRY_RUN)
        elif phase == "files":
            self._begin(INCOMING)
        else:
            self._begin_staged()
        receiver = self._receive()
        if phase == "copy":
            receiver.assembly.settle_copy()
            self._report.result = "would be staged" if self._options.dry_run else "staged"
        else:
            self._put_in_place(receiver, switch if isinstance(switch, dict) else None)
        return self._report

    def _already_in_place(self, switch: dict[str, object]) -> Report:
        for entry in self._reader:
            if entry.kind != FOLDER:
                self._report.came_in(entry.path, "left_alone")
        if self._manifest.tree != switch.get("tree"):
            self._report.notes.append(
                "the stream holds something else than when this move was put in place; "
                "a new move needs an ID of its own"
            )
        self._report.result = "already in place"
        return self._report

    # -- receiving

    def _check_staged(self) -> None:
        """Refuse (move-mismatch) a switch of another move than the staged copy."""
        manifest = self._manifest
        staged = read_move(self._state, STAGED)
        if (
            staged is not None
            and staged.get("copy") is True
            and (staged.get("agent"), staged.get("move")) != (manifest.agent.id, manifest.move)
        ):
            raise Refusal(
                "move-mismatch",
                f"the copy is of move {staged.get('move')}, the switch of {manifest.move}; "
                "--drop-staged throws the copy away",
                place=self._place.shown,
            )

    def _begin_staged(self) -> None:
        """Begin, or go on with, the staged tree (section 5)."""
        manifest = self._manifest
        staged = read_move(self._state, STAGED)
        if staged is not None and staged.get("agent") != manifest.agent.id:
            self._report.notes.append("a copy of another agent was staged: it is dropped")
            remove(self._state, STAGED)
            staged = None
        is_copy = manifest.phase == "copy" or (staged is not None and staged.get("copy") is True)
        self._begin(STAGED, copy=is_copy)

    def _begin(self, name: bytes, *, copy: bool = False) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._state)
        folder = os.open(name, OPEN_FOLDER, dir_fd=self._state)
        try:
            write_json(
                folder,
                MOVE,
                {
                    "move": self._manifest.move,
                    "agent": self._manifest.agent.id,
                    "copy": copy,
                    "staged": name == STAGED,
                    "run": self._run,
                },
            )
            fresh = True
            try:
                os.mkdir(TREE, 0o700, dir_fd=folder)
            except FileExistsError:
                fresh = False
            tree = os.open(TREE, OPEN_FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        self._open.append(tree)
        if not fresh:
            drop_strangers(tree)
        self._stage = Stage(
            tree,
            owner=self._owner(),
            leave_empty=is_held if self._options.dry_run else None,
            fresh=fresh,
        )

    def _owner(self) -> tuple[int, int] | None:
        """Whom root gives the files to: whoever the Home belongs to."""
        if os.geteuid() != 0 or self._home is None:
            return None
        info = os.fstat(self._home)
        return None if info.st_uid == 0 else (info.st_uid, info.st_gid)

    def _receive(self) -> FileReceiver:
        if self._stage is None:
            msg = "nothing was begun"
            raise ValueError(msg)
        reader = self._reader
        receiver = FileReceiver(self._stage, reader, self._home, self._report, self._options)
        try:
            hand_over(reader, receiver)
            receiver.settle()
        finally:
            receiver.stop()
        self._report.bytes_written = self._stage.bytes_written
        return receiver

    # -- putting in place

    def _put_in_place(self, receiver: FileReceiver, before: dict[str, object] | None) -> None:
        dry = self._options.dry_run
        name = _DRY_RUN if dry else INCOMING
        self._check_old_home()
        if not dry and self._manifest.phase == "switch":
            os.rename(STAGED, INCOMING, src_dir_fd=self._state, dst_dir_fd=self._state)
        try:
            self._complete(receiver)
        except BaseException:
            # The Home is untouched, and what was staged stays so.
            if not dry and self._manifest.phase == "switch":
                self._close_stage()
                stage_again(self._state)
            elif not dry:
                self._close_stage()
                remove(self._state, name)
            raise
        if dry:
            self._report.result = "would be in place"
            return
        self._close_stage()
        manifest = self._manifest
        switch: dict[str, object] | None = before
        if manifest.phase == "switch":
            switch = {"move": manifest.move, "tree": manifest.tree}
        record: dict[str, object] = {
            "move": manifest.move,
            "agent": manifest.agent.id,
            "phase": manifest.phase,
            "switch": switch,
            "run": self._run,
        }
        self._report.way, problem = put_in_place(
            self._place, self._state, self._home, record, keep_old=self._keep_old
        )
        if problem is not None:
            self._report.notes.append(problem)
        elif self._keep_old is not None and self._home is not None:
            self._report.old_home = self._keep_old.decode("utf-8", "backslashreplace")
        self._report.result = "in place"

    def _check_old_home(self) -> None:
        """See that the old Home is one that can be exchanged away. Raises ``MachineError``.

        What hangs in it and is not its own, by a mount or a link, would be lost or emptied.
        """
        if self._home is None:
            return
        for mount in sorted(mount_points()):
            if not mount.startswith(self._place.path + b"/"):
                continue
            top = mount[len(self._place.path) + 1 :].partition(b"/")[0]
            if self._place.beside or top in MOVED:
                msg = "a file system is mounted in the Home: unmount it first"
                raise MachineError(msg, path=mount.decode("utf-8", "backslashreplace"))
        moved: tuple[bytes, ...] = (FILES,)
        if self._manifest.phase == "switch":
            moved = (FILES, MEMORY, HARNESS, CONVERSATIONS, CONNECTIONS, SCHEDULE)
        for path in moved:
            check_is_folder(self._home, path)
        if self._manifest.phase == "switch":
            check_no_links(self._home, CONVERSATIONS)

    def _complete(self, receiver: FileReceiver) -> None:
        assembly = receiver.assembly
        manifest = self._manifest
        tops = (FILES, MEMORY) if manifest.phase == "switch" else (FILES,)
        if manifest.phase == "files" or self._options.dry_run:
            self._take_staged(assembly, tops)
        assembly.complete_trees(tops)
        assembly.finish_trees(tops, self._place.shown)
        if manifest.phase == "switch":
            spoken_for = COLLECTIONS if manifest.collections is None else manifest.collections
            receiver.complete(spoken_for)
            assembly.carry_rest(MOVED)
        else:
            assembly.carry_rest((FILES,))
        if self._options.dry_run:
            return
        if manifest.phase == "files" and self._fields.get("id") == manifest.agent.id:
            assembly.carry_agent()  # all but the files is left alone
        else:
            assembly.write_agent(self._fields)
        assembly.finish_folders(self._owner())

    def _take_staged(self, assembly: Assembly, tops: tuple[bytes, ...]) -> None:
        """What a sender skipped may be staged, which this run leaves as it is."""
        of = read_move(self._state, STAGED)
        if of is None or of.get("agent") != self._manifest.agent.id:
            return
        try:
            staged = open_below(self._state, STAGED + b"/" + TREE)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            assembly.take_staged(staged, tops)
        finally:
            os.close(staged)

    def _close_stage(self) -> None:
        if self._stage is not None:
            self._stage.close()


def _whose(place: HomePlace, manifest: Manifest, options: Options) -> dict[str, object]:
    """The fields of the Home's ``agent.json``; none where the Home is absent or empty.

    Raises ``Refusal`` (home-missing, home-other-agent), ``MachineError`` and ``OSError``.
    """
    if not place.exists:
        return {}
    home = place.open()
    try:
        if not [name for name in names(home) if name != WORKING_STATE]:
            return {}
        fields = read_agent(home, place.shown)
    finally:
        os.close(home)
    if fields.get("id") != manifest.agent.id and not options.replace_agent:
        raise Refusal(
            "home-other-agent",
            f"it holds {fields.get('id')!r}, the stream brings {manifest.agent.id!r}; "
            "--replace-agent takes it",
            place=place.shown,
        )
    return fields


def _checked_keep_old(place: HomePlace, state: int, folder: bytes | None) -> bytes | None:
    """Where the old Home is to go, as an absolute path. Raises ``UsageError``, ``OSError``."""
    if folder is None:
        return None
    parent, name = os.path.split(os.path.abspath(folder))
    path = os.path.join(os.path.realpath(parent), name)
    for own in (place.path, place.state_path):
        if path.startswith(own + b"/"):
            msg = "the old Home cannot be kept in the new one, or in its working state"
            raise UsageError(msg, path=os.fsdecode(path))
    if os.path.lexists(path):
        msg = "the folder for the old Home is there already"
        raise UsageError(msg, path=os.fsdecode(path))
    try:
        above = os.stat(os.path.dirname(path))
    except FileNotFoundError:
        msg = "the folder that the old Home is to go into is not there"
        raise UsageError(msg, path=os.fsdecode(os.path.dirname(path))) from None
    if above.st_dev != os.stat(place.path if place.mounted else place.parent).st_dev:
        msg = _OTHER_FILE_SYSTEM
        raise UsageError(msg, path=os.fsdecode(path))
    # The same device may still be another mount, or a folder that nothing can be moved into.
    remove(state, _PROBE)
    os.mkdir(_PROBE, 0o700, dir_fd=state)
    try:
        os.rename(_PROBE, path, src_dir_fd=state)
        os.rmdir(path)
    except OSError as error:
        remove(state, _PROBE)
        msg = f"the old Home cannot be moved here: {error.strerror}"
        raise UsageError(msg, path=os.fsdecode(path)) from None
    return path
