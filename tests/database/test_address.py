"""Which database is meant; and no password in a command line, or in what is said of it."""

from __future__ import annotations

import traceback

import pytest

from agentmove_tools.database.address import VARIABLE, parameters_of
from agentmove_tools.refusals import UsageError

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, "PGCONNECT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)


def refusal_of(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parameters_of(text)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return caught.value


def everything(error: UsageError) -> str:
    """All that an error says, also in a traceback."""
    return "".join(traceback.format_exception_only(error)) + f"{error!r} {error.details}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u@h/d", {"user": "u", "host": "h", "dbname": "d"}),
        ("postgres://h:5433/", {"host": "h", "port": "5433"}),
        ("postgresql:///d", {"dbname": "d"}),
        ("postgresql://", {}),
        ("postgresql:///d?host=/run/p&port=7", {"dbname": "d", "host": "/run/p", "port": "7"}),
        ("postgresql://%2Frun%2Fp/d", {"host": "/run/p", "dbname": "d"}),
        ("postgresql://a,b:2/d", {"host": "a,b", "port": ",2", "dbname": "d"}),
        (
            "postgresql://a:1,b:2/d?target_session_attrs=read-write",
            {"host": "a,b", "port": "1,2", "dbname": "d", "target_session_attrs": "read-write"},
        ),
        ("postgresql://[::1]:5433/d", {"host": "::1", "port": "5433", "dbname": "d"}),
        ("service=agents", {"service": "agents"}),
        ("host='a b' dbname=d", {"host": "a b", "dbname": "d"}),
        ("postgresql:///d?passfile=/x", {"dbname": "d", "passfile": "/x"}),
        ("postgresql:///d?application_name=x", {"dbname": "d", "application_name": "x"}),
        ("postgresql://h/caf%C3%A9", {"host": "h", "dbname": "caf\u00e9"}),
        ("postgresql://h/caf\u00e9", {"host": "h", "dbname": "caf\u00e9"}),
        ("postgresql://u:@h/d", {"user": "u", "host": "h", "dbname": "d", "password": ""}),
    ],
)
def test_an_address(text: str, expected: dict[str, str]) -> None:
    """A URL, a service or keywords, as libpq reads them; a wait is limited."""
    found = parameters_of(text)
    assert found is not None
    assert found.pop("connect_timeout") == "30"
    assert {**found, "password": ""} == {**expected, "password": ""}


