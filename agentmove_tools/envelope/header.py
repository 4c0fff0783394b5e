"""The envelope's header: the stream key, sealed with HPKE to one recipient (section 8).

HPKE is RFC 9180's base mode over DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.
Base mode says nothing of who sealed: the pipe (ssh) authenticates the sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from agentmove_tools.envelope.keys import KEY_LENGTH, Identity, Recipient
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from pyhpke import CipherSuite

MAGIC: Final = b"LNKSEAL1"
LENGTH_BYTES: Final = 4
HEADER_START: Final = len(MAGIC) + LENGTH_BYTES
HEADER_LIMIT: Final = 4096  # bytes that a header may say it is long
TAG_LENGTH: Final = 16
HEADER_LENGTH: Final = KEY_LENGTH + KEY_LENGTH + TAG_LENGTH  # of this suite: 80 bytes

_INFO: Final = b'{"owner":"move","kind":"stream","version":1}'


def write_header(recipient: Recipient, stream_key: bytes) -> bytes:
    """Give the envelope's first bytes: magic, header length and header (92 bytes)."""
    from pyhpke import KEMKey  # noqa: PLC0415  (50 ms, and --help needs none of it)

    public = KEMKey.from_pyca_cryptography_key(X25519PublicKey.from_public_bytes(recipient.raw))
    encapsulated, context = _suite().create_sender_context(public, info=_INFO)
    header = encapsulated + context.seal(stream_key)
    return MAGIC + len(header).to_bytes(LENGTH_BYTES, "big") + header


def open_header(identity: Identity, header: bytes) -> bytes:
    """Give the stream key that a header of any length holds.

    Raises ``Refusal`` ``envelope-key``: another recipient or context, or an altered header.
    """
    from pyhpke import KEMKey, PyHPKEError  # noqa: PLC0415  (as above)

    place = f"byte {HEADER_START}"
    if len(header) != HEADER_LENGTH:
        why = f"its header is {len(header)} bytes long, and not {HEADER_LENGTH}"
        raise Refusal("envelope-key", why, place=place, byte=HEADER_START)
    secret = KEMKey.from_pyca_cryptography_key(X25519PrivateKey.from_private_bytes(identity.raw))
    try:
        # A bad encapsulated key is a bare ValueError here, not one of the library's own errors.
        context = _suite().create_recipient_context(header[:KEY_LENGTH], secret, info=_INFO)
        stream_key = context.open(header[KEY_LENGTH:])
    except (PyHPKEError, ValueError):
        why = f"this identity is the one of {identity.recipient}"
        raise Refusal("envelope-key", why, place=place, byte=HEADER_START) from None
    if len(stream_key) != KEY_LENGTH:
        why = f"it is {len(stream_key)} bytes long, and not {KEY_LENGTH}"
        raise Refusal("envelope-key", why, place=place, byte=HEADER_START)
    return stream_key


def _suite() -> CipherSuite:
    from pyhpke import AEADId, CipherSuite, KDFId, KEMId  # noqa: PLC0415  (as above)

    return CipherSuite.new(
        KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305
    )
