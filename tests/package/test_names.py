from __future__ import annotations

import unicodedata

import pytest

from agentmove_tools.package import names as module
from agentmove_tools.package.names import Paths, caseless, check_path, composed
from agentmove_tools.refusals import Refusal

# pairs that some disk takes for one name
MEET = (
    ("SOUL.md", "soul.md"),
    ("\u00e9", "e\u0301"),
    ("\u00c9", "e\u0301"),
    ("Stra\u00dfe", "STRASSE"),
    ("\u03a3", "\u03c2"),
    ("\u212a", "k"),
    ("\ufb01", "FI"),
    ("a\u0323\u0301", "A\u0301\u0323"),
    ("\u1e9e", "ss"),
    ("\u0130", "i\u0307"),
)


def refusal_of(path: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_path(path)
    return caught.value


def refusal_by(paths: Paths, path: str, *, is_folder: bool = False) -> Refusal:
    with pytest.raises(Refusal) as caught:
        paths.add(path, is_folder=is_folder)
    return caught.value


def paths_of(*paths: str) -> Paths:
    """These paths, of which those with a slash at the end are folders."""
    found = Paths()
    for path in paths:
        found.add(path.removesuffix("/"), is_folder=path.endswith("/"))
    return found


# -- plain paths


@pytest.mark.parametrize(
    "path",
    [
        "SOUL.md",
        "memory/\u00e9/2026-01-01.md",
        "skills/...",
        "skills/.x/..y",
        "a b/ /\t",
        "memory/C:",
        "telegram:u42.jsonl",
        "1:x",
        "x" * 4096,
        "\u00e9" * 2048,
        "\U0001f600" * 1024,
    ],
    ids=range(11),
)
def test_a_plain_path_is_taken(path: str) -> None:
    """Whatever is in its names, up to 4096 bytes."""
    check_path(path)
    paths_of(path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a\0b", "it holds a NUL"),
        ("a\\b", "it holds a \\: rename it"),
        ("..\\evil.md", "it holds a \\: rename it"),
        ("/etc/evil", "it is absolute"),
        ("/", "it is absolute"),
        ("C:/evil", "it names a drive"),
        ("c:evil", "it names a drive"),
        ("x" * 4097, "it is longer than 4096 bytes"),
        ("\u00e9" * 2049, "it is longer than 4096 bytes"),
        ("\udcff" * 4097, "it is longer than 4096 bytes"),
        ("", "a part of it is empty"),
        ("a//b", "a part of it is empty"),
        ("a/", "a part of it is empty"),
        (".", "a part of it is ."),
        ("a/./b", "a part of it is ."),
        ("..", "a part of it is .."),
        ("../evil.md", "a part of it is .."),
        ("skills/x/../../../evil.md", "a part of it is .."),
        ("a/..", "a part of it is .."),
    ],
    ids=range(19),
)
def test_a_path_that_is_not_plain_is_refused(path: str, why: str) -> None:
    """Whatever leads out of the folder, or could on some system."""
    refusal = refusal_of(path)
    assert (refusal.code, refusal.why) == ("package-path", why)
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    assert refusal.details["path"] == shown


# -- names that meet


@pytest.mark.parametrize(("one", "other"), MEET)
def test_names_that_meet_share_their_caseless_form(one: str, other: str) -> None:
    """Case and Unicode form are folded, in either order."""
    assert caseless(one) == caseless(other)
    assert caseless(caseless(one)) == caseless(one)


@pytest.mark.parametrize(
    ("one", "other"), [("a", "b"), ("e", "\u00e9"), ("ss", "s"), ("\uff21", "a")]
)
def test_other_names_do_not_meet(one: str, other: str) -> None:
    """An accent, a letter and a width are differences on every disk."""
    assert caseless(one) != caseless(other)


