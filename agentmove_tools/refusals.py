"""Every refusal code with its text, and the exceptions that the library raises.

A library function never prints and never exits: it raises one of the three exceptions here,
and ``cli/errors.py`` turns them into one line and an exit status.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Detail: TypeAlias = str | int | list[str] | None

# code -> what is wrong, lower case, no full stop. Kept in the order of the specification.
TEXTS: Final[dict[str, str]] = {
    "envelope-magic": "this is no sealed envelope",
    "envelope-header-length": "the envelope's header says it is longer than 4096 bytes",
    "envelope-key": "the stream key does not open: sealed to another recipient, or altered",
    "envelope-record-length": "a record says it is longer than 65536 bytes",
    "envelope-record": "a record does not authenticate: altered, reordered, repeated or left out",
    "envelope-truncated": "the input ends before the final record: it was cut short",
    "envelope-trailing": "bytes follow the final record",
    "stream-not-move": "this is no Move Stream",
    "stream-format": "the stream is of another format than 4",
    "stream-cut": "the stream ends before lnk-move-4.end: it was cut short",
    "stream-after-end": "lnk-move-4.end is not empty, or not the last of the stream",
    "stream-tar": "the tar is malformed, or over a limit",
    "manifest-json": "the manifest is not one JSON object",
    "manifest-field": "a field of the manifest is missing or wrong",
    "entry-type": "the entry is no file, folder or symbolic link",
    "entry-path": "the path is not plain, or over 4096 bytes",
    "entry-folder": "the path is not under a folder that this phase allows",
    "entry-duplicate": "the path appears twice",
    "entry-parent": "the entry lies under a file or a link, or replaces a folder",
    "entry-link": "the link leaves its top folder",
    "hash-missing": "the file has no LNK.sha256",
    "hash-mismatch": "the content has another hash than the stream says",
    "schedule-place": "a scheduled job lies in another place than waiting, firing or ending",
    "schedule-json": "the job or day.json is malformed, not in the one form, or has another id",
    "schedule-running": "the Home has scheduled jobs and its schedule is not paused",
    "canon-json": "this is not JSON that the one form can hold",
    "home-missing": "this is no agent's Home",
    "home-other-agent": "the Home is another agent's",
    "home-busy": "another receiver is at work on this Home",
    "home-path": "a name in the Home is not UTF-8, or its path is too long",
    "move-mismatch": "the switch is of another move than the staged copy",
    "conversation-diverged": "the two ends hold different events at the same place",
    "tree-mismatch": "the Home that the switch would make is not the one that the sender holds",
    "package-not-zip": "this is no ZIP archive",
    "package-damaged": "the archive is cut or damaged",
    "package-method": "the entry is compressed in another way than stored and deflated",
    "package-encrypted": "the entry is encrypted",
    "package-upload-size": "the archive is longer than 25 MiB",
    "package-entries": "there are over 20 000 entries, or over 1 000 000 events",
    "package-unpacked-size": "it is over 128 MiB unpacked",
    "package-path": "the path has no place in a package",
    "package-duplicate": "the path is there twice, or differs only in case or Unicode form",
    "package-type": "this is no file or folder, or one where the other must be",
    "package-required": "the package lacks a file that it must have",
    "field-nul": "there is a NUL in the text",
    "field-surrogate": "there is a lone surrogate in the text",
    "field-encoding": "the text is not UTF-8",
    "field-timestamp": "the time is one that a database cannot hold",
    "field-json": "this is no JSON, or JSON of another shape",
    "agent-id": "the agent's ID is missing, or another than the one named",
    "agent-concierge": "a concierge can be neither exported nor overwritten",
    "agent-unknown": "there is no such agent",
    "team-unknown": "there is no such team",
    "skill-front-matter": "the skill's front matter cannot be read",
    "memory-date": "the name has a date's form and there is no such date",
    "session-name": "the session's file is not named channel:user.jsonl",
    "event-type": "the event is of an unknown type",
    "event-duplicate": "one event ID has two different contents",
    "schema-newer": "the database's schema is newer than this program",
    "bridge-loss": "it has no place at the other side",
}


class AgentMoveError(Exception):
    """What the library raises on purpose.

    ``message`` says what was seen and what to do, lower case, no full stop. ``details`` become
    the members of ``details`` in the machine form; values are JSON values.
    """

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = {k: v for k, v in details.items() if v is not None}


class Refusal(AgentMoveError):
    """The input is refused: exit status 1.

    ``code`` is a key of ``TEXTS``; the text of the code starts the message, and ``why`` (what was
    seen, or what to do) follows. ``path`` is bytes as they stand in the stream or the Home;
    ``place`` says where in it, or in the input, such as ``byte 1536`` or ``line 4``.
    """

    def __init__(
        self,
        code: str,
        why: str = "",
        *,
        path: bytes | None = None,
        place: str | None = None,
        hint: str | None = None,
        **details: Detail,
    ) -> None:
        text = TEXTS[code]
        shown = None if path is None else path.decode("utf-8", "backslashreplace")
        message = f"{text}: {why}" if why else text
        super().__init__(message, refusal=code, path=shown, **details)
        self.code = code
        self.why = why
        self._within = place
        self.place = ": ".join(part for part in (shown, place) if part is not None) or None
        self.hint = hint

    def of(self, path: bytes) -> Refusal:
        """The same refusal of another path: what it was found in, where it came from."""
        details = {k: v for k, v in self.details.items() if k not in ("refusal", "path")}
        return Refusal(
            self.code, self.why, path=path, place=self._within, hint=self.hint, **details
        )


class MachineError(AgentMoveError):
    """The machine failed: a file, the disk, a changed Home in a switch. Exit status 3."""


class UsageError(AgentMoveError):
    """The command line is wrong, such as a mistyped recipient. Exit status 2."""
