"""The text of ``agent.config.json``, which stays as it came but where it must say more."""

from __future__ import annotations

from agentmove_tools.json_values import form_of, parse
from agentmove_tools.refusals import Refusal


def with_id(config: bytes, agent_id: str) -> bytes:
    """A configuration with this ID in it, where it has none: else an import makes another agent.

    All else stays as it is, but where an ``id`` is there and null or empty: then the text comes in
    the one form. One that is no object is given back, to be refused as it is read.
    """
    try:
        value = parse(config)
    except Refusal:
        return config
    if not isinstance(value, dict) or value.get("id"):
        return config
    if "id" in value:  # null or empty
        value["id"] = agent_id
        return form_of(value)
    start = config.index(b"{") + 1
    member = b'"id": ' + form_of(agent_id)
    return config[:start] + member + (b", " if value else b"") + config[start:]
