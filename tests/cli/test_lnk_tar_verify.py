from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO, Any, Final

import pytest

from agentmove_tools.stream.paths import END_NAME
from tests.conftest import ROOT, VECTORS, RunTool, clean_environment
from tests.stream.tars import END, digest, file, folder, hashed, header, link, manifest, padded, pax

COMMAND: Final = (sys.executable, str(ROOT / "bin" / "lnk-tar-verify"))
INDEX: Final = VECTORS / "stream" / "index.json"
ROWS: Final[list[dict[str, Any]]] = json.loads(INDEX.read_text()) if INDEX.exists() else []

LARGE: Final = bytes(range(251)) * 12_000  # about 3 MB
PARTS: Final = [
    manifest(),
    folder(b"files/"),
    file(b"files/a"),
    file(b"files/large", LARGE),
    link(b"files/l", b"a"),
]
GOOD: Final = b"".join([*PARTS, END, bytes(9000)])
BEFORE_END: Final = GOOD.rindex(END)
X_BLOCK: Final = header(b"files/x", b"0", 1) + padded(b"x")  # a file without its hash


def refusal(data: bytes, tool: RunTool, *options: str) -> tuple[list[str], bytes]:
    """Give what a run says of a stream that it refuses, a line each, and what passed."""
    done = tool("lnk-tar-verify", *options, stdin=data)
    assert done.returncode == 1
    assert data.startswith(done.stdout)
    assert END_NAME not in done.stdout
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("lnk-tar-verify: refused: ")
    return [line.removeprefix("lnk-tar-verify: ") for line in lines], done.stdout


def test_the_vectors_hold(tool: RunTool, vectors: Path) -> None:
    """Of each kind of refusal one, with its code and what it names; and one that is taken."""
    assert ROWS
    firsts = {row.get("refusal", "accepted"): row for row in reversed(ROWS)}
    assert len(firsts) > 15
    for row in firsts.values():
        data = (vectors / "stream" / row["file"]).read_bytes()
        done = tool("lnk-tar-verify", "--json-errors", stdin=data)
        if row.get("accepted"):
            assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")
            continue
        assert done.returncode == 1
        assert data.startswith(done.stdout)
        assert END_NAME not in done.stdout
        details = json.loads(done.stderr)["error"]["details"]
        assert details["refusal"] == row["refusal"]
        for key in ("path", "field"):
            if key in row:
                assert details[key] == row[key]


def test_a_good_stream_passes_as_it_is(tool: RunTool) -> None:
    """And nothing is said."""
    done = tool("lnk-tar-verify", stdin=GOOD)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == GOOD


def test_a_refusal_is_one_line_that_names_the_place(tool: RunTool) -> None:
    """What is before the fault passes, and the fault does not."""
    bad = hashed(b"y") + header(b"files/b", b"0", 1) + padded(b"x")
    lines, passed = refusal(b"".join([*PARTS, bad, END]), tool)
    assert len(lines) == 1
    assert lines[0].startswith("refused: hash-mismatch: files/b: ")
    assert passed == GOOD[:BEFORE_END]


def test_a_name_is_shown_escaped(tool: RunTool) -> None:
    """A terminal acts on nothing in it; in JSON it stands as it is."""
    data = manifest() + file("files/\x1b[2J\n\u202e/..".encode())
    (line,), _ = refusal(data, tool)
    assert line.startswith("refused: entry-path: files/\\x1b[2J\\x0a\\u202e/..: ")
    done = tool("lnk-tar-verify", "--json-errors", stdin=data)
    assert json.loads(done.stderr)["error"]["details"]["path"] == "files/\x1b[2J\n\u202e/.."


def test_an_error_in_json_is_one_line(tool: RunTool) -> None:
    """By the option and by the environment; the byte is told too."""
    data = b"".join([*PARTS, X_BLOCK])
    for done in (
        tool("lnk-tar-verify", "--json-errors", stdin=data),
        tool("lnk-tar-verify", stdin=data, env={"AGENTMOVE_ERRORS": "json"}),
    ):
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        error = json.loads(done.stderr)["error"]
        assert error["details"] == {
            "refusal": "hash-missing",
            "path": "files/x",
            "offset": BEFORE_END,
        }
        assert error["message"]


