"""A package's parts put into a folder (Agent package, sections 1 and 2).

All of it is checked and staged before anything shows: a new folder is there whole or not at all,
and in one that was there nothing changes before all that differs lies ready beside it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.disk.behind import WriteBehind
from agentmove_tools.disk.flush import Flusher
from agentmove_tools.disk.folders import (
    CREATE_FILE,
    NO_FOLDER,
    OPEN_FILE,
    OPEN_FOLDER,
    Folders,
    kind_at,
    names,
)
from agentmove_tools.disk.stage import Stage
from agentmove_tools.disk.system import mounts_below, sync_file_system
from agentmove_tools.disk.workplace import TREE, Workplace
from agentmove_tools.package.contents import File, Package, joined
from agentmove_tools.package.events import Budget, Chat, Event, read_events
from agentmove_tools.package.existing import Existing, in_folder
from agentmove_tools.package.folder import WORKPLACE
from agentmove_tools.package.layout import CONFIG, ON_REQUEST
from agentmove_tools.package.names import caseless
from agentmove_tools.package.pairs import Pairs
from agentmove_tools.package.report import passed_over
from agentmove_tools.package.secrets import read_names, secrets_text, with_pending
from agentmove_tools.refusals import MachineError, Refusal, UsageError
from agentmove_tools.stream.paths import FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentmove_tools.package.layout import Part
    from agentmove_tools.package.sources import Item

_INSIDE: Final = WORKPLACE.encode()
_FIRST: Final = b"first"  # in it while an empty folder is filled
_BUSY: Final = "another agentfy-unpack is at work on this folder: wait until it is done"
# Bytes of sessions from which on all is checked before it is read again to be written: putting
# events into their one form takes more memory than what is refused may take.
_LARGE: Final = 8 << 20
_PRIVATE: Final[tuple[Part, ...]] = ("secrets", "browser-state")
_HELD: Final = 1 << 20
_NAME_MAX: Final = 255
_EFFECTIVE: Final = os.access in os.supports_effective_ids


class _Staged(NamedTuple):
    """A file as ``Stage`` takes it; written now, so it has the time of now."""

    path: bytes
    mode: int
    size: int = 0
    kind: str = FILE
    mtime: int | None = None
    target: bytes | None = None


@dataclass(frozen=True, slots=True)
class UnpackOptions:
    """``update``: a folder that is there is updated. ``delete``: what the package lacks goes."""

    update: bool = False
    delete: bool = False


class Unpacked:
    """What was done: ``result`` is created, updated or unchanged; ``parts`` counts files.

    For each part, and for the events of sessions, ``in`` = ``written`` + ``left_alone`` +
    ``passed_over``; ``removed`` counts what the folder had. ``written`` are the paths that an
    update wrote, ``removed`` those that it took out, ``removed_names`` the secrets' names without
    a value that it took out, and ``pending`` those still to be entered, both by scope. ``warnings``
    are of the folder's own files, by path.
    """

    def __init__(self, package: Package) -> None:
        self._package = package
        self.result = "unchanged"
        self.parts: dict[str, dict[str, int]] = {}
        self.events = _no_counts()
        self.written: list[str] = []
        self.removed: list[str] = []
        self.removed_names: dict[str, list[str]] = {}
        self.pending: dict[str, list[str]] = {}
        self.warnings: list[tuple[str, str]] = []

    def count(self, part: Part, fate: str, number: int = 1) -> None:
        """Count files of a part that were ``written``, ``left_alone``, ``passed_over``."""
        counts = self.parts.setdefault(part, _no_counts())
        counts[fate] += number
        if fate != "removed":
            counts["in"] += number
        if fate in ("written", "removed") and self.result == "unchanged":
            self.result = "updated"

    def count_events(self, came: int, *, there: int = 0, removed: int = 0) -> None:
        """Count a session's events: that came, that were there already, that were taken out."""
        self.events["in"] += came
        self.events["written"] += came - there
        self.events["left_alone"] += there
        self.events["removed"] += removed

    def to_json(self) -> dict[str, object]:
        """The report, in JSON's types."""
        config = self._package.found.config
        rest = passed_over(self._package)
        rest["warnings"] += [{"path": path, "warning": text} for path, text in self.warnings]
        return {
            "result": self.result,
            "agent": {"id": config.id, "name": config.name},
            "parts": dict(sorted(self.parts.items())),
            "events": self.events,
            "written": self.written,
            "removed": self.removed,
            "removed_names": self.removed_names,
            "pending_secrets": self.pending,
            **rest,
        }


