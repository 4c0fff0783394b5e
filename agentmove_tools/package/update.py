"""A package's parts put into a folder that holds an agent already (Agent package, section 1).

Nothing changes before all that differs lies ready, and before it has been seen that all of it can
be put in place.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final

from agentmove_tools.disk.folders import NO_FOLDER, OPEN_FILE, Folders, kind_at
from agentmove_tools.disk.stage import Stage
from agentmove_tools.disk.system import mounts_below, sync_file_system
from agentmove_tools.package.contents import File, Package, joined
from agentmove_tools.package.events import Budget, Chat, Event, read_events
from agentmove_tools.package.existing import Existing, in_folder
from agentmove_tools.package.layout import CONFIG, ON_REQUEST
from agentmove_tools.package.names import caseless
from agentmove_tools.package.pairs import Pairs
from agentmove_tools.package.secrets import read_names, secrets_text, with_pending
from agentmove_tools.package.staging import HELD, StagedFile, hold, less_umask, mode_of
from agentmove_tools.package.unpacked import Unpacked, UnpackOptions
from agentmove_tools.refusals import MachineError, Refusal, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentmove_tools.disk.workplace import Workplace
    from agentmove_tools.package.layout import Part
    from agentmove_tools.package.sources import Item

_EFFECTIVE: Final = os.access in os.supports_effective_ids


class Update:
    """One update of the open folder ``root``, while nobody else makes one."""

    def __init__(self, package: Package, root: int, options: UnpackOptions) -> None:
        self._package = package
        self._root = root
        self._options = options
        self._report = Unpacked(package)
        self._existing = Existing(root, package.options.wanted)
        self._targets = self._existing.targets(package.files)
        self._owner = _owner(root)
        self._folders = Folders(root, mode=0o777, owner=self._owner, replace=False)
        self._changed: list[bytes] = []
        self._signs: dict[bytes, tuple[int, int, int] | None] = {}  # of files before they were read
        self._umask_less = less_umask()

    def run(self, work: Workplace, *, is_first: bool) -> Unpacked:
        """Stage all that differs, then put it in place."""
        own = self._existing.paths
        if self._options.delete and own and CONFIG not in own:
            msg = f"it holds no {CONFIG}, so it is no agent's folder, and --delete takes out files"
            raise UsageError(msg, hint="leave --delete out, or look whether FOLDER is right")
        stage = Stage(work.tree, fresh=True, owner=self._owner, folder_mode=0o777)
        try:
            self._package.begin()
            for file in self._package.files:
                if file.part == "secrets":
                    self._stage_secrets(stage, file)
                else:
                    self._stage_file(stage, file)
                if file.part == "config":
                    self._check_agent()
            self._package.check_rest()
            removed = self._stage_removals(stage)
        finally:
            stage.close()
        self._existing.check_names(
            self._package.files, {path.decode(errors="replace") for path, _ in removed}
        )
        self._check_ways([*self._changed, *(path for path, _ in removed)])
        if self._changed:
            sync_file_system(work.fd)
        self._put_in_place(work.tree)
        for path, part in removed:
            self._remove(path, part)
        if self._changed or removed:
            sync_file_system(self._root)
        if is_first:
            self._report.result = "created"
        else:
            shown = [path.decode("utf-8", "backslashreplace") for path in self._changed]
            self._report.written = shown
        self._report.count_passed_over()
        return self._report

    def close(self) -> None:
        """Close what was kept open."""
        self._folders.forget()
        self._existing.close()

    def _check_agent(self) -> None:
        """See that the folder is no other agent's: two agents' conversations would mix."""
        own = self._existing.agent_id()
        if own is not None and own != self._package.found.config.id:
            why = "the folder is another agent's"
            hint = "unpack it into a folder of its own"
            raise Refusal("agent-id", why, path=CONFIG.encode(), field="agent.config.id", hint=hint)

    # -- staging

    def _stage_file(self, stage: Stage, file: File) -> None:
        content = self._package.content(file)
        own = self._existing.sessions.get(file.chat) if file.part == "session" else None
        if own is not None:
            content = self._merged(file, own)
        changed = self._stage(stage, file, self._targets[file.path], content)
        self._report.count(file.part, "written" if changed else "left_alone")
        if file.part == "session" and own is None:
            self._report.count_events(self._package.found.chats[file.path].events)

    def _stage(self, stage: Stage, file: File, path: str, content: Iterable[bytes]) -> bool:
        """Stage a file unless the folder holds the same; says whether it differs."""
        raw = self._existing.raw(path)
        self._note(raw)
        held, more = hold(content)
        own = self._open(raw)
        try:
            info = None if own is None else os.fstat(own)
            if info is not None and not stat.S_ISREG(info.st_mode):
                raise _in_the_way(raw)
            mode = mode_of(file, info, self._umask_less)
            same_mode = info is None or stat.S_IMODE(info.st_mode) == mode
            if more is None and own is not None and same_mode and _holds(own, held):
                return False
            stage.put(StagedFile(raw, mode), held if more is None else chain(held, more))
            if more is not None and own is not None and same_mode and _same(stage, raw, own):
                return False
        finally:
            if own is not None:
                os.close(own)
        self._changed.append(raw)
        return True

    def _note(self, path: bytes) -> None:
        """Note how a file of the folder is before it is read, to see that it stays so."""
        if path not in self._signs:
            self._signs[path] = self._sign(path)

    def _sign(self, path: bytes) -> tuple[int, int, int] | None:
        above, _, name = path.rpartition(b"/")
        try:
            folder = self._folders.get(above, make=False)
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, *NO_FOLDER):
                return None
            raise
        return info.st_ino, info.st_size, info.st_mtime_ns

    def _open(self, path: bytes) -> int | None:
        """The folder's own file, open; None where there is none. Raises ``MachineError``."""
        above, _, name = path.rpartition(b"/")
        try:
            return os.open(name, OPEN_FILE, dir_fd=self._folders.get(above, make=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in NO_FOLDER:
                raise _in_the_way(path) from None
            raise OSError(error.errno, error.strerror, path) from None

    def _merged(self, file: File, own: Item) -> Iterator[bytes]:
        """The package's events, and after them, without --delete, those only the folder has."""
        return joined(self._merged_forms(file, own))

    def _merged_forms(self, file: File, own: Item) -> Iterator[bytes]:
        known = Pairs()
        for event, form in self._package.events(file, forms=True):
            known.keep(hash(event.id), hash(form))
            yield form
        there = removed = 0
        for event, form in self._own_events(file, own):
            other = known.get(hash(event.id))
            if other == hash(form):
                there += 1
            elif self._options.delete:
                removed += 1
            elif other is None:
                yield form
            else:
                raise _differs(own.path, event)
        self._report.count_events(len(known), there=there, removed=removed)

    def _own_events(self, file: File, own: Item) -> Iterator[tuple[Event, bytes]]:
        chat = Chat(*file.chat, own.path)
        drop = self._package.options.drop_torn_line
        try:
            yield from read_events(own.pieces, chat, Budget(), drop_torn_line=drop, forms=True)
        except Refusal as refusal:
            raise in_folder(refusal) from None
        if chat.torn:
            warning = "in the folder, its last line was cut short, and is left out"
            self._report.warnings.append((own.path, warning))

    def _stage_secrets(self, stage: Stage, file: File) -> None:
        content = b"".join(self._package.content(file))
        names = set(self._package.found.secrets[file.scope])
        own = self._existing.secrets.get(file.scope, [])
        if own:
            changed, pending = self._stage_names(stage, file, own, names)
        else:
            changed = self._stage(stage, file, self._targets[file.path], (content,))
            pending = names
        self._report.count(file.part, "written" if changed else "left_alone", len(file.items))
        if pending:
            self._report.pending[file.scope] = sorted(pending)

    def _stage_names(
        self, stage: Stage, file: File, own: list[Item], names: set[str]
    ) -> tuple[bool, set[str]]:
        """Add names to the folder's own files of a scope; what is pending there then."""
        for item in own:
            self._note(self._existing.raw(item.path))
        try:
            texts = [secrets_text(item.pieces(), item.path) for item in own]
            read = [read_names(text, item.path) for text, item in zip(texts, own, strict=True)]
            entered = frozenset[str]().union(*(each.entered for each in read))
            listed = frozenset[str]().union(*(each.pending for each in read))
            missing = names - entered - listed
            changed = False
            left: set[str] = set()
            for text, item, each in zip(texts, own, read, strict=True):
                pending = set(each.pending & names if self._options.delete else each.pending)
                self._drop_names(file.scope, each.pending - pending)
                pending |= missing
                missing = set()
                left |= pending
                new = with_pending(text, item.path, pending)
                changed |= new != text and self._stage(stage, file, item.path, (new,))
        except Refusal as refusal:
            raise in_folder(refusal) from None
        return changed, left - entered

    def _stage_removals(self, stage: Stage) -> list[tuple[bytes, Part]]:
        """What is to go; of secrets only the names without a value, so their files may change."""
        if not self._options.delete:
            return []
        targets = set(self._targets.values())
        kept = {caseless(path): path for path in targets}
        removed: list[tuple[bytes, Part]] = []
        for path, part in self._existing.paths.items():
            if part == "secrets" or path in targets:
                continue
            if part in ON_REQUEST and part not in self._package.options.wanted:
                continue
            # on a disk that ignores case, one of the package's files may be called so
            other = kept.get(caseless(path))
            if other is None or not self._are_one(path, other):
                self._note(self._existing.raw(path))
                removed.append((self._existing.raw(path), part))
        scopes = {file.scope for file in self._package.files if file.part == "secrets"}
        for scope, items in self._existing.secrets.items():
            if scope not in scopes:
                removed += self._drop_pending(stage, scope, items)
        return removed

    def _are_one(self, path: str, other: str) -> bool:
        found = [self._identity(self._existing.raw(name)) for name in (path, other)]
        return found[0] == found[1]

    def _identity(self, path: bytes) -> tuple[int, int] | None:
        fd = self._open(path)
        if fd is None:
            return None
        try:
            info = os.fstat(fd)
            return info.st_dev, info.st_ino
        finally:
            os.close(fd)

    def _drop_names(self, scope: str, names: frozenset[str]) -> None:
        if names:
            dropped = {*self._report.removed_names.get(scope, ()), *names}
            self._report.removed_names[scope] = sorted(dropped)

    def _drop_pending(
        self, stage: Stage, scope: str, items: list[Item]
    ) -> Iterator[tuple[bytes, Part]]:
        for item in items:
            self._note(self._existing.raw(item.path))
            try:
                text = secrets_text(item.pieces(), item.path)
                read = read_names(text, item.path)
                self._drop_names(scope, read.pending)
                if not read.entered:
                    yield self._existing.raw(item.path), "secrets"
                    continue
                new = with_pending(text, item.path, ())
            except Refusal as refusal:
                raise in_folder(refusal) from None
            if new != text:
                file = File(item.path, "secrets", executable=False, items=(item,))
                self._stage(stage, file, item.path, (new,))

    # -- putting in place

    def _check_ways(self, paths: Iterable[bytes]) -> None:
        """See that every file can be put in its place, or taken out, and is as it was.

        Raises ``MachineError``, ``OSError``.
        """
        device = os.fstat(self._root).st_dev
        mounts = mounts_below(self._root)
        for path in paths:
            above, folder = self._nearest(path)
            on_the_way = {path, *accumulate(path.split(b"/"), lambda top, name: top + b"/" + name)}
            if os.fstat(folder).st_dev != device or mounts & on_the_way:
                msg = "something is mounted here, and a file cannot be moved onto it"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
            if not os.access(b".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=_EFFECTIVE):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), above or b".")
            name = path[len(above) :].lstrip(b"/")
            if b"/" not in name and kind_at(folder, name) not in (None, stat.S_IFREG):
                raise _in_the_way(path)
            if self._sign(path) != self._signs[path]:
                msg = "it was changed meanwhile: stop the agent, and run this again"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))

    def _nearest(self, path: bytes) -> tuple[bytes, int]:
        """The folder above a file that is there, or will be made in it, and its descriptor."""
        above = path
        while True:
            above = above.rpartition(b"/")[0]
            with suppress(FileNotFoundError):
                return above, self._folders.get(above, make=False)

    def _put_in_place(self, tree: int) -> None:
        staged = Folders(tree)
        try:
            for path in self._changed:
                above, _, name = path.rpartition(b"/")
                source = staged.get(above, make=False)
                try:
                    target = self._folders.get(above, make=True)
                    os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, path) from None
        finally:
            staged.forget()

    def _remove(self, path: bytes, part: Part) -> None:
        """Remove a file, and the folders that are empty then."""
        above, _, name = path.rpartition(b"/")
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folders.get(above, make=False))
        self._report.removed.append(path.decode("utf-8", "backslashreplace"))
        self._report.count(part, "removed")
        while above:
            self._folders.forget_below(above)
            above, _, name = above.rpartition(b"/")
            try:
                os.rmdir(name, dir_fd=self._folders.get(above, make=False))
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    return  # something is in it still, or mounted on it
                raise


