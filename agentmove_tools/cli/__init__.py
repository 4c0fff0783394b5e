"""The command line: one thin module per tool, and what they share.

A tool's module holds one function, ``command``, whose parameters are the tool's options and whose
docstring is its help. The executable ``bin/NAME`` calls ``start("NAME")``.
"""

from __future__ import annotations

import signal
from importlib import import_module
from typing import NoReturn


def start(name: str) -> NoReturn:
    """Run the tool ``name`` of this package, such as ``lnk-seal``, and exit with its status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while Python still imports ends quietly; the runner takes it over from there
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    tool = import_module("agentmove_tools.cli.tool")
    module = import_module(f"agentmove_tools.cli.{name.replace('-', '_')}")
    tool.main(name, module.command)
    raise AssertionError  # main never returns
