from __future__ import annotations

import json

import pytest

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.schedule import (
    MAX_SCHEDULE_FILE,
    check_schedule_file,
    check_schedule_size,
)

DAY = b"schedule/day.json"
JOB = b"schedule/waiting/a.json"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (DAY, b'["2026-12-01",3]'),
        (DAY, b"[null,{}]"),
        (JOB, b'{"id":"a"}'),
        (JOB, b'{"at":1.0,"every":{"a":[1],"b":1e-6},"id":"a"}'),
        (b"schedule/firing/a.b.json", b'{"id":"a.b"}'),
        (b"schedule/ending/.json.json", b'{"id":".json"}'),
        ("schedule/ending/é \n.json".encode(), '{"id":"é \\n"}'.encode()),
        (b"schedule/waiting/" + b"a" * 300 + b".json", b'{"id":"' + b"a" * 300 + b'"}'),
    ],
    ids=range(8),
)
def test_a_job_and_the_day_are_taken(path: bytes, content: bytes) -> None:
    """In the one form; a job's id is its file's name without the ending."""
    check_schedule_file(path, content)


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        (DAY, b"", "no value"),
        (DAY, b"[1,2", "at character"),
        (DAY, b"[1,2]\n", "one form"),
        (DAY, b"[1, 2]", "one form"),
        (DAY, b"[1.50,2]", "one form"),
        (DAY, b"[1,2][1,2]", "follows"),
        (DAY, b"[1,NaN]", "NaN"),
        (DAY, b"[1,\xff]", "UTF-8"),
        (DAY, b'[1,"\\ud800"]', "surrogate"),
        (DAY, b"[1]", "pair"),
        (DAY, b"[1,2,3]", "pair"),
        (DAY, b'{"id":"day"}', "pair"),
        (DAY, b'"12"', "pair"),
        (JOB, b"[1,2]", "object"),
        (JOB, b"null", "object"),
        (JOB, b"{}", "id"),
        (JOB, b'{"id":"b"}', "id"),
        (JOB, b'{"id":"a.json"}', "id"),
        (JOB, b'{"id":null}', "id"),
        (JOB, b'{"id":["a"]}', "id"),
        (b"schedule/waiting/1.json", b'{"id":1}', "id"),
        (JOB, b'{"id":"b","id":"a"}', "one form"),
        (JOB, b'{"z":1,"id":"a"}', "one form"),
        (JOB, b'{"id":"\\u0061"}', "one form"),
        (b"schedule/waiting/day.json", b"[1,2]", "object"),
        ("schedule/waiting/é.json".encode(), '{"id":"e\u0301"}'.encode(), "id"),
        (
            b"schedule/waiting/" + b"9" * 700 + b".json",
            b'{"id":' + b"9" * 700 + b"}",
            "id",
        ),
        (JOB, b'{"id":"a","z":' + b"[" * 127 + b"]" * 127 + b"}", "127 deep"),
    ],
    ids=range(28),
)
def test_anything_else_is_refused(path: bytes, content: bytes, why: str) -> None:
    """With what was seen, and the path."""
    with pytest.raises(Refusal) as caught:
        check_schedule_file(path, content)
    assert caught.value.code == "schedule-json"
    assert why in caught.value.why
    assert caught.value.details["path"] == path.decode()


def test_how_long_a_file_may_be() -> None:
    """16 MiB, since it is held in memory."""
    check_schedule_size(DAY, 0)
    check_schedule_size(DAY, MAX_SCHEDULE_FILE)
    with pytest.raises(Refusal) as caught:
        check_schedule_size(DAY, MAX_SCHEDULE_FILE + 1)
    assert caught.value.code == "schedule-json"
    assert caught.value.details["path"] == DAY.decode()


def test_a_job_as_an_agent_writes_it_is_not_in_the_one_form() -> None:
    """The sender makes it so; a receiver never takes both forms of one job."""
    job = {"id": "a", "at": 1.5}
    with pytest.raises(Refusal):
        check_schedule_file(JOB, json.dumps(job, indent=1).encode())
    check_schedule_file(JOB, json.dumps(job, sort_keys=True, separators=(",", ":")).encode())
