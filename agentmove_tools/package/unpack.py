"""A package's parts put into a folder (Agent package, sections 1 and 2).

All of it is checked and staged before anything shows: a new folder is there whole or not at all,
and in one that was there nothing changes before all that differs lies ready beside it.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from agentmove_tools.disk.behind import WriteBehind
from agentmove_tools.disk.flush import Flusher
from agentmove_tools.disk.folders import CREATE_FILE, OPEN_FOLDER, kind_at, names
from agentmove_tools.disk.stage import Stage
from agentmove_tools.disk.workplace import TREE, Workplace
from agentmove_tools.package.folder import WORKPLACE
from agentmove_tools.package.layout import CONFIG, OF_HOME
from agentmove_tools.package.staging import StagedFile, hold, less_umask, mode_of
from agentmove_tools.package.unpacked import Unpacked, UnpackOptions
from agentmove_tools.package.update import Update
from agentmove_tools.refusals import MachineError, UsageError

if TYPE_CHECKING:
    from agentmove_tools.package.contents import Package
    from agentmove_tools.package.layout import Part

_INSIDE: Final = WORKPLACE.encode()
_FIRST: Final = b"first"  # in it while an empty folder is filled
_BUSY: Final = "another agentfy-unpack is at work on this folder: wait until it is done"
# Bytes of sessions from which on all is checked before it is read again to be written: putting
# events into their one form takes more memory than what is refused may take.
_LARGE: Final = 8 << 20
_NAME_MAX: Final = 255


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
            update = Update(package, root, options)
            try:
                return update.run(work, is_first=is_first)
            finally:
                update.close()
    finally:
        os.close(root)


def _check_free(root: int, shown: str, options: UnpackOptions, *, resumes: bool) -> bool:
    """Whether the open folder is empty. Raises ``UsageError`` where it has to be, or is a Home."""
    there = [name for name in names(root) if name != _INSIDE]
    if OF_HOME.encode() in there and CONFIG.encode() not in there:
        hint = f"leave FOLDER out: agentfy-unpack | lnk-tar-apply {shown}"
        raise UsageError(f"{shown} is an agent's Home, and no .agent folder", hint=hint)
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
    report.count_passed_over()
    report.result = "created"
    return report


def _write_all(package: Package, tree: int) -> None:
    """Write every part below the new folder ``tree``; small files in a second thread."""
    umask_less = less_umask()
    stage = Stage(tree, fresh=True, folder_mode=0o777)
    behind = WriteBehind(stage)
    try:
        for file in package.files:
            mode = mode_of(file, None, umask_less)
            content = package.content(file)
            if isinstance(content, tuple):
                behind.put(StagedFile(file.path.encode(), mode, len(content[0])), content, None)
                continue
            held, more = hold(content)
            staged = StagedFile(file.path.encode(), mode, sum(map(len, held)))
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
