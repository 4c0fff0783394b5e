from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentmove_tools.bridge.threads import CHANNEL, chat_of, thread_of

many = settings(max_examples=300, deadline=None, derandomize=True)

# What the rules look at, so that short rows of these try all of them.
TOKENS = ("a", ":", "%", "25", "2F", "3A", ".", "thread", "2f")
IN_CHATS = (*TOKENS, "/")

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.one_of(
    st.text(characters, min_size=1, max_size=8),
    st.lists(st.sampled_from(IN_CHATS), min_size=1, max_size=9).map("".join),
)
names = texts.map(lambda text: text.replace("/", "_")).filter(lambda name: name not in (".", ".."))


def rows(tokens: Iterable[str], longest: int) -> Iterator[str]:
    """All texts of one to so many of these."""
    for count in range(1, longest + 1):
        for row in product(tokens, repeat=count):
            yield "".join(row)


def check_chat(channel: str, user: str) -> None:
    thread = thread_of(channel, user)
    assert thread not in ("", ".", "..")
    assert "/" not in thread
    assert chat_of(thread) == (channel, user)


def check_thread(name: str) -> None:
    channel, user = chat_of(name)
    assert channel
    assert user
    assert thread_of(channel, user) == name


@pytest.mark.parametrize(
    ("thread", "channel", "user"),
    [
        ("telegram:u42", "telegram", "u42"),
        ("agent:main:group:77", "agent", "main:group:77"),
        ("main", CHANNEL, "main"),
        ("with space", CHANNEL, "with space"),
        ("...", CHANNEL, "..."),
        # a name without both parts
        (":", CHANNEL, ":"),
        ("::", CHANNEL, "::"),
        (":u42", CHANNEL, ":u42"),
        ("telegram:", CHANNEL, "telegram:"),
        # those that would meet such a one
        ("thread:main", CHANNEL, "thread:main"),
        ("thread:thread:main", CHANNEL, "thread:thread:main"),
        ("thread:thread:thread:main", CHANNEL, "thread:thread:thread:main"),
        ("thread::u", CHANNEL, "thread::u"),
        # and those that would not
        ("thread:", CHANNEL, "thread:"),
        ("thread:a:b", CHANNEL, "a:b"),
        ("thread:.", CHANNEL, "."),
        ("thread:..", CHANNEL, ".."),
        ("Thread:main", "Thread", "main"),
        (".:.", ".", "."),
        # what a folder's name cannot hold
        ("matrix:@bob:example.org%2Froom", "matrix", "@bob:example.org/room"),
        ("a%2Fb:u", "a/b", "u"),
        ("a%3Ab:u", "a:b", "u"),
        ("%2F", CHANNEL, "/"),
        # and what looks like that
        ("a%253Ab:u", "a%3Ab", "u"),
        ("a%25253Ab:u", "a%253Ab", "u"),
        ("a:u%252F", "a", "u%2F"),
        ("a:u%25252F", "a", "u%252F"),
        ("%252F", CHANNEL, "%2F"),
        # and what does not
        ("a:u%3A", "a", "u%3A"),
        ("a%2f%3a:u%2f", "a%2f%3a", "u%2f"),
        ("100%:50%", "100%", "50%"),
        ("a%25:b%25", "a%25", "b%25"),
    ],
)
def test_each_has_one_name_at_the_other_side(thread: str, channel: str, user: str) -> None:
    """A thread becomes this chat, and this chat that thread."""
    assert chat_of(thread) == (channel, user)
    assert thread_of(channel, user) == thread


def test_short_names_of_threads_all_come_back() -> None:
    """Every row of up to five of what the rules look at; so no two become one chat."""
    tried = [name for name in rows(TOKENS, 5) if name not in (".", "..")]
    assert len(tried) > 60_000
    for name in tried:
        check_thread(name)


def test_short_names_of_chats_all_come_back() -> None:
    """Every pair of short rows, and longer users in the channel of those without one."""
    short = list(rows(IN_CHATS, 2))
    for channel, user in product(short, short):
        check_chat(channel, user)
    for user in rows(IN_CHATS, 4):
        check_chat(CHANNEL, user)


@many
@given(names)
@example("e\u0301:\u00e9")
@example("\\:\n")
def test_any_thread_comes_back(name: str) -> None:
    """Whatever its folder is called."""
    check_thread(name)


@many
@given(texts, texts)
@example("thread", "thread:/")
@example(".", ".")
@example("thread", "thread:%2F")
def test_any_chat_comes_back(channel: str, user: str) -> None:
    """Whatever its channel and user are called; its thread can be a folder."""
    check_chat(channel, user)
