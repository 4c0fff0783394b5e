"""Bech32, as BIP 173 has it but for its limit of 90 characters, over whole bytes.

The checksum is what keys are written in it for: a mistyped key is an error, not a lost agent.
"""

from __future__ import annotations

from typing import Final

_ALPHABET: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_CHECKSUM_LENGTH: Final = 6
# What a checksum's remainder takes up for each of the five bits that leave it at the top.
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


class Bech32Error(ValueError):
    """A text is not Bech32. The message says why, and shows nothing of the text itself."""


def encode(prefix: str, data: bytes) -> str:
    """Write ``data`` as lower-case Bech32 behind ``prefix`` (Move Stream, section 8).

    ``prefix`` is lower-case ASCII. An upper-case key is the whole result in upper case.
    """
    values = _to_fives(data)
    remainder = _remainder(_expand(prefix) + values + [0] * _CHECKSUM_LENGTH) ^ 1
    checksum = [remainder >> 5 * (5 - place) & 31 for place in range(_CHECKSUM_LENGTH)]
    return f"{prefix}1{''.join(_ALPHABET[value] for value in values + checksum)}"


def decode(text: str) -> tuple[str, bytes]:
    """Read Bech32: the prefix in lower case, and the data (Move Stream, section 8).

    All upper and all lower case are taken, a mixture is not. Raises ``Bech32Error``.
    """
    for place, character in enumerate(text, 1):
        if not "!" <= character <= "~":
            raise Bech32Error(f"character {place} is not a letter or digit")
    lower = text.lower()
    if text not in (lower, text.upper()):
        raise Bech32Error("it mixes upper and lower case")
    prefix, separator, coded = lower.rpartition("1")
    if not separator or not prefix:
        raise Bech32Error("it has no prefix that ends in 1")
    if len(coded) < _CHECKSUM_LENGTH:
        raise Bech32Error("it is too short")
    values: list[int] = []
    for place, character in enumerate(coded, len(prefix) + 2):
        value = _VALUES.get(character)
        if value is None:
            raise Bech32Error(f"character {place} is none that a key is written with")
        values.append(value)
    if _remainder(_expand(prefix) + values) != 1:
        raise Bech32Error("its checksum is wrong: a character is mistyped or missing")
    return prefix, _to_bytes(values[:-_CHECKSUM_LENGTH])


def _expand(prefix: str) -> list[int]:
    """Give the prefix as the checksum takes it: the high bits, a zero, the low bits."""
    codes = prefix.encode("ascii")
    return [code >> 5 for code in codes] + [0] + [code & 31 for code in codes]


def _remainder(values: list[int]) -> int:
    remainder = 1
    for value in values:
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ value
        for bit, term in enumerate(_GENERATOR):
            if top >> bit & 1:
                remainder ^= term
    return remainder


def _to_fives(data: bytes) -> list[int]:
    """Cut bytes into groups of five bits, the last one filled up with zeros."""
    count = (len(data) * 8 + 4) // 5
    number = int.from_bytes(data, "big") << (count * 5 - len(data) * 8)
    return [number >> 5 * place & 31 for place in range(count - 1, -1, -1)]


def _to_bytes(values: list[int]) -> bytes:
    number = 0
    for value in values:
        number = number << 5 | value
    length, padding = divmod(len(values) * 5, 8)
    # One text for one key: what fills up the last group is short, and zero.
    if padding > 4 or number & (1 << padding) - 1:
        raise Bech32Error("its last character before the checksum holds stray bits")
    return (number >> padding).to_bytes(length, "big")
