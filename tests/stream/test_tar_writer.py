from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import END_NAME, FILE, MANIFEST_NAME, Phase
from agentmove_tools.stream.schedule import MAX_SCHEDULE_FILE
from agentmove_tools.stream.tar_reader import MoveReader
from agentmove_tools.stream.tar_writer import MoveWriter
from tests.conftest import lacking

Step: TypeAlias = Callable[[MoveWriter], None]

TIME: Final = 1_700_000_000
JOB: Final = b'{"id":"a"}'
# (path, kind, mode, mtime, content or target): every way that a name or a number is written
ENTRIES: Final[list[tuple[bytes, str, int, int, bytes]]] = sorted(
    [
        (b"files", "folder", 0o755, TIME, b""),
        (b"files/-rf", "file", 0o644, TIME, b"x"),
        (b"files/a\\b", "file", 0o600, TIME, b""),
        (b"files/new\nline", "file", 0o644, TIME, b"y" * 511),
        (b"files/old", "file", 0o644, -5, b"y" * 512),
        (b"files/far", "file", 0o644, 8**11 + 7, b"y" * 513),
        (b"files/link", "link", 0o777, TIME, b"old"),
        (b"files/link-far", "link", 0o777, TIME, b"t" * 101),
        (b"files/link-just", "link", 0o777, TIME, b"t" * 100),
        (b"files/link-\xc3\xa9", "link", 0o777, -1, "é".encode() * 60),
        (b"files/" + b"n" * 94, "file", 0o644, TIME, b"100"),
        (b"files/" + b"n" * 95, "file", 0o644, TIME, b"101"),
        (b"files/d" + b"n" * 92, "folder", 0o755, TIME, b""),
        (b"files/d" + b"n" * 93, "folder", 0o700, TIME, b""),
        (b"files/e" + b"n" * 92, "folder", 0o755, TIME, b""),
        # cut at 100 bytes, this one ends in a slash, as a folder's name does
        (b"files/e" + b"n" * 92 + b"/file", "file", 0o644, TIME, b"z"),
        ("files/é e\u0301 \U0001f600".encode(), "file", 0o755, TIME, "é".encode()),
        ("files/ü".encode(), "folder", 0o755, TIME, b""),
        (b"files/" + b"/".join([b"deep" * 10] * 60), "file", 0o644, TIME, b"deep"),
        (b"memory/vec/large", "file", 0o640, TIME, bytes(range(256)) * 5000),
    ]
)


def manifest(phase: Phase = "switch") -> Manifest:
    return Manifest(phase, "0" * 32, "0.1.0", Agent("a", "A"), "h")


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def put(writer: MoveWriter, path: bytes, content: bytes = b"x") -> None:
    writer.file(path, 0o644, TIME, content, sha256(content))


