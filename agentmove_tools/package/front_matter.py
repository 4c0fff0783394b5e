"""The front matter of a skill: YAML between two lines ``---`` (Agent package, section 1).

People's skills are untidy, so what can be read is, with a warning. Every value is text; a list or a
mapping is read through for what it may not hold, and not kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.package.limits import MAX_FRONT_MATTER
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import yaml

# What a caller has to hand over of a SKILL.md at least: the limit, the BOM and both lines.
HEAD: Final = MAX_FRONT_MATTER + 1024

# Of the Agent Skills format.
_LONGEST: Final = {"name": 64, "description": 1024, "compatibility": 500}
_KNOWN: Final = frozenset(
    {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
)
_BOM: Final = b"\xef\xbb\xbf"
_RULE: Final = re.compile(rb"---[ \t]*\r?(?:\n|\Z)")
_CLOSING: Final = re.compile(rb"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
# A line of the outermost mapping whose value is plain: not quoted, no list, mapping or block.
_PLAIN: Final = re.compile(
    r"^([^\s#'\"\[\]{},&*!|>%@`:-][^:\n]*):[ \t]+([^\s'\"\[\]{}&*!|>%@`#][^\n]*)$"
)
_SHOWN: Final = 40  # characters of an unknown key that a warning shows
_MOST_SHOWN: Final = 5  # keys that one shows


class FrontMatter(NamedTuple):
    """What a skill's front matter says, cut at the limits of Agent Skills.

    ``warnings`` are texts, lower case, no full stop.
    """

    name: str | None
    description: str | None
    warnings: tuple[str, ...]


class _Unreadable(ValueError):
    """It is no mapping of YAML without aliases; says why."""


def read_front_matter(head: bytes, path: str) -> FrontMatter:
    """Read the front matter at the start of a SKILL.md.

    ``head``: its first ``HEAD`` bytes, all of it where it is shorter. ``path`` names it in errors;
    the skill's name is expected to be that of its folder. Raises ``Refusal``
    (skill-front-matter, field-nul).
    """
    text = _between(head.removeprefix(_BOM), path)
    folder = path.split("/")[-2]
    if text is None:
        return FrontMatter(None, None, ("it has no front matter",))
    warnings: list[str] = []
    try:
        fields = _mapping(text, warnings)
    except _Unreadable as first:
        quoted = _with_plain_values_quoted(text)
        if quoted == text:
            raise _refusal(str(first), path) from None
        try:
            warnings.clear()
            fields = _mapping(quoted, warnings)
        except _Unreadable:
            raise _refusal(str(first), path) from None
        warnings.append("a value holds ': ' and is not quoted: it is read to the line's end")
    for key in ("name", "description"):
        if "\0" in (fields.get(key) or ""):
            raise Refusal("field-nul", path=path.encode(), field=f"skill.{key}")
    return FrontMatter(
        _cut(fields, "name"),
        _cut(fields, "description"),
        (*warnings, *_untidy(fields, folder)),
    )


def _cut(fields: dict[str, str | None], key: str) -> str | None:
    value = fields.get(key)
    return None if value is None else value[: _LONGEST[key]]


def _between(head: bytes, path: str) -> str | None:
    """The text between the two rules, None where there is no first one."""
    opening = _RULE.match(head)
    if opening is None:
        return None
    closing = _CLOSING.search(head, opening.end())
    if closing is not None and closing.end() == len(head) >= HEAD:
        closing = None  # where the head was cut, not where the file ends
    if closing is None or closing.start() > opening.end() + MAX_FRONT_MATTER:
        if len(head) > opening.end() + MAX_FRONT_MATTER:
            raise _refusal("it is longer than 64 KiB, or not closed by a line ---", path)
        raise _refusal("it is not closed: a line --- is missing", path)
    # the text was checked to be UTF-8 before, and a rule never cuts a character
    return head[opening.end() : closing.start()].decode()


def _mapping(text: str, warnings: list[str]) -> dict[str, str | None]:
    """The outermost mapping; a value that is no text is None. Raises ``_Unreadable``."""
    import yaml  # noqa: PLC0415 (40 ms, and only a package with skills needs it)

    fields: dict[str, str | None] = {}
    again: set[str] = set()
    depth = 0
    key: str | None = None

    def take(value: str | None) -> None:
        """Take the next key of the outermost mapping, or the value for the last one."""
        nonlocal key
        if key is None:
            key = value or ""
            return
        if key in fields:
            again.add(key)
        fields[key] = value
        key = None

    try:
        for event in _events(text):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise _Unreadable("it has an alias or an anchor")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth == 1 and not isinstance(event, yaml.MappingStartEvent):
                    raise _Unreadable("it is no mapping of keys to values")
                if depth == 2:
                    take(None)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.ScalarEvent):
                if depth == 0 and event.value:
                    raise _Unreadable("it is no mapping of keys to values")
                if depth == 1:
                    take(event.value)
            elif isinstance(event, yaml.DocumentStartEvent) and event.explicit:
                raise _Unreadable("it holds a second document")
    except yaml.YAMLError as error:
        raise _Unreadable(_said(error)) from None
    except _Unreadable:
        raise
    except (ValueError, RecursionError) as error:  # the library lets others than its own out
        raise _Unreadable(f"it does not parse: {type(error).__name__}") from None
    if again:
        warnings.append(f"a key is there twice, and the last one counts: {_listed(again)}")
    return fields


def _events(text: str) -> Iterator[yaml.Event]:
    import yaml  # noqa: PLC0415 (as above)

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the one in C is 20 times as fast
    return yaml.parse(text, loader)


def _said(error: yaml.YAMLError) -> str:
    """What the parser says of a text, in one line, without the text itself."""
    problem = getattr(error, "problem", None)
    mark = getattr(error, "problem_mark", None)
    said = f"it does not parse: {problem}" if problem else "it does not parse"
    # the opening rule is line 1
    return said if mark is None else f"{said}, in line {mark.line + 2}"


def _with_plain_values_quoted(text: str) -> str:
    """The text with every plain value of a line quoted that holds what YAML takes for a key."""
    return "\n".join(_quoted(line) for line in text.split("\n"))


def _quoted(line: str) -> str:
    match = _PLAIN.match(line.rstrip("\r"))
    if match is None:
        return line
    key, value = match.groups()
    value = value.rstrip()
    if ": " not in value and not value.endswith(":"):
        return line
    escaped = value.replace("'", "''")
    return f"{key}: '{escaped}'"


def _untidy(fields: dict[str, str | None], folder: str) -> Iterator[str]:
    if not fields.get("description"):
        yield "it has no description"
    name = fields.get("name")
    if name is None:
        yield "it has no name"
    elif name != folder:
        yield f"it is named {name[:_SHOWN]!r}, and its folder {folder[:_SHOWN]!r}"
    for key, most in _LONGEST.items():
        value = fields.get(key)
        if value is not None and len(value) > most:
            yield f"its {key} is longer than {most} characters"
    unknown = fields.keys() - _KNOWN
    if unknown:
        yield f"a key is not one of Agent Skills: {_listed(unknown)}"


def _listed(keys: Collection[str]) -> str:
    """The first few of the keys: there may be thousands."""
    shown = [repr(key[:_SHOWN]) for key in sorted(keys)[:_MOST_SHOWN]]
    more = len(keys) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _refusal(why: str, path: str) -> Refusal:
    return Refusal("skill-front-matter", why, path=path.encode())
