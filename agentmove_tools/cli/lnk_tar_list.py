"""``lnk-tar-list``: what is in a Move Stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmove_tools.cli.options import (
    JsonErrors,
    Links,
    MaxBytes,
    MaxEntries,
    Output,
    Quiet,
    Version,
)
from agentmove_tools.cli.pipes import open_input, open_output
from agentmove_tools.cli.progress import progress
from agentmove_tools.cli.terminal import is_terminal, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.stream.tar_reader import Entry, MoveReader
    from agentmove_tools.streams import ByteSink, ByteSource

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def command(
    links: Links = "inside",
    max_bytes: MaxBytes = None,
    max_entries: MaxEntries = None,
    output: Output = None,
    quiet: Quiet = False,
    json_errors: JsonErrors = False,
    version: Version = False,
) -> None:
    """Read a Move Stream, check all of it, and list its entries.

    It is a table on a terminal, and JSON, an entry a line, anywhere else.
    """
    from agentmove_tools.stream.paths import check_links_option  # noqa: PLC0415 (not for --help)
    from agentmove_tools.stream.tar_reader import MoveReader  # noqa: PLC0415

    any_links = check_links_option(links)
    source = open_input("a Move Stream")
    if output is None and is_terminal(1):
        reader = MoveReader(
            source, any_links=any_links, max_bytes=max_bytes, max_entries=max_entries
        )
        print_table(("mode", "size", "changed", "sha256", "path"), _rows(reader))
        return
    with (
        open_output(output, binary=False) as sink,
        progress("lnk-tar-list", quiet) as meter,
    ):
        lines = _Lines(meter.watch(source), sink)
        try:
            for entry in MoveReader(
                lines, any_links=any_links, max_bytes=max_bytes, max_entries=max_entries
            ):
                lines.add(entry)
        finally:
            lines.flush()  # what came before an entry that is refused was good, and is listed


class _Lines:
    """Entries as JSON, a line each, written before more of the stream is waited for."""

    def __init__(self, source: ByteSource, sink: ByteSink) -> None:
        import json  # noqa: PLC0415  (not for --help)

        self._source = source
        self._sink = sink
        self._lines: list[str] = []
        self._json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

    def readinto(self, buffer: memoryview | bytearray, /) -> int | None:
        self.flush()
        return self._source.readinto(buffer)

    def flush(self) -> None:
        if self._lines:
            text = "\n".join([*self._lines, ""])
            self._lines.clear()
            self._sink.write(text.encode())

    def add(self, entry: Entry) -> None:
        value: dict[str, object] = {
            "path": entry.path.decode(),
            "kind": entry.kind,
            "mode": f"{entry.mode:03o}",
            "mtime": entry.mtime,
            "size": entry.size,
        }
        if entry.sha256 is not None:
            value["sha256"] = entry.sha256.hex()
        if entry.target is not None:
            value["target"] = entry.target.decode()
        self._lines.append(self._json.encode(value))


def _rows(reader: MoveReader) -> Iterator[tuple[str, ...]]:
    """The rows of the table; totals come last."""
    counts = {"file": 0, "folder": 0, "link": 0}
    total = 0
    for entry in reader:
        counts[entry.kind] += 1
        total += entry.size
        path = entry.path.decode()
        if entry.kind == "folder":
            path += "/"
        elif entry.target is not None:
            path += f" -> {entry.target.decode()}"
        yield (
            {"file": "-", "folder": "d", "link": "l"}[entry.kind] + _mode(entry.mode),
            _human(entry.size) if entry.kind == "file" else "",
            _time(entry.mtime),
            "" if entry.sha256 is None else entry.sha256.hex()[:12],
            path,
        )
    summary = ", ".join(
        f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()
    )
    yield ("", _human(total), "", "", f"in all: {summary}")


def _mode(mode: int) -> str:
    return "".join(letter if mode >> (8 - at) & 1 else "-" for at, letter in enumerate("rwxrwxrwx"))


def _time(seconds: int) -> str:
    import time  # noqa: PLC0415  (not for --help)

    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _human(size: int) -> str:
    """A size as a person reads it; of one width, so that columns stay where they are."""
    value = float(size)
    unit = 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    number = f"{value:.1f}" if unit else str(size)
    return f"{number} {_UNITS[unit]:3}".rjust(10)
