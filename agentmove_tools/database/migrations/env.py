"""What Alembic runs to write the SQL of the migrations; it never connects by itself."""

from __future__ import annotations

from alembic import context

context.configure(
    dialect_name="postgresql",
    dialect_opts={"paramstyle": "named"},  # another would double every percent sign
    version_table="schema_version",
    version_table_schema="agentfy",
    # the caller has begun the transaction, in which it holds the lock
    transactional_ddl=False,
)
context.run_migrations()
