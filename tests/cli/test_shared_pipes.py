from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmove_tools.cli.pipes import InputPipe, open_output

DATA = os.urandom(3 << 20)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe's two ends; the test closes the second, which is the writer's."""
    read, write = os.pipe()
    yield read, write
    os.close(read)


def write_and_close(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.close(descriptor)


def test_a_pipe_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    """What another program set on the shared pipe is no end of the input, and no error."""
    os.set_blocking(pipe[0], False)
    writer = threading.Timer(0.2, write_and_close, (pipe[1], DATA))
    writer.start()
    source = InputPipe(pipe[0], "standard input")
    buffer = bytearray(1 << 16)
    got = bytearray()
    while count := source.readinto(buffer):
        got += buffer[:count]
    writer.join()
    assert got == DATA
    assert source.count == len(DATA)


def test_draining_reads_to_the_end(pipe: tuple[int, int]) -> None:
    """The writer is not ended by a pipe that nobody reads."""
    writer = threading.Thread(target=write_and_close, args=(pipe[1], DATA))
    writer.start()
    source = InputPipe(pipe[0], "standard input")
    source.drain()
    writer.join()
    assert source.count == len(DATA)


def test_the_length_of_a_file_is_known_and_that_of_a_pipe_is_not(
    pipe: tuple[int, int], tmp_path: Path
) -> None:
    """So the progress has a total where there can be one."""
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    with file.open("rb") as opened:
        assert InputPipe(opened.fileno(), "standard input").size() == 5
    assert InputPipe(pipe[0], "standard input").size() is None
    os.close(pipe[1])


@pytest.mark.parametrize("block", [True, False])
def test_a_write_is_whole_whatever_the_reader_takes(pipe: tuple[int, int], block: bool) -> None:
    """A pipe that is full, and one that does not block, lose nothing."""
    path = Path(f"/dev/fd/{pipe[1]}")
    got = bytearray()

    def read() -> None:
        while data := os.read(pipe[0], 1000):
            got.extend(data)

    with open_output(path, binary=True) as out:
        # the output has a descriptor of its own of the same pipe
        os.close(pipe[1])
        os.set_blocking(out._descriptor, block)
        reader = threading.Thread(target=read)
        reader.start()
        assert out.write(memoryview(DATA)) == len(DATA)
        assert out.write(b"") == 0
        assert out.count == len(DATA)
    reader.join()
    assert got == DATA


def test_any_buffer_is_written_byte_by_byte(tmp_path: Path) -> None:
    """A view of numbers is written as the bytes that it holds."""
    with open_output(tmp_path / "out", binary=True) as out:
        assert out.write(memoryview(b"\1\0\2\0").cast("H")) == 4
    assert (tmp_path / "out").read_bytes() == b"\1\0\2\0"
