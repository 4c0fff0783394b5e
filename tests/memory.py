"""How much memory a tool takes, told by the kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conftest import ROOT, clean_environment

_UNIT: Final = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
# A new process starts with its parent's peak as its own, and that of the tests is large. So a
# small one stands between.
_BETWEEN: Final = """
import os, sys
running = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(running, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_memory(name: str, *arguments: str, source: Path) -> int:
    """Give the most bytes that ``bin/NAME`` held while it read ``source`` and ended well."""
    between = [sys.executable, "-I", "-S", "-c", _BETWEEN]
    with source.open("rb") as opened:
        done = subprocess.run(
            [*between, sys.executable, ROOT / "bin" / name, *arguments],
            stdin=opened,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return int(done.stderr) * _UNIT