def stream(*, chunk: int | None = None) -> bytes:
    """Give the stream of ``ENTRIES``; with ``chunk``, its files come in pieces of that size."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    for path, kind, mode, mtime, what in ENTRIES:
        if kind == "folder":
            writer.folder(path, mode, mtime)
        elif kind == "link":
            writer.link(path, what, mtime)
        elif chunk is None:
            writer.file(path, mode, mtime, what, sha256(what))
        else:
            pieces = (memoryview(what)[at : at + chunk] for at in range(0, len(what), chunk))
            writer.file_chunks(path, mode, mtime, len(what), sha256(what), pieces)
    writer.end()
    return sink.getvalue()


WHOLE: Final = stream()


# -- what comes out


def test_the_reader_takes_it_as_it_was_given() -> None:
    """Each path, kind, mode, time, content and target."""
    reader = MoveReader(io.BytesIO(WHOLE))
    assert reader.manifest == manifest()
    got = []
    for entry in reader:
        what = reader.read() if entry.kind == FILE else entry.target or b""
        got.append((entry.path, entry.kind, entry.mode, entry.mtime, what))
    assert got == ENTRIES


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_it_is_the_same_whether_a_file_comes_whole_or_in_pieces(chunk: int) -> None:
    """The bytes depend on what is sent only."""
    assert stream(chunk=chunk) == WHOLE


def test_every_file_has_its_hash_also_the_manifest_and_the_end() -> None:
    """By another reader of tar; the manifest is first, and the end is last and empty."""
    with tarfile.open(fileobj=io.BytesIO(WHOLE)) as tar:
        members = tar.getmembers()
        for member in members:
            if member.isfile():
                file = tar.extractfile(member)
                assert file is not None
                assert member.pax_headers["LNK.sha256"] == sha256(file.read()).hex()
            else:
                assert "LNK.sha256" not in member.pax_headers
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
    assert members[0].name == MANIFEST_NAME.decode()
    assert (members[-1].name, members[-1].size) == (END_NAME.decode(), 0)
    assert [(m.name.encode(), m.mode, m.mtime) for m in members[1:-1]] == [
        (path, mode, mtime) for path, _, mode, mtime, _ in ENTRIES
    ]


def test_it_is_a_tar_of_whole_records() -> None:
    """Blocks of 512 bytes, two of zeros at the end, padded to 10240 as tar does."""
    assert len(WHOLE) % 10240 == 0
    end = WHOLE.rindex(END_NAME)
    assert WHOLE[end + 512 :] == bytes(len(WHOLE) - end - 512)
    assert len(WHOLE) - end >= 512 + 1024
    assert len(WHOLE) - end <= 512 + 1024 + 10240


def test_each_header_is_ustar_and_only_x_comes_before() -> None:
    """No GNU long names, no other extension; a PAX header says by its name what guards it.

    Those of files that hold a hash only are alike: the content guards it. Others have a sum of
    their records in their name.
    """
    names = set()
    at = 0
    while any(WHOLE[at : at + 512]):
        block = WHOLE[at : at + 512]
        assert block[257:265] == b"ustar\x0000"
        assert block[156:157] in b"025x"
        assert block[345:] == bytes(167)  # the prefix is never used
        size = int(block[124:135], 8)
        if block[156:157] == b"x":
            name = block[:100].rstrip(b"\0")
            names.add(name)
            records = WHOLE[at + 512 : at + 512 + size]
            if name != b"PaxHeaders/lnk":
                assert name == b"PaxHeaders/LNK.crc32=%08x" % zlib.crc32(records)
                next_name = WHOLE[at + 1024 : at + 1124].rstrip(b"\0")
                assert size != 79 or next_name in (MANIFEST_NAME, END_NAME)
        at += 512 + size + -size % 512
    assert len(names) > 3


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"files/" + b"n" * 95, None),
        ("files/é".encode(), None),
        (b"files/" + b"n" * 95, b"a"),
        (b"files/a", b"t" * 101),
        (b"files/a", "é".encode()),
    ],
)
def test_an_entry_that_lost_its_records_is_refused(path: bytes, target: bytes | None) -> None:
    """The header alone is never an entry at a cut path, or a link to a cut target."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    if target is None:
        writer.folder(path, 0o755, TIME)
    else:
        writer.link(path, target, TIME)
    writer.end()
    whole = sink.getvalue()
    assert [entry.path for entry in MoveReader(io.BytesIO(whole))] == [path]
    start = 1536 + len(manifest().to_json()) + -len(manifest().to_json()) % 512
    assert whole[start + 156 : start + 157] == b"x"
    with pytest.raises(Refusal) as caught:
        list(MoveReader(io.BytesIO(whole[:start] + whole[start + 1024 :])))
    assert caught.value.code in ("entry-folder", "entry-link")


def test_only_permission_bits_are_written() -> None:
    """A file that runs as its owner loses that."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    writer.folder(b"files", 0o41777, TIME)
    writer.file(b"files/a", 0o106755, TIME, b"x", sha256(b"x"))
    writer.file(b"files/\xc3\xa9", 0o104711, TIME, b"x", sha256(b"x"))
    writer.end()
    with tarfile.open(fileobj=io.BytesIO(sink.getvalue())) as tar:
        assert [member.mode for member in tar.getmembers()[1:-1]] == [0o777, 0o755, 0o711]


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 8**11 + 513])
def test_a_size_that_the_header_cannot_hold_goes_into_a_record(size: int) -> None:
    """From 8 GiB on; the header's own is 0 then."""
    writer = MoveWriter(io.BytesIO(), manifest())
    headers = writer._headers(b"files/a", FILE, 0o644, size, TIME, b"", sha256(b""))
    assert int(headers[-512:][124:135], 8) == (size if size < 8**11 else 0)
    with tarfile.open(fileobj=io.BytesIO(headers + bytes(1024))) as tar:
        member = tar.next()
        assert member is not None
        assert member.size == size


