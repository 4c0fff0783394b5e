from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools import json_values, large_json
from agentmove_tools.refusals import Refusal
from tests.property.test_canonical import written

WANTED = ("a", "b", "aa")
CHANGED: dict[str, bytes | None] = {"aa": b'{"x":[1]}', "": b"1.0", "\u00e9\n": b'"new"'}
windows = st.sampled_from([14, 15, 16, 19, 33, 70, 200])  # a wanted key is no longer
untimed = settings(deadline=None, max_examples=150)


def emptied(value: object) -> object:
    if isinstance(value, dict):
        return {}
    return [] if isinstance(value, list) else value


def refused(text: bytes) -> bool:
    try:
        json_values.parse(text)
    except Refusal:
        return True
    return False


def agrees(text: bytes) -> None:
    """What is read in windows is what is read whole."""
    assert large_json.form(text) == json_values.value_and_form(text)[1]
    value = json_values.parse(text)
    outline = large_json.outline(text, WANTED)
    if isinstance(value, dict):
        assert isinstance(outline, dict)
        assert outline.keys() == value.keys() & set(WANTED)
        for key, found in outline.items():
            assert found == large_json.ELIDED or repr(found) == repr(emptied(value[key]))
            assert found != large_json.ELIDED or isinstance(value[key], str)
        members = large_json.members(text, WANTED)
        assert members == {k: json_values.form_of(value[k]) for k in WANTED if k in value}
        changed = {**CHANGED, **dict.fromkeys(list(value)[:1])}
        kept = {k: v for k, v in value.items() if k not in changed}
        kept |= {k: json_values.parse(v) for k, v in changed.items() if v is not None}
        assert large_json.with_members(text, changed) == json_values.form_of(kept)
    else:
        assert outline == large_json.ELIDED or repr(outline) == repr(emptied(value))
        assert large_json.members(text, WANTED) is None
        with pytest.raises(TypeError):
            large_json.with_members(text, CHANGED)


@untimed
@given(written(), windows)
def test_windows_make_no_difference(pair: tuple[bytes, bytes], window: int) -> None:
    """Wherever the text is cut, form and outline are those of the whole."""
    text, form = pair
    with mock.patch.object(large_json, "_WINDOW", window):
        assert large_json.form(text) == form
        agrees(text)


@untimed
@given(
    written(),
    windows,
    st.lists(
        st.tuples(st.integers(0, 1 << 20), st.sampled_from(b'[]{},:"\\ 1a\xff'), st.integers(0, 2)),
        min_size=1,
        max_size=3,
    ),
)
def test_windows_hide_no_fault(
    pair: tuple[bytes, bytes], window: int, changes: list[tuple[int, int, int]]
) -> None:
    """A damaged text is refused if and only if it is refused when it is read whole."""
    text = bytearray(pair[0])
    for place, byte, kind in changes:
        at = place % (len(text) + 1)
        text[at : at + (kind != 1)] = b"" if kind == 2 else bytes([byte])
    with mock.patch.object(large_json, "_WINDOW", window):
        if not refused(bytes(text)):
            agrees(bytes(text))
            return
        for read in (large_json.form, lambda text: large_json.outline(text, WANTED)):
            try:
                read(bytes(text))
            except Refusal:
                continue
            raise AssertionError(bytes(text))
