"""The agent packages that are measured, written in pieces and the same each time.

Nothing here is held as a whole but names: what measures memory must not hold much itself.
"""

from __future__ import annotations

import bisect
import itertools
import json
import multiprocessing
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.measure import BrokenRunError

CONFIG: Final = b'{"id": "agent-1", "name": "Bench"}\n'
SESSION: Final = "data/sessions/web:user-1.jsonl"
_FILLER: Final = b"---\nname: filler\ndescription: It fills.\n---\n"
_PIECE: Final = 1 << 18
_BATCH: Final = 1 << 14  # items that are made at once
_START: Final = 1_600_000_000_000  # milliseconds
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TYPES: Final = ("user", "assistant", "tool_call", "tool_result")
_WORDS: Final = (
    "the of to and in a is that for on it was with as be by at from this are or have an they not "
    "which one you were all there would their we when who will more no if out so said what up its "
    "about into than them can only other new some could time these two may then do first any my "
    "now such like our over man me even most made after also did many before must through back "
    "years where much your way well down should because each just those people how too little "
    "state good very make world still own see work long get here between both life being under "
    "never day same another know while last might us great old year off come since against go came "
    "right used take three café naïve agent memory skill session platform team report customer "
    "invoice meeting Tuesday server deploy database schema index query answer question summary"
)

# path -> the content's pieces, in the archive's order
Files = dict[str, Iterable[bytes]]


# -- texts


class Text:
    """Realistic text from a seed: sentences of common words, of which the first come most often."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self._words = _WORDS.split()
        self._weights = list(itertools.accumulate(1 / (3 + n) for n in range(len(self._words))))

    def words(self, count: int) -> str:
        """So many words."""
        return " ".join(self._source.choices(self._words, cum_weights=self._weights, k=count))

    def markdown(self, least: int, most: int) -> str:
        """A text of a length between the two, in characters."""
        length = self._source.randint(least, most)
        text = f"# {self.words(4)}\n\n"
        while len(text) < length:
            sentence = self.words(self._source.randint(5, 18))
            end = "\n\n- " if self._source.random() < 0.1 else " "
            text += f"{sentence[:1].upper()}{sentence[1:]}.{end}"
        return text[:length].rstrip() + "\n"


def make_agent(folder: Path, count: int) -> Path:
    """An agent's folder with ``count`` files of 0.3 to 4 KiB: three in five are of skills."""
    text = Text(1)
    (folder / "memory").mkdir(parents=True)
    (folder / "agent.config.json").write_bytes(CONFIG)
    for name in ("SOUL.md", "USER.md", "MEMORY.md"):
        _write(folder / name, text.markdown(300, 4000))
    of_skills = (count - 4) * 3 // 5
    for number in range(of_skills):
        skill = folder / "skills" / f"skill-{number // 15:04}"
        if number % 15 == 0:
            skill.mkdir(parents=True)
            head = f"---\nname: {skill.name}\ndescription: {text.words(12)}\n---\n\n"
            _write(skill / "SKILL.md", head + text.markdown(300, 3800))
        else:
            folder_of_assets = skill / ("references" if number % 2 else "scripts")
            folder_of_assets.mkdir(exist_ok=True)
            _write(folder_of_assets / f"part-{number % 15:02}.md", text.markdown(300, 4000))
    for number in range(count - 4 - of_skills):
        day = f"{2000 + number // 336}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}"
        _write(folder / "memory" / f"{day}-note.md", text.markdown(300, 4000))
    return folder


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def talk(count: int, sessions: int, *, new_at: float | None = None) -> Files:
    """An agent with ``count`` events of about 200 bytes over so many sessions, and little else.

    ``new_at``: one more is in the first session, at this part of it, 1 for its end.
    """
    files: Files = {"SOUL.md": (b"# Bench\n",), "agent.config.json": (CONFIG,)}
    for number in range(sessions):
        share = count // sessions + (number < count % sessions)
        events = _conversation(share, number)
        if number == 0 and new_at is not None:
            events = _with_new(events, int(share * new_at))
        files[f"data/sessions/web:user-{number}.jsonl"] = events
    return files


def _with_new(events: Iterator[bytes], place: int) -> Iterator[bytes]:
    yield from itertools.islice(events, place)
    ts = _START + 1000 * place
    yield b'{"id":"new","type":"user","ts":%d,"data":{"text":"Is it new?"}}\n' % ts
    yield from events


def _conversation(count: int, seed: int) -> Iterator[bytes]:
    text = Text(seed)
    source = random.Random(seed)
    for number in range(count):
        kind = _TYPES[number % len(_TYPES)]
        said = text.words(source.randint(14, 33))
        if kind == "tool_call":
            data: dict[str, object] = {"name": "search", "params": {"query": said, "limit": 10}}
        elif kind == "tool_result":
            data = {"toolUseId": f"call-{number:06}", "result": said}
        else:
            data = {"text": said}
        event_id = f"{source.getrandbits(64):016x}"
        event = {"id": event_id, "type": kind, "ts": _START + 1000 * number, "data": data}
        yield json.dumps(event, ensure_ascii=False).encode() + b"\n"


# -- texts of JSON that take much memory once they are read


class Shape(NamedTuple):
    """A list or an object of very many small things.

    ``opening``, so many of ``items`` with ``joint`` between them, and ``closing`` make it up; the
    last byte of ``closing`` is its own bracket.
    """

    opening: bytes
    items: Callable[[], Iterator[bytes]]
    joint: bytes
    closing: bytes


