"""What lies already in a folder that a package is put into (Agent package, section 1)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agentmove_tools.package.fields import json_text, json_value
from agentmove_tools.package.folder import FolderSource
from agentmove_tools.package.layout import CONFIG, FIELDS, PASSED_OVER, SECRETS, SESSIONS, Layout
from agentmove_tools.package.names import Paths, caseless
from agentmove_tools.package.session_names import (
    channel_and_user,
    scope_files,
    scope_of,
    session_files,
)
from agentmove_tools.refusals import MachineError, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentmove_tools.package.contents import File
    from agentmove_tools.package.layout import Part
    from agentmove_tools.package.sources import Item


_NAMED_APART: Final[tuple[Part, ...]] = ("session", "secrets")


class Existing:
    """The files of the open folder ``root`` that a package could hold, with ``wanted`` ones.

    ``paths``: each with its part. ``sessions`` and ``secrets``: the files by channel and user, and
    by scope, whatever they are called. Raises ``MachineError`` for what is no file where one is
    due, and ``OSError``.
    """

    def __init__(self, root: int, wanted: frozenset[Part]) -> None:
        self._source = FolderSource(root, wanted=wanted)
        try:
            items = self._source.items()
        except Refusal as refusal:
            raise in_folder(refusal) from None
        layout = Layout(item.path for item in items)
        self.paths: dict[str, Part] = {}
        self.sessions: dict[tuple[str, str], Item] = {}
        self.secrets: dict[str, list[Item]] = {}
        self._config: Item | None = None
        for item in items:
            part = layout.place(item.path).part
            if part in PASSED_OVER:
                continue
            with suppress(Refusal):  # a file of another name than a package's is nobody's
                if part == "session":
                    chat = channel_and_user(item.path[len(SESSIONS) :], item.path)
                    self.sessions.setdefault(chat, item)
                elif part == "secrets":
                    scope = scope_of(item.path[len(SECRETS) :], item.path)
                    self.secrets.setdefault(scope, []).append(item)
                elif part == "config":
                    self._config = item
                self.paths[item.path] = part

    def agent_id(self) -> str | None:
        """The ID in the folder's own configuration, None where it has none.

        Raises ``MachineError`` for a configuration that cannot be read, and ``OSError``.
        """
        if self._config is None:
            return None
        try:
            text = json_text(self._config.pieces(), CONFIG, FIELDS["config"])
            value = json_value(text, CONFIG, FIELDS["config"], wanted=("id",))
        except Refusal as refusal:
            raise in_folder(refusal) from None
        found = value.get("id") if isinstance(value, dict) else None
        return found if isinstance(found, str) and found else None

    def close(self) -> None:
        """Close the folders that were kept open."""
        self._source.close()

    def raw(self, path: str) -> bytes:
        """The bytes of a path as the disk has them."""
        return self._source.raw_paths.get(path) or path.encode()

    def check_names(self, files: Iterable[File], removed: Iterable[str]) -> None:
        """See that no file of the package is called as one of the folder's but for case or form.

        Sessions and secrets have names of their own for that. Raises ``MachineError``.
        """
        named = {file.path for file in files if file.part not in _NAMED_APART}
        own = {path for path, part in self.paths.items() if part not in _NAMED_APART}
        paths = Paths()
        try:
            for path in sorted(named | own.difference(removed)):
                paths.add(path, is_folder=False)
        except Refusal as refusal:
            raise in_folder(refusal) from None

    def targets(self, files: Iterable[File]) -> dict[str, str]:
        """Where each file goes, by its path in the package: the folder's own file of the same.

        A chat or a scope that the folder lacks gets a name that none of its files has on any disk.
        """
        files = list(files)
        names = [path.rpartition("/") for path in self.paths]
        chats = session_files(
            {f.chat for f in files if f.part == "session"} - self.sessions.keys(),
            taken={caseless(name) for above, _, name in names if above + "/" == SESSIONS},
        )
        scopes = scope_files(
            {f.scope for f in files if f.part == "secrets"} - self.secrets.keys(),
            taken={caseless(name) for above, _, name in names if above + "/" == SECRETS},
        )
        targets: dict[str, str] = {}
        for file in files:
            if file.part == "session":
                own = self.sessions.get(file.chat)
                targets[file.path] = own.path if own else SESSIONS + chats[file.chat]
            elif file.part == "secrets":
                held = self.secrets.get(file.scope)
                targets[file.path] = held[0].path if held else SECRETS + scopes[file.scope]
            else:
                targets[file.path] = file.path
        return targets


def in_folder(refusal: Refusal) -> MachineError:
    """What is wrong with the folder, not with the package."""
    details = {key: refusal.details.get(key) for key in ("path", "field", "line")}
    line = details["line"]
    where = "in the folder" if line is None else f"in the folder, line {line}"
    return MachineError(f"{where}: {refusal.message}", **details, hint=refusal.hint)
