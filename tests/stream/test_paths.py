from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.refusals import Refusal, UsageError
from agentmove_tools.stream.paths import (
    FILE,
    FOLDER,
    FOLDERS,
    IMPLIED,
    LINK,
    MAX_PATH,
    PHASES,
    Phase,
    Seen,
    check_folder,
    check_link,
    check_links_option,
    check_place,
    check_plain,
    check_target,
)

DIGEST = bytes(range(32))
LONG = b"files/" + b"n" * 200


@contextlib.contextmanager
def refused(code: str, path: bytes) -> Iterator[None]:
    """What is inside is refused with this code, and the refusal names the path."""
    with pytest.raises(Refusal) as caught:
        yield
    assert caught.value.code == code
    assert caught.value.details["path"] == path.decode("utf-8", "backslashreplace")


# -- plain


@pytest.mark.parametrize(
    "path",
    [
        b"files",
        b"files/a b",
        b"files/-rf",
        b"files/a\nb",
        b"files/a\\b",
        b"files/...",
        b"files/.hidden",
        b"files/..a",
        b"files/a..",
        "files/é".encode(),
        "files/e\u0301".encode(),
        "files/\U0001f600\u202e".encode(),
        b"files/" + b"a" * (MAX_PATH - 6),
    ],
)
def test_a_plain_path_is_taken(path: bytes) -> None:
    """Any name that a file system has is ordinary, up to 4096 bytes."""
    check_plain(path)


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/files/a",
        b"files/",
        b"files//a",
        b".",
        b"./files/a",
        b"files/./a",
        b"files/.",
        b"..",
        b"../a",
        b"files/../a",
        b"files/..",
        b"files/a\0b",
        b"files/\xff",
        b"files/\xed\xa0\x80",
        b"files/\xc0\xae\xc0\xae",
    ],
)
def test_a_path_that_is_not_plain_is_refused(path: bytes) -> None:
    """Nothing that climbs, starts at the root, or two readers may read in two ways."""
    with refused("entry-path", path):
        check_plain(path)


def test_a_path_over_the_limit_is_refused_and_shown_cut() -> None:
    """4097 bytes are one too many, and the error does not print them all."""
    path = b"files/" + b"a" * (MAX_PATH - 5)
    with refused("entry-path", path[:80] + b"..."):
        check_plain(path)


# -- the folders of a phase


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("top", ["files", "memory", "harness", "connections", "schedule"])
def test_a_phase_has_its_folders(phase: Phase, top: str) -> None:
    """A copy has no secrets and no jobs; a stream of files has files only."""
    allowed = {
        "copy": {"files", "memory", "harness"},
        "switch": {"files", "memory", "harness", "connections", "schedule"},
        "files": {"files"},
    }
    for path, kind in ((top, FOLDER), (f"{top}/a", FILE), (f"{top}/a/b", FOLDER)):
        if top in allowed[phase]:
            check_folder(path.encode(), phase, kind)
        else:
            with refused("entry-folder", path.encode()):
                check_folder(path.encode(), phase, kind)


@pytest.mark.parametrize(
    "path", [b"Files/a", b"filesx/a", b"agent.json", b"logs", b"lnk-move-4.json"]
)
def test_nothing_lies_elsewhere(path: bytes) -> None:
    """Names are held by their bytes: another case, or a longer name, is another folder."""
    for phase in PHASES:
        with refused("entry-folder", path):
            check_folder(path, phase, FILE)


def test_a_file_cannot_stand_for_a_folder_of_the_phase() -> None:
    """A file named ``files`` is refused for its path."""
    for top in FOLDERS["switch"]:
        with refused("entry-path", top):
            check_folder(top, "switch", FILE)


