"""Threads of a Home and chats of a package: each has one name at the other side, and back.

A thread is a folder of any name; a chat has a channel and a user, both any text. Between all names
of threads and all chats there is a one-to-one correspondence, so that neither side needs to know
what else is there, and nothing ever meets.
"""

from __future__ import annotations

import re
from typing import Final

# The channel of a thread whose name says none.
CHANNEL: Final = "thread"

_START: Final = CHANNEL + ":"
_CODES: Final = {"/": "2F", ":": "3A"}
_CHARACTERS: Final = {code: character for character, code in _CODES.items()}
# What a name cannot hold is percent-encoded; what looks encoded already gets one 25 more.
_IN_CHANNEL: Final = re.compile("[/:]|%(?=(?:25)*(?:2F|3A))")
_IN_USER: Final = re.compile("/|%(?=(?:25)*2F)")
_CHANNEL_CODE: Final = re.compile("%(25(?=(?:25)*(?:2F|3A))|2F|3A)")
_USER_CODE: Final = re.compile("%(25(?=(?:25)*2F)|2F)")


def chat_of(thread: str) -> tuple[str, str]:
    """The channel and the user of the chat that a thread becomes.

    ``<channel>:<user>`` is split at its first colon. A name with no such parts is the user in the
    channel ``thread``, and so is, whole, the name of a thread that would meet that one there:
    ``thread:`` and such a name.
    """
    channel, _, user = thread.partition(":")
    if _has_no_channel(thread) or _would_meet(thread):
        return CHANNEL, _decoded(thread, _USER_CODE)
    return _decoded(channel, _CHANNEL_CODE), _decoded(user, _USER_CODE)


def thread_of(channel: str, user: str) -> str:
    """The name of the thread that a chat becomes: the other way of ``chat_of``."""
    name = _encoded(user, _IN_USER)
    if channel == CHANNEL and (_has_no_channel(name) or _would_meet(name)):
        return name
    return f"{_encoded(channel, _IN_CHANNEL)}:{name}"


def _has_no_channel(name: str) -> bool:
    """Whether it is the name of a thread, and no ``<channel>:<user>``."""
    channel, _, user = name.partition(":")
    return not (channel and user) and name not in (".", "..")


def _would_meet(name: str) -> bool:
    rest = name
    while rest.startswith(_START):
        rest = rest[len(_START) :]
        if rest and _has_no_channel(rest):
            return True
    return False


def _encoded(text: str, special: re.Pattern[str]) -> str:
    return special.sub(_encode, text)


def _encode(found: re.Match[str]) -> str:
    return "%" + _CODES.get(found.group(), "25")


def _decoded(text: str, codes: re.Pattern[str]) -> str:
    return codes.sub(_decode, text)


def _decode(found: re.Match[str]) -> str:
    return _CHARACTERS.get(found.group(1), "%")
