from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.folder import FolderSource, open_folder
from agentmove_tools.package.pack import pack
from agentmove_tools.package.sources import ArchiveSource
from agentmove_tools.refusals import Refusal
from tests.conftest import lacking
from tests.package.zips import (
    DEFLATED,
    DESCRIBED,
    DOS,
    FILE_MODE,
    MACOS,
    RUN_MODE,
    Fields,
    Zipped,
    archive,
    deflated,
    descriptor,
    field,
)

RUN: Final = "skills/office/звіти/scripts/build"
AGENT: Final[dict[str, bytes]] = {
    "SOUL.md": "# Душа é\r\n".encode(),
    "agent.config.json": b'{"id": "agent-of-tests", "name": "\\u0410"}\n',
    "USER.md": b"",
    "HEARTBEAT.md": b"- check mail\n",
    "MEMORY.md": b"a text, " * 5000,
    "memory/2026-11-30.md": b"a day\n",
    "memory/люди/Ганна й Ї.md": "é".encode() * 99,
    "memory/café ñ å.md": b"coffee\n",
    "skills/pdf/SKILL.md": b"---\nname: pdf\ndescription: d\n---\n",
    "skills/pdf/all bytes.bin": bytes(range(256)) * 3,
    "skills/office/звіти/SKILL.md": "---\nname: звіти\ndescription: d\n---\n".encode(),
    RUN: b"#!/bin/sh\n",
    "skills/office/звіти/a/b/c/d/глибоко.txt": b"deep\n",
    "data/secrets/shared.json": b'{"pendingKeys":["TOKEN"]}\n',
    "data/access.json": b'{"telegram:u42": {"role": "owner"}}\n',
    "data/sessions/telegram:u42.jsonl": b'{"data":{"text":"hi"},"id":"1","ts":1,"type":"user"}\n',
}
EMPTY: Final = ("memory/empty", "skills/pdf/empty/порожня")
FOLDERS: Final = sorted(
    {
        str(above)
        for path in (*AGENT, *(f"{name}/x" for name in EMPTY))
        for above in Path(path).parents
    }
    - {"."}
)
LOCALE: Final = {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make the agent's folder, with folders that are empty and a file that can be run."""
    folder = tmp_path / ".agent"
    for path in FOLDERS:
        (folder / path).mkdir(parents=True, exist_ok=True)
    for path, content in AGENT.items():
        assert unicodedata.is_normalized("NFC", path)
        (folder / path).write_bytes(content)
        (folder / path).chmod(0o755 if path == RUN else 0o644)
    return folder


def packed(data: bytes) -> bytes:
    """What an archive's package is packed to; it is right, and nothing in it is unknown."""
    package = Package(ArchiveSource(Archive(data)), Options(strict=True))
    package.check()
    return b"".join(pack(package))


def ours(folder: Path) -> bytes:
    root = open_folder(os.fsencode(folder))
    try:
        return b"".join(pack(Package(FolderSource(root), Options())))
    finally:
        os.close(root)


def program(*names: str) -> str:
    """Give the path of the first of these programs that there is."""
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    lacking(f"{names[0]} is not installed")
    raise AssertionError


def run(*arguments: str | Path, cwd: Path) -> bytes:
    done = subprocess.run(
        arguments, cwd=cwd, capture_output=True, env={**os.environ, **LOCALE}, check=True
    )
    return done.stdout


def shell(command: str, cwd: Path) -> bytes:
    return run("/bin/sh", "-c", command, cwd=cwd)


# -- what others pack

Packer = Callable[[Path], bytes]


def to_file(*command: str) -> Packer:
    """Run a packer in the folder; ``OUT`` is the archive that it makes."""

    def pack_it(folder: Path) -> bytes:
        out = folder.parent / "out.zip"
        run(program(command[0]), *(out if a == "OUT" else a for a in command[1:]), cwd=folder)
        return out.read_bytes()

    return pack_it


def to_pipe(command: str) -> Packer:
    """Run a packer in the folder that writes to a pipe."""

    def pack_it(folder: Path) -> bytes:
        program(command.split(maxsplit=1)[0])
        return shell(f"{command} | cat", folder)

    return pack_it


def of_names(folder: Path) -> bytes:
    """Pack by Info-ZIP what its standard input names, to a pipe."""
    program("zip")
    return shell("find . -print | zip -q -@ - | cat", folder)


def from_above(*command: str) -> Packer:
    """Run a packer beside the folder, so that its name is the top of each path."""

    def pack_it(folder: Path) -> bytes:
        out = folder.parent / "out.zip"
        arguments = (out if a == "OUT" else a for a in command[1:])
        run(program(command[0]), *arguments, folder.name, cwd=folder.parent)
        return out.read_bytes()

    return pack_it


def by_zipfile(method: int, *, with_folders: bool = False) -> Packer:
    def pack_it(folder: Path) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as made:
            for path in sorted(folder.rglob("*")):
                if with_folders or path.is_file():
                    made.write(path, path.relative_to(folder))
        return out.getvalue()

    return pack_it


def by_zipfile_to_pipe(folder: Path) -> bytes:
    """Pack by Python to where it cannot seek, with sizes in 64 bits."""
    code = (
        "import sys, zipfile, pathlib\n"
        "with zipfile.ZipFile(sys.stdout.buffer, 'w', zipfile.ZIP_DEFLATED) as made:\n"
        "    for path in pathlib.Path().rglob('*'):\n"
        "        if path.is_file():\n"
        "            info = zipfile.ZipInfo.from_file(path)\n"
        "            info.compress_type = zipfile.ZIP_DEFLATED\n"
        "            with made.open(info, 'w', force_zip64=True) as sink:\n"
        "                sink.write(path.read_bytes())\n"
    )
    (folder.parent / "pipe.py").write_text(code)
    return shell(f"'{sys.executable}' ../pipe.py | cat", folder)


def by_bsdtar_to_pipe(folder: Path) -> bytes:
    """Pack by bsdtar, without the zeros that it fills its last block with, as those of a tar."""
    data = to_pipe("bsdtar --format zip -cf - .")(folder)
    end = data.rindex(b"PK\5\6") + 22
    assert not any(data[end:])
    return data[:end]


def by_shutil(folder: Path) -> bytes:
    return Path(shutil.make_archive(str(folder.parent / "made"), "zip", folder)).read_bytes()


def by_shutil_from_above(folder: Path) -> bytes:
    made = shutil.make_archive(str(folder.parent / "made"), "zip", folder.parent, folder.name)
    return Path(made).read_bytes()


TIMES: Final = field(0x5455, b"\3" + bytes(8)) + field(0x7875, b"\1\4\0\0\0\0\4\0\0\0\0")


def as_macos_does(folder: Path) -> bytes:
    """Archive Utility: a top folder, decomposed names without the flag, and ``__MACOSX``."""
    unknown: Fields = {"crc": 0, "compressed": 0, "size": 0}
    parts = [Zipped(f"{folder.name}/".encode(), flags=0, made_by=MACOS, extra=TIMES)]

    def add(path: str, content: bytes, attributes: int) -> None:
        parts.append(
            Zipped(
                unicodedata.normalize("NFD", path).encode(),
                content,
                method=DEFLATED,
                flags=DESCRIBED,
                made_by=MACOS,
                attributes=attributes,
                header={**unknown, "extra": TIMES},
                record={"extra": TIMES},
                behind=descriptor(content, deflated(content)),
            )
        )

    for path in FOLDERS:
        name = unicodedata.normalize("NFD", f"{folder.name}/{path}/")
        parts.append(Zipped(name.encode(), flags=0, made_by=MACOS, extra=TIMES))
    for path, content in AGENT.items():
        above, _, name = f"{folder.name}/{path}".rpartition("/")
        add(f"{above}/{name}", content, RUN_MODE if path == RUN else FILE_MODE)
        add(f"__MACOSX/{above}/._{name}", b"\0\5\x16\7" + bytes(60), FILE_MODE)
    add(f"{folder.name}/.DS_Store", b"\0\0\0\1Bud1", FILE_MODE)
    return archive(*parts)


def as_powershell_does(folder: Path) -> bytes:
    """Windows PowerShell 5: backslashes, no slash, no modes, and empty folders as entries."""
    parts = [
        Zipped(
            path.replace("/", "\\").encode(), content, method=DEFLATED, made_by=DOS, attributes=0
        )
        for path, content in AGENT.items()
    ]
    parts += [
        Zipped(path.replace("/", "\\").encode() + b"\\", made_by=DOS, attributes=0)
        for path in EMPTY
    ]
    return archive(*parts)


SEVEN: Final = ("a", "-tzip", "-mcu=on", "-bd")
PACKERS: Final[dict[str, Packer]] = {
    "Info-ZIP": to_file("zip", "-q", "-r", "OUT", "."),
    "Info-ZIP, stored": to_file("zip", "-q", "-0", "-r", "OUT", "."),
    "Info-ZIP, best": to_file("zip", "-q", "-9", "-r", "OUT", "."),
    "Info-ZIP, no folders": to_file("zip", "-q", "-D", "-r", "OUT", "."),
    "Info-ZIP, no extra fields": to_file("zip", "-q", "-X", "-r", "OUT", "."),
    "Info-ZIP, names in UTF-8": to_file("zip", "-q", "-UN=UTF8", "-r", "OUT", "."),
    "Info-ZIP, descriptors": to_file("zip", "-q", "-fd", "-r", "OUT", "."),
    "Info-ZIP, 64 bits": to_file("zip", "-q", "-fz", "-r", "OUT", "."),
    "Info-ZIP, to a pipe": to_pipe("zip -q -r - ."),
    "Info-ZIP, stored, to a pipe": to_pipe("zip -q -0 -r - ."),
    "Info-ZIP, of names, to a pipe": of_names,
    "Info-ZIP, from above": from_above("zip", "-q", "-r", "OUT"),
    "bsdtar": to_file("bsdtar", "--format", "zip", "-cf", "OUT", "."),
    "bsdtar, stored": to_file(
        "bsdtar", "--format", "zip", "--options", "zip:compression=store", "-cf", "OUT", "."
    ),
    "bsdtar, 64 bits": to_file(
        "bsdtar", "--format", "zip", "--options", "zip:zip64", "-cf", "OUT", "."
    ),
    "bsdtar, to a pipe": by_bsdtar_to_pipe,
    "bsdtar, from above": from_above("bsdtar", "--format", "zip", "-cf", "OUT"),
    "7z": to_file("7z", *SEVEN, "OUT", "."),
    "7z, stored": to_file("7z", *SEVEN, "-mx0", "OUT", "."),
    "7z, best": to_file("7z", *SEVEN, "-mx9", "OUT", "."),
    "7z, names as they come": to_file("7z", "a", "-tzip", "-bd", "OUT", "."),
    "7z, from above": from_above("7z", *SEVEN, "OUT"),
    "Python": by_zipfile(zipfile.ZIP_DEFLATED),
    "Python, stored, with folders": by_zipfile(zipfile.ZIP_STORED, with_folders=True),
    "Python, to a pipe": by_zipfile_to_pipe,
    "shutil": by_shutil,
    "shutil, from above": by_shutil_from_above,
    "like macOS": as_macos_does,
}


@pytest.mark.parametrize("name", PACKERS)
def test_the_agent_that_others_pack_is_the_same(folder: Path, name: str) -> None:
    """What it is packed to again are the bytes that the folder itself is packed to."""
    assert packed(PACKERS[name](folder)) == ours(folder)


def test_an_archive_of_powershell_is_the_same_agent(folder: Path) -> None:
    """All but which of its files can be run: Windows does not know."""
    (folder / RUN).chmod(0o644)
    assert packed(as_powershell_does(folder)) == ours(folder)


def test_zeros_that_bsdtar_puts_after_the_end_are_refused(folder: Path) -> None:
    """They are bytes after the end, as any others."""
    data = to_pipe("bsdtar --format zip -cf - .")(folder)
    assert len(data) % 10240 == 0
    with pytest.raises(Refusal) as caught:
        Archive(data)
    assert caught.value.code == "package-damaged"
    assert "something follows it" in caught.value.message
    assert "-f FILE" in (caught.value.hint or "")


def test_an_archive_that_zip_changed_is_read(folder: Path) -> None:
    """What it adds, takes out and brings up to date leaves nothing between."""
    expected = ours(folder)
    memory = folder / "memory/2026-11-30.md"
    content = memory.read_bytes()
    out = folder.parent / "out.zip"
    memory.write_bytes(b"as it was before")
    (folder / "AGENTS.md").write_bytes(b"no part of a package")
    run(program("zip"), "-q", "-r", out, ".", cwd=folder)
    memory.write_bytes(content)
    run(program("zip"), "-q", out, "memory/2026-11-30.md", cwd=folder)
    run(program("zip"), "-q", "-d", out, "AGENTS.md", cwd=folder)
    assert packed(out.read_bytes()) == expected


def test_an_archive_that_python_added_to_is_read(folder: Path) -> None:
    """Also to one of ours."""
    expected = ours(folder)
    later = folder / "memory/2026-11-30.md"
    content = later.read_bytes()
    later.unlink()
    for data in (ours(folder), by_shutil(folder)):
        out = io.BytesIO(data)
        with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as made:
            made.writestr(zipfile.ZipInfo("memory/2026-11-30.md"), content)
        assert packed(out.getvalue()) == expected


def test_what_others_pack_of_one_more_file_is_another_agent(folder: Path) -> None:
    """The comparison above can fail."""
    before = ours(folder)
    (folder / "skills/pdf/more").write_bytes(b"")
    assert packed(by_shutil(folder)) != before
    assert packed(by_shutil(folder)) == ours(folder)


# -- what others unpack of ours


def by_unzip(package: Path, to: Path) -> None:
    run(program("unzip"), "-q", package, "-d", to, cwd=to)


def by_bsdtar(package: Path, to: Path) -> None:
    run(program("bsdtar"), "-xf", package, "-C", to, cwd=to)


def by_bsdtar_from_pipe(package: Path, to: Path) -> None:
    program("bsdtar")
    shell(f"cat '{package}' | bsdtar -xf - -C '{to}'", to)


def by_7z(package: Path, to: Path) -> None:
    run(program("7z", "7zz", "7za"), "x", "-bd", package, f"-o{to}", cwd=to)


def by_python(package: Path, to: Path) -> None:
    with zipfile.ZipFile(package) as opened:
        opened.extractall(to)


def by_shutil_unpack(package: Path, to: Path) -> None:
    shutil.unpack_archive(package, to)


UNPACKERS: Final[dict[str, tuple[Callable[[Path, Path], None], bool]]] = {
    "unzip": (by_unzip, True),
    "bsdtar": (by_bsdtar, True),
    # what streams reads no directory, where the modes are
    "bsdtar, from a pipe": (by_bsdtar_from_pipe, False),
    "7z": (by_7z, True),
    "Python": (by_python, False),
    "shutil": (by_shutil_unpack, False),
}


@pytest.mark.parametrize("name", UNPACKERS)
def test_others_unpack_ours_the_same(folder: Path, tmp_path: Path, name: str) -> None:
    """Names and contents, and where the unpacker knows of modes, which of them can be run."""
    unpacker, with_modes = UNPACKERS[name]
    package = tmp_path / "package.zip"
    package.write_bytes(ours(folder))
    to = tmp_path / "to"
    to.mkdir()
    unpacker(package, to)
    files = {p.relative_to(to).as_posix(): p.read_bytes() for p in to.rglob("*") if p.is_file()}
    assert files == AGENT
    folders = {p.relative_to(to).as_posix() for p in to.rglob("*") if p.is_dir()}
    assert folders == {str(above) for path in AGENT for above in Path(path).parents} - {"."}
    if with_modes:
        runs = [path for path in files if (to / path).stat().st_mode & 0o111]
        assert runs == [RUN]
        assert ours(to) == package.read_bytes()


@pytest.mark.parametrize(
    "command",
    [("unzip", "-tq"), ("7z", "t"), ("bsdtar", "-tvf"), ("zip", "-T")],
    ids=lambda command: command[0],
)
def test_others_find_nothing_wrong_with_ours(
    folder: Path, tmp_path: Path, command: tuple[str, str]
) -> None:
    """Their own tests of an archive pass, and say no word of a warning."""
    package = tmp_path / "package.zip"
    package.write_bytes(ours(folder))
    done = subprocess.run(
        [program(command[0]), command[1], package],
        capture_output=True,
        env={**os.environ, **LOCALE},
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"arning" not in done.stdout
