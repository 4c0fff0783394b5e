"""An agent's folder with something in every part, for the tools of packages."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

from tests.conftest import ROOT
from tests.home.builder import File, Thing, put
from tests.package.folders import event, names

VALUE: Final = "v4lue-that-nobody-sees"
FILES: Final[dict[str, Thing]] = {
    "SOUL.md": "# Ada\n",
    "agent.config.json": '{"id": "agent-7", "name": "Ada", "accessStrategy": "list"}\n',
    "USER.md": "Zoë\n",
    "MEMORY.md": "what counts\n",
    "memory/2026-01-02.md": "a day\n",
    "skills/pdf/SKILL.md": "---\nname: pdf\ndescription: Reads PDFs.\n---\n",
    "skills/pdf/run.sh": File(b"#!/bin/sh\n", 0o755),
    "skills/mess/SKILL.md": "no front matter\n",
    "data/secrets/agent.json": names("TOKEN", API_KEY=VALUE),
    "data/access.json": '["web:alice"]\n',
    "data/sessions/web:alice.jsonl": event(1, ts=1_700_000_000_000)
    + event(2, ts=1_700_000_001_000),
    "data/usage.json": '{"tokens": 5}\n',
    "data/memory.sqlite": "index",
    "browser-state/main.json": '{"cookies": []}\n',
    "notes/todo.txt": "unknown\n",
}


def make_agent(folder: Path) -> Path:
    """Make the folder, and give it back."""
    folder.mkdir()
    for path, thing in FILES.items():
        put(folder, path, thing)
    return folder


def tools() -> str:
    """A ``PATH`` with the executables of this checkout, for a shell."""
    path = f"{Path(sys.executable).parent}:{ROOT / 'bin'}:{os.environ['PATH']}"
    return f"export PATH={shlex.quote(path)}; set -o pipefail; "
