from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.packages import (
    CONFIG,
    SESSION,
    SHAPES,
    Files,
    dense,
    long_text,
    one_event,
    smallest_events,
    write_package,
)
from tests.memory import peak_memory
from tests.stream.tars import END, hashed, header, manifest, padded

MIB = 1 << 20


def write_stream(place: Path, count: int, size: int) -> Path:
    """Write a stream of so many files of so many bytes."""
    content = b"x" * size
    before, after = hashed(content), padded(content)
    with place.open("wb") as out:
        out.write(manifest())
        for number in range(count):
            out.write(before + header(b"files/some/folder/%08d" % number, b"0", size) + after)
        out.write(END + bytes(1024))
    return place


@pytest.mark.parametrize("name", ["lnk-tar-verify", "lnk-tar-list"])
def test_a_filter_of_streams_does_not_hold_them(name: str, tmp_path: Path) -> None:
    """Fifty megabytes, in many files or in one, take little more than a few kilobytes do."""
    least = peak_memory(name, source=write_stream(tmp_path / "few", 3, 1000))
    for count, size in ((800, 1 << 16), (1, 50 * MIB)):
        source = write_stream(tmp_path / "much", count, size)
        assert peak_memory(name, source=source) - least < 10 * MIB


@pytest.mark.parametrize(("name", "count"), [("lnk-tar-verify", 200_000), ("lnk-tar-list", 50_000)])
def test_an_entry_takes_a_few_hundred_bytes(name: str, count: int, tmp_path: Path) -> None:
    """Its path and hash have to be remembered, and that is all."""
    least = peak_memory(name, source=write_stream(tmp_path / "few", 10, 0))
    most = peak_memory(name, source=write_stream(tmp_path / "many", count, 0))
    # That it is over a few bytes shows that it was measured.
    assert 20 * count < most - least < 300 * count


def test_zeros_after_the_end_are_not_held(tmp_path: Path) -> None:
    """However many there are, and though the end waits for the last of them."""
    source = write_stream(tmp_path / "few", 3, 1000)
    least = peak_memory("lnk-tar-verify", source=source)
    with source.open("r+b") as file:
        file.truncate(source.stat().st_size + 200 * MIB)
    assert peak_memory("lnk-tar-verify", source=source) - least < 10 * MIB


# -- agent packages


def package_of(place: Path, files: Files) -> Path:
    """Write the package of the smallest agent with these files."""
    smallest: Files = {"SOUL.md": (b"# Bench\n",), "agent.config.json": (CONFIG,)}
    write_package(place, smallest | files)
    return place


def package_peak(name: str, package: Path) -> int:
    """Give the most bytes that the tool held; ``agentfy-unpack`` puts it beside the package."""
    new = (package.with_suffix(".new"),) if name == "agentfy-unpack" else ()
    return peak_memory(name, *map(str, new), source=package)


@pytest.mark.parametrize("name", ["agentfy-verify", "agentfy-unpack"])
def test_a_text_in_a_package_is_not_held(name: str, here: Path) -> None:
    """A hundred megabytes of text, packed, take little more than a few bytes do."""
    least = package_peak(name, package_of(here / "few.zip", {}))
    source = package_of(here / "much.zip", {"SOUL.md": long_text(100 * MIB)})
    assert package_peak(name, source) - least < 20 * MIB


@pytest.mark.parametrize("name", ["agentfy-verify", "agentfy-unpack"])
def test_an_event_of_a_package_takes_a_few_hundred_bytes(name: str, here: Path) -> None:
    """That it was there has to be remembered, and that is all."""
    count = 100_000
    least = package_peak(name, package_of(here / "few.zip", {}))
    source = package_of(here / "many.zip", {SESSION: smallest_events(count, count)})
    # That it is over a few bytes shows that it was measured.
    assert 20 * count < package_peak(name, source) - least < 300 * count


@pytest.mark.parametrize("name", ["agentfy-verify", "agentfy-unpack"])
def test_dense_json_in_a_package_is_not_held_as_values(name: str, here: Path) -> None:
    """All of Python's lists for such a text would take over twenty times its size."""
    size = 4 * MIB
    least = package_peak(name, package_of(here / "few.zip", {}))
    source = package_of(here / "dense.zip", {SESSION: one_event(dense(SHAPES["lists"], size))})
    assert package_peak(name, source) - least < 12 * size
