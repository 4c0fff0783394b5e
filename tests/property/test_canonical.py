from __future__ import annotations

import hashlib
import io
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.canonical import (
    canonical,
    canonical_lines,
    hash_lines,
    is_canonical,
)
from agentmove_tools.json_values import form_of, parse
from agentmove_tools.refusals import Refusal

untimed = settings(deadline=None)


@dataclass(frozen=True)
class Number:
    """A number as it stands in a text."""

    text: str


@dataclass(frozen=True)
class Members:
    """An object as it stands in a text: a key may come again."""

    pairs: list[tuple[str, Node]]


Node: TypeAlias = "bool | str | Number | Members | list[Node] | None"


def laid_out(text: str) -> str:
    """Write a number in the one form, straight from the rules."""
    if text.lstrip("-").isdigit() and text != "-0":
        return text
    value = float(text)
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shortest = "".join(map(str, digits))
    power = len(shortest) - 1 + exponent
    minus = "-" if sign else ""
    if power < -5 or power > 15:
        point = "." if len(shortest) > 1 else ""
        return f"{minus}{shortest[0]}{point}{shortest[1:]}e{'+' if power > 0 else ''}{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{shortest}"
    whole = shortest[: power + 1].ljust(power + 1, "0")
    return f"{minus}{whole}.{shortest[power + 1 :] or '0'}"


SHORT = {'"': r"\"", "\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def quoted(text: str) -> str:
    """Write a text in the one form, straight from the rules."""
    return '"' + "".join(SHORT.get(c, c if c >= " " else f"\\u{ord(c):04x}") for c in text) + '"'


def expected(node: Node) -> str:
    """Write a value in the one form, straight from the rules and as slowly as need be."""
    if node is None or isinstance(node, bool):
        return {None: "null", True: "true", False: "false"}[node]
    if isinstance(node, str):
        return quoted(node)
    if isinstance(node, Number):
        return laid_out(node.text)
    if isinstance(node, list):
        return "[" + ",".join(map(expected, node)) + "]"
    last = dict(node.pairs)
    keys = sorted(last, key=lambda key: key.encode())
    return "{" + ",".join(f"{quoted(key)}:{expected(last[key])}" for key in keys) + "}"


digits = st.text("0123456789", min_size=1, max_size=25)
integers = st.builds(
    lambda sign, text: sign + (text.lstrip("0") or "0"),
    st.sampled_from(["", "-"]),
    digits | st.integers(600, 5000).map(lambda length: "9" * length),
)
reals = st.builds(
    lambda whole, rest, exponent: whole + rest + exponent,
    st.builds(
        lambda sign, text: sign + (text.lstrip("0") or "0"), st.sampled_from(["", "-"]), digits
    ),
    digits.map(lambda text: "." + text) | st.just(""),
    st.builds(
        lambda letter, sign, power: f"{letter}{sign}{power}",
        st.sampled_from("eE"),
        st.sampled_from(["", "+", "-", "-0"]),
        st.integers(0, 30) | st.integers(0, 280),
    ),
)
doubles = st.floats(allow_nan=False, allow_infinity=False).map(repr)
near = st.builds(lambda first, power: f"{first}e{power}", st.floats(1, 9.99), st.integers(-12, 18))
numbers = st.one_of(integers, reals, doubles, near.filter(lambda text: text.count("e") == 1))
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["", "1e-05", ',1e-07,"', "\\", '\\"', "[[[{{{", "\\ud800", "\u2028", "\x7f\x00", "😀"]
)
leaves: st.SearchStrategy[Node] = st.one_of(st.none(), st.booleans(), texts, numbers.map(Number))
keys = texts | st.sampled_from(["a", "b", "aa", "\uffff", "\U00010000"])
nodes: st.SearchStrategy[Node] = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.lists(st.tuples(keys, inner)).map(Members),
    max_leaves=30,
)


class Writer:
    """Writes a value as some sender may: with white space, and with escapes, as drawn."""

    def __init__(self, draw: st.DrawFn) -> None:
        # a few draws, used over and over: one for each place would be slow
        self._spaces = draw(st.lists(st.text(" \t\r", max_size=2), min_size=1, max_size=5))
        self._styles = draw(st.lists(st.sampled_from(["short", "raw", "u", "U"]), min_size=1))
        self._turn = 0

    def space(self) -> str:
        self._turn += 1
        return self._spaces[self._turn % len(self._spaces)]

    def character(self, character: str) -> str:
        self._turn += 1
        style = self._styles[self._turn % len(self._styles)]
        if style == "raw" and character >= " " and character not in '"\\':
            return character
        if style == "short" and character in {**SHORT, "/": 1}:
            return SHORT.get(character, "\\/")
        units = character.encode("utf-16-be").hex()
        form = str.upper if style == "U" else str.lower
        return "".join("\\u" + form(units[at : at + 4]) for at in range(0, len(units), 4))

    def text(self, text: str) -> str:
        return '"' + "".join(map(self.character, text)) + '"'

    def write(self, node: Node) -> str:
        if isinstance(node, Number):
            text = node.text
        elif isinstance(node, str):
            text = self.text(node)
        elif isinstance(node, list):
            text = "[" + (",".join(map(self.write, node)) or self.space()) + "]"
        elif isinstance(node, Members):
            members = (
                f"{self.space()}{self.text(key)}{self.space()}:{self.write(value)}"
                for key, value in node.pairs
            )
            text = "{" + ",".join(members) + "}"
        else:
            text = expected(node)
        return f"{self.space()}{text}{self.space()}"


