"""The second wall between teams: row-level security and the role that it holds for (section 4).

Superusers and the tables' owner pass it, so that every import and export takes this role.
"""

from __future__ import annotations

from agentmove_tools.database.migrations import run

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Roles are of the whole server: another database of it may have made this one.
_ROLE = """
DO $$
DECLARE
    tenant pg_catalog.pg_roles%ROWTYPE;
    member boolean;
BEGIN
    SELECT * INTO tenant FROM pg_catalog.pg_roles WHERE rolname = 'agentfy_tenant';
    IF NOT FOUND THEN
        BEGIN
            CREATE ROLE agentfy_tenant NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE
                NOREPLICATION;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'the role agentfy_tenant is missing, and % may not make it',
                    current_user
                    USING HINT = format(
                        'have an administrator run: CREATE ROLE agentfy_tenant NOLOGIN;'
                        ' GRANT agentfy_tenant TO %I', current_user);
        END;
        SELECT * INTO tenant FROM pg_catalog.pg_roles WHERE rolname = 'agentfy_tenant';
    END IF;
    IF tenant.rolsuper OR tenant.rolbypassrls OR tenant.rolcanlogin OR tenant.rolcreaterole
        OR tenant.rolcreatedb OR tenant.rolreplication
        OR EXISTS (SELECT FROM pg_catalog.pg_auth_members WHERE pg_auth_members.member = tenant.oid)
    THEN
        RAISE EXCEPTION 'the role agentfy_tenant is there and may do more than it should'
            USING HINT = 'it must have no login, no right of its own and no membership';
    END IF;
    IF current_setting('server_version_num')::int >= 160000 THEN
        EXECUTE 'SELECT pg_has_role(current_user, ''agentfy_tenant'', ''SET'')' INTO member;
    ELSE
        member = pg_has_role(current_user, 'agentfy_tenant', 'MEMBER');
    END IF;
    IF NOT member THEN
        BEGIN
            GRANT agentfy_tenant TO CURRENT_USER;
        EXCEPTION
            WHEN unique_violation THEN NULL; -- the migration of another database was first
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION '% may not take the role agentfy_tenant', current_user
                USING HINT = format('have an administrator run: GRANT agentfy_tenant TO %I',
                    current_user);
        END;
    END IF;
END $$;
"""

# What the role may do, and no more: it reads no secret's value, enters and changes none, alters no
# message but its place, deletes none, and sets no agent's type.
_RIGHTS = """
GRANT USAGE ON SCHEMA agentfy TO agentfy_tenant;
GRANT SELECT ON agentfy.schema_version, agentfy.app_user, agentfy.app_user_identity,
    agentfy.conversation TO agentfy_tenant;
GRANT SELECT, INSERT (name) ON agentfy.team TO agentfy_tenant;
GRANT SELECT,
    INSERT (team_id, external_id, name, soul, config, "user", heartbeat, runtime_profile, limits),
    UPDATE (name, soul, config, "user", heartbeat, runtime_profile, limits)
    ON agentfy.agent TO agentfy_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON agentfy.skill, agentfy.file, agentfy.memory,
    agentfy.access, agentfy.access_user, agentfy.usage, agentfy.account TO agentfy_tenant;
GRANT SELECT (id, team_id, agent_id, scope, name, pending, created_at, updated_at),
    INSERT (team_id, agent_id, scope, name), DELETE ON agentfy.secret TO agentfy_tenant;
GRANT SELECT, INSERT, UPDATE (digest, digested) ON agentfy.chat TO agentfy_tenant;
GRANT SELECT, INSERT, UPDATE (place) ON agentfy.message TO agentfy_tenant;

CREATE FUNCTION agentfy.team_of(agent text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT team_id FROM agentfy.agent WHERE agent.id = $1);
COMMENT ON FUNCTION agentfy.team_of(text) IS 'The team of an agent of any team, for an export.';
REVOKE ALL ON FUNCTION agentfy.team_of(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION agentfy.team_of(text) TO agentfy_tenant;

CREATE POLICY of_team ON agentfy.team
    USING ((SELECT current_setting('agentfy.team', true)) IN (id, name))
    WITH CHECK ((SELECT current_setting('agentfy.team', true)) = name);
ALTER TABLE agentfy.team ENABLE ROW LEVEL SECURITY;
CREATE POLICY pending ON agentfy.secret AS RESTRICTIVE FOR DELETE USING (pending);
"""

_OF_TEAM = (
    *("agent", "skill", "file", "memory", "secret", "app_user", "app_user_identity"),
    *("access", "access_user", "chat", "message", "usage", "account"),
)


def upgrade() -> None:
    """Make the role, give it its rights, and turn row-level security on."""
    run(_ROLE)
    run(_RIGHTS)
    for table in _OF_TEAM:
        run(
            f"CREATE POLICY of_team ON agentfy.{table}"
            " USING (team_id = (SELECT current_setting('agentfy.team', true)));\n"
            f"ALTER TABLE agentfy.{table} ENABLE ROW LEVEL SECURITY;"
        )
