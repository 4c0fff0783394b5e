"""``lnk-canon``: JSON, a value a line, in the one form."""

from __future__ import annotations

from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.streams import ByteSink, ByteSource


def command(
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read JSON, a value a line, and write each value in the one form, a line each."""
    from agentmove_tools.canonical import canonical_lines  # noqa: PLC0415  (--help needs it not)

    source = open_input("JSON, a value a line")
    with (
        open_output(output, binary=False) as sink,
        progress("lnk-canon", quiet) as meter,
    ):
        pending = _Pending(meter.watch(source), sink)
        try:
            for _, form, _ in canonical_lines(pending):
                pending.add(form)
        finally:
            # The lines before one that is refused are good, and come out.
            pending.write()


class _Pending:
    """The lines that are ready. They are written before more input is waited for."""

    def __init__(self, source: ByteSource, sink: ByteSink) -> None:
        self._source = source
        self._sink = sink
        self._forms: list[bytes] = []

    def readinto(self, buffer: memoryview | bytearray) -> int | None:
        self.write()
        return self._source.readinto(buffer)

    def add(self, form: bytes) -> None:
        self._forms += (form, b"\n")

    def write(self) -> None:
        lines = b"".join(self._forms)
        self._forms.clear()  # first, so that a write that failed is not tried twice
        if lines:
            self._sink.write(lines)
