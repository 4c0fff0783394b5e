from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmove_tools.refusals import TEXTS
from tests.conftest import ROOT, RunTool
from tests.home.builder import snapshot
from tests.refusal_cases import CASES, IN_DATABASE

FIRST, LAST = "envelope-magic", "schema-newer"
# what the specification asks for in words, and its list of codes lacks
OWN = ["bridge-loss"]


def raised(source: str) -> Iterator[ast.expr]:
    """Give the first argument of each ``Refusal(...)`` in a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name == "Refusal" and node.args:
                yield node.args[0]


def codes(folder: Path) -> set[str]:
    """Give every code that the modules below ``folder`` raise by name."""
    return {
        code.value
        for module in folder.rglob("*.py")
        for code in raised(module.read_text())
        if isinstance(code, ast.Constant) and isinstance(code.value, str)
    }


def specified(specification: Path) -> list[str]:
    """Give the codes of the specification that are this project's so far, in its order."""
    rows = (specification / "refusals.tsv").read_text().splitlines()[1:]
    every = [row.partition("\t")[0] for row in rows]
    return every[every.index(FIRST) : every.index(LAST) + 1]


def test_every_code_that_is_raised_has_a_text() -> None:
    """A code that is mistyped where it is raised is found before it is raised."""
    used = codes(ROOT / "agentmove_tools")
    assert "envelope-magic" in used
    assert used <= TEXTS.keys()


def test_every_code_is_used() -> None:
    """No code is promised that nothing gives."""
    modules = set((ROOT / "agentmove_tools").rglob("*.py"))
    modules.remove(ROOT / "agentmove_tools" / "refusals.py")
    named = {
        node.value
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert TEXTS.keys() <= named


def test_the_codes_are_those_of_the_specification(specification: Path) -> None:
    """Each code has a text, in the order of the specification; its own ones come after them."""
    found = specified(specification)
    assert list(TEXTS) == [*found, *(code for code in OWN if code not in found)]


def test_every_text_is_said_in_the_same_way() -> None:
    """Lower case, no full stop, one line; different codes say different things."""
    for text in TEXTS.values():
        assert text == text.strip()
        assert text.isprintable()
        assert not text.endswith(".")
        assert not text[0].isupper()
    assert len(set(TEXTS.values())) == len(TEXTS)


@pytest.mark.parametrize("code", TEXTS)
def test_every_code_is_given(
    tool: RunTool, tmp_path: Path, request: pytest.FixtureRequest, code: str
) -> None:
    """An executable gives it: exit status 1, one line with the code and the place, no traceback.

    What is on the disk stays as it was, byte for byte, the working state beside a Home aside.
    """
    if code in IN_DATABASE:
        case = IN_DATABASE[code](request.getfixturevalue("database"))
    else:
        case = CASES[code](tmp_path)
    before = snapshot(tmp_path)
    ran = tool(case.tool, *case.arguments, stdin=case.stdin, env=case.env)
    assert ran.returncode == 1
    line, _, hint = ran.stderr.decode().partition("\n")
    assert line.startswith(f"{case.tool}: refused: {code}: ")
    assert re.fullmatch(rf"({case.tool}: hint: [^\n]+\n)?", hint)
    rest = line.removeprefix(f"{case.tool}: refused: {code}: ")
    place, _, message = rest.partition(TEXTS[code])
    assert TEXTS[code] in rest
    assert message == "" or message.startswith(": ")
    if case.place is None:
        assert place == ""
    else:
        assert place.startswith(case.place)
        assert place.endswith(": ")
    assert b"lnk-move-4.end" not in ran.stdout
    after = snapshot(tmp_path)
    beside = re.compile(rb"[.][^/]+[.]lnk-move(/.*)?")
    assert {k: v for k, v in after.items() if not beside.fullmatch(k)} == {
        k: v for k, v in before.items() if not beside.fullmatch(k)
    }


def test_every_case_is_of_a_code() -> None:
    """A code that is renamed takes its case along."""
    for cases in (CASES, IN_DATABASE):
        assert list(cases) == [code for code in TEXTS if code in cases]
    assert {**CASES, **IN_DATABASE}.keys() == TEXTS.keys()
    assert not CASES.keys() & IN_DATABASE.keys()
