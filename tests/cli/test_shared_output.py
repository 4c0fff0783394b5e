from __future__ import annotations

import ast
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PRIVATE, RunPrivate, RunShell
from tests.conftest import clean_environment

DATA = bytes(range(256)) * 4096


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_pass_unchanged(private: RunPrivate, tmp_path: Path) -> None:
    """To standard output, to a file, and to ``-`` which is standard output."""
    assert private(stdin=DATA).stdout == DATA
    assert private("-o", "-", stdin=DATA).stdout == DATA
    done = private("-o", "out", stdin=DATA)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_bytes() == DATA
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("how", ["refusal", "machine", "usage", "bug", "memory"])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_failed_run_leaves_what_was_there(
    private: RunPrivate, tmp_path: Path, how: str, old: bytes | None
) -> None:
    """No temporary file, no half file, and the old file as it was."""
    out = tmp_path / "out"
    if old is not None:
        out.write_bytes(old)
    assert private("-o", "out", "--after", how, stdin=DATA).returncode != 0
    assert names(tmp_path) == ([] if old is None else ["out"])
    assert old is None or out.read_bytes() == old


def test_a_file_may_be_its_own_output(shell: RunShell, tmp_path: Path) -> None:
    """The input is read to its end before the output takes its name."""
    (tmp_path / "file").write_bytes(DATA)
    assert shell("$private -o file <file").returncode == 0
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_link_stays_and_its_file_is_replaced(private: RunPrivate, tmp_path: Path) -> None:
    """Also a chain of links, and one whose file is not there yet."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("second")
    (tmp_path / "second").symlink_to("folder/file")
    for data in (b"new", b"newer"):
        assert private("-o", "link", stdin=data).returncode == 0
        assert (tmp_path / "folder" / "file").read_bytes() == data
        assert (tmp_path / "link").readlink() == Path("second")
        assert (tmp_path / "second").readlink() == Path("folder/file")
        assert names(tmp_path / "folder") == ["file"]


def test_a_device_is_written_to_and_not_replaced(shell: RunShell) -> None:
    """/dev/null stays a device, and /dev/full gives its error."""
    assert shell("echo data | $private -o /dev/null && test -c /dev/null").returncode == 0
    done = shell("echo data | $private -o /dev/full; status=$?; test -c /dev/full; exit $status")
    assert done.returncode == 3
    assert done.stderr == b"private: failed: /dev/full: No space left on device\n"


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_by_its_path(shell: RunShell, tmp_path: Path, name: str) -> None:
    """It works on a pipe and on a file."""
    assert shell(f"echo data | $private -o {name} | cat").stdout == b"data\n"
    assert shell(f"echo data | $private -o {name} >out").returncode == 0
    assert (tmp_path / "out").read_bytes() == b"data\n"


def test_a_fifo_is_written_to(shell: RunShell) -> None:
    """A FIFO stays one."""
    done = shell("mkfifo f; cat f & echo data | $private -o f; wait; test -p f")
    assert done.returncode == 0
    assert done.stdout == b"data\n"


@pytest.mark.parametrize(
    ("out", "status", "message"),
    [
        ("folder", 2, "usage: folder is a folder: name a file in it"),
        ("folder/", 2, "usage: folder is a folder: name a file in it"),
        ("no/such", 3, "failed: no/such: No such file or directory"),
        ("file/in", 3, "failed: file/in: Not a directory"),
        ("loop", 3, "failed: loop: Too many levels of symbolic links"),
        ("x" * 300, 3, f"failed: {'x' * 300}: File name too long"),
        ("", 2, "usage: . is a folder: name a file in it"),
    ],
)
def test_a_place_that_cannot_be_written(
    private: RunPrivate, tmp_path: Path, out: str, status: int, message: str
) -> None:
    """The error names the file as the user did, not the temporary one."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    before = names(tmp_path)
    done = private("-o", out, stdin=DATA)
    assert done.returncode == status
    assert done.stderr.decode() == f"private: {message}\n"
    assert names(tmp_path) == before


