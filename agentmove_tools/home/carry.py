"""Carrying over what a move says nothing of, from the old Home to the new one (section 5)."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from agentmove_tools.disk.folders import OPEN_FOLDER, kind_at, link_file, names, open_below
from agentmove_tools.disk.walk import walk
from agentmove_tools.home.layout import MOVED
from agentmove_tools.stream.paths import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from agentmove_tools.disk.stage import Stage
    from agentmove_tools.home.report import Report


class Carrier:
    """Takes things of the open old Home ``home`` (None: there is none) into the new one, ``stage``.

    Whatever a thing is called and whatever it is, it comes unchanged. ``share``: as a hard link
    where that can be had. ``dry``: nothing is taken for real. What was staged or has come before
    stays. Every method raises ``OSError``.
    """

    def __init__(
        self, stage: Stage, home: int | None, report: Report, *, share: bool, dry: bool
    ) -> None:
        self._stage = stage
        self._home = home
        self._report = report
        self._share = share
        self._dry = dry

    def carry(self, path: bytes) -> None:
        """Carry what lies at ``path``, a whole folder too, unless something is there already."""
        if self._home is None or self._dry:
            return
        above, _, name = path.rpartition(b"/")
        try:
            source = open_below(self._home, above)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            kind = kind_at(source, name)
            if kind is None:
                return
            target = self._stage.folders.get(above, make=True)
            if kind_at(target, name) is not None:
                return
            if kind != stat.S_IFDIR:
                self._carry_one(source, name, target, path)
                return
            os.mkdir(name, 0o700, dir_fd=target)
            root = os.open(name, OPEN_FOLDER, dir_fd=source)
            try:
                self._carry_below(root, path)
            finally:
                os.close(root)
        finally:
            os.close(source)

    def carry_children(self, folder: bytes, *, leave: Container[bytes]) -> None:
        """Carry what lies in a folder (b"" is the Home), each thing whole, but for these names."""
        if self._home is None:
            return
        try:
            fd = open_below(self._home, folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            found = names(fd)
        finally:
            os.close(fd)
        for name in found:
            if name not in leave:
                self.carry(folder + b"/" + name if folder else name)
                if not folder and name not in MOVED:
                    self._report.carried.append(name)

    def carry_missing(self, folder: bytes, *, leave: bytes = b"") -> None:
        """Carry what lies in a folder at any depth and is not there yet, but for one path."""
        if self._home is None or self._dry:
            return
        try:
            root = open_below(self._home, folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        folders = self._stage.folders

        def has_no_place(below: bytes) -> bool:
            """Whether it is left out, or a file or link is there already."""
            path = folder + b"/" + below
            if path == leave:
                return True
            target = folders.get(path.rpartition(b"/")[0], make=True)
            kind = kind_at(target, path.rpartition(b"/")[2])
            return kind is not None and kind != stat.S_IFDIR

        try:
            self._carry_below(root, folder, leave_out=has_no_place)
        finally:
            os.close(root)

    def _carry_below(
        self, root: int, top: bytes, *, leave_out: Callable[[bytes], bool] | None = None
    ) -> None:
        folders = self._stage.folders
        for below, kind, folder, name in walk(root, b"", any_names=True, leave_out=leave_out):
            path = top + b"/" + below
            target = folders.get(path.rpartition(b"/")[0], make=True)
            there = leave_out is not None and kind_at(target, name) is not None
            if kind == FOLDER:
                if not there:
                    os.mkdir(name, 0o700, dir_fd=target)
            elif not there:
                self._carry_one(folder.fd, name, target, path)

    def _carry_one(self, source: int, name: bytes, target: int, path: bytes) -> None:
        info = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            if os.geteuid() == 0:
                os.chown(name, info.st_uid, info.st_gid, dir_fd=target, follow_symlinks=False)
            return
        # Sharing the file keeps whatever it is: a log that is still open, a socket, attributes.
        if self._share and link_file(source, name, target, name):
            return
        if stat.S_ISREG(info.st_mode):
            self._stage.copy(source, name, path)
        else:
            self._report.pass_over(path, "a socket, FIFO or device: not carried over")