# -- the places of a schedule


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (b"schedule", FOLDER),
        (b"schedule/waiting", FOLDER),
        (b"schedule/firing", FOLDER),
        (b"schedule/ending", FOLDER),
        (b"schedule/day.json", FILE),
        (b"schedule/waiting/a.json", FILE),
        (b"schedule/firing/a b.json", FILE),
        (b"schedule/ending/.a.json", FILE),
    ],
)
def test_a_schedule_has_these_places(path: bytes, kind: str) -> None:
    """Three folders of jobs, and the day."""
    check_place(path, kind)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (b"schedule/paused", FILE),
        (b"schedule/paused", FOLDER),
        (b"schedule/later", FOLDER),
        (b"schedule/later/a.json", FILE),
        (b"schedule/a.json", FILE),
        (b"schedule/waiting", FILE),
        (b"schedule/waiting", LINK),
        (b"schedule/day.json", FOLDER),
        (b"schedule/day.json/a.json", FILE),
        (b"schedule/waiting/a", FILE),
        (b"schedule/waiting/.json", FILE),
        (b"schedule/waiting/a.json", FOLDER),
        (b"schedule/waiting/a/b.json", FILE),
        (b"schedule/Waiting/a.json", FILE),
    ],
)
def test_a_schedule_has_no_other_place(path: bytes, kind: str) -> None:
    """The mark of a paused schedule never travels, and a job is a .json file in a place."""
    with refused("schedule-place", path):
        check_place(path, kind)


# -- links


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"files/a", b"b"),
        (b"files/a", b"."),
        (b"files/a", b"d/e/f"),
        (b"files/a", "é\n".encode()),
        (b"files/d/a", b".."),
        (b"files/d/a", b"../d/t"),
        (b"files/d/e/a", b"../../x"),
        (b"files/d/e/a", b"../../"),
        (b"files/a", b"..b"),
        (b"files/a", b"x" * MAX_PATH),
        (b"memory/vec/a", b"b"),
        (b"memory/vec/d/a", b"../b"),
        (b"harness/skills/pdf/a", b"SKILL.md"),
        (b"harness/skills/pdf/d/a", b"../SKILL.md"),
    ],
)
def test_a_link_that_stays_inside_is_taken(path: bytes, target: bytes) -> None:
    """Inside ``files/``, its memory engine's folder, or its skill's; it may dangle."""
    check_link(path, target)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"files/a", b""),
        (b"files/a", b"/etc/passwd"),
        (b"files/a", b".."),
        (b"files/a", b"../files/b"),
        (b"files/d/a", b"../.."),
        (b"files/d/a", b"../../files/b"),
        (b"files/a", b"d/../b"),
        (b"files/d/a", b"./../b"),
        (b"files/d/a", b"../b/.."),
        (b"files/d/e/a", b"..//../../x"),
        (b"files/a", b"b\0c"),
        (b"files/a", b"\xff"),
        (b"files/a", b"x" * (MAX_PATH + 1)),
        (b"memory/vec/a", b"../bm25/x"),
        (b"harness/skills/pdf/a", b"../other/SKILL.md"),
        (b"files", b"elsewhere"),
        (b"memory", b"files"),
        (b"memory/vec", b"files"),
        (b"memory/notes.md", b"vec/notes"),
        (b"harness/skills", b"x"),
        (b"harness/skills/pdf", b"x"),
        (b"harness/instructions.md", b"skills/x"),
        (b"harness/skillsx/pdf/a", b"x"),
        (b"harness/conversations/t/events.jsonl", b"x"),
        (b"connections/a.json", b"b.json"),
        (b"schedule/day.json", b"waiting/a.json"),
    ],
)
def test_a_link_that_leaves_is_refused(path: bytes, target: bytes) -> None:
    """Also one that only might, through another link: ``..`` stands at the start or nowhere."""
    with refused("entry-link", path):
        check_link(path, target)


LINKED = ((1, b"files"), (2, b"memory/vec"), (3, b"harness/skills/pdf"))
NAMES = st.sampled_from([b"..", b"a", b"b", b".", b"", b"..."])


@settings(deadline=None)
@given(
    top=st.sampled_from(LINKED),
    below=st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=4),
    names=st.lists(NAMES, min_size=1, max_size=8),
)
def test_what_is_taken_stays_inside(
    top: tuple[int, bytes], below: list[bytes], names: list[bytes]
) -> None:
    """By another way of counting: the normal form of where a link points starts with its folder.

    And what is refused left it, was absolute or empty, or had ``..`` after something else.
    """
    _, folder = top
    path = b"/".join([folder, *below])
    target = b"/".join(names)
    try:
        check_link(path, target)
    except Refusal:
        taken = False
    else:
        taken = True
    where = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    inside = where == folder or where.startswith(folder + b"/")
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    well_formed = bool(target) and not target.startswith(b"/") and b".." not in names[ups:]
    assert taken == (inside and well_formed)


