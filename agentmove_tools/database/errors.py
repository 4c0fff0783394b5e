"""What the database's library raises, told as errors of ours.

Only the server's own short message is taken: its details and the statement may hold what is in a
package, and what libpq says of a malformed address may hold a password.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

NOTHING_CHANGED: Final = "nothing was changed"
IN_DOUBT: Final = (
    "it is not known whether the change was made: run the command again, which makes it once"
)

# SQLSTATE or its class -> what happened, said instead of the server's own words
_KNOWN: Final = {
    "28P01": "the database refuses the password, or has none for this user",
    "3D000": "there is no such database",
    "53100": "the database's disk is full",
    "53200": "the database is out of memory",
    "53300": "the database takes no more connections",
    "57014": "the database cancelled the statement",
    "57P01": "the database was stopped",
    "57P02": "the database crashed",
    "57P03": "the database takes no connections now",
    "25006": "the database is read-only",
}
# libpq's lines that say nothing of what it saw
_ADVICE: Final = (
    "Is the server running",
    "This probably means the server terminated abnormally",
    "before or while processing the request",
)
# how psycopg begins what libpq says of a connection that was never made
_NOT_MADE: Final = ("connection failed: ", "connection is bad: ", "failed to resolve host")


@contextmanager
def database_errors(
    outcome: str | None = NOTHING_CHANGED, *, but: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise ``MachineError`` in the place of what psycopg raises, ``but`` these.

    ``outcome`` says what came of the work, None where there was none to do.
    """
    import psycopg  # noqa: PLC0415 (whoever opens this has imported it)

    try:
        yield
    except but:
        raise
    except psycopg.Error as error:
        raise told(error, outcome) from None


def told(error: psycopg.Error, outcome: str | None = NOTHING_CHANGED) -> MachineError:
    """The error of ours that says what a psycopg error does."""
    import psycopg  # noqa: PLC0415 (as above)

    state = error.sqlstate or ""
    message = _KNOWN.get(state)
    said = error.diag.message_primary
    if message is None:
        message = f"the database says: {_line(said)}" if said else _lost(error)
    elif state == "57014" and said:
        message = f"{message}: {_line(said).removeprefix('canceling statement due to ')}"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        message = f"the database user lacks a right: {_line(said or '')}"
    if outcome is not None:
        message = f"{message}; {outcome}"
    hint = error.diag.message_hint if state in ("P0001", "42501") else None
    return MachineError(message, hint=None if hint is None else _line(hint))


def _lost(error: psycopg.Error) -> str:
    """What libpq or psycopg says itself, of a connection that broke or was never made."""
    import psycopg  # noqa: PLC0415 (as above)

    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return "the database does not answer: the connection timed out"
    if isinstance(error, psycopg.OperationalError):
        for start in _NOT_MADE:
            if str(error).startswith(start):
                said = str(error).removeprefix(start) if start.endswith(" ") else str(error)
                return f"cannot connect to the database: {_line(said)}"
        return f"the connection to the database was lost: {_line(str(error))}"
    return f"the database's library says: {_line(str(error))}"


def _line(text: str) -> str:
    """A message of many lines as one, as an error of ours is: the first word small, no full stop.

    Of libpq's advice for people who run the server only what it saw is kept.
    """
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(_ADVICE)]
    joined = "; ".join(line.rstrip(".") for line in kept)
    first, _, rest = joined.partition(" ")
    return joined if first.isupper() or not rest else joined[:1].lower() + joined[1:]
