from __future__ import annotations

import json

import pytest

from agentmove_tools.bridge.crossing import Crossing
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent


@pytest.fixture
def crossing() -> Crossing:
    return Crossing(Agent("a1", "Ada"))


def test_nothing_lost(crossing: Crossing) -> None:
    """What was not asked for, or was skipped because that was asked for, is no loss."""
    crossing.leave_out_unasked(b"a", "why")
    crossing.skip_event(b"b", 1, "why")
    crossing.check_nothing_lost()


def test_a_file_is_counted_once(crossing: Crossing) -> None:
    """Also one that turns out to have no place when it was counted already."""
    crossing.count("skills", "written")
    crossing.count("skills", "written")
    crossing.count("files", "passed_over")
    crossing.count_as_passed_over("skills")
    assert crossing.kinds == {
        "skills": {"in": 2, "written": 1, "passed_over": 1},
        "files": {"in": 1, "written": 0, "passed_over": 1},
    }


def test_the_report(crossing: Crossing) -> None:
    """It can be written as JSON, whatever is in a path, and says all that there is."""
    crossing.lose(b"a\xff\n", "why")
    crossing.leave_out_unasked(b"b", "not asked")
    crossing.skip_event(b"c", 3, "bad")
    crossing.notes.append("a note")
    crossing.count("files", "passed_over")
    assert json.loads(json.dumps(crossing.to_json())) == {
        "agent": {"id": "a1", "name": "Ada"},
        "kinds": {"files": {"in": 1, "written": 0, "passed_over": 1}},
        "events": {"in": 0, "written": 0, "repeats": 0, "skipped": 1},
        "left_out": [{"path": "a\\xff\n", "reason": "why"}],
        "left_out_more": 0,
        "not_asked_for": [{"path": "b", "reason": "not asked"}],
        "not_asked_for_more": 0,
        "skipped_events": [{"path": "c", "line": 3, "reason": "bad"}],
        "skipped_events_more": 0,
        "warnings": [],
        "secrets": {},
        "notes": ["a note"],
    }


def test_of_very_many_the_rest_is_only_counted(crossing: Crossing) -> None:
    """Paths of 16 MiB are kept, and 100 000 of anything."""
    path = b"p" * 4096
    for _ in range(4096 + 5):
        crossing.lose(path, "why")
    for number in range(4096 + 3):
        crossing.leave_out_unasked(b"%04096d" % number, "why")
    for line in range(100_000 + 7):
        crossing.skip_event(b"e", line, "why")
    assert len(crossing.lost) == 4096
    assert crossing.lost_more == 5
    assert (len(crossing.not_asked), crossing.not_asked_more) == (4096, 3)
    assert crossing.to_json()["left_out_more"] == 5
    assert len(crossing.skipped) == 100_000
    assert crossing.events["skipped"] == 100_007
    assert crossing.to_json()["skipped_events_more"] == 7
    with pytest.raises(Refusal) as caught:
        crossing.check_nothing_lost()
    assert caught.value.code == "bridge-loss"
    assert caught.value.why == "why; and 4100 more (details.paths)"