@pytest.mark.parametrize(
    ("data", "code", "hint"),
    [
        (b"Welcome to box\n" + GOOD, "stream-not-move", "15 bytes of text come first"),
        (b"\0\1\2" + GOOD, "stream-not-move", "3 bytes of something else come first"),
        (b"", "stream-not-move", "nothing came"),
        (gzip.compress(GOOD), "stream-not-move", "gzip -d"),
        (b"\xff\xfe" + GOOD.decode("latin-1").encode("utf-16-le"), "stream-not-move", "PowerShell"),
        (GOOD.replace(b"\n", b"\r\n"), "stream-tar", "ssh -T"),
        (b"LNKSEAL1" + bytes(2000), "stream-not-move", "lnk-unseal -i FILE"),
        (file(b"a") + bytes(1024), "stream-not-move", "lnk-tar-create did not make"),
        (b'{"format":4}', "stream-not-move", "lnk-tar-create HOME"),
    ],
    ids=range(9),
)
def test_a_known_accident_gets_a_hint(tool: RunTool, data: bytes, code: str, hint: str) -> None:
    """On a line of its own, and nothing passes."""
    lines, passed = refusal(data, tool)
    assert passed == b""
    assert lines[0].startswith(f"refused: {code}: ")
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]
    assert len(lines) == 2


def test_limits_are_exact(tool: RunTool) -> None:
    """Bytes, those after the end among them, and entries, the manifest and the end aside."""
    just = (f"--max-bytes={len(GOOD)}", "--max-entries=4")
    assert tool("lnk-tar-verify", *just, stdin=GOOD).stdout == GOOD
    (line,), _ = refusal(GOOD, tool, f"--max-bytes={len(GOOD) - 1}")
    assert line.startswith(f"refused: stream-tar: byte {len(GOOD) - 1}: ")
    assert "--max-bytes" in line
    (line,), passed = refusal(GOOD, tool, "--max-entries=3")
    assert line.startswith("refused: stream-tar: files/l: ")
    assert "--max-entries" in line
    assert passed == b"".join(PARTS[:-1])


def test_any_link_is_taken_where_that_was_asked_for(tool: RunTool) -> None:
    """The default is to refuse those that leave their folder."""
    data = b"".join([*PARTS, link(b"files/m", b"/etc/passwd"), END])
    (line,), _ = refusal(data, tool)
    assert line.startswith("refused: entry-link: files/m: ")
    assert tool("lnk-tar-verify", "--links=any", stdin=data).stdout == data
    assert refusal(data, tool, "--links=inside")[0] == [line]


@pytest.mark.parametrize(
    "options",
    [
        ("--links=some",),
        ("--max-bytes=-1",),
        ("--max-bytes=many",),
        ("--max-entries=-1",),
        ("file.tar",),
        ("--unknown",),
    ],
)
def test_a_wrong_command_line_is_usage(tool: RunTool, options: tuple[str, ...]) -> None:
    """Status 2, in JSON too, and nothing is written."""
    done = tool("lnk-tar-verify", *options, stdin=GOOD)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"lnk-tar-verify: usage: ")
    done = tool("lnk-tar-verify", *options, "--json-errors", stdin=GOOD)
    assert (done.returncode, done.stdout) == (2, b"")
    assert json.loads(done.stderr)["error"]["message"]


def test_a_file_is_whole_or_not_there(tool: RunTool, tmp_path: Path) -> None:
    """With ``-o``, a refused stream leaves the old file as it was, or none."""
    out = tmp_path / "out"
    for bad in (GOOD[:-9000] + b"x", GOOD[: BEFORE_END + 512], b"x"):
        assert tool("lnk-tar-verify", "-o", out, stdin=bad).returncode == 1
        assert list(tmp_path.iterdir()) == []
    done = tool("lnk-tar-verify", "-o", out, stdin=GOOD)
    assert (done.returncode, done.stdout, out.read_bytes()) == (0, b"", GOOD)
    assert tool("lnk-tar-verify", "-o", out, stdin=GOOD[:-9000] + b"x").returncode == 1
    assert out.read_bytes() == GOOD
    assert list(tmp_path.iterdir()) == [out]


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    """As SIGPIPE does, with nothing said."""
    data = GOOD + bytes(8 << 20)
    with subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        try:
            running.stdin.write(data)
            running.stdin.close()
        except BrokenPipeError:
            pass
        assert running.stderr.read() == b""
    assert running.returncode == -13


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a /dev/full")
def test_a_full_disk_is_told(tool: RunTool) -> None:
    """Status 3: nothing is wrong with the stream."""
    done = tool("lnk-tar-verify", "-o", "/dev/full", stdin=GOOD)
    assert done.returncode == 3
    assert done.stderr.startswith(b"lnk-tar-verify: failed: /dev/full: ")
    assert done.stderr.count(b"\n") == 1


