"""Recipients and identities, and the text they are written in (Move Stream, section 8).

No error and no ``repr`` here shows any of a secret, nor of a text that may be one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from agentmove_tools.envelope import bech32
from agentmove_tools.refusals import UsageError

KEY_LENGTH: Final = 32
_RECIPIENT: Final = "lnk"
_IDENTITY: Final = "lnk-secret-key-"

_P: Final = 2**255 - 19
# The u coordinates, on the curve and on its twist, of the points whose order divides 8.
_LOW_ORDER: Final = frozenset(
    {
        0,
        1,
        _P - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)
_HEX: Final = re.compile(r"[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Recipient:
    """A public key that a stream is sealed to: 32 raw bytes of X25519."""

    raw: bytes

    def __str__(self) -> str:
        """Give the recipient as text, ``lnk1...``."""
        return bech32.encode(_RECIPIENT, self.raw)


@dataclass(frozen=True, slots=True)
class Identity:
    """A secret key that a stream is unsealed with: 32 raw bytes of X25519."""

    raw: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Identity:
        """Make a new identity from the system's random numbers."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def recipient(self) -> Recipient:
        """The public key that belongs to this identity."""
        key = X25519PrivateKey.from_private_bytes(self.raw)
        return Recipient(key.public_key().public_bytes_raw())

    def reveal(self) -> str:
        """Give the secret itself as text, ``LNK-SECRET-KEY-1...``."""
        return bech32.encode(_IDENTITY, self.raw).upper()

    def to_file(self) -> str:
        """Give the text of an identity file: the recipient as a comment, then the secret."""
        return f"# recipient: {self.recipient}\n{self.reveal()}\n"


def parse_recipient(text: str) -> Recipient:
    """Read a recipient: ``lnk1...`` or 64 hex digits (Move Stream, section 8).

    Raises ``UsageError``, which says what is wrong with it; also for a point of low order, and
    for an encoding that no identity's own key has (its holder could not open the envelope).
    """
    if not text:
        raise UsageError("the recipient is empty: it is lnk1..., as lnk-keygen prints it")
    if "secret-key-" in text.lower():
        raise UsageError(
            "this is an identity, a secret, and no recipient",
            hint="lnk-keygen -y prints an identity's recipient; "
            "make a new identity if this one was on a command line",
        )
    if text.endswith("\r"):
        raise UsageError(
            "the recipient ends in a carriage return",
            hint="it went through a terminal: use ssh -T",
        )
    if text != text.strip():
        raise UsageError("there is white space around the recipient: take it away")
    if _HEX.fullmatch(text):
        if len(text) != 2 * KEY_LENGTH:
            raise UsageError(f"the recipient has {len(text)} hex digits: one in hex has 64")
        return _checked(bytes.fromhex(text))
    if text.lower().startswith("age1"):
        raise UsageError("this is a recipient of age: one of lnk-keygen starts with lnk1")
    if not text.lower().startswith(f"{_RECIPIENT}1"):
        raise UsageError(
            "this is no recipient, which is lnk1... or 64 hex digits",
            hint="lnk-keygen makes one; -R reads it from a file",
        )
    raw = _decode(text, "recipient")
    if len(raw) != KEY_LENGTH:
        raise UsageError(f"the recipient holds {len(raw)} bytes: a key has {KEY_LENGTH}")
    return _checked(raw)


def parse_identity(text: str) -> Identity:
    """Read an identity, ``LNK-SECRET-KEY-1...`` in upper case (Move Stream, section 8).

    Raises ``UsageError``, which shows nothing of the text.
    """
    if text.lower().startswith(f"{_RECIPIENT}1"):
        raise UsageError("this is a recipient, the public key: an identity is needed")
    if not text.lower().startswith(f"{_IDENTITY}1"):
        raise UsageError("this is no identity, which starts with LNK-SECRET-KEY-1")
    if text != text.upper():
        raise UsageError("the identity is not in upper case: it was altered")
    raw = _decode(text, "identity")
    if len(raw) != KEY_LENGTH:
        raise UsageError(f"the identity holds {len(raw)} bytes: a key has {KEY_LENGTH}")
    return Identity(raw)


def _checked(raw: bytes) -> Recipient:
    number = int.from_bytes(raw, "little")
    # X25519 leaves the top bit out; some implementations once did not.
    for value in (number, number & (1 << 255) - 1):
        if value % _P in _LOW_ORDER:
            raise UsageError("the recipient is a point of low order, which anyone could open")
    if number >= _P:
        raise UsageError("the recipient is not written as a key's own form: nobody could open it")
    return Recipient(raw)


def _decode(text: str, what: str) -> bytes:
    try:
        prefix, raw = bech32.decode(text)
    except bech32.Bech32Error as error:
        raise UsageError(f"the {what} is mistyped: {error}") from None
    if prefix != (_RECIPIENT if what == "recipient" else _IDENTITY):
        raise UsageError(f"the {what} is mistyped: its prefix is another")
    return raw
