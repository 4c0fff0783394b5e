from __future__ import annotations

import random

import pytest

from agentmove_tools.package.front_matter import HEAD, FrontMatter, read_front_matter
from agentmove_tools.package.limits import MAX_FRONT_MATTER
from agentmove_tools.refusals import Refusal
from tests.package.packages import checked, contents, refusal_of, told, warnings_of

PATH = "skills/pdf/SKILL.md"
GOOD = "name: pdf\ndescription: Reads PDFs\n"
TIDY = FrontMatter("pdf", "Reads PDFs", ())
UNQUOTED = "a value holds ': ' and is not quoted: it is read to the line's end"


def read(text: str, *, body: str = "# Body\n") -> FrontMatter:
    """What is read of a front matter between two rules."""
    return read_front_matter(f"---\n{text}---\n{body}".encode(), PATH)


def read_bytes(head: bytes) -> FrontMatter:
    return read_front_matter(head, PATH)


def fields(text: str) -> tuple[str | None, str | None]:
    """A name and a description."""
    found = read(text)
    return found.name, found.description


def why(text: str) -> str:
    """Why a front matter between two rules is refused."""
    return why_of(f"---\n{text}---\n# Body\n".encode())


def why_of(head: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        read_bytes(head)
    assert told(caught.value) == ("skill-front-matter", PATH, None, None)
    return caught.value.why


# -- the rules around it


@pytest.mark.parametrize(
    "head",
    [
        f"---\n{GOOD}---\nbody",
        f"---\n{GOOD}---\n",
        f"---\n{GOOD}---",
        f"---\n{GOOD}--- \t",
        f"---\n{GOOD}---\r",
        f"\ufeff---\n{GOOD}---\nbody",
        f"--- \t \n{GOOD}---\t \nbody",
        f"---\n{GOOD}---\nbody".replace("\n", "\r\n"),
        f"\ufeff--- \n{GOOD}--- \nbody\n".replace("\n", "\r\n"),
        f"---\r\n{GOOD}---\nbody",
        f"---\n{GOOD}---\na\n---\nname: other\n---\n",
        f"---\n{GOOD}---\n---\n",
        f"---\n\n# a remark\n{GOOD}\n---\n",
        f"---\n{GOOD}...\n---\n",
    ],
    ids=range(14),
)
def test_it_lies_between_two_lines(head: str) -> None:
    """The first line and the next that is one; blanks, CRLF, a BOM and what follows are fine."""
    assert read_bytes(head.encode()) == TIDY


@pytest.mark.parametrize(
    "head",
    [
        "",
        "# Body\n",
        f"\n---\n{GOOD}---\n",
        f" ---\n{GOOD}---\n",
        f"----\n{GOOD}---\n",
        f"--- x\n{GOOD}---\n",
        f"---x\n{GOOD}---\n",
        f"--\n{GOOD}--\n",
        f"\u2014\n{GOOD}---\n",
        f"\ufeff\ufeff---\n{GOOD}---\n",
        f"---\v\n{GOOD}---\n",
        f"---\r{GOOD}---\n",
    ],
    ids=range(12),
)
def test_without_a_first_rule_there_is_none(head: str) -> None:
    """That is a warning, whatever follows."""
    assert read_bytes(head.encode()) == FrontMatter(None, None, ("it has no front matter",))


@pytest.mark.parametrize(
    "head",
    [
        "---",
        "---\n",
        f"---\n{GOOD}",
        f"---\n{GOOD}----\n",
        f"---\n{GOOD} ---\n",
        f"---\n{GOOD}--- x\n",
        f"---\n{GOOD}...\n",
        f"---\n{GOOD}---\v\n",
        f"---\n{GOOD}---\u00a0\n",
        f"---\r\n{GOOD}--",
        f"---\n{GOOD}\u2028---\u2028",
    ],
    ids=range(11),
)
def test_one_that_is_never_closed_is_refused(head: str) -> None:
    """A line that only looks like the rule closes nothing."""
    assert why_of(head.encode()) == "it is not closed: a line --- is missing"


def test_an_empty_one_is_no_refusal() -> None:
    """It says nothing, which is untidy; so do remarks alone."""
    untidy = ("it has no description", "it has no name")
    for text in ("", "\n\n", "# remark\n", " \n", "{}\n", "~\n", "''\n"):
        if text == "~\n":
            assert "no mapping" in why(text)
        else:
            assert read(text) == FrontMatter(None, None, untidy)


def test_at_the_limit_it_is_read_and_past_it_refused() -> None:
    """64 KiB from the end of the first line to the second, whatever the body's size."""
    room = MAX_FRONT_MATTER - len(GOOD) - len("#\n---\n")
    text = f"#{'x' * room}\n{GOOD}"
    assert len(f"{text}---\n") == MAX_FRONT_MATTER
    body = "b" * 2000
    for ending in ("", "\n", f"\n{body}", f"\r\n{body}"):
        assert read_bytes(f"---\n{text}---{ending}".encode()[:HEAD]) == TIDY
    for more in (100, 1000, 100_000):
        far = f"#{'x' * more}\n{text}"
        said = why_of(f"---\n{far}---\n{body}".encode()[:HEAD])
        assert said == "it is longer than 64 KiB, or not closed by a line ---"


@pytest.mark.parametrize("behind", ["x\n", "-\n", " x\n", "\tx", "\rx"])
def test_a_line_at_the_limit_that_only_starts_as_the_rule_closes_nothing(behind: str) -> None:
    """What follows on the line is looked at, also past the limit."""
    for cut in range(-1, 4):
        room = MAX_FRONT_MATTER - len(GOOD) - len("#\n---") - cut
        text = f"---\n{GOOD}#{'x' * room}\n---{behind}{'y' * 2000}"
        assert "longer than 64 KiB" in why_of(text.encode()[:HEAD])


def test_a_skill_is_given_back_byte_for_byte() -> None:
    """Whatever is in its front matter, and however much follows."""
    text = f"\ufeff---\r\n{GOOD}odd: a: b\r\n---\r\n".encode() + b"body \xc3\xa9\n" * 200_000
    package = checked({PATH: text})
    assert contents(package)[PATH] == text
    assert package.found.skills[PATH].description == "Reads PDFs"


def test_its_end_may_lie_in_a_later_piece() -> None:
    """A large skill comes in pieces, and the first 64 KiB are put together."""
    text = f"---\n{GOOD}#{'x' * 60_000}\n---\n".encode() + b"y" * (3 << 20)
    assert checked({PATH: text}).found.skills[PATH] == TIDY


# -- what it says


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-30", "2026-02-30"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("true", "true"),
        ("No", "No"),
        ("null", "null"),
        ("~", "~"),
        ("1", "1"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        (".inf", ".inf"),
        ("1e400", "1e400"),
        ("<<", "<<"),
        ("=", "="),
        ("", ""),
        ("  padded  ", "padded"),
        ("'it''s'", "it's"),
        ('"a\\tb\\u00e9"', "a\tb\u00e9"),
        ("'a: b # c'", "a: b # c"),
        ("a # remark", "a"),
        ("a#b", "a#b"),
        ("http://x/y", "http://x/y"),
        ("\u00e9 \U0001f600", "\u00e9 \U0001f600"),
        ("|\n  one\n  two", "one\ntwo\n"),
        ("|-\n  one\n  two: x", "one\ntwo: x"),
        (">\n  one\n  two", "one two\n"),
        (">-\n  one\n\n  two", "one\ntwo"),
        ("one\n  two", "one two"),
        ('"one\n  two"', "one two"),
        ("!!str 1", "1"),
        ("!!int x", "x"),
        ("!!binary AA==", "AA=="),
        ("!custom v", "v"),
        ("!!python/object/apply:os.system ls", "ls"),
    ],
    ids=range(34),
)
def test_a_value_is_text(text: str, expected: str) -> None:
    """A date, a number, a truth, nothing, and whatever a tag says: none is looked into."""
    assert fields(f"name: pdf\ndescription: {text}\n") == ("pdf", expected)
    crlf = f"---\nname: pdf\ndescription: {text}\n---\n".replace("\n", "\r\n").encode()
    assert read_bytes(crlf)[:2] == ("pdf", expected)