def slowly(data: bytes) -> Iterator[bytes]:
    """The data in pieces of one byte and of odd sizes, in a way that is the same each time."""
    chance = Random(1)
    at = 0
    while at < len(data):
        size = 1 if at < 700 else chance.choice((1, 3, 511, 512, 513, 70_001))
        yield data[at : at + size]
        at += size


def write_slowly(end: IO[bytes], data: bytes) -> None:
    with end:
        for piece in slowly(data):
            end.write(piece)
            end.flush()


@pytest.mark.parametrize("cut", [0, 9001])
def test_short_reads_change_nothing(cut: int, tmp_path: Path) -> None:
    """A FIFO that gives a byte at a time, and odd counts."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    data = GOOD[: len(GOOD) - cut]

    def feed() -> None:
        with fifo.open("wb", buffering=0) as end:
            write_slowly(end, data)

    writer = threading.Thread(target=feed)
    writer.start()
    with fifo.open("rb", buffering=0) as source:
        done = subprocess.run(
            COMMAND, stdin=source, capture_output=True, env=clean_environment(), check=False
        )
    writer.join()
    if cut:
        assert done.returncode == 1
        assert done.stderr.startswith(b"lnk-tar-verify: refused: stream-cut: ")
        assert done.stdout == GOOD[:BEFORE_END]
    else:
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == GOOD


def write_many(source: Path, count: int, size: int, name: bytes) -> None:
    """Write a stream of so many files of one content."""
    content = b"x" * size
    before, after = hashed(content), padded(content)
    with source.open("wb") as out:
        out.write(manifest())
        for number in range(count):
            out.write(before + header(name % number, b"0", size) + after)
        out.write(END + bytes(1024))


def memory_for(source: Path) -> int:
    """Give the most MiB that the tool held while it read a stream."""
    with source.open("rb") as opened:
        running = subprocess.Popen(
            COMMAND, stdin=opened, stdout=subprocess.DEVNULL, env=clean_environment()
        )
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    assert running.returncode == 0
    return usage.ru_maxrss >> (20 if sys.platform == "darwin" else 10)


def test_memory_does_not_grow_with_content(tmp_path: Path) -> None:
    """A hundred megabytes in files of any size take no more than a few do."""
    few, many, large = (tmp_path / name for name in ("few", "many", "large"))
    write_many(few, 3, 1 << 16, b"files/%d")
    write_many(many, 800, 1 << 16, b"files/%d")
    write_many(large, 1, 50 << 20, b"files/%d")
    least = memory_for(few)
    assert memory_for(many) - least < 10
    assert memory_for(large) - least < 10


def test_many_entries_take_a_bounded_memory_each(tmp_path: Path) -> None:
    """Their paths and hashes have to be remembered: some 300 bytes, and that is all."""
    few, many = tmp_path / "few", tmp_path / "many"
    write_many(few, 10, 0, b"files/some/folder/%08d")
    write_many(many, 200_000, 0, b"files/some/folder/%08d")
    assert (memory_for(many) - memory_for(few)) << 20 < 200_000 * 300


def test_a_large_pax_header_is_refused_unread(tool: RunTool) -> None:
    """Over 1 MiB it is refused before it is read."""
    data = manifest() + pax(comment=b"c" * (1 << 20)) + X_BLOCK
    (line,), passed = refusal(data, tool)
    assert line.startswith("refused: stream-tar: byte ")
    assert passed == manifest()


def test_a_hash_of_another_kind_is_none(tool: RunTool) -> None:
    """A record that only looks like the hash does not do."""
    data = manifest() + pax(LNK_SHA256=digest(b"x")) + X_BLOCK + END
    (line,), _ = refusal(data, tool)
    assert line.startswith("refused: hash-missing: files/x: ")
