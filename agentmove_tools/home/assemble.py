"""Completing the staged tree to the whole new Home, out of the old one (Move Stream, section 5)."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Final

from agentmove_tools.disk.folders import (
    OPEN_FILE,
    Folders,
    kind_at,
    link_file,
    names,
    open_below,
    remove,
)
from agentmove_tools.disk.stage import PLAIN_MODE
from agentmove_tools.disk.walk import walk
from agentmove_tools.home.carry import Carrier
from agentmove_tools.home.conversations import appended, compare
from agentmove_tools.home.digests import hash_file
from agentmove_tools.home.layout import (
    AGENT_FILE,
    CONNECTIONS,
    CONVERSATIONS,
    DAY,
    EVENTS,
    FILES,
    HARNESS,
    HARNESS_PARTS,
    INSTRUCTIONS,
    MEMORY,
    NOTES,
    ON_REQUEST,
    PACKAGE,
    PLACES,
    SCHEDULE,
    SKILLS,
    WORKING_STATE,
    is_held,
    thread_of,
)
from agentmove_tools.home.tree import TreeDigest
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.paths import FILE, FOLDER, LINK

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Collection as Container

    from agentmove_tools.disk.stage import Stage
    from agentmove_tools.home.report import Report
    from agentmove_tools.stream.manifest import Manifest
    from agentmove_tools.stream.tar_reader import MoveReader

_NOT_EMPTY: Final = (errno.ENOTEMPTY, errno.EEXIST)
_PAUSED_NAME: Final = b"paused"
_LONGEST_THREAD: Final = 240  # bytes of a name that something is put behind
_SECOND: Final = 1_000_000_000


class Assembly:
    """Makes a tree of received entries the whole Home that a switch puts in place.

    ``stage`` is the tree; ``reader`` has read the stream to its end; ``home`` is the open old Home,
    None where there is none. ``share``: the new Home may share inodes with the old one. ``dry``:
    nothing is taken over for real.
    """

    def __init__(
        self,
        stage: Stage,
        reader: MoveReader,
        home: int | None,
        report: Report,
        *,
        share: bool,
        dry: bool,
    ) -> None:
        self._stage = stage
        self._reader = reader
        self._manifest: Manifest = reader.manifest
        self._home = home
        self._report = report
        self._share = share
        self._dry = dry
        self._carrier = Carrier(stage, home, report, share=share, dry=dry)
        self._removed = frozenset(reader.manifest.removed or ())
        self._gone: set[bytes] = set()  # of those, what was staged
        self._diverged: list[bytes] = []  # threads to be put beside the own ones
        self._taken: dict[bytes, bytes] = {}  # digests of what the stream did not bring

    # -- files/ and memory/

    def complete_trees(self, tops: tuple[bytes, ...]) -> None:
        """Bring ``files/`` and ``memory/`` to what the sender holds.

        What is staged and neither in the stream nor held by the sender any more goes; what the
        sender skipped because the old Home holds it is taken over. Raises ``OSError`` and
        ``MachineError`` (a file of the old Home changed meanwhile).
        """
        for top in tops:
            if self._leaves_alone(top):
                self._prune_below(top, lambda _: False)
                self._carrier.carry_missing(top, leave=NOTES)
                continue
            self._prune(top)
            if self._home is not None:
                self._take_over(top, self._home)

    def _leaves_alone(self, top: bytes) -> bool:
        """Whether the stream, which speaks for some collections only, says nothing of a tree."""
        manifest = self._manifest
        return (
            manifest.collections is not None
            and manifest.tree is None
            and self._reader.kind_of(top) != FOLDER
        )

    def take_staged(self, staged: int, tops: tuple[bytes, ...]) -> None:
        """Take over, as copies, what only a staged copy holds. Raises as ``complete_trees``."""
        share, self._share = self._share, False
        for top in tops:
            self._take_over(top, staged, counted=False)
        self._share = share
        if self._manifest.phase == "switch":
            self._take_staged_events(staged)

    def _take_staged_events(self, staged: int) -> None:
        try:
            root = open_below(staged, CONVERSATIONS)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            for path, kind, folder, name in walk(root, CONVERSATIONS):
                if kind == FILE and thread_of(path) and self._reader.kind_of(path) is None:
                    self._stage.copy(folder.fd, name, path)
        finally:
            os.close(root)

    def settle_copy(self) -> None:
        """Let a staged copy hold no folder, link or replaced collection of an earlier one."""
        for top in (FILES, MEMORY):
            self._prune(top)
        for path in (INSTRUCTIONS, SKILLS, PACKAGE, CONNECTIONS, SCHEDULE):
            self._prune_below_or_file(path)
        self._prune_below(CONVERSATIONS, lambda path: thread_of(path) is not None)

    def _prune(self, top: bytes) -> None:
        """Remove from the staged tree what the stream says is gone."""
        self._prune_below(top, lambda path: is_held(path) and path not in self._removed)

    def _prune_below(self, top: bytes, keep: Callable[[bytes], bool]) -> None:
        """Remove below ``top`` what is not of the stream, but the files that ``keep`` names.

        Folders that the stream does not hold stay only where something is left in them.
        """
        if self._stage.fresh:
            return  # all that is there came with the stream
        try:
            root = open_below(self._stage.tree, top)
        except (FileNotFoundError, NotADirectoryError):
            return
        kind_of = self._reader.kind_of
        doubtful: list[bytes] = []
        try:
            for path, kind, folder, name in walk(root, top):
                seen = kind_of(path)
                if kind == FOLDER:
                    if seen != FOLDER:
                        doubtful.append(path)
                elif seen != kind and not (seen is None and kind == FILE and keep(path)):
                    os.unlink(name, dir_fd=folder.fd)
                    if path in self._removed:
                        self._gone.add(path)
                        self._report.count(path, "removed")
        finally:
            os.close(root)
        self._remove_empty(doubtful)

    def _remove_empty(self, paths: list[bytes]) -> None:
        folders = self._stage.folders
        for path in reversed(paths):
            above, _, name = path.rpartition(b"/")
            folders.forget_below(path)
            try:
                os.rmdir(name, dir_fd=folders.get(above, make=False))
            except OSError as error:
                if not isinstance(error, FileNotFoundError) and error.errno not in _NOT_EMPTY:
                    raise

    def _take_over(self, top: bytes, lower: int, *, counted: bool = True) -> None:
        """Take the files that the stream skipped out of the tree ``lower``."""
        try:
            root = open_below(lower, top)
        except (FileNotFoundError, NotADirectoryError):
            return
        kind_of = self._reader.kind_of
        try:
            for path, kind, folder, name in walk(root, top):
                if kind != FILE or not is_held(path):
                    continue
                if kind_of(path) is not None:
                    continue
                if path in self._removed:
                    if path not in self._gone:
                        self._gone.add(path)
                        self._report.count(path, "removed")
                    continue
                if self._place_held(folder.fd, name, path) and counted:
                    self._report.count(path, "kept")
        finally:
            os.close(root)

    def _place_held(self, folder: int, name: bytes, path: bytes) -> bool:
        """Put one file of an older tree into the new one; false where that has no place for it."""
        above, _, own = path.rpartition(b"/")
        if not self._can_lie_in(above):
            return False
        target = self._stage.folders.get(above, make=True)
        if kind_at(target, own) is not None:
            return False
        before = os.stat(name, dir_fd=folder, follow_symlinks=False)
        digest = hash_file(folder, name)
        if digest is None:
            msg = "it vanished or cannot be read: stop the agent first"
            raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
        self._taken[path] = digest
        mode = self._skipped_mode(path, before.st_mode & 0o777)
        if self._dry:
            os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=target))
            os.chmod(own, mode, dir_fd=target)
            return True
        fits = mode == stat.S_IMODE(before.st_mode)
        if not (self._share and fits and link_file(folder, name, target, own)):
            self._stage.copy(folder, name, path, mode=mode)
            target = self._stage.folders.get(above, make=True)
            if hash_file(target, own) != digest:
                self._changed(path)
        after = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (after.st_ino, after.st_size, after.st_mtime_ns) != (
            before.st_ino,
            before.st_size,
            before.st_mtime_ns,
        ):
            self._changed(path)
        return True

    def _changed(self, path: bytes) -> None:
        msg = "it changed during the switch: stop the agent first"
        raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))

    def _can_lie_in(self, folder: bytes) -> bool:
        """Whether no file or link of the stream stands at a folder that the path needs."""
        while folder:
            kind = self._reader.kind_of(folder)
            if kind in (FILE, LINK):
                return False
            if kind is not None:
                return True
            folder = folder.rpartition(b"/")[0]
        return True

    def _skipped_mode(self, path: bytes, own: int) -> int:
        modes = self._manifest.modes
        if modes is None:
            return own
        # Only a switch says what becomes of every file; elsewhere one that is not listed may be
        # one that the sender does not have.
        return modes.get(path, PLAIN_MODE if self._manifest.phase == "switch" else own)

    # -- what the stream replaces whole

    def complete_replaced(self, collections: Container[str]) -> None:
        """Instructions, skills, notes, jobs and what came with a package (section 5).

        What the stream speaks for becomes what it holds; the rest is carried over.
        """
        for collection, path in (
            ("instructions", INSTRUCTIONS),
            ("skills", SKILLS),
            ("notes", NOTES),
        ):
            if collection in collections:
                self._prune_below_or_file(path)
            else:
                self._restore(path)
        # A package's own files are of no collection: they go with a stream that speaks for all,
        # and are replaced by one that brings any.
        if self._manifest.collections is None or self._reader.kind_of(PACKAGE) is not None:
            self._prune_below_or_file(PACKAGE)
            self._keep_what_was_not_asked_for()
        else:
            self._restore(PACKAGE)
        if "jobs" in collections:
            self._prune_below_or_file(SCHEDULE)
            self._carrier.carry_children(SCHEDULE, leave=(*PLACES, DAY, _PAUSED_NAME))
        else:
            self._restore(SCHEDULE)
        # A schedule is paused for the move only, whoever speaks for the jobs.
        folder = self._folder_of_stage(SCHEDULE)
        if folder is not None:
            remove(folder, _PAUSED_NAME)
        self._prune_below_or_file(CONNECTIONS)
        self._carrier.carry_children(CONNECTIONS, leave=())
        self._carrier.carry_children(HARNESS, leave=HARNESS_PARTS)

    def _keep_what_was_not_asked_for(self) -> None:
        """Carry over what a package brings on request only, where this one does not bring it.

        A stream of a package speaks for some collections; one of a Home for all that there is.
        """
        if self._manifest.collections is not None:
            for path in ON_REQUEST:
                above = path.rpartition(b"/")[0]
                if self._reader.kind_of(path) is None and self._can_lie_in(above):
                    self._restore(path)

    def _prune_below_or_file(self, path: bytes) -> None:
        above, _, name = path.rpartition(b"/")
        folder = self._folder_of_stage(above)
        if folder is None:
            return
        kind = kind_at(folder, name)
        if kind == stat.S_IFDIR:
            self._prune_below(path, lambda _: False)
            if self._reader.kind_of(path) is None:
                self._remove_empty([path])
        elif kind is not None and self._reader.kind_of(path) is None:
            os.unlink(name, dir_fd=folder)

    def _folder_of_stage(self, path: bytes) -> int | None:
        try:
            return self._stage.folders.get(path, make=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _restore(self, path: bytes) -> None:
        """Let the old Home's stand at ``path``, whatever an earlier copy staged there."""
        above, _, name = path.rpartition(b"/")
        folder = self._folder_of_stage(above)
        if folder is not None:
            self._stage.folders.forget_below(path)
            remove(folder, name)
        self._carrier.carry(path)

    # -- conversations

    def complete_conversations(self, *, spoken_for: bool, keep_both: bool) -> None:
        """Append to the old Home's conversations the events that they lack (section 5).

        Raises ``Refusal`` (conversation-diverged, canon-json) and ``OSError``.
        """
        if not spoken_for:
            self._restore(CONVERSATIONS)
            return
        self._prune_below(CONVERSATIONS, lambda path: thread_of(path) is not None)
        folder = self._folder_of_stage(CONVERSATIONS)
        for thread in names(folder) if folder is not None else []:
            path = CONVERSATIONS + b"/" + thread
            events = path + b"/" + EVENTS
            theirs = self._open(self._stage.tree, events)
            if theirs is None:
                continue
            own = self._open(self._home, events) if self._home is not None else None
            try:
                self._merge(thread, own, theirs, keep_both=keep_both)
            finally:
                os.close(theirs)
                if own is not None:
                    os.close(own)
        # Only now, when nothing can be refused any more: a staged copy must not hold it twice.
        for thread in self._diverged:
            self._put_beside(thread)
        # Threads that the stream does not hold stay, and so does what else lies in a thread.
        self._carrier.carry_missing(CONVERSATIONS)

    def _open(self, root: int, path: bytes) -> int | None:
        above, _, name = path.rpartition(b"/")
        try:
            folder = open_below(root, above)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            kind = kind_at(folder, name)
            if kind is None:
                return None
            if kind != stat.S_IFREG:
                msg = "it must be a file: move it away first"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
            return os.open(name, OPEN_FILE, dir_fd=folder)
        finally:
            os.close(folder)

    def _merge(self, thread: bytes, own: int | None, theirs: int, *, keep_both: bool) -> None:
        path = CONVERSATIONS + b"/" + thread + b"/" + EVENTS
        counts = self._report.events
        before = os.fstat(own) if own is not None else None
        found = compare(own, theirs, path)
        counts["in"] += found.theirs
        if found.relation == "diverged":
            if not keep_both:
                name = thread.decode()
                raise Refusal(
                    "conversation-diverged",
                    f"thread {name}, line {found.common + 1}; --on-diverged keep-both puts the "
                    "sender's beside it",
                    path=path,
                    thread=name,
                    line=found.common + 1,
                )
            counts["kept_beside"] += found.theirs
            self._diverged.append(thread)
        elif found.relation == "theirs is longer" or own is None:
            counts["already_there"] += found.common
            counts["appended"] += found.theirs - found.common
            if own is not None and not self._dry:
                os.lseek(own, 0, os.SEEK_SET)
                os.lseek(theirs, 0, os.SEEK_SET)
                mode = os.fstat(own).st_mode & 0o777
                self._stage.write(path, appended(own, theirs, found.common, path), mode)
                self._check_unchanged(own, before, path)
        else:
            counts["already_there"] += found.theirs
            if not self._dry:
                # The old Home's own stands: it is carried over with the rest of the thread.
                above, _, name_ = path.rpartition(b"/")
                os.unlink(name_, dir_fd=self._stage.folders.get(above, make=False))

    def _check_unchanged(self, own: int, before: os.stat_result | None, path: bytes) -> None:
        """Raise ``MachineError`` where the old Home's agent goes on with a conversation."""
        after = os.fstat(own)
        if before is None or (after.st_size, after.st_mtime_ns) != (
            before.st_size,
            before.st_mtime_ns,
        ):
            self._changed(path)

    def _put_beside(self, thread: bytes) -> None:
        """Make what came of a thread one of its own, under a name that nothing has."""
        short = thread[:_LONGEST_THREAD].decode("utf-8", "ignore").encode()
        base = short + b"-" + self._manifest.move[:8].encode()
        taken = set(names(self._stage.folders.get(CONVERSATIONS, make=False)))
        if self._home is not None:
            home = Folders(self._home)
            taken |= set(names(home.get(CONVERSATIONS, make=False)))
            home.forget()
        name = base
        number = 2
        while name in taken:
            name = base + b"-%d" % number
            number += 1
        self._report.kept_beside.append(name.decode())
        folder = self._stage.folders.get(CONVERSATIONS, make=False)
        self._stage.folders.forget_below(CONVERSATIONS + b"/" + thread)
        os.rename(thread, name, src_dir_fd=folder, dst_dir_fd=folder)

    # -- the end

    def carry_rest(self, moved: Container[bytes]) -> None:
        """Carry over what the old Home holds beside ``moved``, the folders that are complete."""
        self._carrier.carry_children(b"", leave=(*moved, AGENT_FILE, WORKING_STATE))

    def carry_agent(self) -> None:
        """Leave ``agent.json`` as the old Home has it."""
        self._carrier.carry(AGENT_FILE)

    def write_agent(self, fields: dict[str, object]) -> None:
        """Write ``agent.json``: the manifest's agent, and what other fields it had."""
        manifest = self._manifest
        owner = manifest.agent.owner
        value = {
            **fields,
            "harness": manifest.harness,
            "id": manifest.agent.id,
            "name": manifest.agent.name,
        }
        if owner is not None:
            value["owner"] = owner
        else:
            value.pop("owner", None)
        try:
            text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True).encode()
        except UnicodeEncodeError:  # a lone surrogate in a field that is not ours
            text = json.dumps(value, indent=2, sort_keys=True).encode()
        self._stage.write(AGENT_FILE, [text, b"\n"], 0o644)

    def finish_trees(self, tops: tuple[bytes, ...], shown: str) -> None:
        """Give skipped files their modes, and hold the whole against the manifest's ``tree``.

        ``shown`` names the Home in errors. Raises ``Refusal`` (tree-mismatch) and ``OSError``.
        """
        promised = self._manifest.tree if self._manifest.phase == "switch" else None
        if promised is None and self._manifest.modes is None:
            return
        whole = TreeDigest()
        for top in tops:
            try:
                root = open_below(self._stage.tree, top)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                self._finish_tree(root, top, whole)
            finally:
                os.close(root)
        if promised is not None and whole.hexdigest() != promised:
            raise Refusal(
                "tree-mismatch",
                "give the output of a new lnk-have to both lnk-manifest and lnk-tar-create, and "
                "send the switch again",
                place=shown,
            )

    def _finish_tree(self, root: int, top: bytes, whole: TreeDigest) -> None:
        digest_of = self._reader.digest_of
        modes = self._stage.modes
        for path, kind, folder, name in walk(root, top):
            if kind is FILE:
                digest = digest_of(path)
                if digest is not None:
                    if path != NOTES:
                        whole.file(path, modes.get(path, PLAIN_MODE), digest)
                    continue
                if path == NOTES:
                    continue
                mode = os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_mode & 0o777
                digest = self._taken.get(path)
                if digest is None:
                    mode = self._finish_staged(folder.fd, name, path, mode)
                    digest = hash_file(folder.fd, name) or b""
                whole.file(path, mode, digest)
            elif kind == LINK and path != NOTES:
                whole.link(path, os.readlink(name, dir_fd=folder.fd))

    def _finish_staged(self, folder: int, name: bytes, path: bytes, mode: int) -> int:
        """Give a file of an earlier copy the mode that the manifest says."""
        wanted = self._skipped_mode(path, mode)
        if wanted != mode:
            os.chmod(name, wanted, dir_fd=folder)
        return wanted

    def finish_folders(self, owner: tuple[int, int] | None) -> None:
        """Give every folder its mode and time, the deepest first: one may not be writable.

        The Home itself keeps its own, and its owner; ``owner`` is given the others.
        """
        self._stage.drop_unfinished()
        folders = [
            path
            for path, kind, _, _ in walk(self._stage.tree, b"", any_names=True)
            if kind == FOLDER
        ]
        times = self._stage.folder_times
        old = Folders(self._home) if self._home is not None else None
        for path in reversed(folders):
            fd = self._stage.folders.get(path, make=False)
            mode, mtime = self._stage.default_folder_mode, None
            own = owner
            known = times.get(path)
            if known is not None:
                mode, mtime = known[0], known[1] * _SECOND
            elif old is not None:
                try:
                    info = os.fstat(old.get(path, make=False))
                except (FileNotFoundError, NotADirectoryError):
                    pass
                else:
                    mode, mtime = stat.S_IMODE(info.st_mode), info.st_mtime_ns
                    own = (info.st_uid, info.st_gid) if os.geteuid() == 0 else None
            if path == CONNECTIONS and self._manifest.phase == "switch":
                mode = 0o700
            if own is not None:
                os.fchown(fd, *own)
            os.fchmod(fd, mode)
            if mtime is not None:
                os.utime(fd, ns=(mtime, mtime))
        if old is not None:
            old.forget()
        self._stage.close()
        if self._home is not None:
            info = os.fstat(self._home)
            if os.geteuid() == 0:
                os.fchown(self._stage.tree, info.st_uid, info.st_gid)
            os.fchmod(self._stage.tree, stat.S_IMODE(info.st_mode))
