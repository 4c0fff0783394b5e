from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from agentmove_tools.envelope.header import open_header, write_header
from agentmove_tools.envelope.keys import Identity
from agentmove_tools.refusals import Refusal

INFO = b'{"owner":"move","kind":"stream","version":1}'
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def test_the_context_is_the_44_bytes_of_the_format() -> None:
    """A byte more, and nobody else opens it."""
    assert len(INFO) == 44


def test_another_implementation_opens_our_header() -> None:
    """What is written is RFC 9180, behind the magic and the length."""
    identity = Identity.new()
    key = bytes(range(32))
    written = write_header(identity.recipient, key)
    assert written[:12] == b"LNKSEAL1" + (80).to_bytes(4, "big")
    assert len(written) == 92
    secret = X25519PrivateKey.from_private_bytes(identity.raw)
    assert SUITE.decrypt(written[12:], secret, info=INFO) == key


def test_we_open_the_header_of_another_implementation() -> None:
    """What is read is RFC 9180."""
    identity = Identity.new()
    public = X25519PublicKey.from_public_bytes(identity.recipient.raw)
    assert open_header(identity, SUITE.encrypt(bytes(32), public, info=INFO)) == bytes(32)


def test_two_headers_for_one_key_differ() -> None:
    """The encapsulated key is fresh."""
    to = Identity.new().recipient
    assert write_header(to, bytes(32)) != write_header(to, bytes(32))


@pytest.mark.parametrize("plain", [b"", bytes(31), bytes(33)])
def test_a_stream_key_of_another_length_is_refused(plain: bytes) -> None:
    """It authenticates, and is none all the same."""
    identity = Identity.new()
    public = X25519PublicKey.from_public_bytes(identity.recipient.raw)
    with pytest.raises(Refusal) as caught:
        open_header(identity, SUITE.encrypt(plain, public, info=INFO))
    assert caught.value.code == "envelope-key"


@pytest.mark.parametrize("point", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_an_encapsulated_key_of_low_order_is_refused(point: int) -> None:
    """No error of a library comes through."""
    header = point.to_bytes(32, "little") + bytes(48)
    with pytest.raises(Refusal) as caught:
        open_header(Identity.new(), header)
    assert caught.value.code == "envelope-key"
    assert caught.value.details["byte"] == 12


def test_every_altered_byte_of_a_header_is_found() -> None:
    """In the encapsulated key, the ciphertext and the tag."""
    identity = Identity.new()
    header = write_header(identity.recipient, bytes(32))[12:]
    for place in range(80):
        altered = bytearray(header)
        altered[place] ^= 1
        with pytest.raises(Refusal) as caught:
            open_header(identity, bytes(altered))
        assert caught.value.code == "envelope-key"
