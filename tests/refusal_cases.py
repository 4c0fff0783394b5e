"""For each refusal code, a command that is refused with it, and the place that it names."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from agentmove_tools.envelope.keys import Identity
from tests.database.databases import Database
from tests.envelope.streams import HEADER_END, apart, sealed
from tests.home.builder import (
    OTHER_MOVE,
    full_home,
    have_of,
    make_home,
    move,
    put,
    stream_of,
)
from tests.package.zips import DEFLATED, ENCRYPTED, MINIMAL, UTF8, Zipped, agent, archive, zipped

IDENTITY: Final = Identity(bytes(range(32)))
END: Final = "lnk-move-4.end"


@dataclass(frozen=True)
class Refused:
    """A command line, its standard input, and what its error says of the place."""

    tool: str
    arguments: tuple[str | Path, ...]
    stdin: bytes
    place: str | None
    env: Mapping[str, str] = field(default_factory=dict)


Case: TypeAlias = Callable[[Path], Refused]
DatabaseCase: TypeAlias = Callable[[Database], Refused]


def manifest(**changes: str) -> bytes:
    """A manifest's text; each change is the text of a member's value, "" for none."""
    members = {
        "format": "4",
        "phase": '"switch"',
        "move": '"0123456789abcdef0123456789abcdef"',
        "version": '"1"',
        "agent": '{"id":"a1","name":"Ada"}',
        "harness": '"claude"',
        **changes,
    }
    return ("{" + ",".join(f'"{k}":{v}' for k, v in members.items() if v) + "}").encode()


def tar(*entries: tuple[str, bytes, bytes], head: bytes | None = None, end: bool = True) -> bytes:
    """A tar of entries: path, type flag, and content or target. Each file has its hash."""
    out = io.BytesIO()
    last = [(END, b"0", b"")] if end else []
    first = ("lnk-move-4.json", b"0", manifest() if head is None else head)
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, flag, content in [first, *entries, *last]:
            info = tarfile.TarInfo(path)
            info.type = flag
            if flag in (b"1", b"2"):
                info.linkname = content.decode()
            elif flag == b"0":
                info.size = len(content)
                info.pax_headers = {"LNK.sha256": hashlib.sha256(content).hexdigest()}
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def verified(stream: bytes, place: str | None) -> Refused:
    return Refused("lnk-tar-verify", (), stream, place)


def unsealed(here: Path, envelope: bytes, place: str | None) -> Refused:
    key = here / "move.key"
    key.touch(0o600)
    key.write_text(IDENTITY.to_file())
    return Refused("lnk-unseal", ("-i", key), envelope, place)


def envelope(here: Path, damage: Callable[[bytes], bytes], place: str) -> Refused:
    return unsealed(here, damage(sealed(b"x" * 100_000, IDENTITY.recipient)), place)


def swapped(whole: bytes) -> bytes:
    head, records = apart(whole)
    return head + records[1] + records[0] + b"".join(records[2:])


def hash_missing(here: Path) -> Refused:
    stream = tar(("files/a", b"0", b"x"))
    # The record keeps its length under a name that nobody knows.
    where = stream.index(b"LNK.sha256", stream.index(b"LNK.sha256") + 1)
    return verified(stream[:where] + b"XXX" + stream[where + 3 :], "files/a")


def hash_mismatch(here: Path) -> Refused:
    stream = tar(("files/a", b"0", b"some content"))
    return verified(stream.replace(b"some content", b"same content"), "files/a")


def schedule_running(here: Path) -> Refused:
    home = make_home(here / "home", jobs={"waiting/j": {"id": "j"}})
    return Refused("lnk-manifest", (home, "--phase", "switch"), b"", str(home))


def home_missing(here: Path) -> Refused:
    put(here, "home/thesis.txt", "years of work")
    return Refused("lnk-tar-apply", (here / "home",), tar(), str(here / "home"))


def home_other_agent(here: Path) -> Refused:
    home = make_home(here / "home", "a2")
    return Refused("lnk-tar-apply", (home,), tar(), str(home))


def home_busy(here: Path) -> Refused:
    home = make_home(here / "home")
    have_of(home)
    # It is held for as long as this process has it open, which is to the test's end at least.
    lock = os.open(here / ".home.lnk-move" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, False)
    return Refused("lnk-tar-apply", (home,), tar(), str(home))


def home_path(here: Path) -> Refused:
    home = make_home(here / "home", files={b"bad\xff": "x"})
    return Refused("lnk-tar-create", (home,), manifest(phase='"copy"'), "files/bad\\xff")


def move_mismatch(here: Path) -> Refused:
    sender = full_home(here / "sender")
    home = here / "home"
    move(sender, home, "copy")
    stream = stream_of(sender, "switch", move=OTHER_MOVE)
    return Refused("lnk-tar-apply", (home,), stream, str(home))


def conversation_diverged(here: Path) -> Refused:
    sender = make_home(here / "sender", conversations={"t": [1, 2]})
    home = make_home(here / "home", conversations={"t": [1, 3]})
    place = "harness/conversations/t/events.jsonl"
    return Refused("lnk-tar-apply", (home,), stream_of(sender, "switch"), place)


def tree_mismatch(here: Path) -> Refused:
    sender = make_home(here / "sender", files={"a": "x"})
    home = make_home(here / "home", files={"b": "x"})
    return Refused("lnk-tar-apply", (home,), stream_of(sender, "switch"), str(home))


def packaged(place: str | None, **files: bytes) -> Refused:
    """An agent with these files besides, each by its part's name, is refused."""
    return checked(
        zipped({**MINIMAL, **{PATHS[part]: text for part, text in files.items()}}), place
    )