@pytest.mark.parametrize("target", [b"", b"a\0b", b"\xff", b"x" * (MAX_PATH + 1)])
def test_a_target_that_no_link_has_is_never_taken(target: bytes) -> None:
    """Not even where any link is."""
    with refused("entry-link", b"files/a"):
        check_target(b"files/a", target)


def test_any_other_target_can_be_taken() -> None:
    """Where any link is, an absolute one is."""
    check_target(b"files/a", b"/etc/../passwd")


def test_the_option_for_links_has_two_values() -> None:
    """What is mistyped is not taken for one of them."""
    assert check_links_option("any") is True
    assert check_links_option("inside") is False
    with pytest.raises(UsageError, match="inside or any"):
        check_links_option("Any")


# -- what was there before


@pytest.mark.parametrize("kind", [FILE, FOLDER, LINK])
@pytest.mark.parametrize("path", [b"files/a", LONG])
def test_a_path_comes_once(path: bytes, kind: str) -> None:
    """The second of the same path is refused, of whatever kind and length."""
    seen = Seen()
    seen.add(path, kind)
    with refused("entry-duplicate", path):
        seen.add(path, kind)


@pytest.mark.parametrize("kind", [FILE, LINK])
@pytest.mark.parametrize("path", [b"files/a", LONG])
@pytest.mark.parametrize("digest", [None, DIGEST])
def test_nothing_lies_under_a_file_or_a_link(path: bytes, kind: str, digest: bytes | None) -> None:
    """Not directly, and not further down, whether or not the file's digest is known."""
    seen = Seen()
    seen.add(path, kind, digest if kind == FILE else None)
    for below in (path + b"/b", path + b"/b/c"):
        with refused("entry-parent", below):
            seen.add(below, FILE)


@pytest.mark.parametrize("kind", [FILE, LINK])
@pytest.mark.parametrize("path", [b"files/a", LONG])
def test_nothing_replaces_a_folder(path: bytes, kind: str) -> None:
    """Neither one that was listed nor one that only has something in it."""
    listed = Seen()
    listed.add(path, FOLDER)
    implied = Seen()
    implied.add(path + b"/b/c", FILE)
    for seen in (listed, implied):
        with refused("entry-parent", path):
            seen.add(path, kind)


@pytest.mark.parametrize("path", [b"files/a", LONG])
def test_a_folder_may_be_listed_once_after_what_is_in_it(path: bytes) -> None:
    """Another writer may send it late, but not twice."""
    seen = Seen()
    seen.add(path + b"/b", FILE)
    assert seen.kind_of(path) == IMPLIED
    seen.add(path, FOLDER)
    assert seen.kind_of(path) == FOLDER
    with refused("entry-duplicate", path):
        seen.add(path, FOLDER)


def test_paths_that_look_alike_are_different() -> None:
    """A path's start is no folder of it, and normal forms are not compared."""
    seen = Seen()
    for path in (
        b"files/a",
        b"files/ab",
        b"files/a-",
        "files/é".encode(),
        "files/e\u0301".encode(),
    ):
        seen.add(path, FILE)
    assert len(seen) == 6


def test_it_knows_what_was_there() -> None:
    """Kinds, and the digests of files; of what was not there, nothing."""
    seen = Seen()
    seen.add(b"files/a", FILE, DIGEST)
    seen.add(LONG, FILE, DIGEST[::-1])
    seen.add(b"files/l", LINK)
    assert seen.kind_of(b"files/a") == FILE
    assert seen.digest_of(b"files/a") == DIGEST
    assert seen.kind_of(LONG) == FILE
    assert seen.digest_of(LONG) == DIGEST[::-1]
    assert seen.kind_of(b"files/l") == LINK
    assert seen.digest_of(b"files/l") is None
    assert seen.kind_of(b"files") == IMPLIED
    assert seen.kind_of(b"files/b") is None
    assert seen.digest_of(b"files/b") is None
