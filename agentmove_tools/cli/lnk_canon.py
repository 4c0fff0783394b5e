"""``lnk-canon``: JSON, a value a line, in the one form."""

from __future__ import annotations

from agentmove_tools.cli.options import JsonErrors, Output, Quiet, Version
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress

_BATCH = 1 << 16


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
        forms: list[bytes] = []
        size = 0
        try:
            for _, form, _ in canonical_lines(meter.watch(source)):
                forms.append(form)
                size += len(form) + 1
                if size > _BATCH:
                    sink.write(b"\n".join(forms) + b"\n")
                    forms.clear()
                    size = 0
        finally:
            # The lines before one that is refused are good, and come out.
            if forms:
                sink.write(b"\n".join(forms) + b"\n")