@settings(deadline=None)
@given(
    name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1),
    repeat=st.integers(1, 120),
    mode=st.integers(0, 0o7777),
    mtime=st.integers(-(10**17), 10**17),
    content=st.binary(max_size=1100),
)
def test_any_name_and_number_reads_back(
    name: str, repeat: int, mode: int, mtime: int, content: bytes
) -> None:
    """By this project's reader and by Python's."""
    path = b"files/x/" + (name * repeat).encode()[:4000].decode("utf-8", "ignore").encode() + b"x"
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    put(writer, b"files/x/\x01", content)  # so that the next one's folder is known to be good
    writer.file(path, mode, mtime, content, sha256(content))
    writer.end()
    reader = MoveReader(io.BytesIO(sink.getvalue()))
    last = None
    for entry in reader:
        assert reader.read() == content
        last = entry
    assert last is not None
    assert (last.path, last.mode, last.mtime) == (path, mode & 0o777, mtime)
    with tarfile.open(fileobj=io.BytesIO(sink.getvalue())) as tar:
        assert tar.getnames()[-2].encode() == path


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


@pytest.mark.parametrize("tar", [gnu_tar, bsdtar])
def test_other_tars_extract_it(tar: Callable[[], str], tmp_path: Path) -> None:
    """GNU tar and bsdtar make of it what was sent, and complain of nothing but the hashes."""
    got = subprocess.run(
        [tar(), "-x", "-p", "-f", "-", "-C", tmp_path],
        input=WHOLE,
        capture_output=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    complaints = [line for line in got.stderr.splitlines() if b"LNK.sha256" not in line]
    # GNU tar cannot put these two times into a file system, or finds them strange, and says so.
    complaints = [line for line in complaints if b"time stamp" not in line]
    assert complaints == []
    assert got.returncode == 0
    for path, kind, mode, mtime, what in ENTRIES:
        # bsdtar composes what it extracts, where the stream has it decomposed.
        name = unicodedata.normalize("NFC", path.decode()) if tar is bsdtar else path.decode()
        file = os.fsencode(tmp_path / name)
        info = os.lstat(file)
        if kind == "link":
            assert os.readlink(file) == what
            continue
        assert info.st_mode & 0o777 == mode
        if kind == "file":
            assert (tmp_path / name).read_bytes() == what
            assert int(info.st_mtime // 1) == mtime
    assert (tmp_path / END_NAME.decode()).read_bytes() == b""


# -- what is refused; nothing of it, and no end, ever comes out


def broken(do: Step, error: type[Exception], phase: Phase = "switch") -> Exception:
    """Do what raises ``error``; see that nothing can follow it. Gives the error."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest(phase))
    with pytest.raises(error) as caught:
        do(writer)
    later: list[Callable[[], None]] = [
        lambda: put(writer, b"files/zzz"),
        lambda: writer.folder(b"files/zzz", 0o755, TIME),
        lambda: writer.link(b"files/zzz", b"a", TIME),
        lambda: writer.file_chunks(b"files/zzz", 0o644, TIME, 1, sha256(b"x"), [b"x"]),
        writer.end,
        writer.end,
    ]
    for call in later:
        with pytest.raises(MachineError, match="nothing more can be written"):
            call()
    assert END_NAME not in sink.getvalue()
    assert b"zzz" not in sink.getvalue()
    return caught.value


def failing() -> Iterator[bytes]:
    yield b"x"
    raise OSError(5, "Input/output error")


def file(path: bytes, content: bytes = b"x") -> Step:
    return lambda writer: put(writer, path, content)


def folder(path: bytes) -> Step:
    return lambda writer: writer.folder(path, 0o755, TIME)


def link(path: bytes, target: bytes) -> Step:
    return lambda writer: writer.link(path, target, TIME)


def steps(*every: Step) -> Step:
    def run(writer: MoveWriter) -> None:
        for step in every:
            step(writer)

    return run


REFUSED: Final[list[tuple[str, Step]]] = [
    ("entry-path", file(b"files/../a")),
    ("entry-path", file(b"files/a/")),
    ("entry-path", file(b"files")),
    ("entry-path", file(b"files/\xff")),
    ("entry-path", file(b"files/" + b"a" * 4096)),
    ("entry-path", steps(file(b"files/a"), file(b"files/b\0c"))),
    ("entry-path", steps(file(b"files/a"), file(b"files/b\xff"))),
    ("entry-path", steps(file(b"files/-"), file(b"files/."))),
    ("entry-path", steps(file(b"files/-"), file(b"files/.."))),
    ("entry-path", steps(file(b"files/a"), file(b"files/" + b"b" * 4096))),
    ("entry-folder", file(b"agent.json")),
    ("entry-folder", file(END_NAME)),
    ("entry-folder", folder(b"logs")),
    ("entry-link", link(b"files/a", b"/etc/passwd")),
    ("entry-link", link(b"files/a", b"../x")),
    ("entry-link", link(b"connections/a", b"b")),
    ("entry-link", link(b"files", b"b")),
    ("entry-parent", steps(file(b"files/a"), file(b"files/a/b"))),
    ("entry-parent", steps(file(b"files/a"), file(b"files/a/b/c"))),
    ("entry-parent", steps(file(b"files/a"), folder(b"files/a/b"))),
    ("entry-parent", steps(link(b"files/a", b"b"), file(b"files/a/b"))),
    (
        "entry-parent",
        steps(file(b"files/a"), file(b"files/a-"), file(b"files/a-/b")),
    ),
    (
        "entry-parent",
        steps(
            file(b"files/a"),
            folder(b"files/a-"),
            file(b"files/a-/b"),
            file(b"files/a/b"),
        ),
    ),
    ("hash-missing", lambda w: w.file(b"files/a", 0o644, TIME, b"x", b"")),
    ("hash-missing", lambda w: w.file(b"files/a", 0o644, TIME, b"x", sha256(b"x")[1:])),
    ("hash-missing", lambda w: w.file_chunks(b"files/a", 0o644, TIME, 1, b"", [b"x"])),
    ("schedule-place", file(b"schedule/paused", b"")),
    ("schedule-place", file(b"schedule/later/a.json", JOB)),
    ("schedule-json", file(b"schedule/waiting/b.json", JOB)),
    ("schedule-json", file(b"schedule/waiting/a.json", JOB + b"\n")),
    ("schedule-json", file(b"schedule/waiting/a.json", b"[]")),
    ("schedule-json", file(b"schedule/waiting/a.json", b'{"id":1}')),
    ("schedule-json", file(b"schedule/day.json", JOB)),
    ("schedule-json", file(b"schedule/day.json", b"[1,2,3]")),
    ("schedule-json", file(b"schedule/day.json", bytes(MAX_SCHEDULE_FILE + 1))),
    (
        "schedule-json",
        lambda w: w.file_chunks(
            b"schedule/day.json", 0o644, TIME, 8, sha256(b"[1, 2 ] "), [b"[1, 2", b" ] "]
        ),
    ),
    (
        "schedule-json",
        lambda w: w.file_chunks(
            b"schedule/day.json", 0o644, TIME, MAX_SCHEDULE_FILE + 1, sha256(b""), failing()
        ),
    ),
]


@pytest.mark.parametrize(("code", "do"), REFUSED, ids=range(len(REFUSED)))
def test_it_refuses_what_the_reader_refuses(code: str, do: Step) -> None:
    """With the same code; and the stream never gets its end."""
    error = broken(do, Refusal)
    assert isinstance(error, Refusal)
    assert error.code == code


@pytest.mark.parametrize("path", [b"connections/a.json", b"schedule/day.json"])
def test_a_copy_has_no_secrets_and_no_jobs(path: bytes) -> None:
    """They are refused by their folder."""
    error = broken(lambda writer: put(writer, path, b"[1,2]"), Refusal, "copy")
    assert isinstance(error, Refusal)
    assert error.code == "entry-folder"


@pytest.mark.parametrize(
    "do",
    [
        steps(file(b"files/b"), file(b"files/a")),
        steps(file(b"files/b"), file(b"files/b")),
        steps(file(b"files/b/c"), folder(b"files/b")),
        steps(file(b"files/a/x"), file(b"files/a-b")),
    ],
    ids=range(4),
)
def test_entries_are_sorted_by_their_bytes(do: Step) -> None:
    """What is not, is the caller's mistake."""
    broken(do, ValueError)


PROMISED: Final = sha256(b"promised")


@pytest.mark.parametrize("path", [b"files/a", b"schedule/waiting/a.json"])
@pytest.mark.parametrize(
    "chunks",
    [[], [b"promise"], [b"promised", b"!"], [b"prom", b"isEd"], [b"promised" * 1000]],
)
def test_a_file_that_changed_meanwhile_is_no_stream(path: bytes, chunks: list[bytes]) -> None:
    """Shorter, longer or another: the machine failed, and the path is named."""
    error = broken(
        lambda writer: writer.file_chunks(path, 0o644, TIME, 8, PROMISED, chunks), MachineError
    )
    assert isinstance(error, MachineError)
    assert "changed" in error.message
    assert error.details["path"] == path.decode()


def test_no_more_is_written_of_a_file_than_was_promised() -> None:
    """One that grows for ever is not sent for ever."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    before = len(sink.getvalue())

    def grows() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000
        raise AssertionError

    with pytest.raises(MachineError):
        writer.file_chunks(b"files/a", 0o644, TIME, 5000, PROMISED, grows())
    assert len(sink.getvalue()) - before < 5000 + 10 * 512


def test_a_source_that_fails_breaks_the_stream() -> None:
    """What it raises comes out as it is."""
    error = broken(
        lambda writer: writer.file_chunks(b"files/a", 0o644, TIME, 2, PROMISED, failing()), OSError
    )
    assert isinstance(error, OSError)
    assert error.errno == 5


@pytest.mark.parametrize("calls", range(4))
def test_a_sink_that_fails_breaks_the_stream(calls: int) -> None:
    """Nobody knows what it took, so nothing more is given to it, whichever call failed."""

    class Full:
        def __init__(self) -> None:
            self.calls = 0
            self.failed = False

        def write(self, data: bytes | bytearray | memoryview, /) -> int:
            assert not self.failed
            self.calls += 1
            if self.calls > calls:
                self.failed = True
                raise OSError(28, "No space left on device")
            return len(data)

    sink = Full()
    writer = MoveWriter(sink, manifest())
    large = bytes((1 << 20) + 1)

    def send() -> None:
        put(writer, b"files/a", large)
        writer.file_chunks(b"files/b", 0o644, TIME, 1, sha256(b"x"), [b"x"])
        put(writer, b"files/c")
        writer.end()

    with pytest.raises(OSError, match="No space"):
        send()
    for call in (writer.end, lambda: put(writer, b"files/z")):
        with pytest.raises(MachineError):
            call()


def test_a_stream_has_one_end_and_nothing_after_it() -> None:
    """The end is written once."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    writer.end()
    whole = sink.getvalue()
    for call in (writer.end, lambda: put(writer, b"schedule/day.json", b"[1,2]")):
        with pytest.raises(MachineError):
            call()
    assert sink.getvalue() == whole
    assert list(MoveReader(io.BytesIO(whole))) == []


# -- what is taken


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_schedule_is_taken(in_pieces: bool) -> None:
    """Its files in the one form, whole or in pieces."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    files = {b"schedule/day.json": b'["2026-12-01",3]', b"schedule/waiting/a.json": JOB}
    for path, content in files.items():
        if in_pieces:
            pieces: list[bytes | memoryview] = [content[:5], memoryview(content)[5:]]
            writer.file_chunks(path, 0o600, TIME, len(content), sha256(content), pieces)
        else:
            put(writer, path, content)
    writer.end()
    reader = MoveReader(io.BytesIO(sink.getvalue()))
    assert {entry.path: reader.read() for entry in reader} == files


def test_names_that_start_alike_are_no_parents() -> None:
    """Sorted by bytes, other names stand between a folder and what is in it."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest())
    writer.folder(b"files/a", 0o755, TIME)
    paths = [b"files/a-b", b"files/a-b.c", b"files/a.b", b"files/a/x", b"files/a0", b"files/ab"]
    for path in paths:
        put(writer, path)
    writer.end()
    got = [entry.path for entry in MoveReader(io.BytesIO(sink.getvalue()))]
    assert got == [b"files/a", *paths]


def test_any_link_is_taken_where_that_was_asked_for() -> None:
    """With a target that some link can have."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, manifest(), any_links=True)
    writer.link(b"files/a", b"/etc/passwd", TIME)
    with pytest.raises(Refusal):
        writer.link(b"files/b", b"", TIME)
    writer = MoveWriter(sink := io.BytesIO(), manifest(), any_links=True)
    writer.link(b"files/a", b"/etc/passwd", TIME)
    writer.end()
    (entry,) = MoveReader(io.BytesIO(sink.getvalue()), any_links=True)
    assert entry.target == b"/etc/passwd"


def test_it_is_written_in_large_pieces() -> None:
    """About 1 MiB a call, and what has waited is not held for longer."""
    sizes = []

    class Sink:
        def write(self, data: bytes | bytearray | memoryview, /) -> int:
            sizes.append(len(data))
            return len(data)

    writer = MoveWriter(Sink(), manifest())
    for number in range(3000):
        put(writer, b"files/%04d" % number, bytes(1024))
    writer.end()
    assert all(size < (1 << 20) + 4096 for size in sizes)
    assert len(sizes) <= 1 + sum(sizes) // (1 << 20)