def test_the_wait_is_the_users_where_they_say_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the address, or as libpq takes it from the environment."""
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert parameters_of("service=x") == {"service": "x", "connect_timeout": "7"}
    found = parameters_of("postgresql:///?connect_timeout=3")
    assert found == {"connect_timeout": "3"}


def test_the_option_comes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither names a database it is the embedded one; an empty variable names none."""
    assert parameters_of(None) is None
    monkeypatch.setenv(VARIABLE, "")
    assert parameters_of(None) is None
    monkeypatch.setenv(VARIABLE, "postgresql://from-the-variable")
    found = parameters_of(None)
    assert found is not None
    assert found["host"] == "from-the-variable"
    found = parameters_of("postgresql://from-the-option")
    assert found is not None
    assert found["host"] == "from-the-option"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://u:{SECRET}@h/d",
        f"postgres://u:{SECRET}@h/d",
        f"postgresql://:{SECRET}@h/d",
        f"postgresql://u:{SECRET}@/d?host=/run",
        f"postgresql://h/d?password={SECRET}",
        f"postgresql://h/d?pass%77ord={SECRET}",
        f"postgresql://h/d?user=u&password={SECRET}&sslmode=require",
        f"postgresql://h/d?sslpassword={SECRET}",
        f"postgresql://h/d?sslkey=/k&sslpassword={SECRET}",
        f"postgresql://h/d?oauth_client_secret={SECRET}",
        f"postgresql://h/d?scram_client_key={SECRET}",
        f"postgresql://h/d?scram_server_key={SECRET}",
        f"host=h password={SECRET}",
        f"password = '{SECRET}' host=h",
        f"service=x password={SECRET}",
        f"host=h sslpassword={SECRET}",
        "postgresql://u:%68unter2@h/d",
        "postgresql://u:hunter%32@h/d",
        "postgresql://u:hunter2%40@h/d",
        f"postgresql://u:{SECRET}@a,b/d",
    ],
)
def test_a_password_on_the_command_line_is_a_usage_error(text: str) -> None:
    """In every form that libpq takes; the ways to give it are named, and it is not repeated."""
    error = refusal_of(text)
    assert error.message == "--db holds a password, which any user could see"
    hint = str(error.details["hint"])
    assert all(way in hint for way in ("PGPASSFILE", "service", VARIABLE))
    assert "hunter" not in everything(error)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://u:{SECRET}@h/d",
        f"postgresql:///d?password={SECRET}",
        f"host=h password={SECRET}",
    ],
)
def test_a_password_in_the_variable_is_taken(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """That no other user sees."""
    monkeypatch.setenv(VARIABLE, text)
    found = parameters_of(None)
    assert found is not None
    assert found["password"] == SECRET


# Passwords that were put into a URL as they are, and where libpq would cut them.
_WRONG = (
    *("hun@ter2", "hun/ter2", "@hunter2", "hunter2@", "hun%ter2", "hun@ter/2", "hun/ter@2"),
    *("hun@te:r2", "hun@te,r2", "12/hunter2", "12/hun?ter2", "hun@[ter2", "[hunter2", "hun%zzter2"),
    *("hun@12:ter2", "/hunter2", "hun/te:r2", "hun/te#r2", "hun/te?r2", "hun ter2/", "@@@hunter2"),
)


@pytest.mark.parametrize("password", _WRONG)
def test_a_password_that_is_encoded_wrongly_is_not_told(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    """No piece of it becomes a host's, a port's or a database's name, which an error would name."""
    for text in (
        f"postgresql://u:{password}@h/d",
        f"postgresql://u:{password}@h:5432/d?sslmode=require",
        f"postgresql://u:{password}@/d",
    ):
        monkeypatch.setenv(VARIABLE, text)
        try:
            found = parameters_of(None)
        except UsageError as error:
            for piece in ("hun", "ter2", "te,", "te:", "r2"):
                assert piece not in everything(error)  # noqa: PT017 (or it is taken rightly)
        else:
            assert found is not None
            assert found["password"] == password
            assert "ter2" not in str({**found, "password": ""})


@pytest.mark.parametrize("password", ["hun?ter2", "hun#ter2", "hun:ter2", "hun&ter=2"])
def test_a_password_that_needs_no_encoding_is_taken(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    """libpq ends it at the first @ or / only."""
    monkeypatch.setenv(VARIABLE, f"postgresql://u:{password}@h/d")
    found = parameters_of(None)
    assert found is not None
    assert (found["password"], found["host"], found["dbname"]) == (password, "h", "d")


@pytest.mark.parametrize(
    "text",
    [
        *(SECRET, f"u:{SECRET}@h/d", f"postgresql:/u:{SECRET}@h", f"mysql://u:{SECRET}@h/d"),
        *(f"http://u:{SECRET}@h/d?x=y", f"jdbc:postgresql://h/d?user=u&password={SECRET}"),
        *(f"postgresql://h/d?nonesuch={SECRET}", f"nonesuch={SECRET}", f"host=h {SECRET}"),
        *(f"password='{SECRET}", f"host=h password=a {SECRET}", f"postgresql://h/{SECRET}%"),
        *(f"postgresql://h/d?{SECRET}", f"postgresql://h/d?a={SECRET}=b", f"=x {SECRET}"),
        *(f"postgresql://h:{SECRET}/d", f"postgresql://[{SECRET}", f"postgresql://h/%00{SECRET}"),
    ],
)
@pytest.mark.parametrize("place", ["--db", VARIABLE])
def test_what_is_no_address_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, text: str, place: str
) -> None:
    """It is said where it is, and nothing of it is repeated."""
    if place == VARIABLE:
        monkeypatch.setenv(VARIABLE, text)
    error = refusal_of(text) if place == "--db" else _of_variable()
    assert error.message.startswith(f"{place} is no PostgreSQL URL")
    assert SECRET not in everything(error)
    assert error.message.isprintable()


def _of_variable() -> UsageError:
    with pytest.raises(UsageError) as caught:
        parameters_of(None)
    return caught.value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "--db is empty: a variable that is not set?"),
        (" ", "--db is empty: a variable that is not set?"),
        ("postgresql://h/d\n", "--db holds what is no text, or a control character"),
        ("service=\0", "--db holds what is no text, or a control character"),
        ("service=\udcff", "--db holds what is no text, or a control character"),
        ("service=\u202e", "--db holds what is no text, or a control character"),
    ],
)
def test_what_is_no_text_is_a_usage_error(text: str, why: str) -> None:
    """As of a variable that is not set, or of a file that has a line too much."""
    assert refusal_of(text).message == why