def test_the_longest_name_can_be_written(private: RunPrivate, tmp_path: Path) -> None:
    """The temporary file's name does not grow with the file's."""
    assert private("-o", "x" * 255, stdin=b"data").returncode == 0
    assert names(tmp_path) == ["x" * 255]


def test_a_name_that_is_not_ascii_under_the_c_locale(private: RunPrivate, tmp_path: Path) -> None:
    """It is written to as it is, and shown as it is in an error."""
    env = {"LC_ALL": "C"}
    assert private("-o", "файл", stdin=b"data", env=env).returncode == 0
    assert (tmp_path / "файл").read_bytes() == b"data"
    done = private("-o", "тека/файл", stdin=b"data", env=env)
    assert done.stderr.decode() == "private: failed: тека/файл: No such file or directory\n"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize(
    ("old", "options", "expected"),
    [
        (None, [], 0o640),
        (None, ["--secret"], 0o600),
        (None, ["--secret", "--fresh"], 0o600),
        (0o664, [], 0o664),
        (0o400, [], 0o400),
        (0o4755, [], 0o755),
        (0o644, ["--secret"], 0o600),
    ],
)
def test_the_mode_of_a_file(
    private: RunPrivate, tmp_path: Path, old: int | None, options: list[str], expected: int
) -> None:
    """A new file has the umask's, an old one keeps its own, a secret is its owner's alone."""
    out = tmp_path / "out"
    if old is not None:
        out.touch()
        out.chmod(old)
    env = {"PRIVATE_UMASK": "027"}
    assert private("-o", "out", *options, stdin=b"data", env=env).returncode == 0
    assert mode(out) == expected
    assert out.read_bytes() == b"data"


def test_a_fresh_file_never_takes_an_old_ones_place(private: RunPrivate, tmp_path: Path) -> None:
    """Neither a file's nor a link's, also one that dangles."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        done = private("-o", name, "--fresh", stdin=b"new")
        assert done.returncode == 3
        assert done.stderr.decode() == f"private: failed: {name}: File exists\n"
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file", "link"]


def test_a_fresh_file_that_failed_is_removed(private: RunPrivate, tmp_path: Path) -> None:
    """So the same command can be run again."""
    assert private("-o", "out", "--fresh", "--after", "machine", stdin=b"new").returncode == 3
    assert names(tmp_path) == []


def test_an_output_knows_its_own_files(shell: RunShell, tmp_path: Path) -> None:
    """The old file, the one being written, and a file behind a redirection are all named."""
    old = tmp_path / "out"
    old.write_bytes(b"old")
    before = (old.stat().st_dev, old.stat().st_ino)
    assert shell("$private identities -o out").returncode == 0
    after = (old.stat().st_dev, old.stat().st_ino)
    assert after != before
    assert ast.literal_eval(old.read_text()) == sorted([before, after])
    assert shell("$private identities >out").returncode == 0
    assert ast.literal_eval(old.read_text()) == [after]


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_a_file_over_the_limit_leaves_the_old_one(tmp_path: Path) -> None:
    """A write that fails half way is one line and status 3."""
    out = tmp_path / "out"
    out.write_bytes(b"old")
    done = subprocess.run(
        [*PRIVATE, "-o", out],
        input=DATA,
        capture_output=True,
        env=clean_environment(),
        preexec_fn=limit_file_size,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.decode() == f"private: failed: {out}: File too large\n"
    assert out.read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB; only root can make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False).returncode != 0:
        pytest.skip("only root can mount a small disk, where the system lets it")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_leaves_the_old_file(private: RunPrivate, small_disk: Path) -> None:
    """It is one line and status 3, and no temporary file takes the room that is left."""
    out = small_disk / "out"
    out.write_bytes(b"old")
    done = private("-o", out, stdin=DATA)
    assert done.returncode == 3
    assert done.stderr.decode() == f"private: failed: {out}: No space left on device\n"
    assert out.read_bytes() == b"old"
    assert names(small_disk) == ["out"]
