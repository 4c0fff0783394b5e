"""The tables: teams, their agents, and all that is an agent's (Agent package, sections 1 and 6)."""

from __future__ import annotations

from agentmove_tools.database.migrations import run

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def _own_id(slice_: str) -> str:
    """The column of a table's own IDs, which are the table's name and a UUID."""
    return (
        f"id text COLLATE \"C\" PRIMARY KEY DEFAULT '{slice_}-' || gen_random_uuid()"
        f" CHECK (id ~ '^{slice_}-{_UUID}$')"
    )


_TIMES = (
    "created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now()"
)
# A child carries its team, so that row-level security needs no join, and its foreign keys have the
# team in them, so that it is always the parent's.
_OF_AGENT = (
    'team_id text COLLATE "C" NOT NULL, agent_id text COLLATE "C" NOT NULL,'
    " FOREIGN KEY (team_id, agent_id) REFERENCES agentfy.agent (team_id, id) ON DELETE CASCADE"
)

# Keys are compared by their bytes, as the entries of an archive are sorted.
_TABLES = rf"""
-- Names and paths may be longer than the 2.7 kB that an index takes, so their hashes are indexed.
-- It may be called immutable since the database's encoding is UTF8 and stays so.
CREATE FUNCTION agentfy.key_of(value text) RETURNS bytea
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN sha256(convert_to(value, 'UTF8'));

CREATE TABLE agentfy.team (
    {_own_id("team")},
    -- none looks like an ID, by which a team is found too
    name text COLLATE "C" NOT NULL UNIQUE
        CHECK (octet_length(name) BETWEEN 1 AND 1024 AND name !~ '^team-{_UUID}$'),
    {_TIMES}
);
COMMENT ON TABLE agentfy.team IS 'Whose the agents are. Nothing crosses from one team to another.';

CREATE TABLE agentfy.agent (
    {_own_id("agent")},
    team_id text COLLATE "C" NOT NULL REFERENCES agentfy.team ON DELETE RESTRICT,
    external_id text COLLATE "C" NOT NULL CHECK (octet_length(external_id) BETWEEN 1 AND 1024),
    type text COLLATE "C" NOT NULL DEFAULT 'agent' CHECK (type <> ''),
    name text,
    soul text NOT NULL,
    config text NOT NULL,
    "user" text,
    heartbeat text,
    runtime_profile text NOT NULL DEFAULT 'default',
    limits json,
    {_TIMES},
    UNIQUE (team_id, external_id),
    UNIQUE (team_id, id)
);
COMMENT ON TABLE agentfy.agent IS 'One agent: SOUL.md, agent.config.json, USER.md, HEARTBEAT.md.';
COMMENT ON COLUMN agentfy.agent.external_id IS
    'The ID that its runtime knows it by: the id in its configuration. Its own ID if born here.';
COMMENT ON COLUMN agentfy.agent.type IS
    'An agent of type concierge is neither exported nor overwritten. No package sets it.';
COMMENT ON COLUMN agentfy.agent.config IS 'agent.config.json, as it came.';
COMMENT ON COLUMN agentfy.agent.limits IS 'Read from the configuration.';

CREATE TABLE agentfy.skill (
    {_own_id("skill")},
    {_OF_AGENT},
    path text COLLATE "C" NOT NULL CHECK (path LIKE 'skills/_%'),
    name text,
    description text,
    content text NOT NULL,
    {_TIMES},
    UNIQUE (team_id, id)
);
CREATE UNIQUE INDEX skill_key ON agentfy.skill (agent_id, agentfy.key_of(path));
COMMENT ON TABLE agentfy.skill IS 'A skill: path is its folder, content its SKILL.md as it came.';
COMMENT ON COLUMN agentfy.skill.name IS 'Of the front matter, its first 64 characters.';
COMMENT ON COLUMN agentfy.skill.description IS 'Of the front matter, its first 1024 characters.';

CREATE TABLE agentfy.file (
    {_own_id("file")},
    team_id text COLLATE "C" NOT NULL,
    skill_id text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL CHECK (path <> ''),
    executable boolean NOT NULL DEFAULT false,
    content bytea NOT NULL,
    size integer NOT NULL GENERATED ALWAYS AS (octet_length(content)) STORED,
    {_TIMES},
    FOREIGN KEY (team_id, skill_id) REFERENCES agentfy.skill (team_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX file_key ON agentfy.file (skill_id, agentfy.key_of(path));
COMMENT ON TABLE agentfy.file IS 'An asset of a skill; path is below the folder of the skill.';

CREATE TABLE agentfy.memory (
    {_own_id("memory")},
    {_OF_AGENT},
    path text COLLATE "C" NOT NULL CHECK (path = 'MEMORY.md' OR path LIKE 'memory/_%.md'),
    day date,
    kind text COLLATE "C" NOT NULL GENERATED ALWAYS AS (
        CASE WHEN path = 'MEMORY.md' THEN 'curated' WHEN day IS NULL THEN 'note' ELSE 'daily' END
    ) STORED,
    content text NOT NULL,
    {_TIMES},
    CHECK (path <> 'MEMORY.md' OR day IS NULL)
);
CREATE UNIQUE INDEX memory_key ON agentfy.memory (agent_id, agentfy.key_of(path));
CREATE INDEX memory_day ON agentfy.memory (agent_id, day) WHERE day IS NOT NULL;
COMMENT ON TABLE agentfy.memory IS 'The curated memory, daily ones, and other notes.';

CREATE TABLE agentfy.secret (
    {_own_id("secret")},
    {_OF_AGENT},
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('shared', 'agent') OR scope LIKE 'user-_%'),
    name text COLLATE "C" NOT NULL CHECK (name <> ''),
    value bytea,
    pending boolean NOT NULL GENERATED ALWAYS AS (value IS NULL) STORED,
    {_TIMES}
);
CREATE UNIQUE INDEX secret_key
    ON agentfy.secret (agent_id, agentfy.key_of(scope), agentfy.key_of(name));
COMMENT ON TABLE agentfy.secret IS 'Names of secrets. A package brings no value and takes none.';
COMMENT ON COLUMN agentfy.secret.value IS 'What the platform has sealed, in a form of its own.';

CREATE TABLE agentfy.app_user (
    {_own_id("app_user")},
    team_id text COLLATE "C" NOT NULL REFERENCES agentfy.team ON DELETE CASCADE,
    name text,
    {_TIMES},
    UNIQUE (team_id, id)
);
COMMENT ON TABLE agentfy.app_user IS 'A person who uses the platform; the platform makes these.';

CREATE TABLE agentfy.app_user_identity (
    team_id text COLLATE "C" NOT NULL,
    app_user_id text COLLATE "C" NOT NULL,
    channel text COLLATE "C" NOT NULL CHECK (channel <> ''),
    "user" text COLLATE "C" NOT NULL CHECK ("user" <> ''),
    FOREIGN KEY (team_id, app_user_id) REFERENCES agentfy.app_user (team_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX app_user_identity_key ON agentfy.app_user_identity
    (team_id, agentfy.key_of(channel), agentfy.key_of("user"));
CREATE INDEX app_user_identity_app_user_id ON agentfy.app_user_identity (app_user_id);
COMMENT ON TABLE agentfy.app_user_identity IS 'By which name a person speaks on a channel.';

CREATE TABLE agentfy.access (
    {_own_id("access")},
    {_OF_AGENT},
    list text,
    strategy text,
    {_TIMES},
    UNIQUE (agent_id)
);
COMMENT ON TABLE agentfy.access IS 'Who may speak to the agent: list is data/access.json.';
COMMENT ON COLUMN agentfy.access.strategy IS 'accessStrategy of the configuration.';

CREATE TABLE agentfy.access_user (
    {_OF_AGENT},
    channel text COLLATE "C" NOT NULL CHECK (channel <> ''),
    "user" text COLLATE "C" NOT NULL CHECK ("user" <> ''),
    app_user_id text COLLATE "C",
    FOREIGN KEY (team_id, app_user_id) REFERENCES agentfy.app_user (team_id, id)
        ON DELETE SET NULL (app_user_id),
    {_TIMES}
);
CREATE UNIQUE INDEX access_user_key ON agentfy.access_user
    (agent_id, agentfy.key_of(channel), agentfy.key_of("user"));
CREATE INDEX access_user_app_user_id ON agentfy.access_user (app_user_id);
COMMENT ON TABLE agentfy.access_user IS 'A row for each channel:user in the list of access.';

CREATE TABLE agentfy.chat (
    {_own_id("chat")},
    {_OF_AGENT},
    channel text COLLATE "C" NOT NULL CHECK (channel <> ''),
    "user" text COLLATE "C" NOT NULL CHECK ("user" <> ''),
    digest bytea CHECK (octet_length(digest) = 32),
    digested bigint,
    {_TIMES},
    UNIQUE (team_id, id),
    CHECK ((digest IS NULL) = (digested IS NULL))
);
CREATE UNIQUE INDEX chat_key ON agentfy.chat
    (agent_id, agentfy.key_of(channel), agentfy.key_of("user"));
COMMENT ON COLUMN agentfy.chat.digest IS
    'SHA-256 of all its events by place, each with a line feed; forgotten when a message changes.';
COMMENT ON COLUMN agentfy.chat.digested IS 'How many events the digest is of.';

CREATE TABLE agentfy.message (
    -- of many rows: a regular expression would be a fifth of the time that they take
    id text COLLATE "C" PRIMARY KEY DEFAULT 'message-' || gen_random_uuid()
        CHECK (octet_length(id) = 44 AND id LIKE 'message-%'),
    team_id text COLLATE "C" NOT NULL,
    chat_id text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL CHECK (octet_length(external_id) BETWEEN 1 AND 1024),
    place bigint NOT NULL CHECK (place >= 0),
    type text COLLATE "C" NOT NULL
        CHECK (type IN ('user', 'assistant', 'tool_call', 'tool_result', 'summary')),
    role text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN type IN ('user', 'assistant') THEN type END
    ) STORED,
    -- the first and the last that a timestamptz holds
    ts bigint NOT NULL CHECK (ts BETWEEN -210866803200000 AND 9224318015999999),
    -- by days and the rest, since an interval is multiplied as a double
    at timestamptz NOT NULL GENERATED ALWAYS AS (
        (timestamp '1970-01-01' + ts / 86400000 * interval '1 day'
            + ts % 86400000 * interval '1 millisecond') AT TIME ZONE 'UTC'
    ) STORED,
    sender text,
    text text,
    name text,
    tool_use_id text,
    event text NOT NULL CHECK (event LIKE '{{%'),
    UNIQUE (chat_id, external_id),
    UNIQUE (chat_id, place) DEFERRABLE INITIALLY IMMEDIATE,
    FOREIGN KEY (team_id, chat_id) REFERENCES agentfy.chat (team_id, id) ON DELETE CASCADE
);
CREATE INDEX message_reading_order ON agentfy.message (chat_id, ts, place);
COMMENT ON TABLE agentfy.message IS 'An event of a chat. Read by (ts, place), exported by place.';
COMMENT ON COLUMN agentfy.message.event IS
    'The whole event as text in the one form; event::json takes it apart.';
COMMENT ON COLUMN agentfy.message.external_id IS 'The id of the event, unique in its chat.';
COMMENT ON COLUMN agentfy.message.ts IS 'Milliseconds since 1970.';
COMMENT ON COLUMN agentfy.message.sender IS 'data.from of a message.';
COMMENT ON COLUMN agentfy.message.name IS 'data.name of a tool call.';

CREATE TABLE agentfy.usage (
    {_own_id("usage")},
    {_OF_AGENT},
    content text NOT NULL,
    {_TIMES},
    UNIQUE (agent_id)
);
COMMENT ON TABLE agentfy.usage IS 'data/usage.json; only where it was asked for.';

CREATE TABLE agentfy.account (
    {_own_id("account")},
    {_OF_AGENT},
    profile text COLLATE "C" NOT NULL CHECK (profile <> ''),
    content text NOT NULL,
    {_TIMES}
);
CREATE UNIQUE INDEX account_key ON agentfy.account (agent_id, agentfy.key_of(profile));
COMMENT ON TABLE agentfy.account IS
    'browser-state/<profile>.json: cookies, which are sensitive; only where they were asked for.';

CREATE VIEW agentfy.conversation WITH (security_invoker = true) AS
    SELECT chat.team_id, chat.agent_id, message.chat_id, chat.channel, chat."user",
        message.at, message.ts, message.place, message.external_id, message.type, message.role,
        message.sender, message.text, message.name, message.tool_use_id,
        message.event::json #> '{{data,params}}' AS params,
        message.event::json #> '{{data,result}}' AS result
    FROM agentfy.message JOIN agentfy.chat ON chat.id = message.chat_id;
COMMENT ON VIEW agentfy.conversation IS 'Messages with their chat, and what tools got and gave.';
"""

