"""Standard input, standard output, and ``-o FILE``: raw bytes, whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from agentmove_tools.refusals import MachineError, UsageError

STDIN: Final = 0
STDOUT: Final = 1

# A temporary file's name starts and ends so, beside the file that it becomes.
TEMPORARY: Final = (b".lnk-", b".tmp")

_PIPE_BYTES: Final = 1 << 20
_CANNOT_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)

_closed: set[int] = set()


def hold_standard_descriptors() -> None:
    """Fill each of the descriptors 0, 1 and 2 that the caller closed.

    Otherwise the next file that is opened takes its number, and is read as standard input or
    written to as standard output. To be called before anything is opened.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest free number is this one; read only, so that a write to it fails
            _closed.add(descriptor)
            os.open(os.devnull, os.O_RDONLY)


def is_closed(descriptor: int) -> bool:
    """Say whether the caller had closed this one of the descriptors 0, 1 and 2."""
    return descriptor in _closed


class InputPipe:
    """Standard input, unbuffered; a ``ByteSource``. ``count`` is the bytes read so far."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self.count = 0
        self._descriptor = descriptor
        self._ahead = b""  # read by is_empty, and still to be given

    def is_empty(self) -> bool:
        """Say whether nothing comes at all; waits for the first byte or the end."""
        if not self._ahead:
            first = bytearray(1)
            self._ahead = bytes(first[: self.readinto(first)])
            self.count -= len(self._ahead)
        return not self._ahead

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fill the buffer's start; give the count of bytes, 0 at the end. May be short."""
        if self._ahead:
            buffer[:1], self._ahead = self._ahead, b""
            self.count += 1
            return 1
        while True:
            try:
                count = os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                _wait(self._descriptor, writing=False)
            except OSError as error:
                raise _named(error, self.name) from None
            else:
                self.count += count
                return count

    def drain(self) -> None:
        """Read to the end and drop it, so that a closed pipe does not end the writer."""
        buffer = bytearray(_PIPE_BYTES)
        while self.readinto(buffer):
            pass

    def close(self) -> None:
        """Close it, which tells a writer at the other end to stop."""
        os.close(self._descriptor)
        hold_standard_descriptors()

    def size(self) -> int | None:
        """Give the length in bytes when it is known: of a file, not of a pipe."""
        status = os.fstat(self._descriptor)
        return status.st_size if stat.S_ISREG(status.st_mode) else None


def open_input(what: str) -> InputPipe:
    """Open standard input, where ``what`` (such as ``a Move Stream``) is expected.

    Raises ``UsageError`` when it is a terminal, and ``MachineError`` when it is closed.
    """
    name = "standard input"
    if is_closed(STDIN):
        raise MachineError(f"{name} is closed, where {what} is expected")
    if os.isatty(STDIN):
        raise UsageError(
            f"{name} is a terminal, where {what} is expected",
            hint="pipe it in, or redirect a file: < FILE",
        )
    _grow(STDIN)
    return InputPipe(STDIN, name)


