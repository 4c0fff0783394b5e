"""The schema's migrations, forward only, as Alembic finds and orders them."""

from __future__ import annotations

from alembic import op


def run(sql: str) -> None:
    """Add statements, each ended by a semicolon, to a migration."""
    # a word behind a colon would be taken for a parameter
    op.execute(sql.strip().removesuffix(";").replace(":", r"\:"))
