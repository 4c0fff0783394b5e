from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from agentmove_tools.envelope import bech32
from agentmove_tools.envelope.key_files import FILE_LIMIT, load, read_identity, read_recipient
from agentmove_tools.envelope.keys import Identity, Recipient, parse_identity, parse_recipient
from agentmove_tools.refusals import UsageError

P = 2**255 - 19
ORDER_EIGHT = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)
SMALL = [0, 1, P - 1, *(int.from_bytes(bytes.fromhex(u), "little") for u in ORDER_EIGHT)]
# Every encoding of each: the other one under 2**255, with and without the top bit that X25519
# leaves out, and those that only mean it where the top bit counts.
LOW_ORDER = sorted(
    {value + top for u in SMALL for value in (u, u + P) if value < 2**255 for top in (0, 2**255)}
    | {value for u in SMALL for value in (u + P, u + 2 * P) if value < 2**256}
)
IDENTITY = Identity(bytes(range(32)))


def test_a_recipient_comes_back_from_its_text() -> None:
    """In lower case, in upper case and in hex."""
    recipient = IDENTITY.recipient
    text = str(recipient)
    assert text.startswith("lnk1")
    for form in (text, text.upper(), recipient.raw.hex(), recipient.raw.hex().upper()):
        assert parse_recipient(form) == recipient


def test_an_identity_comes_back_from_its_text() -> None:
    """Its text is in upper case, and its recipient is X25519's public key."""
    text = IDENTITY.reveal()
    assert text.startswith("LNK-SECRET-KEY-1")
    assert text == text.upper()
    assert parse_identity(text) == IDENTITY
    public = X25519PrivateKey.from_private_bytes(IDENTITY.raw).public_key()
    assert IDENTITY.recipient.raw == public.public_bytes_raw()


def test_new_identities_differ() -> None:
    """They come from random numbers."""
    assert len({Identity.new().raw for _ in range(20)}) == 20


def test_the_repr_of_an_identity_hides_it() -> None:
    """A log of one is no leak."""
    assert repr(IDENTITY) == "Identity()"


def test_the_texts_of_the_vectors(vectors: Path) -> None:
    """Another implementation writes the same."""
    folder = vectors / "envelope"
    identity = read_identity((folder / "identity.txt").read_bytes())
    assert identity.reveal() == (folder / "identity.txt").read_text().strip()
    assert str(identity.recipient) == (folder / "recipient.txt").read_text().strip()
    assert parse_recipient((folder / "recipient.hex").read_text().strip()) == identity.recipient


def test_no_bad_recipient_of_the_vectors_is_taken(vectors: Path) -> None:
    """Each is a mistake in the command line."""
    lines = (vectors / "envelope" / "recipients-bad.txt").read_text().splitlines()
    assert len(lines) > 10
    for line in lines:
        with pytest.raises(UsageError):
            parse_recipient(line)


def test_the_list_of_low_order_points_is_right() -> None:
    """X25519 makes nothing but zeros of each that it reads as one."""
    key = X25519PrivateKey.generate()
    zeros = 0
    for number in LOW_ORDER:
        try:
            key.exchange(X25519PublicKey.from_public_bytes(number.to_bytes(32, "little")))
        except ValueError:
            zeros += 1
    # Without the top bit: 0, 1, p - 1, p, p + 1 and the two of order eight; and each with it.
    assert zeros == 14


@pytest.mark.parametrize("number", LOW_ORDER)
def test_a_point_of_low_order_is_no_recipient(number: int) -> None:
    """In whatever encoding: anyone could open what is sealed to it."""
    raw = number.to_bytes(32, "little")
    for text in (raw.hex(), str(Recipient(raw))):
        with pytest.raises(UsageError, match="low order"):
            parse_recipient(text)