def test_it_may_be_written_as_json() -> None:
    """A mapping in braces is one too."""
    assert read('{"name": "pdf", "description": "Reads PDFs"}\n') == TIDY


@pytest.mark.parametrize(
    "text",
    [
        "metadata:\n  a: 1\n  b: [x, {c: d}]\n  name: inner\n",
        "metadata: {name: inner, description: [x]}\n",
        "allowed-tools:\n  - name: x\n  - description: y\n",
        "allowed-tools: [name, pdf]\n",
        "compatibility: x\nlicense: MIT\n",
    ],
)
def test_what_is_nested_is_read_through(text: str) -> None:
    """A list or mapping is no text, and what it names is not the skill's."""
    assert read(text + GOOD) == TIDY
    assert read(GOOD + text) == TIDY


def test_a_name_that_is_no_text_is_none() -> None:
    """A list is as missing."""
    found = read("name: [pdf]\ndescription: {a: b}\n")
    assert found == FrontMatter(None, None, ("it has no description", "it has no name"))


# -- what is untidy


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("name: pdf\n", "it has no description"),
        ("name: pdf\ndescription:\n", "it has no description"),
        ("description: d\n", "it has no name"),
        ("name: PDF\ndescription: d\n", "it is named 'PDF', and its folder 'pdf'"),
        ("name: ''\ndescription: d\n", "it is named '', and its folder 'pdf'"),
        (GOOD + "version: 1\n", "a key is not one of Agent Skills: 'version'"),
        (GOOD + "Name: x\n", "a key is not one of Agent Skills: 'Name'"),
        (GOOD + f"{'k' * 50}: x\n", f"a key is not one of Agent Skills: '{'k' * 40}'"),
        (
            GOOD + "description: Other\n",
            "a key is there twice, and the last one counts: 'description'",
        ),
        (
            f"name: pdf\ndescription: {'d' * 1025}\n",
            "its description is longer than 1024 characters",
        ),
        (GOOD + f"compatibility: {'c' * 501}\n", "its compatibility is longer than 500 characters"),
        ("name: pdf\ndescription: a: b\n", UNQUOTED),
    ],
    ids=range(12),
)
def test_what_is_untidy_is_a_warning(text: str, warning: str) -> None:
    """Alone, and the skill is taken; the package's report has it with the path."""
    assert read(text).warnings == (warning,)
    package = checked({PATH: f"---\n{text}---\n".encode()})
    assert warnings_of(package) == [f"{PATH}: {warning}"]


