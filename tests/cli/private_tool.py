"""A tool of no use, to try what all tools share; run as a script by the tests."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, NoReturn

import typer

from agentmove_tools.cli.errors import say
from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_input, open_output, write_text
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import print_lines, print_table
from agentmove_tools.cli.tool import main
from agentmove_tools.refusals import MachineError, Refusal, UsageError


def fail(how: str) -> None:
    """Fail in the way that is asked for."""
    if how == "refusal":
        raise Refusal("hash-mismatch", path=b"files/a\x1b[31m\n\xe2\x80\xae\xff.txt")
    if how == "place":
        raise Refusal("stream-tar", "bad checksum", place="byte 1536", hint="was it cut?")
    if how == "machine":
        raise MachineError("it changed while it was read", path="files/a.txt")
    if how == "usage":
        raise UsageError("this is no recipient", hint="it starts with lnk1")
    if how == "missing-file":
        with open("no/such\nfile", "rb"):
            pass
    if how == "bug":
        raise ValueError("password hunter2")
    if how == "memory":
        raise MemoryError
    if how == "recursion":
        deeper()
    if how == "exit":
        sys.exit("bye")


def deeper() -> NoReturn:
    """Call itself until Python has enough."""
    deeper()


def command(
    how: Annotated[str, typer.Argument()] = "",
    *,
    name: Annotated[str, typer.Option(help="A name to say.")] = "",
    required: Annotated[int, typer.Option("--number", help="A number.")] = 0,
    text: Annotated[bool, typer.Option("--text", help="Text, not binary.")] = False,
    secret: Annotated[bool, typer.Option("--secret", help="For the owner alone.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Never over an old file.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Print a table.")] = False,
    pause: Annotated[float, typer.Option(help="Seconds to wait before the end.")] = 0,
    after: Annotated[str, typer.Option(help="How to fail when all is written.")] = "",
    output: Output = None,
    json_errors: JsonErrors = False,
    quiet: Quiet = False,
    version: Version = False,
) -> None:
    """Copy standard input to standard output."""
    if name:
        say("private", name)
    fail(how)
    if how == "text":
        write_text("нотатки\n")
        return
    if table:
        print_lines(["a table\x07"])
        rows = ((f"files/[/b]{n}\x1b[2J", str(n)) for n in range(450))
        print_table(["path", "size"], rows)
        return
    with progress("private", quiet) as meter:
        pipe = open_input("a stream")
        source = meter.watch(pipe)
        out = open_output(output, binary=not text, what="a stream", secret=secret, fresh=fresh)
        buffer = memoryview(bytearray(1 << 16))
        with out:
            if how == "identities":
                out.write(repr(sorted(out.identities)).encode())
            while count := source.readinto(buffer) or 0:
                out.write(buffer[:count])
            time.sleep(pause)
            fail(after)


if __name__ == "__main__":
    if os.environ.get("PRIVATE_UMASK"):
        os.umask(int(os.environ["PRIVATE_UMASK"], 8))
    main("private", command)