def _no_counts() -> dict[str, int]:
    return {"in": 0, "written": 0, "left_alone": 0, "passed_over": 0, "removed": 0}


def unpack(package: Package, folder: bytes, options: UnpackOptions) -> Unpacked:
    """Put a package into ``folder``.

    Raises ``UsageError`` where the folder is there, with something in it, and is not to be updated;
    ``MachineError`` where something in it is in the way; ``Refusal`` as reading the package does,
    and event-duplicate where the folder holds another event of one ID; and ``OSError``.
    """
    if not folder:
        raise UsageError("FOLDER is empty: a variable that is not set?")
    shown = os.fsdecode(folder)
    path = os.path.realpath(folder)
    sessions = (file.items[0].size for file in package.files if file.part == "session")
    if sum(sessions) > _LARGE:
        package.check()
    try:
        root = os.open(path, OPEN_FOLDER)
    except FileNotFoundError:
        return _create(package, path)
    except NotADirectoryError:
        raise UsageError(f"{shown} is a file: name a folder") from None
    try:
        # once before anything is written into it, and once when nobody else can
        _check_free(root, shown, options, resumes=_was_cut_off(root))
        with Workplace(root, _INSIDE, busy=_BUSY) as work:
            resumes = _FIRST in work.left
            is_first = _check_free(root, shown, options, resumes=resumes) or resumes
            if is_first:
                os.close(os.open(_FIRST, CREATE_FILE, 0o600, dir_fd=work.fd))
            update = _Update(package, root, options)
            try:
                return update.run(work, is_first=is_first)
            finally:
                update.close()
    finally:
        os.close(root)


def _check_free(root: int, shown: str, options: UnpackOptions, *, resumes: bool) -> bool:
    """Whether the open folder is empty. Raises ``UsageError`` where it has to be."""
    there = [name for name in names(root) if name != _INSIDE]
    if there and not options.update and not resumes:
        hint = "--update writes what differs, and --delete takes out what the package lacks"
        raise UsageError(f"{shown} is there already, and not empty", hint=hint)
    return not there


def _was_cut_off(root: int) -> bool:
    """Whether a first unpacking into the open folder was killed: the same command completes it."""
    try:
        return kind_at(root, _INSIDE + b"/" + _FIRST) == stat.S_IFREG
    except NotADirectoryError:
        return False


def _create(package: Package, path: bytes) -> Unpacked:
    report = Unpacked(package)
    above, name = os.path.split(path)
    try:
        parent = os.open(above, OPEN_FOLDER)
    except FileNotFoundError:
        msg = "the folder that it would lie in is not there"
        raise MachineError(msg, path=os.fsdecode(path)) from None
    try:
        beside = b"." + name[: _NAME_MAX - len(_INSIDE) - 1] + _INSIDE
        with Workplace(parent, beside, busy=_BUSY) as work:
            package.begin()
            with Flusher(work.fd):
                _write_all(package, work.tree)
            os.rename(TREE, name, src_dir_fd=work.fd, dst_dir_fd=parent)
            os.fsync(parent)
    finally:
        os.close(parent)
    written: Counter[Part] = Counter()
    for file in package.files:
        written[file.part] += len(file.items)
    for part, number in written.items():
        report.count(part, "written", number)
    for chat in package.found.chats.values():
        report.count_events(chat.events)
    report.pending = {s: names for s, names in package.found.secrets.items() if names}
    _count_passed_over(package, report)
    report.result = "created"
    return report