def test_limits_are_of_characters() -> None:
    """At each of them nothing is said, and one past it something is."""
    name = "\u00e9" * 64
    path = f"skills/{name}/SKILL.md"
    rest = "description: " + "\u00e9" * 1024 + "\ncompatibility: " + "\u00e9" * 500 + "\n"
    head = f"---\nname: {name}\n{rest}---\n"
    assert read_front_matter(head.encode(), path).warnings == ()
    path = f"skills/{name}x/SKILL.md"
    head = f"---\nname: {name}x\n{rest}---\n"
    expected = ("its name is longer than 64 characters",)
    assert read_front_matter(head.encode(), path).warnings == expected


def test_the_last_of_a_repeated_key_counts() -> None:
    """Also when it is no text."""
    assert fields("name: a\nname: pdf\ndescription: d\n") == ("pdf", "d")
    assert fields("name: a\nname: [x]\n'name': pdf\n") == ("pdf", None)
    assert fields("name: a\nname: [x]\n") == (None, None)


def test_the_skill_is_named_as_its_own_folder() -> None:
    """Not as the group that the folder lies in."""
    found = read_front_matter(f"---\n{GOOD}---\n".encode(), "skills/group/pdf/SKILL.md")
    assert found == TIDY


@pytest.mark.parametrize(
    "text",
    ["a: b\n" * 10_000, "? a\n" * 16_000, "".join(f"k{n}: v\n" for n in range(6000))],
    ids=["repeated", "without values", "unknown"],
)
def test_a_skill_has_few_warnings_however_many_keys_it_has(text: str) -> None:
    """A small archive of such skills would fill the memory with them."""
    found = read(GOOD + text)
    assert found[:2] == TIDY[:2]
    assert 1 <= len(found.warnings) <= 100


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Use: it", "Use: it"),
        ("description: a: b: c", "a: b: c"),
        ("description: ends with:", "ends with:"),
        ("description: it's: fine", "it's: fine"),
        ("description: a: 'b'", "a: 'b'"),
        ("description: a: b  ", "a: b"),
        ("description:   a: b", "a: b"),
        ("description: a: b # c", "a: b # c"),
        ("description: a: [b", "a: [b"),
        ("description: a: *b", "a: *b"),
        ("description: \u00e9: \u00fc", "\u00e9: \u00fc"),
        ("description: http://x: y", "http://x: y"),
    ],
    ids=range(12),
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_plain_value_with_a_colon_is_read_to_the_line_s_end(
    line: str, value: str, end: str
) -> None:
    """As people mean it; a quoted or a block value beside it stays what it is."""
    rest = ("license: 'x: y'", "metadata:", "  a: 1", "name: pdf")
    text = end.join(("---", line, *rest, "---", ""))
    assert read_bytes(text.encode()) == FrontMatter("pdf", value, (UNQUOTED,))