def _same(item: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: itertools.repeat(item)


def _counted(layout: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: (layout % name for name in short_names())


def short_names() -> Iterator[bytes]:
    """Names that differ, the shortest first."""
    for length in itertools.count(1):
        for digits in itertools.product(_DIGITS, repeat=length):
            yield "".join(digits).encode()


SHAPES: Final[dict[str, Shape]] = {
    "lists": Shape(b"[", _same(b"[]"), b",", b"]"),
    "lists and an emoji": Shape('["😀",'.encode(), _same(b"[]"), b",", b"]"),
    "objects": Shape(b"[", _same(b"{}"), b",", b"]"),
    "keys": Shape(b"{", _counted(b'"%s":0'), b",", b"}"),
    "strings": Shape(b"[", _counted(b'"%s"'), b",", b"]"),
    "floats": Shape(b"[", _same(b"0.5"), b",", b"]"),
    "powers": Shape(b"[", _same(b"1e15"), b",", b"]"),  # the one form has all the digits
    "emoji": Shape(b"[", _same('"😀"'.encode()), b",", b"]"),
    "escapes": Shape(b'["', _same(b"\\u4e2d"), b"", b'"]'),
}
# Keys by which somebody may speak to an agent are remembered.
USERS: Final = Shape(b"{", _counted(b'"a:%s":0'), b",", b"}")

# How a text ends so that it is refused, in a list and in an object; the code in a package.
BAD_ENDS: Final[dict[str, tuple[bytes, bytes, str]]] = {
    "": (b"", b"", ""),
    "bad value": (b",x", b',"x":x', "field-json"),
    "NUL": (b',{"\\u0000":0}', b',"\\u0000":0', "field-nul"),
}


def dense(shape: Shape, size: int, end: str = "") -> Iterator[bytes]:
    """A value of this shape in at most ``size`` bytes of JSON, or of one item, with such an end."""
    in_list, in_object, _ = BAD_ENDS[end]
    bracket = shape.closing[-1:]
    closing = shape.closing[:-1] + (in_list if bracket == b"]" else in_object) + bracket
    left = size - len(shape.opening) - len(closing)
    yield shape.opening
    items = shape.items()
    batch = list(itertools.islice(items, _BATCH))
    before = b""
    while batch:
        ends = list(itertools.accumulate(len(item) + len(shape.joint) for item in batch))
        count = bisect.bisect(ends, left)
        if not before:
            count = max(1, count)
        if count:
            yield before + shape.joint.join(batch[:count])
        before = shape.joint
        left -= ends[-1]
        batch = list(itertools.islice(items, _BATCH)) if left > 0 else []
    yield closing


def nested(opening: bytes, closing: bytes, size: int) -> Iterator[bytes]:
    """As many containers in each other as ``size`` bytes of JSON hold."""
    count = size // len(opening + closing)
    for bracket in (opening, closing):
        yield from repeated(bracket, count)


def repeated(text: bytes, count: int) -> Iterator[bytes]:
    """The text so many times, in pieces."""
    at_once = _PIECE // len(text)
    for done in range(0, count, at_once):
        yield text * min(at_once, count - done)


def one_event(value: Iterable[bytes]) -> Iterator[bytes]:
    """The line of an event that holds this value."""
    yield b'{"id":"1","type":"user","ts":0,"data":{"d":'
    yield from value
    yield b"}}\n"


def smallest_events(count: int, different: int) -> Iterator[bytes]:
    """The smallest events that there are; after so many different ones they come again."""
    names = itertools.islice(itertools.cycle(itertools.islice(short_names(), different)), count)
    while held := b"".join(
        b'{"id":"%s","ts":0,"data":{},"type":"user"}\n' % name
        for name in itertools.islice(names, 4096)
    ):
        yield held


def long_text(size: int) -> Iterator[bytes]:
    """A text of ``size`` bytes that is not ASCII and packs well."""
    block = Text(1).markdown(1 << 13, 1 << 13).encode()  # a packer looks back 32 KiB
    for _ in range(size // len(block)):
        yield block
    # cut so that no character is
    yield b"x" * (size % len(block))


# -- archives


def write_package(
    path: Path,
    files: Files,
    *,
    fill_to: int = 0,
    declared: dict[str, int] | None = None,
) -> None:
    """Write an archive of these files.

    ``fill_to``: a file that does not pack is added, which brings it to about so many bytes.
    ``declared``: sizes that are declared instead of the true ones.
    """
    declared = declared or {}
    with path.open("wb") as file:
        with zipfile.ZipFile(file, "w") as out:
            for name, content in files.items():
                _add(out, name, content, zipfile.ZIP_DEFLATED)
            left = fill_to - file.tell() - 1024  # about what the directory takes
            if left > 0:
                _add(out, "skills/filler/SKILL.md", (_FILLER,), zipfile.ZIP_STORED)
                _add(out, "skills/filler/filler.bin", _random(left), zipfile.ZIP_STORED)
            for name, size in declared.items():  # what goes into the directory
                out.getinfo(name).file_size = size
            places = {name: out.getinfo(name).header_offset for name in declared}
        for name, size in declared.items():
            file.seek(places[name] + 22)
            file.write(size.to_bytes(4, "little"))


def _add(out: zipfile.ZipFile, name: str, content: Iterable[bytes], method: int) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    info.external_attr = 0o100644 << 16
    with out.open(info, "w") as into:
        for piece in content:
            into.write(piece)


def _random(size: int) -> Iterator[bytes]:
    source = random.Random(size)
    for done in range(0, size, _PIECE):
        yield source.randbytes(min(_PIECE, size - done))


def in_a_child(make: Callable[[], None]) -> None:
    """Call ``make`` in a process of its own, so that this one's peak of memory stays small.

    Raises ``BrokenRunError``.
    """
    child = multiprocessing.get_context("fork").Process(target=make)
    child.start()
    child.join()
    if child.exitcode:
        raise BrokenRunError("the package could not be made")