@st.composite
def written(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Give a text on one line, and the one form of what it holds."""
    node = draw(nodes)
    return Writer(draw).write(node).encode(), expected(node).encode()


@untimed
@given(written())
def test_the_form_is_what_the_rules_say(pair: tuple[bytes, bytes]) -> None:
    """The fast way, the slow way and the rules agree, and the form is its own form."""
    text, form = pair
    assert canonical(text) == form
    assert form_of(parse(text)) == form
    assert canonical(form) == form
    assert is_canonical(form)
    assert is_canonical(text) == (text == form)


@untimed
@given(numbers)
def test_a_number_reads_back_as_the_same(text: str) -> None:
    """A double as the same double, an integer as the same digits."""
    form = canonical(text.encode()).decode()
    assert form == laid_out(text)
    if text.lstrip("-").isdigit() and text != "-0":
        assert form == text
    else:
        assert float(form).hex() == float(text).hex()


class InPieces:
    """A source that gives as many bytes at a time as the list says, over and over."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = io.BytesIO(data)
        self._sizes = sizes
        self._turn = 0

    def readinto(self, buffer: memoryview | bytearray) -> int:
        self._turn += 1
        size = self._sizes[self._turn % len(self._sizes)]
        return self._data.readinto(memoryview(buffer)[:size])


@untimed
@given(
    st.lists(written(), max_size=6),
    st.booleans(),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_lines_are_found_in_any_pieces(
    pairs: list[tuple[bytes, bytes]], ended: bool, sizes: list[int]
) -> None:
    """And their hash is that of their forms, each ended by a line feed."""
    ended = ended or not pairs
    data = b"\n".join(text for text, _ in pairs) + (b"\n" if pairs and ended else b"")
    found = list(canonical_lines(InPieces(data, sizes)))
    last = len(pairs)
    assert found == [
        (number, form, ended or number != last) for number, (_, form) in enumerate(pairs, 1)
    ]
    forms = b"".join(form + b"\n" for _, form in pairs)
    assert hash_lines(InPieces(data, sizes)) == hashlib.sha256(forms).digest()


def accepted(text: bytes) -> bool:
    """Say whether the text has a form; nothing but a refusal may be raised."""
    try:
        canonical(text)
    except Refusal:
        return False
    return True


def no_constant(name: str) -> object:
    raise ValueError(name)


def sound(text: bytes) -> bool:
    """Say whether Python takes the text for JSON, and can write what it holds."""
    try:
        value = json.loads(text.decode(), parse_constant=no_constant)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


SYMBOLS = r'[ ] { } , : " \ - 0 -0 12 1.5 1e-5 1E400 e . "a" "a": {"a":1} \n \u \ud83d \ude00'
WORDS = "null true NaN -Infinity"
parts = st.sampled_from([*SYMBOLS.split(), *WORDS.split(), " ", "\n", "\x00", "é"])


@untimed
@given(st.lists(parts, max_size=12).map("".join))
def test_what_is_taken_is_what_python_takes(drawn: str) -> None:
    """Any other text is refused, and nothing else goes wrong."""
    text = drawn.encode()
    if accepted(text):
        assert sound(text)
        assert json.loads(canonical(text)) == json.loads(text)
    else:
        # a value that a repeated key drops is refused here, and not there
        assert not sound(text) or text.count(b'"a"') > 1


@untimed
@given(st.binary(max_size=40), st.sampled_from([b"", b'"']))
def test_bytes_that_are_no_json_are_refused(data: bytes, quote: bytes) -> None:
    """Also in a string; nothing but a refusal is raised."""
    text = quote + data + quote
    assert sound(text) or not accepted(text)


UNITS = r"\ud83d \uD800 \udbff \ude00 \uDC00 \udfff \ud7ff \ue000 \u0041 \\ \\ud83d \n \/ ud83d u a"
units = st.sampled_from(UNITS.split())


@untimed
@given(st.lists(units, max_size=8).map("".join))
def test_a_lone_surrogate_is_found_wherever_it_is(inner: str) -> None:
    """In a value, in a key, and in a value that a repeated key drops."""
    decoded = json.loads(f'"{inner}"')
    lone = any("\ud800" <= character <= "\udfff" for character in decoded)
    for text in (f'"{inner}"', f'{{"{inner}":1}}', f'{{"a":["{inner}"],"a":2}}'):
        assert accepted(text.encode()) != lone


@untimed
@given(
    st.integers(1, 140) | st.integers(125, 130),
    st.lists(st.sampled_from(["[", "{"]), min_size=1, max_size=4),
    st.sampled_from(["1", "[]", '"[[{{"', r'"\"[["', r'"\\",[[]]', "[],[[]],[]"]),
)
def test_the_depth_is_counted_exactly(levels: int, kinds: list[str], inner: str) -> None:
    """127 levels are taken and 128 are not, whatever is in strings and beside."""
    opens = [kinds[at % len(kinds)] for at in range(levels - 1)]
    text = "".join('{"[":' if kind == "{" else "[" for kind in opens) + f"[{inner}]"
    text += "".join("}" if kind == "{" else "]" for kind in reversed(opens))
    depth = levels + {"[]": 1, r'"\\",[[]]': 2, "[],[[]],[]": 2}.get(inner, 0)
    assert accepted(text.encode()) == (depth <= 127)