def test_a_quoted_value_that_is_broken_is_not_mended() -> None:
    """Only plain values are read to the line's end."""
    assert "does not parse" in why("name: pdf\ndescription: 'a: b\n")
    assert "does not parse" in why('name: pdf\ndescription: "a" b: c\n')
    assert "does not parse" in why("name: pdf\ndescription: [a: b\n")


# -- what is refused


@pytest.mark.parametrize(
    "text",
    ["- a\n- b\n", "[a, b]\n", "just text\n", "'text'\n", "1\n", "|\n  text\n", "name\n"],
    ids=range(7),
)
def test_what_is_no_mapping_is_refused(text: str) -> None:
    """A list, a text, a number."""
    assert why(text) == "it is no mapping of keys to values"


@pytest.mark.parametrize(
    "text",
    [
        "name: &a pdf\n",
        "name: &a pdf\ndescription: *a\n",
        "&a name: pdf\n",
        "metadata: &a {b: c}\n",
        "metadata: &a [b]\n",
        "&a\nname: pdf\n",
        "metadata:\n  deep:\n    - &a x\n",
        "name: *a\n",
        "*a : b\n",
        "metadata: [*a]\n",
        "<<: *a\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
    ],
    ids=range(12),
)
def test_aliases_and_anchors_are_refused(text: str) -> None:
    """At any depth, before anything could be multiplied."""
    assert why(text) == "it has an alias or an anchor"


@pytest.mark.parametrize("text", ["--- \u00e9\nname: pdf\n", "--- !!map\nname: pdf\n"])
def test_a_second_document_is_refused(text: str) -> None:
    """There is one mapping, and no other start of one."""
    assert why(text) == "it holds a second document"
    assert why(GOOD + text) == "it holds a second document"


@pytest.mark.parametrize(
    "text",
    [
        "name: [pdf\n",
        "name: {a: b\n",
        "name: 'pdf\n",
        'name: "pdf\n',
        'name: "\\q"\n',
        'name: "\\xZZ"\n',
        "name: pdf\n  description: x\n",
        "name: pdf\n description: x\n",
        "\tname: pdf\n",
        "name: @x\n",
        "name: `x\n",
        "name: %x\n",
        "name: !<x\n",
        "name: !x!y z\n",
        "name: |9x\n",
        "name: a\n]\n",
        "name: pdf\nnot a key\n",
        "? [a\n",
        "%YAML 1.1\n",
        "%TAG ! x\nname: pdf\n",
        "name: \x01\n",
        "name: \x7f\n",
        "name: \ufffe\n",
        "name: a\x0bb\n",
        "}\n",
        ": :\n  - :\n :\n",
    ],
    ids=range(26),
)
def test_what_does_not_parse_is_refused(text: str) -> None:
    """What the parser says comes in one line, and shows nothing of the text."""
    said = why(text)
    assert said.startswith("it does not parse")
    assert "\n" not in said


@pytest.mark.parametrize(
    "text",
    ['name: "\\ud800"\n', 'name: "\\UFFFFFFFF"\n', 'name: "\\U00110000"\n', "name: !%ff x\n"],
)
def test_an_error_that_is_not_the_parser_s_own_is_a_refusal_too(text: str) -> None:
    """Whatever the library lets out."""
    assert why(text).startswith("it does not parse")


def test_the_line_is_told() -> None:
    """Counted in the file, where the opening rule is the first."""
    assert why("name: pdf\ndescription: 'x\n").endswith(("in line 3", "in line 4"))
    assert why("a: 1\nb: 2\n\tc: 3\n").endswith("in line 4")


