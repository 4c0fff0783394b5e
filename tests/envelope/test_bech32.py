from __future__ import annotations

import pytest

from agentmove_tools.envelope import bech32
from agentmove_tools.envelope.bech32 import Bech32Error

# Of BIP 173's list of valid strings: those that hold whole bytes.
KNOWN = [
    ("A12UEL5L", "a", ""),
    ("a12uel5l", "a", ""),
    ("?1ezyfcl", "?", ""),
    (
        "an83characterlonghumanreadablepartthatcontainsthenumber1andtheexcludedcharactersbio1tt5tgs",
        "an83characterlonghumanreadablepartthatcontainsthenumber1andtheexcludedcharactersbio",
        "",
    ),
    (
        "abcdef1qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw",
        "abcdef",
        "00443214c74254b635cf84653a56d7c675be77df",
    ),
]


@pytest.mark.parametrize(("text", "prefix", "data"), KNOWN)
def test_known_texts_are_read_and_written(text: str, prefix: str, data: str) -> None:
    """BIP 173's own examples hold."""
    assert bech32.decode(text) == (prefix, bytes.fromhex(data))
    assert bech32.encode(prefix, bytes.fromhex(data)) == text.lower()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 31, 32, 33, 1000])
def test_any_length_comes_back(length: int) -> None:
    """There is no limit of 90 characters."""
    data = bytes(range(256)) * 4
    text = bech32.encode("lnk", data[:length])
    assert bech32.decode(text) == ("lnk", data[:length])
    assert bech32.decode(text.upper()) == ("lnk", data[:length])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A12uEL5L", "mixes"),
        ("a12uel5x", "checksum"),
        ("b12uel5l", "checksum"),
        ("a12uel5", "too short"),
        ("1nwldj5", "prefix"),
        ("pzry9x0s0muk", "prefix"),
        ("", "prefix"),
        ("a1b2uel5l", "character 3 "),
        ("a12 uel5l", "character 4 "),
        ("a12uel5\u2113", "character 8 "),
        ("\u212a12uel5l", "character 1 "),
    ],
)
def test_a_malformed_text_is_an_error(text: str, why: str) -> None:
    """Each says what is wrong with it."""
    with pytest.raises(Bech32Error, match=why):
        bech32.decode(text)


def test_every_single_mistyped_character_is_found() -> None:
    """That is what keys are written in Bech32 for."""
    text = bech32.encode("lnk", bytes(range(32)))
    for place in range(4, len(text)):
        for other in "qpzry9x8gf2tvdw0s3jn54khce6mua7l":
            if other != text[place]:
                with pytest.raises(Bech32Error, match="checksum"):
                    bech32.decode(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize("values", [[0], [0, 1], [31, 31], [0, 0, 0]])
def test_stray_bits_before_the_checksum_are_an_error(values: list[int]) -> None:
    """One text for one key: what fills the last group is zero and shorter than a group."""
    expanded = bech32._expand("lnk")
    remainder = bech32._remainder(expanded + values + [0] * 6) ^ 1
    checksum = [remainder >> 5 * (5 - place) & 31 for place in range(6)]
    text = "lnk1" + "".join(bech32._ALPHABET[value] for value in values + checksum)
    with pytest.raises(Bech32Error, match="stray bits"):
        bech32.decode(text)