def test_names_are_composed() -> None:
    """As most systems write them; only the form changes."""
    assert composed("abc") == "abc"
    assert composed("e\u0301") == "\u00e9"
    assert composed("\u00e9") == "\u00e9"
    assert composed("\ufb01") == "\ufb01"
    assert unicodedata.is_normalized("NFC", composed("a\u0301\u0323"))


@pytest.mark.parametrize(("one", "other"), MEET)
@pytest.mark.parametrize("shape", ["{}", "memory/{}", "memory/{}/x.md"])
def test_two_paths_that_meet_are_refused(one: str, other: str, shape: str) -> None:
    """Files and the folders that they lie in; the error names both."""
    first, second = shape.format(one), shape.format(other)
    refusal = refusal_by(paths_of(first), second)
    assert (refusal.code, refusal.details["path"]) == ("package-duplicate", second)
    assert refusal.why == f"{one!r} is there too"


def test_a_path_comes_once() -> None:
    """A second time it is refused, as a file and as a folder."""
    refusal = refusal_by(paths_of("memory/a.md"), "memory/a.md")
    assert (refusal.code, refusal.why) == ("package-duplicate", "")
    refusal = refusal_by(paths_of("memory/"), "memory", is_folder=True)
    assert (refusal.code, refusal.details["path"]) == ("package-duplicate", "memory")


def test_a_folder_may_be_named_before_or_after_what_is_in_it() -> None:
    """Or not at all; it counts once."""
    assert paths_of("a/", "a/b/", "a/b/c").folders == 2
    assert paths_of("a/b/c", "a/b/", "a/").folders == 2
    assert paths_of("a/b/c", "a/b/d", "a/e").folders == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [("memory", "memory/a.md"), ("memory", "memory/x/y/a.md"), ("a/b", "a/b/c"), ("a", "a/")],
)
def test_a_file_where_a_folder_must_be_is_refused(first: str, second: str) -> None:
    """The error names what would lie in it, and the file."""
    is_folder = second.endswith("/")
    refusal = refusal_by(paths_of(first), second.removesuffix("/"), is_folder=is_folder)
    assert (refusal.code, refusal.details["path"]) == ("package-type", second.removesuffix("/"))
    assert refusal.why == f"{first.rpartition('/')[2]!r} is a file, and something lies in it"


@pytest.mark.parametrize("first", ["memory/", "memory/a.md"])
def test_a_file_where_a_folder_is_is_refused(first: str) -> None:
    """Also where the folder is there only because something lies in it."""
    refusal = refusal_by(paths_of(first), "memory")
    assert (refusal.code, refusal.details["path"]) == ("package-type", "memory")
    assert refusal.why == "a file and a folder of this path"


def test_a_file_and_a_folder_that_differ_in_case_are_refused() -> None:
    """Either way round."""
    assert refusal_by(paths_of("Memory"), "memory/a.md").code == "package-duplicate"
    assert refusal_by(paths_of("memory/a.md"), "Memory").code == "package-duplicate"


def test_equal_names_in_different_folders_do_not_meet() -> None:
    """A name belongs to its folder, at any depth and length of the path."""
    deep = "/".join(["d" * 100] * 5)
    found = paths_of("a/x", "b/x", "a/b/x", "b/a/X", f"{deep}/x", f"{deep}/y", f"{deep}/d/x")
    assert refusal_by(found, f"{deep}/X").code == "package-duplicate"


def test_folders_are_counted_as_they_are_implied(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the one: a single deep path cannot make any number of them."""
    monkeypatch.setattr(module, "MAX_FOLDERS", 3)
    paths_of("a/b/c/d", "a/e", "f")
    refusal = refusal_by(Paths(), "a/b/c/d/e")
    assert (refusal.code, refusal.details["path"]) == ("package-entries", "a/b/c/d/e")
    assert refusal.why == "there are more than 3 folders"
    assert refusal_by(paths_of("a/b/", "c/"), "d", is_folder=True).code == "package-entries"
