from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools.stream.paths import END_NAME, MANIFEST_NAME
from tests.conftest import lacking
from tests.stream.tars import MANIFEST, Read, digest, hashed, read, stream

TIME = 1_600_000_000
NAMES = [
    "files/a.txt",
    "files/-dash",
    "files/sp ace",
    "files/é \U0001f600",
    "files/" + "n" * 94,
    "files/" + "n" * 95,
    "files/" + "d" * 90 + "/" + "n" * 120,
    "files/" + "/".join(["deep" * 10] * 8),
]
LINKS = {
    "files/link": "a.txt",
    "files/link-far": "t" * 180,
    "files/" + "d" * 90 + "/" + "l" * 120: "../" + "t" * 180,
}


def gnu_tar() -> str:
    for name in ("gtar", "tar"):
        path = shutil.which(name)
        if path is not None:
            said = subprocess.run([path, "--version"], capture_output=True, check=False).stdout
            if b"GNU tar" in said:
                return path
    lacking("GNU tar is not installed")
    raise AssertionError


def bsdtar() -> str:
    path = shutil.which("bsdtar")
    if path is None:
        lacking("bsdtar is not installed")
        raise AssertionError
    return path


def run(*arguments: str | Path, cwd: Path) -> bytes:
    done = subprocess.run(
        arguments,
        cwd=cwd,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=True,
    )
    return done.stdout


def entry_of(archive: bytes) -> bytes:
    """Give the one entry of an archive, without the zeros at its end."""
    blocks = [archive[at : at + 512] for at in range(0, len(archive), 512)]
    while blocks[-1] == bytes(512):
        blocks.pop()
    return b"".join(blocks)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make the files and links, and a manifest and an end beside them."""
    for number, name in enumerate(NAMES):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name * number)
        file.chmod(0o640)
        os.utime(file, (TIME + 0.75, TIME + 0.75))
    for name, target in LINKS.items():
        (tmp_path / name).symlink_to(target)
        os.utime(tmp_path / name, (TIME, TIME), follow_symlinks=False)
    (tmp_path / MANIFEST_NAME.decode()).write_bytes(MANIFEST % b"copy")
    (tmp_path / END_NAME.decode()).write_bytes(b"")
    return tmp_path


def expected(names: list[str], links: dict[str, str]) -> list[Read]:
    found: list[Read] = [
        (name.encode(), "file", 0o640, TIME, (name * NAMES.index(name)).encode()) for name in names
    ]
    found += [(name.encode(), "link", 0o777, TIME, t.encode()) for name, t in links.items()]
    return found


def test_a_stream_of_gnu_tar_is_understood(home: Path) -> None:
    """Its PAX archives, with the hash as one more record, one after the other."""
    tar = gnu_tar()

    def entry(name: str, *options: str) -> bytes:
        return entry_of(run(tar, "--format=pax", "-n", *options, "-cf", "-", "--", name, cwd=home))

    def hashed_entry(name: str) -> bytes:
        option = f"--pax-option=LNK.sha256:={digest((home / name).read_bytes()).decode()}"
        return entry(name, option)

    parts = [hashed_entry(MANIFEST_NAME.decode())]
    parts += map(hashed_entry, NAMES)
    parts += map(entry, LINKS)
    parts += [hashed_entry(END_NAME.decode()), bytes(10240)]
    assert read(b"".join(parts)) == expected(NAMES, LINKS)


FORMS: Final = [
    *((gnu_tar, form) for form in ("gnu", "oldgnu", "ustar", "v7", "posix")),
    *((bsdtar, form) for form in ("gnutar", "ustar", "v7", "pax")),
]


@pytest.mark.parametrize(("tar", "form"), FORMS)
def test_the_headers_of_other_tars_are_understood(
    home: Path, tar: Callable[[], str], form: str
) -> None:
    """Where they come behind this project's PAX header with the hash.

    Not those that have a PAX header of their own: one is the most that may come before an entry.
    """
    command = tar()

    def entry(name: str) -> bytes | None:
        try:
            archive = run(command, f"--format={form}", "-n", "-cf", "-", "--", name, cwd=home)
        except subprocess.CalledProcessError:
            return None  # a name or a target that this form has no room for
        return entry_of(archive) if any(archive) else None

    taken = []
    parts = []
    for name in NAMES:
        found = entry(name)
        if found is not None and found[156:157] != b"x":
            parts += [hashed((home / name).read_bytes()), found]
            taken.append(name)
    links = {name: found for name in LINKS if (found := entry(name)) is not None}
    parts += links.values()
    assert read(stream(*parts, phase=b"copy")) == expected(taken, {n: LINKS[n] for n in links})
    assert len(taken) >= 3 or form in ("pax", "posix")
    assert "files/link" in links


def test_a_folder_of_other_tars_is_understood(home: Path) -> None:
    """With a slash at its end, and its mode."""
    (home / "files/folder").mkdir(mode=0o750)
    os.utime(home / "files/folder", (TIME, TIME))
    for tar in (gnu_tar(), bsdtar()):
        archive = run(tar, "--format=ustar", "-cf", "-", "files/folder", cwd=home)
        assert read(stream(entry_of(archive))) == [(b"files/folder", "folder", 0o750, TIME, b"")]


def test_what_other_tars_make_of_hard_links_is_refused(home: Path) -> None:
    """They are not followed, whatever they are linked to."""
    from agentmove_tools.refusals import Refusal

    os.link(home / "files/a.txt", home / "files/b.txt")
    for tar in (gnu_tar(), bsdtar()):
        archive = run(tar, "--format=ustar", "-cf", "-", "files/a.txt", "files/b.txt", cwd=home)
        with pytest.raises(Refusal) as caught:
            read(stream(hashed(b""), entry_of(archive)))
        assert caught.value.code == "entry-type"
        assert caught.value.details["path"] == "files/b.txt"
