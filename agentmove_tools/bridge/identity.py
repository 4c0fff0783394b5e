"""Who the agent is and what its threads may use: in a manifest and ``thread.json``, or in a text.

A Move Stream says it in its manifest and in each thread's settings, a package in
``agent.config.json``. The text of a package goes through a stream as it is, and is written anew
only where the stream says something else (Agent package, section 1; Move Stream, sections 1 and 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agentmove_tools.json_values import form_of, parse
from agentmove_tools.large_json import LARGE, members, with_members
from agentmove_tools.package.config_text import with_id
from agentmove_tools.package.contents import DEFAULT_PROFILE
from agentmove_tools.package.fields import of_json, wrong_shape
from agentmove_tools.package.layout import CONFIG, FIELDS
from agentmove_tools.package.limits import MAX_NAME
from agentmove_tools.package.session_names import channel_and_user, session_files
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

ChatKey: TypeAlias = tuple[str, str]
Tools: TypeAlias = tuple[str, ...]

_THREADS: Final = "threads"
_TOOLS: Final = "tools"
_JSONL: Final = ".jsonl"  # a chat's key is its session's file name without this
_LONGEST: Final = 80  # characters of a key that are told
_FIELD: Final = FIELDS["config"]
_OF_THREADS: Final = f"{_FIELD}.{_THREADS}"
# A stream always names a harness; the runtime profile is what comes next to one in a package.
_MEMBERS: Final = ("id", "name", "harness", "owner", "runtimeProfile", _THREADS)


class Identity(NamedTuple):
    """What both forms say, each in its own way.

    ``tools``: those that a chat's thread is narrowed to, by channel and user; None where the
    stream does not speak for conversations.
    """

    id: str
    name: str
    harness: str
    owner: str | None
    tools: Mapping[ChatKey, Tools] | None


class _TooLarge:
    """A member of a configuration that is over 1 MiB, and was not read."""


def identity_in(config: bytes, external_id: str | None = None) -> Identity:
    """What a configuration says. ``external_id`` is the ID of one that has none.

    An agent without a name is named by its ID, and one that names no harness has its runtime
    profile for one. Raises ``Refusal`` (field-json and the like) for a text that is no object.
    """
    return _said(_read(config), external_id)


def unread_narrowings(config: bytes) -> list[str]:
    """Why tools that a configuration may name are in no ``thread.json``, a reason for each.

    Raises ``Refusal`` as ``identity_in`` does.
    """
    threads = _read(config).get(_THREADS)
    if isinstance(threads, _TooLarge):
        return [f"{_THREADS} is over 1 MiB, and no thread is narrowed by it"]
    return [
        f"the tools of {key[:_LONGEST]!r} in {_THREADS} cannot be told"
        for key, settings in (threads.items() if isinstance(threads, dict) else ())
        if isinstance(settings, dict)
        and settings.get(_TOOLS) is not None
        and (_tools(settings) is None or _chat(key) is None)
    ]


def _said(value: Mapping[str, object], external_id: str | None = None) -> Identity:
    agent_id = _text(value, "id") or external_id or ""
    return Identity(
        id=agent_id,
        name=_text(value, "name") or agent_id,
        harness=_text(value, "harness") or _text(value, "runtimeProfile") or DEFAULT_PROFILE,
        owner=_text(value, "owner"),
        tools=_narrowed(value),
    )


def config_with(config: bytes, identity: Identity) -> bytes:
    """The configuration, as it came where it says the same; else, in the one form, what it must.

    A ``harness`` or ``owner`` in it that is no text, or too long for a name, is the platform's own,
    and stays. Raises ``Refusal`` as ``identity_in`` does, and (field-json) where something else
    stands in the place of a thread's tools.
    """
    value = _read(config)
    if value.get("id") is None and len(config) <= LARGE:
        config = with_id(config, identity.id)
        value = _read(config)
    said = _said(value)
    kept = {
        name: getattr(said, name)
        for name in ("harness", "owner")
        if value.get(name) not in (None, "") and _text(value, name) is None
    }
    tools = said.tools if identity.tools is None else identity.tools
    identity = identity._replace(tools=tools, **kept)
    if said == identity:
        return config
    changed: dict[str, object] = {}
    if said.id != identity.id:
        changed["id"] = identity.id
    if (_text(value, "name") or identity.id) != identity.name:
        changed["name"] = identity.name
    if said.harness != identity.harness:
        changed["harness"] = identity.harness
    if said.owner != identity.owner:
        changed["owner"] = identity.owner
    if said.tools != tools:
        changed[_THREADS] = _with_tools(value.get(_THREADS), tools or {}) or None
    return _with_changed(config, changed) + b"\n"


def _with_changed(config: bytes, changed: Mapping[str, object]) -> bytes:
    """The object in the one form, with these members; without those that are None."""
    if len(config) > LARGE:
        forms = {n: None if value is None else form_of(value) for n, value in changed.items()}
        return with_members(config, forms)
    value = {**_read(config), **changed}
    return form_of({n: v for n, v in value.items() if v is not None or n not in changed})


def tools_in(settings: bytes, path: str) -> tuple[Tools | None, bool]:
    """The tools that a ``thread.json`` narrows a thread to, None where it narrows none.

    And whether a package can hold all that it says: nothing, or these tools alone. ``path`` is for
    errors. Raises ``Refusal`` (field-json, field-nul and the like) where the tools cannot be told:
    without them the thread could use more.
    """
    field = "thread"
    try:
        value = parse(settings)
    except Refusal as refusal:
        raise of_json(refusal, path, field) from None
    if not isinstance(value, dict):
        raise wrong_shape(path, field, "it is no object")
    tools = _tools(value)
    if tools is None and value.get(_TOOLS) is not None:
        raise wrong_shape(path, f"{field}.{_TOOLS}", "its tools are no list of names")
    if any("\0" in tool for tool in tools or ()):
        raise Refusal("field-nul", path=path.encode(), field=f"{field}.{_TOOLS}")
    return tools, len(value) == (tools is not None)


def settings_of(tools: Tools) -> bytes:
    """The ``thread.json`` of a thread that is narrowed to these tools."""
    return form_of({_TOOLS: list(tools)}) + b"\n"


def _read(config: bytes) -> dict[str, object]:
    """The object in a configuration; of a large one what is read out of it."""
    value: object
    try:
        if len(config) <= LARGE:
            value = parse(config)
        else:
            forms = members(config, _MEMBERS)
            value = None if forms is None else {name: _parsed(form) for name, form in forms.items()}
    except Refusal as refusal:
        raise of_json(refusal, CONFIG, _FIELD) from None
    if not isinstance(value, dict):
        raise wrong_shape(CONFIG, _FIELD, "it is no object")
    return value


def _parsed(form: bytes) -> object:
    return parse(form) if len(form) <= LARGE else _TooLarge()


def _text(value: Mapping[str, object], name: str) -> str | None:
    found = value.get(name)
    return found if isinstance(found, str) and 0 < len(found) <= MAX_NAME else None


def _tools(settings: object) -> Tools | None:
    value = settings.get(_TOOLS) if isinstance(settings, dict) else None
    if not isinstance(value, list):
        return None
    tools = [tool for tool in value if isinstance(tool, str)]
    return tuple(tools) if len(tools) == len(value) else None


def _narrowed(config: Mapping[str, object]) -> dict[ChatKey, Tools]:
    """The narrowings in a configuration; of two for one chat that with the plainer key counts."""
    found: dict[ChatKey, Tools] = {}
    threads = config.get(_THREADS)
    for key, settings in _plain_first(threads) if isinstance(threads, dict) else ():
        chat, tools = _chat(key), _tools(settings)
        if chat is not None and tools is not None:
            found.setdefault(chat, tools)
    return found


def _plain_first(threads: Mapping[str, object]) -> list[tuple[str, object]]:
    """Keys with nothing percent-encoded come before others of the same chat."""
    return sorted(threads.items(), key=lambda item: (len(item[0]), item[0]))


def _chat(key: str) -> ChatKey | None:
    """The chat that a key in ``threads`` names, None for what is no ``<channel>:<user>``."""
    try:
        return channel_and_user(key + _JSONL, key)
    except Refusal:
        return None


def _with_tools(threads: object, tools: Mapping[ChatKey, Tools]) -> dict[str, object]:
    """The member ``threads`` with these narrowings; what else it says of threads stays."""
    if not isinstance(threads, dict | None):
        why = "it is no object, or over 1 MiB, and a thread's tools belong there"
        raise wrong_shape(CONFIG, _OF_THREADS, why)
    kept: dict[str, object] = {}
    left = dict(tools)
    for key, settings in _plain_first(threads or {}):
        chat = _chat(key)
        if isinstance(settings, dict) and chat is not None:
            own = {name: value for name, value in settings.items() if name != _TOOLS}
            if chat in left:
                own[_TOOLS] = list(left.pop(chat))
            elif _TOOLS in settings and _tools(settings) is None:
                own[_TOOLS] = settings[_TOOLS]
            if own or not settings:
                kept[key] = own
        elif chat in left:
            why = f"{key!r} is no object, and its thread's tools belong there"
            raise wrong_shape(CONFIG, _OF_THREADS, why)
        else:
            kept[key] = settings
    for chat, name in session_files(left).items():
        kept[name.removesuffix(_JSONL)] = {_TOOLS: list(left[chat])}
    return kept