def checked(package: bytes, place: str | None) -> Refused:
    return Refused("agentfy-verify", (), package, place)


def bridge_loss(here: Path) -> Refused:
    home = make_home(here / "home", instructions="be kind\n", files={"a": "x"})
    return Refused("agentfy-pack", ("--strict",), stream_of(home, "switch"), "files/a")


def event(**changes: str) -> bytes:
    """An event's line; each change is the text of a member's value."""
    members = {"id": '"e1"', "type": '"user"', "ts": "0", "data": "{}", **changes}
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}\n").encode()


PATHS: Final = {
    "soul": "SOUL.md",
    "config": "agent.config.json",
    "user": "USER.md",
    "skill": "skills/pdf/SKILL.md",
    "memory": "memory/2026-02-30.md",
    "misnamed": "data/sessions/alice.jsonl",
    "session": "data/sessions/web:alice.jsonl",
}
SESSION: Final = PATHS["session"]


CASES: Final[dict[str, Case]] = {
    "envelope-magic": lambda here: unsealed(here, b"no envelope", "byte 0"),
    "envelope-header-length": lambda here: envelope(
        here, lambda whole: whole[:8] + b"\x00\x00\x10\x01" + whole[12:], "byte 8"
    ),
    "envelope-key": lambda here: envelope(
        here, lambda whole: whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], "byte 12"
    ),
    "envelope-record-length": lambda here: envelope(
        here,
        lambda whole: whole[:HEADER_END] + b"\x00\x01\x00\x01" + whole[HEADER_END + 4 :],
        "record 0, byte 92",
    ),
    "envelope-record": lambda here: envelope(here, swapped, "record 0, byte 92"),
    "envelope-truncated": lambda here: envelope(here, lambda whole: whole[:-20], "byte "),
    "envelope-trailing": lambda here: envelope(here, lambda whole: whole + b"x", "byte "),
    "stream-not-move": lambda _: verified(b"", None),
    "stream-format": lambda _: verified(tar(head=manifest(format="5")), None),
    "stream-cut": lambda _: verified(tar(("files/a", b"0", b"x"), end=False), "byte "),
    "stream-after-end": lambda _: verified(tar() + b"more", "byte "),
    "stream-tar": lambda _: Refused(
        "lnk-tar-verify", ("--max-entries", "0"), tar(("files/a", b"0", b"x")), "files/a"
    ),
    "manifest-json": lambda here: Refused("lnk-tar-create", (make_home(here / "h"),), b"[]", None),
    "manifest-field": lambda _: verified(tar(head=manifest(move='"no"')), "move"),
    "entry-type": lambda _: verified(tar(("files/a", b"1", b"files/b")), "files/a"),
    "entry-path": lambda _: verified(tar(("files/../a", b"0", b"x")), "files/../a"),
    "entry-folder": lambda _: verified(tar(("logs/a", b"0", b"x")), "logs/a"),
    "entry-duplicate": lambda _: verified(
        tar(("files/a", b"0", b"x"), ("files/a", b"0", b"x")), "files/a"
    ),
    "entry-parent": lambda _: verified(
        tar(("files/a", b"2", b"b"), ("files/a/b", b"0", b"x")), "files/a/b"
    ),
    "entry-link": lambda _: verified(tar(("files/a", b"2", b"/etc")), "files/a"),
    "hash-missing": hash_missing,
    "hash-mismatch": hash_mismatch,
    "schedule-place": lambda _: verified(
        tar(("schedule/later/j.json", b"0", b"{}")), "schedule/later/j.json"
    ),
    "schedule-json": lambda _: verified(
        tar(("schedule/waiting/j.json", b"0", b'{"id":"k"}')), "schedule/waiting/j.json"
    ),
    "schedule-running": schedule_running,
    "canon-json": lambda _: Refused("lnk-canon", (), b"1\nNaN\n", "line 2"),
    "home-missing": home_missing,
    "home-other-agent": home_other_agent,
    "home-busy": home_busy,
    "home-path": home_path,
    "move-mismatch": move_mismatch,
    "conversation-diverged": conversation_diverged,
    "tree-mismatch": tree_mismatch,
    "package-not-zip": lambda _: checked(b"no archive", None),
    "package-damaged": lambda _: checked(zipped(MINIMAL)[:-3], None),
    "package-method": lambda _: checked(
        archive(*agent(Zipped(b"USER.md", b"x", record={"method": 12}))), "USER.md"
    ),
    "package-encrypted": lambda _: checked(
        archive(*agent(Zipped(b"USER.md", b"x", flags=UTF8 | ENCRYPTED))), "USER.md"
    ),
    "package-upload-size": lambda _: checked(zipped(MINIMAL) + bytes(25 << 20), None),
    "package-entries": lambda _: checked(
        zipped({f"skills/a/{number}": b"" for number in range(20_001)}), None
    ),
    "package-unpacked-size": lambda _: checked(
        archive(*agent(Zipped(b"USER.md", method=DEFLATED, record={"size": 128 << 20}))), "USER.md"
    ),
    "package-path": lambda _: checked(zipped({**MINIMAL, "../a": b""}), "../a"),
    "package-duplicate": lambda _: checked(zipped({**MINIMAL, "soul.md": b""}), "soul.md"),
    "package-type": lambda _: checked(
        archive(*agent(Zipped(b"USER.md", b"SOUL.md", attributes=0o120777 << 16))), "USER.md"
    ),
    "package-required": lambda _: checked(zipped({"SOUL.md": b""}), "agent.config.json"),
    "field-nul": lambda _: packaged("USER.md: line 2", user=b"a\nb\0"),
    "field-surrogate": lambda _: packaged(
        f"{SESSION}: line 1", session=event(data=r'{"text":"\ud800"}')
    ),
    "field-encoding": lambda _: packaged("USER.md: line 1", user=b"caf\xe9"),
    "field-timestamp": lambda _: packaged(f"{SESSION}: line 1", session=event(ts="9" * 17)),
    "field-json": lambda _: packaged("agent.config.json", config=b"[]"),
    "agent-id": lambda _: packaged("agent.config.json", config=b"{}"),
    "skill-front-matter": lambda _: packaged("skills/pdf/SKILL.md", skill=b"---\nname: pdf\n"),
    "memory-date": lambda _: packaged("memory/2026-02-30.md", memory=b""),
    "session-name": lambda _: packaged("data/sessions/alice.jsonl", misnamed=b""),
    "event-type": lambda _: packaged(f"{SESSION}: line 1", session=event(type='"joke"')),
    "event-duplicate": lambda _: packaged(
        f"{SESSION}: line 2", session=event() + event(data='{"text":"else"}')
    ),
    "bridge-loss": bridge_loss,
}


def imported(database: Database, *arguments: str) -> Refused:
    """An import of an agent into a database is refused."""
    env = {"AGENTFY_DATABASE_URL": database.url}
    return Refused("agentfy-import", arguments, zipped(MINIMAL), None, env)


def agent_concierge(database: Database) -> Refused:
    database.bring_in(zipped(MINIMAL), "t")
    database.rows("UPDATE agentfy.agent SET type = 'concierge'")
    return imported(database, "--team", "t")


def agent_unknown(database: Database) -> Refused:
    env = {"AGENTFY_DATABASE_URL": database.url}
    return Refused("agentfy-export", ("agent-of-nobody",), b"", None, env)


def schema_newer(database: Database) -> Refused:
    database.rows("UPDATE agentfy.schema_version SET version_num = '9999'")
    return imported(database, "--team", "t", "--create-team")


# those that a database is needed for, with the schema and no rows
IN_DATABASE: Final[dict[str, DatabaseCase]] = {
    "agent-concierge": agent_concierge,
    "agent-unknown": agent_unknown,
    "team-unknown": lambda database: imported(database, "--team", "nobody"),
    "schema-newer": schema_newer,
}