@pytest.mark.parametrize(
    "text",
    ["[" * 30_000, "a: " + "{a: " * 10_000, "- " * 30_000, "? " * 30_000, "a: " + "[" * 30_000],
    ids=range(5),
)
def test_deep_nesting_is_a_refusal(text: str) -> None:
    """And no accident of the machine."""
    assert why(text + "\n")


def test_deep_nesting_that_is_closed_is_read_through() -> None:
    """It is kept nowhere."""
    depth = 200
    assert read(f"{GOOD}metadata: {'[' * depth}{']' * depth}\n") == TIDY


def test_the_first_error_is_told_when_quoting_does_not_help() -> None:
    """That of the text as it stands, and not of what was tried."""
    assert why("description: 'x\n").endswith("in line 3")
    assert why("name: a: b\ndescription: 'x\n").endswith("in line 2")


def test_an_error_of_one_skill_names_it() -> None:
    """The package is refused with the skill's path, and the file's NUL comes before."""
    good = f"---\n{GOOD}---\n".encode()
    files = {PATH: good, "skills/g/x/SKILL.md": b"---\n- a\n---\n"}
    assert told(refusal_of(files)) == ("skill-front-matter", "skills/g/x/SKILL.md", None, None)
    files["skills/g/x/SKILL.md"] = b"---\n- a\n---\n\0"
    assert told(refusal_of(files)) == ("field-nul", "skills/g/x/SKILL.md", "skill.content", 4)


# -- anything


_SEEDS = (
    GOOD,
    "name: 'a'\ndescription: |\n  x: y\n  z\nmetadata:\n  a: [1, {b: c}]\n",
    'name: "\\u00e9\\x41"\nallowed-tools:\n  - a\n  - b: c\n? k\n: v\n',
    "{name: pdf, 'description': \"x\"}\n",
    "%YAML 1.1\n--- !!map\nname: !t &a x\nb: *a\n...\n",
)
_PIECES = (
    *(
        "---\n",
        "\n---\n",
        "...\n",
        ": ",
        "? ",
        "- ",
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        ",",
        "&a ",
        "*a",
    ),
    *(
        "!",
        "!!",
        "!<",
        "%",
        "@",
        "|",
        ">",
        "#",
        "\t",
        "\r",
        "\n",
        " ",
        "\\",
        "\\ud800",
        "\\U7fffffff",
    ),
    *("\u2028", "\x85", "\ufeff", "\x00", "\x1b", "\U0010ffff", "\u00e9", "\ufffe", "~", "<<"),
)


def read_or_refused(head: bytes) -> FrontMatter | Refusal:
    try:
        return read_bytes(head)
    except Refusal as refusal:
        return refusal


@pytest.mark.parametrize("seed", range(10))
def test_whatever_stands_there_is_read_or_refused(seed: int) -> None:
    """Nothing of the YAML library's own comes out, and what is read is text."""
    chance = random.Random(seed)
    outcomes: set[type] = set()
    for _ in range(300):
        text = list(chance.choice(_SEEDS))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            match chance.randrange(3):
                case 0:
                    text[at:at] = chance.choice(_PIECES)
                case 1:
                    text[at : at + chance.randrange(1, 8)] = []
                case _:
                    text[at : at + 1] = chance.choice(_PIECES)
        head = "---\n" + "".join(text) + "---\nbody\n"
        found = read_or_refused(head.encode())
        if isinstance(found, Refusal):
            assert found.code in ("skill-front-matter", "field-nul")
            assert found.message
            assert "\n" not in found.message
        else:
            assert isinstance(found.name, str | None)
            assert isinstance(found.description, str | None)
            assert all(isinstance(warning, str) for warning in found.warnings)
        outcomes.add(type(found))
    assert outcomes == {FrontMatter, Refusal}


@pytest.mark.parametrize("key", ["name", "description"])
def test_a_nul_in_a_text_that_a_database_has_a_column_for_is_refused(key: str) -> None:
    """YAML can write one though the file holds none."""
    head = f'---\nname: pdf\ndescription: x\n{key}: "a\\0b"\n---\n'.encode()
    with pytest.raises(Refusal) as caught:
        read_front_matter(head, "skills/pdf/SKILL.md")
    assert caught.value.code == "field-nul"
    assert caught.value.details["field"] == f"skill.{key}"
