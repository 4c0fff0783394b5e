"""The command line: one thin module per tool, and what they share.

A tool's module holds one function, ``command``, whose parameters are the tool's options and whose
docstring is its help. The executable ``bin/NAME`` calls ``start("NAME")``.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import NoReturn


def start(name: str) -> NoReturn:
    """Run the tool ``name`` of this package, such as ``lnk-seal``, and exit with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while Python still imports ends quietly; the runner takes it over from there
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        tool = import_module("agentmove_tools.cli.tool")
        module = import_module(f"agentmove_tools.cli.{name.replace('-', '_')}")
    except ImportError as error:
        # such as a script that another Python runs than the one it was installed into
        errors = import_module("agentmove_tools.cli.errors")
        sys.exit(errors.report(name, error, as_json=errors.wants_json(sys.argv[1:])))
    tool.main(name, module.command)
    raise AssertionError  # main never returns