def _holds(fd: int, pieces: list[bytes]) -> bool:
    """Whether the open file has this content and no more."""
    content = b"".join(pieces)
    return os.read(fd, len(content) + 1) == content


def _same(stage: Stage, path: bytes, own: int) -> bool:
    """Whether a staged file is what the open file holds."""
    above, _, name = path.rpartition(b"/")
    fd = os.open(name, OPEN_FILE, dir_fd=stage.folders.get(above, make=False))
    try:
        while True:
            one, other = os.read(fd, HELD), os.read(own, HELD)
            if one != other:
                return False
            if not one:
                return True
    finally:
        os.close(fd)


def _owner(root: int) -> tuple[int, int] | None:
    """Whom root gives the files to: whoever the folder belongs to."""
    if os.geteuid() != 0:
        return None
    info = os.fstat(root)
    return None if info.st_uid == 0 else (info.st_uid, info.st_gid)


def _in_the_way(path: bytes) -> MachineError:
    msg = "something that is no file, or no folder, lies in its way: move it away"
    return MachineError(msg, path=path.decode("utf-8", "backslashreplace"))


def _differs(path: str, event: Event) -> Refusal:
    return Refusal(
        "event-duplicate",
        "the folder holds another event with this id than the package",
        path=path.encode(),
        place=f"line {event.line}",
        hint="messages do not change: --delete takes the package's, or move the session away",
        field="message.id",
        line=event.line,
    )
