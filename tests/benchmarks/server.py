"""``python -m tests.benchmarks.server FOLDER``: hold an embedded server until the input ends.

It is a process of its own, so that the one that measures stays small.
"""

from __future__ import annotations

import sys

from agentmove_tools.database.embedded import hold_server, stop_server


def main(folder: str) -> None:
    """Start a server in ``folder``, print how it is connected to, and stop it at the end."""
    with hold_server(folder) as held:
        named = (f"{key}={held.parameters[key]}" for key in ("host", "port", "user"))
        print(" ".join(named), flush=True)
        sys.stdin.read()
    stop_server(folder)


if __name__ == "__main__":
    main(sys.argv[1])