class OutputPipe:
    """A context manager and a ``ByteSink``: standard output or a file.

    The file appears under its name when the block ends well: complete, on the disk, and in place
    of an old one at once. When it does not, the temporary file is removed and an old file is
    untouched. ``count`` is the bytes written so far.
    """

    def __init__(
        self, target: bytes | None, name: str, binary: str | None, *, secret: bool, fresh: bool
    ) -> None:
        self.name = name
        self.count = 0
        self._target = target
        self._binary = binary
        self._secret = secret
        self._fresh = fresh
        self._temporary: bytes | None = None
        self._descriptor = STDOUT

    def __enter__(self) -> Self:
        if self._target is None:
            self._check()
            _grow(STDOUT)
            return self
        try:
            self._open(self._target)
        except OSError as error:
            raise _named(error, self.name) from None
        return self

    def _open(self, target: bytes) -> None:
        try:
            old = os.stat(target)
        except FileNotFoundError:
            old = None
        mode = 0o600 if self._secret else 0o666
        creating = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        if old is not None and stat.S_ISDIR(old.st_mode):
            raise UsageError(f"{self.name} is a folder: name a file in it")
        if self._fresh:
            self._descriptor = os.open(target, creating, mode)
            self._temporary = target
        elif old is None or stat.S_ISREG(old.st_mode):
            # through a link, it is the file behind the link that is replaced
            self._target = os.path.realpath(target)
            name = TEMPORARY[0] + os.urandom(8).hex().encode() + TEMPORARY[1]
            temporary = os.path.join(os.path.dirname(self._target), name)
            self._descriptor = os.open(temporary, creating, 0o600 if old else mode)
            self._temporary = temporary
            if old is not None and not self._secret:
                os.fchmod(self._descriptor, stat.S_IMODE(old.st_mode) & 0o777)
        else:
            # a device or a FIFO cannot be replaced, and is written to as it stands
            self._descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
            self._check()

    def _check(self) -> None:
        if self._descriptor == STDOUT and is_closed(STDOUT):
            raise MachineError(f"{self.name} is closed")
        if self._binary is not None and os.isatty(self._descriptor):
            seen = f"{self.name} is a terminal, and {self._binary} is binary"
            raise UsageError(f"{seen}: redirect it or use -o FILE")

    @property
    def identities(self) -> frozenset[tuple[int, int]]:
        """The device and inode numbers of this output's files, so that a sender leaves them out.

        Inside the block: the file being written, and the old one that it replaces.
        """
        found = {_identity(os.fstat(self._descriptor))}
        if self._target is not None:
            with suppress(OSError):  # there may be no old one
                found.add(_identity(os.stat(self._target)))
        return frozenset(found)

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Write all of ``data``, or raise; give its length in bytes."""
        view = memoryview(data).cast("B")
        total = view.nbytes
        while view.nbytes:
            try:
                written = os.write(self._descriptor, view)
            except BlockingIOError:
                _wait(self._descriptor, writing=True)
            except OSError as error:
                raise _named(error, self.name) from None
            else:
                view = view[written:]
        self.count += total
        return total

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as error:
            raise _named(error, self.name) from None
        finally:
            self._abandon()

    def _finish(self) -> None:
        if self._temporary is None:
            # closing any descriptor of a file makes a network disk tell of a failed write
            os.close(os.dup(self._descriptor))
            return
        os.fsync(self._descriptor)
        folder = os.path.dirname(self._temporary)
        if self._target is not None and self._temporary != self._target:
            os.replace(self._temporary, self._target)
        self._temporary = None
        _sync_folder(folder)

    def _abandon(self) -> None:
        """Remove what is unfinished, and close; nothing when all went well but the close."""
        if self._temporary is not None:
            with suppress(OSError):  # the error that brought us here is the one to tell
                os.unlink(self._temporary)
            self._temporary = None
        if self._descriptor != STDOUT:
            descriptor, self._descriptor = self._descriptor, STDOUT
            os.close(descriptor)


def open_output(
    file: Path | None,
    *,
    binary: bool,
    what: str = "the output",
    secret: bool = False,
    fresh: bool = False,
) -> OutputPipe:
    """Open ``file`` for writing, or standard output when it is None or ``-``.

    ``binary`` output is not written to a terminal: ``UsageError``, which names ``what`` it is.
    A ``secret`` file gets the mode 0600, a new one that is not the umask's, and one that takes an
    old one's place the old one's. A ``fresh`` file must not be there yet: ``FileExistsError``,
    from the block's start, as every error of the file.
    """
    if file is None or str(file) == "-":
        target, name = None, "standard output"
    else:
        target, name = os.fsencode(file), str(file)
    return OutputPipe(target, name, what if binary else None, secret=secret, fresh=fresh)


def write_text(text: str) -> None:
    """Write ``text`` to standard output as UTF-8, whatever the locale."""
    with open_output(None, binary=False) as out:
        out.write(text.encode("utf-8", "backslashreplace"))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _named(error: OSError, name: str) -> OSError:
    """Give the error the name that the user knows the file by."""
    error.filename, error.filename2 = name, None
    return error


def _grow(descriptor: int) -> None:
    """Make a pipe hold 1 MiB where that can be done (Linux): fewer switches between the ends."""
    import fcntl  # noqa: PLC0415  (not there on every platform that --help should work on)

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # no pipe, or over the user's limit
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _wait(descriptor: int, *, writing: bool) -> None:
    """Wait for a descriptor that some other program made non-blocking."""
    import select  # noqa: PLC0415  (rarely needed)

    ends = [descriptor]
    select.select([] if writing else ends, ends if writing else [], [])


def _sync_folder(folder: bytes) -> None:
    """Bring a rename to the disk, where a folder can be synced."""
    try:
        descriptor = os.open(folder or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _CANNOT_SYNC:
            return  # a folder that may be written to but not read
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