def _write_all(package: Package, tree: int) -> None:
    """Write every part below the new folder ``tree``; small files in a second thread."""
    umask_less = _less_umask()
    stage = Stage(tree, fresh=True, folder_mode=0o777)
    behind = WriteBehind(stage)
    try:
        for file in package.files:
            mode = _mode(file, None, umask_less)
            content = package.content(file)
            if isinstance(content, tuple):
                behind.put(_Staged(file.path.encode(), mode, len(content[0])), content, None)
                continue
            held, more = _hold(content)
            staged = _Staged(file.path.encode(), mode, sum(map(len, held)))
            if more is None:
                behind.put(staged, tuple(held), None)
            else:
                behind.flush()
                stage.put(staged, chain(held, more))
        package.check_rest()
        behind.flush()
    finally:
        behind.stop()
        stage.close()


class _Update:
    """One update of the open folder ``root``."""

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
        self._umask_less = _less_umask()

    def run(self, work: Workplace, *, is_first: bool) -> Unpacked:
        """Stage all that differs, then put it in place."""
        if self._options.delete and not is_first and CONFIG not in self._existing.paths:
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
        self._check_ways()
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
        _count_passed_over(self._package, self._report)
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
        held, more = _hold(content)
        own = self._open(raw)
        try:
            info = None if own is None else os.fstat(own)
            if info is not None and not stat.S_ISREG(info.st_mode):
                raise _in_the_way(raw)
            mode = _mode(file, info, self._umask_less)
            same_mode = info is None or stat.S_IMODE(info.st_mode) == mode
            if more is None and own is not None and same_mode and _holds(own, held):
                return False
            stage.put(_Staged(raw, mode), held if more is None else chain(held, more))
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

    def _check_ways(self) -> None:
        """See that every file can be put in its place. Raises ``MachineError``, ``OSError``."""
        device = os.fstat(self._root).st_dev
        mounts = mounts_below(self._root)
        for path in self._changed:
            above, _, name = path.rpartition(b"/")
            try:
                folder = self._folders.get(above, make=False)
            except FileNotFoundError:
                continue
            on_the_way = {path, *accumulate(path.split(b"/"), lambda top, name: top + b"/" + name)}
            if os.fstat(folder).st_dev != device or mounts & on_the_way:
                msg = "something is mounted here, and a file cannot be moved onto it"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
            if not os.access(b".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=_EFFECTIVE):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), above or b".")
            if kind_at(folder, name) not in (None, stat.S_IFREG):
                raise _in_the_way(path)
            if self._sign(path) != self._signs[path]:
                msg = "it was changed meanwhile: stop the agent, and run this again"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))

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


def _hold(content: Iterable[bytes]) -> tuple[list[bytes], Iterator[bytes] | None]:
    """All of a small content, or its start and the rest."""
    if isinstance(content, tuple):
        return list(content), None
    pieces = iter(content)
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > _HELD:
            return held, pieces
    return held, None


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
            one, other = os.read(fd, _HELD), os.read(own, _HELD)
            if one != other:
                return False
            if not one:
                return True
    finally:
        os.close(fd)


def _mode(file: File, own: os.stat_result | None, umask_less: int) -> int:
    """The permission bits of a file: those it has; of an asset the x bits are the package's."""
    if file.part in _PRIVATE:
        return 0o600 if own is None else stat.S_IMODE(own.st_mode)
    if own is None or file.part == "asset":
        plain = 0o755 if file.executable else 0o644
        if own is None:
            return plain & umask_less
        mode = stat.S_IMODE(own.st_mode)
        if (mode & 0o111 != 0) == file.executable:
            return mode
        readable = (mode & 0o444) >> 2
        return mode | readable if file.executable else mode & ~0o111
    return stat.S_IMODE(own.st_mode)


def _less_umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return ~umask


def _owner(root: int) -> tuple[int, int] | None:
    """Whom root gives the files to: whoever the folder belongs to."""
    if os.geteuid() != 0:
        return None
    info = os.fstat(root)
    return None if info.st_uid == 0 else (info.st_uid, info.st_gid)


def _count_passed_over(package: Package, report: Unpacked) -> None:
    for each in package.passed_over:
        report.count(each.part, "passed_over")
    for _ in package.unknown:
        report.count("unknown", "passed_over")


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