# What keeps the columns true that the rest is worth nothing without.
_TRIGGERS = r"""
CREATE FUNCTION agentfy.born_here() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.external_id = NEW.id;
    RETURN NEW;
END $$;
CREATE TRIGGER born_here BEFORE INSERT ON agentfy.agent
    FOR EACH ROW WHEN (NEW.external_id IS NULL) EXECUTE FUNCTION agentfy.born_here();
-- The event of a message has its ID in it: one that has none yet gets it, or an export of it would
-- be refused.
CREATE FUNCTION agentfy.message_born_here() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.external_id = NEW.id;
    IF NEW.event::json -> 'id' IS NULL THEN
        NEW.event = '{"id":' || to_json(NEW.id) || regexp_replace(
            regexp_replace(NEW.event, '^\s*\{', ','), '^,\s*\}', '}');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER born_here BEFORE INSERT ON agentfy.message
    FOR EACH ROW WHEN (NEW.external_id IS NULL) EXECUTE FUNCTION agentfy.message_born_here();

CREATE FUNCTION agentfy.touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at = now();
    RETURN NEW;
END $$;

CREATE FUNCTION agentfy.forget_digest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- also where there is no digest yet: an import that is under way would set one
    PERFORM FROM agentfy.chat WHERE id IN (SELECT chat_id FROM changed)
        ORDER BY id FOR NO KEY UPDATE;
    UPDATE agentfy.chat SET digest = NULL, digested = NULL
    WHERE digest IS NOT NULL AND id IN (SELECT chat_id FROM changed);
    RETURN NULL;
END $$;
CREATE FUNCTION agentfy.forget_digests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE agentfy.chat SET digest = NULL, digested = NULL WHERE digest IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_digests AFTER TRUNCATE ON agentfy.message
    FOR EACH STATEMENT EXECUTE FUNCTION agentfy.forget_digests();
CREATE TRIGGER forget_digest_of_new AFTER INSERT ON agentfy.message
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION agentfy.forget_digest();
CREATE TRIGGER forget_digest_of_updated AFTER UPDATE ON agentfy.message
    REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION agentfy.forget_digest();
CREATE TRIGGER forget_digest_of_moved AFTER UPDATE ON agentfy.message
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION agentfy.forget_digest();
CREATE TRIGGER forget_digest_of_removed AFTER DELETE ON agentfy.message
    REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION agentfy.forget_digest();
"""

_TOUCHED = (
    *("team", "agent", "skill", "file", "memory", "secret", "app_user"),
    *("access", "access_user", "chat", "usage", "account"),
)


def upgrade() -> None:
    """Make the tables of the schema agentfy, which is there."""
    run(_TABLES)
    run(_TRIGGERS)
    for table in _TOUCHED:
        run(
            f"CREATE TRIGGER touch BEFORE UPDATE ON agentfy.{table}"
            " FOR EACH ROW EXECUTE FUNCTION agentfy.touch();"
        )
