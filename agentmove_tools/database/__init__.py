"""Agent packages in a PostgreSQL of many teams (Agent package, sections 4 to 6)."""
