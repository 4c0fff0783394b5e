from __future__ import annotations

import pytest

from agentmove_tools.home.exclude import Exclusion
from agentmove_tools.refusals import UsageError


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.log", "files/a.log", True),
        ("*.log", "files/deep/er/a.log", True),
        ("*.log", "files/a.log.txt", False),
        ("*.log", "memory/a.log", False),
        ("*.log", "files/.log", True),
        ("cache", "files/cache", True),
        ("cache", "files/x/cache", True),
        ("cache", "files/cachet", False),
        ("cache/", "files/x/cache", True),
        ("files/cache", "files/cache", True),
        ("files/cache", "files/x/cache", False),
        ("/cache", "files/cache", True),
        ("/cache", "files/x/cache", False),
        ("a/*.log", "files/a/x.log", True),
        ("a/*.log", "files/a/b/x.log", False),
        ("a/*.log", "files/b/a/x.log", False),
        ("a/**/*.log", "files/a/b/c/x.log", True),
        ("a/**/*.log", "files/a/x.log", True),
        ("**/x", "files/x", True),
        ("a?c", "files/abc", True),
        ("a?c", "files/a/c", False),
        ("a?c", "files/a\nc", True),
        ("[ab]", "files/a", True),
        ("[!ab]", "files/a", False),
        ("[!ab]", "files/c", True),
        ("[!ab]x", "files/a/x", False),
        ("[a-c]", "files/b", True),
        ("[]]", "files/]", True),
        ("[", "files/[", True),
        ("[^a]", "files/^", True),
        ("[^a]", "files/b", False),
        ("a+b(c)$", "files/a+b(c)$", True),
        ("a.b", "files/axb", False),
        ("\u00fc*", "files/\u00fcber", True),
        ("*", "files/anything", True),
        ("files", "files/files", True),
        ("files", "files", False),
    ],
)
def test_globs(glob: str, path: str, fits: bool) -> None:
    """Without a slash a glob fits a name at any depth, with one the path from its start."""
    assert Exclusion([glob])(path.encode()) is fits


def test_any_of_several() -> None:
    """And none of none."""
    both = Exclusion(["a", "b*"])
    assert both(b"files/a")
    assert both(b"files/x/bc")
    assert not both(b"files/c")
    assert not Exclusion([])
    assert not Exclusion([])(b"files/a")


@pytest.mark.parametrize("glob", ["", "/", "//", "files/", "[z-a]"])
def test_what_is_no_glob(glob: str) -> None:
    """Is a mistake in the command line, and does not leave everything out, or nothing."""
    with pytest.raises(UsageError):
        Exclusion([glob])