@pytest.mark.parametrize("number", [9 + 2**255, P + 9, 2**256 - 1])
def test_an_encoding_that_no_key_has_is_no_recipient(number: int) -> None:
    """Its holder would seal to the key's own form and so could not open the envelope."""
    with pytest.raises(UsageError, match="own form"):
        parse_recipient(number.to_bytes(32, "little").hex())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (str(IDENTITY.recipient) + "\r", "carriage return"),
        (" " + str(IDENTITY.recipient), "white space"),
        ("move.key", "no recipient"),
        ("age1qqqq", "age"),
        ("ab" * 31, "62 hex digits"),
        ("lnk1", "too short"),
        (bech32.encode("lnk", bytes(31)), "31 bytes"),
        (bech32.encode("lnk1x", bytes(32)), "prefix is another"),
        (str(IDENTITY.recipient)[:-1], "checksum"),
    ],
)
def test_a_bad_recipient_says_what_is_wrong(text: str, why: str) -> None:
    """So that it can be put right."""
    with pytest.raises(UsageError, match=why):
        parse_recipient(text)


@pytest.mark.parametrize("form", [str.upper, str.lower, str.title, str.swapcase])
def test_an_identity_as_recipient_is_refused_unseen(form: object) -> None:
    """The error, its hint and its details show none of the secret."""
    assert callable(form)
    secret = form(IDENTITY.reveal())
    with pytest.raises(UsageError, match="a secret") as caught:
        parse_recipient(secret)
    shown = f"{caught.value} {caught.value.details}".lower()
    assert secret[-20:].lower() not in shown
    assert "lnk-keygen -y" in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (str(IDENTITY.recipient), "a recipient"),
        (IDENTITY.reveal().lower(), "upper case"),
        (IDENTITY.reveal()[:-1] + "Q", "checksum"),
        (IDENTITY.reveal()[:-1] + "b", "upper case"),
        (bech32.encode("lnk-secret-key-", bytes(33)).upper(), "33 bytes"),
        ("AGE-SECRET-KEY-1QQQ", "no identity"),
    ],
)
def test_a_bad_identity_is_refused_unseen(text: str, why: str) -> None:
    """The error shows none of what may be a secret."""
    with pytest.raises(UsageError, match=why) as caught:
        parse_identity(text)
    assert text[16:] not in f"{caught.value} {caught.value.details}"


def test_a_key_file_has_comments_blank_lines_and_one_key() -> None:
    """Also with the line ends, the mark and the spaces of an editor."""
    text = IDENTITY.to_file()
    assert text.startswith(f"# recipient: {IDENTITY.recipient}\n")
    for content in (text, "\n \n" + text, text.replace("\n", "\r\n"), "\ufeff" + text, text[:-1]):
        assert read_identity(content.encode()) == IDENTITY
    assert read_recipient(f"# box\n\n  {IDENTITY.recipient}\t\n".encode()) == IDENTITY.recipient


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no identity in it"),
        (b"# only a comment\n", "no identity in it"),
        (IDENTITY.to_file().encode() * 2, "line 4: a second one"),
        (b"\n\n" + IDENTITY.reveal().lower().encode(), "line 3: the identity is not in upper"),
        (IDENTITY.to_file().encode("utf-16"), "UTF-16"),
        (b"\xff" * 10, "no identity file"),
        (b"#" * (FILE_LIMIT + 1), "no identity file"),
    ],
)
def test_a_bad_key_file_names_the_line(content: bytes, why: str) -> None:
    """And the file, but nothing of what is in it."""
    with pytest.raises(UsageError, match=why) as caught:
        read_identity(content, "some.key")
    assert caught.value.details["path"] == "some.key"
    assert IDENTITY.reveal()[16:].lower() not in str(caught.value).lower()


def test_a_file_that_others_may_read_is_told_apart(tmp_path: Path) -> None:
    """Only a file has a mode that tells: a pipe is made by the shell."""
    file = tmp_path / "key"
    file.write_text(IDENTITY.to_file())
    for mode, is_exposed in [(0o600, False), (0o400, False), (0o640, True), (0o604, True)]:
        file.chmod(mode)
        assert load(file) == (IDENTITY.to_file().encode(), is_exposed)
    assert not load(Path("/dev/null")).is_exposed


def test_a_key_file_without_an_end_is_not_read_to_it() -> None:
    """``-i /dev/zero`` ends."""
    content = load(Path("/dev/zero")).content
    assert len(content) == FILE_LIMIT + 1
