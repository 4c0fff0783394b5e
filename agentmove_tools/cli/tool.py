"""What runs every tool: it parses the command line, and turns how it ends into an exit status."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, NoReturn

import typer
from typer.main import get_command

from agentmove_tools.cli import errors
from agentmove_tools.cli.pipes import STDOUT, hold_standard_descriptors, is_closed
from agentmove_tools.refusals import MachineError, UsageError

_CONTEXT: Final = {
    "help_option_names": ["-h", "--help"],
    "terminal_width": 80,  # the help is the same everywhere, a terminal or none
}


class _Stopped(BaseException):
    """A signal that asks the program to end: it unwinds, so that temporary files are removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(name: str, command: Callable[..., None] | typer.Typer) -> NoReturn:
    """Run ``command`` as the tool ``name`` with this process's command line, and exit.

    ``command`` is a function whose parameters typer reads, or a ``Typer`` of several commands.
    The exit status is 0 (done), 1 (refused), 2 (usage), 3 (the machine failed it) or 130
    (Ctrl-C). A reader that went away ends the process as SIGPIPE does, other signals likewise.
    """
    gc.disable()  # a filter makes many objects and no cycles: looking for them costs a tenth
    hold_standard_descriptors()
    if is_closed(STDOUT):
        sys.stdout = os.fdopen(STDOUT, "w", closefd=False)  # a write to it fails, and is told
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a library's word to programmers is none to users
    try:
        _catch_signals()
        status = run(name, command, sys.argv[1:])
    except KeyboardInterrupt:
        status = errors.INTERRUPTED
    except BrokenPipeError:
        _die(signal.SIGPIPE)
    except _Stopped as stopped:
        _die(stopped.number)
    if status != errors.DONE:
        _forget_stdout()
    sys.exit(status)


def run(name: str, command: Callable[..., None] | typer.Typer, arguments: Sequence[str]) -> int:
    """Run ``command`` with these arguments; tell its errors; give the exit status.

    Raises only what is to end a process quietly: ``KeyboardInterrupt``, ``BrokenPipeError`` and
    what a caught signal raises.
    """
    as_json = errors.wants_json(arguments)
    try:
        _invoke(name, command, list(arguments))
        _flush_stdout()
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  (the last one there is: it tells every error)
        return errors.report(name, error, as_json=as_json)
    return errors.DONE


def _invoke(name: str, command: Callable[..., None] | typer.Typer, arguments: list[str]) -> None:
    program = get_command(command if isinstance(command, typer.Typer) else _app(name, command))
    try:
        if f"_{name}_COMPLETE".replace("-", "_").upper() in os.environ:
            program.main(arguments, prog_name=name)  # a shell asks for completions
        try:
            context = program.make_context(name, list(arguments))  # which empties it
        except OSError as error:  # the help or the version could not be written
            raise _of_stdout(error) from None
        with context:
            program.invoke(context)
    except typer.TyperException as mistake:
        text = mistake.format_message().rstrip(".")
        hint = f"try {name} --help"
        given = arguments[-1] if arguments else ""
        if "unexpected extra argument" in text and os.path.isfile(given):
            hint = f"it reads standard input: {shlex.join([name, *arguments[:-1]])} < {given}"
        raise UsageError(text[:1].lower() + text[1:], hint=hint) from None
    except typer.Exit as done:  # after --help and --version
        _check_status(done.exit_code)
    except SystemExit as done:  # after --show-completion
        _check_status(done.code)


def _check_status(code: object) -> None:
    """Typer has said what was wrong when it ends with a status of its own."""
    if code not in (None, errors.DONE):
        raise UsageError("see above")


def _app(name: str, command: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(
        rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=_CONTEXT
    )
    app.command(name)(command)
    return app


def _flush_stdout() -> None:
    """Find out now whether what is still buffered can be written, not after the status is set."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _of_stdout(error) from None


def _of_stdout(error: OSError) -> Exception:
    if is_closed(STDOUT):
        return MachineError("standard output is closed")
    if error.filename is None:
        error.filename = "standard output"
    return error


def _forget_stdout() -> None:
    """Let what could not be written go, so that Python's own last flush has no complaint."""
    with contextlib.suppress(OSError):  # with no descriptor left there is no other way either
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDOUT)
        os.close(nowhere)


def _catch_signals() -> None:
    """Make signals that end the process unwind it first, once; the second one ends it at once."""

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise _Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # one that is ignored stays so (nohup)
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, stop)


def _die(number: int) -> NoReturn:
    """End as the signal does, so that the shell sees what happened."""
    _forget_stdout()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError  # the signal came first
