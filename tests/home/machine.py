"""What tests need of the machine: another user, a small file system."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import lacking
from tests.home.dying import forked

NOBODY: Final = 65534

only_root: Final = pytest.mark.skipif(
    os.geteuid() != 0 and not os.environ.get("CI"), reason="it takes root"
)


@contextlib.contextmanager
def mounted_tmpfs(folder: Path, size: str, *, inodes: int = 0) -> Iterator[None]:
    """Mount a file system of a bounded size at ``folder``; a test that cannot is skipped."""
    if shutil.which("mount") is None:
        lacking("mount is not there")
    options = f"size={size},nr_inodes={inodes}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        lacking(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def as_nobody(work: Callable[[], object], *, reach: Path, status: int = 0) -> None:
    """Run ``work`` in a child that is no longer root; ``reach`` is made passable for it."""
    folder = reach
    while folder != folder.parent and folder.stat().st_uid == 0:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o055)
        folder = folder.parent

    def unprivileged() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    assert forked(unprivileged) == status


def give_away(*folders: Path) -> None:
    """Give Homes, and their working states, to the user that ``as_nobody`` runs as."""
    beside = [folder.with_name(f".{folder.name}.lnk-move") for folder in folders]
    for folder in (*folders, *filter(Path.exists, beside)):
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
