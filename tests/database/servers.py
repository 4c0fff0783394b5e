"""Folders for the data of embedded servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch() -> Iterator[Path]:
    """A short folder in /tmp that the server's own account can go through; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="amt-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
