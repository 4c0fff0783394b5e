"""Names of sessions and secrets' scopes as file names, and back (Agent package, section 1).

A channel's or user's name may hold what a file name cannot; that is percent-encoded, so no such
name leads out of its folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from agentmove_tools.package.names import caseless, composed
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

SHARED: Final = "shared"
AGENT: Final = "agent"
_Key = TypeVar("_Key")

_USER: Final = "user-"
_JSON: Final = ".json"
_JSONL: Final = ".jsonl"

_ENCODED: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_ALWAYS: Final = re.compile(r"[/\\%\x00-\x1f\x7f-\x9f]|^\.")
_IN_CHANNEL: Final = re.compile(r"[:/\\%\x00-\x1f\x7f-\x9f]|^\.")


def channel_and_user(name: str, path: str) -> tuple[str, str]:
    """The two parts of a session's file name, decoded. ``path`` names it in errors.

    Raises ``Refusal`` (session-name, field-nul).
    """
    stem = name.removesuffix(_JSONL)
    channel, colon, user = stem.partition(":")
    if not colon or not channel or not user:
        why = "rename it: a channel, a colon and a user"
        raise Refusal("session-name", why, path=path.encode())
    return (
        _decoded(channel, path, "chat.channel", "session-name"),
        _decoded(user, path, "chat.user", "session-name"),
    )


def scope_of(name: str, path: str) -> str:
    """The scope of a file of secrets: ``shared``, ``agent`` or ``user-<userId>``, decoded.

    Any other stem is a user ID. Raises ``Refusal`` (package-path, field-nul).
    """
    stem = name.removesuffix(_JSON)
    if stem in (SHARED, AGENT):
        return stem
    user = _decoded(stem.removeprefix(_USER), path, "secret.scope", "package-path")
    if not user:
        raise Refusal("package-path", "a user's ID is empty", path=path.encode())
    return _USER + user


def _decoded(text: str, path: str, field: str, code: str) -> str:
    try:
        decoded = _ENCODED.sub(lambda found: _bytes_of(found.group()).decode(), text)
    except UnicodeDecodeError:
        why = "what is percent-encoded in it is not UTF-8"
        raise Refusal(code, why, path=path.encode()) from None
    if "\0" in decoded:
        raise Refusal("field-nul", path=path.encode(), field=field)
    return decoded


def _bytes_of(encoded: str) -> bytes:
    return bytes.fromhex(encoded.replace("%", ""))


def session_files(
    chats: Iterable[tuple[str, str]], *, taken: Collection[str] = ()
) -> Mapping[tuple[str, str], str]:
    """The file name of each chat, by channel and user; none is ``caseless`` one of ``taken``."""
    return _distinct(
        chats,
        taken,
        lambda chat, level: (
            f"{_encoded(chat[0], _IN_CHANNEL, level)}:{_encoded(chat[1], _ALWAYS, level)}{_JSONL}"
        ),
    )


def scope_files(scopes: Iterable[str], *, taken: Collection[str] = ()) -> Mapping[str, str]:
    """The file name of each scope of secrets; none is ``caseless`` one of ``taken``."""
    return _distinct(scopes, taken, _scope_file)


def _scope_file(scope: str, level: int) -> str:
    if scope in (SHARED, AGENT):
        return scope + _JSON
    return _USER + _encoded(scope.removeprefix(_USER), _ALWAYS, level) + _JSON


def _distinct(
    keys: Iterable[_Key], taken: Collection[str], named: Callable[[_Key, int], str]
) -> Mapping[_Key, str]:
    """Names that differ on every disk; where two would meet, both are encoded more widely."""
    names: dict[_Key, str] = {}
    left = list(keys)
    for level in range(4):
        groups: dict[str, list[_Key]] = {}
        for key in left:
            names[key] = named(key, level)
            groups.setdefault(caseless(names[key]), []).append(key)
        left = [
            key
            for name, group in groups.items()
            if len(group) > 1 or name in taken
            for key in group
        ]
    return names


def _encoded(text: str, special: re.Pattern[str], level: int) -> str:
    """Percent-encode what must be; from level 1 capitals too, then what is not ASCII, then all."""
    if level == 0:
        encoded = special.sub(lambda found: _encode(found.group()), text)
        return encoded if composed(encoded) == encoded else _encoded(text, special, 2)
    encoded = "".join(
        _encode(c)
        if special.match(text, at) or c.casefold() != c or (level > 1 and c > "\x7f") or level > 2
        else c
        for at, c in enumerate(text)
    )
    # a reader composes what is not encoded
    return encoded if composed(encoded) == encoded else _encoded(text, special, level + 1)


def _encode(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
