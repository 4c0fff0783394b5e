"""Secrets: their names, never their values (Agent package, section 1).

A value is dropped where the JSON is read; nothing here keeps one, returns one or puts one into an
error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.json_values import form_of
from agentmove_tools.package.fields import json_text, json_value, wrong_shape
from agentmove_tools.package.limits import MAX_SECRETS

if TYPE_CHECKING:
    from collections.abc import Iterable

_PENDING: Final = "pendingKeys"
_FIELD: Final = "secret.names"
_NO_VALUES: Final = (None, "")


class Names(NamedTuple):
    """The names in one file of secrets: those with a value there, and those without."""

    entered: frozenset[str]
    pending: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every name."""
        return self.entered | self.pending


def secrets_text(pieces: Iterable[bytes], path: str) -> bytes:
    """The whole text of a file of secrets. Raises ``Refusal`` (field-json) over 1 MiB."""
    return json_text(pieces, path, _FIELD, longest=MAX_SECRETS)


def read_names(text: bytes, path: str) -> Names:
    """The names in a file that is ``{"NAME": value}``, ``["NAME"]`` or ``{"pendingKeys": [...]}``.

    Names with values and ``pendingKeys`` may stand together. Raises ``Refusal`` (field-json,
    field-nul, field-surrogate, field-encoding).
    """
    value = json_value(text, path, _FIELD, secret=True)
    if isinstance(value, list):
        return Names(frozenset(), _checked(value, path))
    if not isinstance(value, dict):
        raise wrong_shape(path, _FIELD, "it is no list and no object of names")
    listed = value.get(_PENDING)
    pending = _checked(listed, path) if isinstance(listed, list) else frozenset()
    named = _checked(value, path) - ({_PENDING} if isinstance(listed, list) else frozenset())
    entered = frozenset(name for name in named if value[name] not in _NO_VALUES)
    return Names(entered, (pending | named) - entered)


def _checked(names: Iterable[object], path: str) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise wrong_shape(path, _FIELD, "a name in it is no text, or empty")
        found.add(name)
    return frozenset(found)


def written(names: Iterable[str]) -> bytes:
    """The file that a package holds for these names."""
    return form_of({_PENDING: sorted(names)}) + b"\n"


def with_pending(text: bytes, path: str, pending: Iterable[str]) -> bytes:
    """The text of a folder's own file with exactly these names pending; its values stay.

    The text is given back as it is where nothing changes. Raises as ``read_names`` does.
    """
    held = read_names(text, path)
    wanted = set(pending) - held.entered
    if wanted == held.pending:
        return text
    if not held.entered:
        return written(wanted)
    value = json_value(text, path, _FIELD, secret=True)
    kept: dict[str, object] = {}
    if isinstance(value, dict):
        kept = {name: value[name] for name in held.entered}
    if wanted and _PENDING in kept:
        why = f"a secret with a value is named {_PENDING}, under which names are listed: rename it"
        raise wrong_shape(path, _FIELD, why)
    if wanted:
        kept[_PENDING] = sorted(wanted)
    return form_of(kept) + b"\n"
