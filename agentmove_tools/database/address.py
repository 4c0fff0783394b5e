"""Which database is meant: a URL or a service, from the command line or from the environment.

A password is taken from the environment or from files only: a command line is there for all to
see. Nothing here puts what it was given into an error.
"""

from __future__ import annotations

import os
from typing import Final

from agentmove_tools.refusals import UsageError

VARIABLE: Final = "AGENTFY_DATABASE_URL"
_WAYS: Final = f"put it into the file that PGPASSFILE names, a service's entry, or {VARIABLE}"
_SECRET: Final = (
    *("password", "sslpassword", "oauth_client_secret"),
    *("scram_client_key", "scram_server_key"),  # as good as the password that they are made of
)
_FORMS: Final = "such as postgresql://user@host/database or service=name"
_WAIT: Final = 30  # seconds for a connection to be made, where the address says nothing else


def parameters_of(given: str | None) -> dict[str, str] | None:
    """The connection parameters that ``--db`` or the environment names, None for the embedded one.

    Raises ``UsageError`` for what is no address, and for a password in ``--db`` (section 6).
    """
    if given is not None:
        parameters = _parsed(given, "--db")
        if any(parameters.get(name) for name in _SECRET):
            raise UsageError("--db holds a password, which any user could see", hint=_WAYS)
        return parameters
    from_environment = os.environ.get(VARIABLE)
    return _parsed(from_environment, VARIABLE) if from_environment else None


def _parsed(text: str, name: str) -> dict[str, str]:
    import psycopg  # noqa: PLC0415 (160 ms)
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    if not text.strip():
        raise UsageError(f"{name} is empty: a variable that is not set?")
    if "\0" in text or not text.isprintable():
        raise UsageError(f"{name} holds what is no text, or a control character")
    if not text.startswith(("postgresql://", "postgres://")) and "=" not in text:
        raise UsageError(f"{name} is no PostgreSQL URL and no service", hint=_FORMS)
    try:
        found = conninfo_to_dict(text)
    except psycopg.Error:  # its words hold pieces of the text, and so of a password in it
        raise UsageError(f"{name} is no PostgreSQL URL and no service", hint=_FORMS) from None
    parameters = {key: str(value) for key, value in found.items() if value is not None}
    if "://" in text and _is_cut_wrongly(parameters):
        why = f"{name} is no PostgreSQL URL: a password's @, / and : have to be percent-encoded"
        raise UsageError(why)
    parameters.setdefault("connect_timeout", os.environ.get("PGCONNECT_TIMEOUT") or str(_WAIT))
    return parameters


def _is_cut_wrongly(parameters: dict[str, str]) -> bool:
    """Whether a part of a password was taken for the host, the port or the database.

    Then an error of the connection would show it.
    """
    port = parameters.get("port", "").replace(",", "")
    return (
        "@" in parameters.get("host", "")
        or "@" in parameters.get("dbname", "")
        or not (port.isdecimal() or not port)
    )
