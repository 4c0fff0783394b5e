"""The calls of the operating system that Python does not offer, and what stands in for them.

``ctypes`` takes long to import, so only this module does, and only when one of them is needed.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2  # Linux: renameat2; macOS: RENAME_SWAP has the same value
_FICLONE: Final = 0x40049409
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_STATX_SIZE: Final = 256
_STX_BTIME: Final = 80  # where a struct statx has the time of birth

# What a kernel or a file system says when it has no exchange; EXDEV and EBUSY: a mount point.
NO_EXCHANGE: Final = frozenset(
    {
        errno.ENOSYS,
        errno.EINVAL,
        errno.EOPNOTSUPP,
        errno.EXDEV,
        errno.EBUSY,
        errno.EPERM,
        errno.EACCES,
        errno.EROFS,
    }
)


@cache
def _libc() -> ctypes.CDLL:
    import ctypes  # noqa: PLC0415 - rarely needed, and slow to import

    return ctypes.CDLL(None, use_errno=True)


def exchange(one: bytes, other: bytes) -> None:
    """Exchange two paths in one step (Move Stream, section 5).

    Raises ``OSError``; an ``errno`` of ``NO_EXCHANGE`` means that no exchange can be had here.
    """
    import ctypes  # noqa: PLC0415 - rarely needed, and slow to import

    libc = _libc()
    if sys.platform == "darwin":
        call = getattr(libc, "renamex_np", None)
        arguments: tuple[object, ...] = (one, other, ctypes.c_uint(_RENAME_EXCHANGE))
    else:
        call = getattr(libc, "renameat2", None)
        arguments = (_AT_FDCWD, one, _AT_FDCWD, other, ctypes.c_uint(_RENAME_EXCHANGE))
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), one)
    if call(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), one)


def sync_file_system(fd: int) -> None:
    """Make everything on the file system of ``fd`` durable. Raises ``OSError``."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - rarely needed, and slow to import

        if _libc().syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    else:
        # Elsewhere only a sync of everything is offered; the flush of the folder orders it.
        os.sync()
        os.fsync(fd)


def birth_of(fd: int) -> int | None:
    """When an open file was made, in nanoseconds; None where the file system does not say."""
    if sys.platform != "linux":
        born = getattr(os.fstat(fd), "st_birthtime", None)
        return None if born is None else int(born * 1_000_000_000)
    import ctypes  # noqa: PLC0415 - rarely needed, and slow to import

    call = getattr(_libc(), "statx", None)
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if call is None or call(fd, b"", _AT_EMPTY_PATH, ctypes.c_uint(_STATX_BTIME), found) != 0:
        return None
    (mask,) = struct.unpack_from("=I", found)
    seconds, nanoseconds = struct.unpack_from("=qI", found, _STX_BTIME)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else None


def clone(source: int, target: int) -> bool:
    """Let ``target`` share the blocks of ``source``; false where the file system cannot."""
    if sys.platform != "linux":
        return False
    import fcntl  # noqa: PLC0415 - rarely needed

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in (
            errno.EOPNOTSUPP,
            errno.ENOTTY,
            errno.EXDEV,
            errno.EINVAL,
            errno.ENOSYS,
            errno.EPERM,
        ):
            return False
        raise
    return True


def copy_bytes(source: int, target: int) -> None:
    """Copy what is left of ``source`` to ``target``, in the kernel where it can.

    Raises ``OSError``.
    """
    if clone(source, target):
        return
    if sys.platform == "linux":
        try:
            while os.copy_file_range(source, target, 1 << 30):
                pass
            return
        except OSError as error:
            if error.errno not in (
                errno.EXDEV,
                errno.ENOSYS,
                errno.EOPNOTSUPP,
                errno.EINVAL,
                errno.EPERM,
            ):
                raise
    while piece := os.read(source, 1 << 20):
        write_all(target, piece)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of ``data``. Raises ``OSError``."""
    done = os.write(fd, data)
    if done != len(data):
        view = memoryview(data)
        while done < len(data):
            done += os.write(fd, view[done:])


def mount_points() -> frozenset[bytes]:
    """All mount points, as real paths; none where the system does not list them.

    A bind mount has its file system's own device, so only this list tells of it. Raises
    ``OSError``.
    """
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return frozenset()
    return frozenset(_unescaped(line.split(b" ")[4]) for line in lines)


def mounts_below(folder: int) -> frozenset[bytes]:
    """The mount points below an open folder, as paths from it on. Raises ``OSError``."""
    mounts = mount_points()
    if not mounts:
        return mounts
    top = os.readlink(b"/proc/self/fd/%d" % folder).rstrip(b"/") + b"/"
    return frozenset(path[len(top) :] for path in mounts if path.startswith(top))


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), field)
