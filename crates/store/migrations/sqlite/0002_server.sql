-- What a server needs: workers that belong to no workflow, the events of single jobs, who may do what, and the objects of
-- the contract that only clients look at.

-- ---- workers: rebuilt, because a column that must have a value cannot learn to do without ----

CREATE TABLE new_worker (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    -- local: a child of the process that decides; remote: it has a lease; torc: a runner of Torc; claims: stands for all
    -- clients that claim jobs of a workflow without saying who they are.
    kind            TEXT    NOT NULL CHECK (kind IN ('local', 'remote', 'torc', 'claims')),
    -- NULL: works for whatever its user may run.
    workflow_id     INTEGER REFERENCES workflow (id),
    run_id          INTEGER CHECK (run_id >= 1),
    user_name       TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    labels          TEXT    NOT NULL CHECK (json_valid(labels)),
    host            TEXT    NOT NULL,
    boot_id         TEXT    NOT NULL,
    pid             INTEGER NOT NULL CHECK (pid >= 0),
    pid_start_ticks INTEGER NOT NULL,
    token           TEXT    NOT NULL,
    -- Of what it has to quote; never the secret itself.
    secret_hash     TEXT,
    ledger_path     TEXT    NOT NULL,
    cpus            INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes    INTEGER NOT NULL CHECK (memory_bytes >= 0),
    gpus            INTEGER NOT NULL CHECK (gpus >= 0),
    nodes           INTEGER NOT NULL CHECK (nodes >= 0),
    max_jobs        INTEGER CHECK (max_jobs >= 0),
    -- The scheduled compute node that started it.
    allocation_id   INTEGER,
    -- JSON: what the contract knows of a compute node and no column holds.
    extra           TEXT    CHECK (extra IS NULL OR json_valid(extra)),
    started_at      INTEGER NOT NULL,
    ended_at        INTEGER,
    is_draining     INTEGER NOT NULL DEFAULT 0 CHECK (is_draining IN (0, 1)),
    -- A user wants to see it no more. Results refer to it, so the row stays.
    is_deleted      INTEGER NOT NULL DEFAULT 0 CHECK (is_deleted IN (0, 1))
) STRICT;

-- Numbers that were given once are not given again, also where the last of them was deleted.
INSERT INTO sqlite_sequence (name, seq) SELECT 'new_worker', seq FROM sqlite_sequence WHERE name = 'worker';

INSERT INTO new_worker (id, kind, workflow_id, run_id, user_name, version, labels, host, boot_id, pid, pid_start_ticks,
    token, ledger_path, cpus, memory_bytes, gpus, nodes, max_jobs, started_at, ended_at)
SELECT w.id, 'local', w.workflow_id, w.run_id, f.user_name, '', '[]', w.host, w.boot_id, w.pid, w.pid_start_ticks,
    w.token, w.ledger_path, w.cpus, w.memory_bytes, w.gpus, w.nodes, w.max_jobs, w.started_at, w.ended_at
FROM worker w JOIN workflow f ON f.id = w.workflow_id;

DROP TABLE worker;
ALTER TABLE new_worker RENAME TO worker;

CREATE INDEX worker_of ON worker (workflow_id, ended_at);
CREATE INDEX worker_active ON worker (id) WHERE ended_at IS NULL;

-- ---- events of single jobs: numbers only, put into words when they are read ----

-- Not a reference: what happened to a job is still known when the job is not.
ALTER TABLE event ADD COLUMN job_id INTEGER;
ALTER TABLE event ADD COLUMN run_id INTEGER;
ALTER TABLE event ADD COLUMN attempt_id INTEGER;
ALTER TABLE event ADD COLUMN worker_id INTEGER;
ALTER TABLE event ADD COLUMN return_code INTEGER;

-- ---- runs that are under way ----

CREATE INDEX run_open ON run (workflow_id) WHERE ended_at IS NULL;

-- ---- actions: how far each is, and every execution of it ----

ALTER TABLE action ADD COLUMN trigger_count INTEGER NOT NULL DEFAULT 0 CHECK (trigger_count >= 0);
-- Executions before this one belong to an earlier arming: it may be executed again.
ALTER TABLE action ADD COLUMN armed_after INTEGER NOT NULL DEFAULT 0 CHECK (armed_after >= 0);
-- Made by a recovery; goes when the workflow is initialised anew.
ALTER TABLE action ADD COLUMN is_recovery INTEGER NOT NULL DEFAULT 0 CHECK (is_recovery IN (0, 1));

CREATE TABLE action_run (
    action_id   INTEGER NOT NULL REFERENCES action (id),
    -- Counts the executions of an action, over all runs.
    attempt     INTEGER NOT NULL CHECK (attempt >= 1),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    -- NULL: a client that did not say who it is.
    worker_id   INTEGER REFERENCES worker (id),
    cause       TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    -- NULL while it runs, and for ever where nobody knows.
    return_code INTEGER,
    message     TEXT,
    PRIMARY KEY (action_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE INDEX action_run_open ON action_run (worker_id) WHERE ended_at IS NULL;

-- ---- who may do what ----

CREATE TABLE access_group (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL UNIQUE CHECK (name <> ''),
    description TEXT,
    created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE group_member (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id   INTEGER NOT NULL REFERENCES access_group (id),
    user_name  TEXT    NOT NULL CHECK (user_name <> ''),
    role       TEXT    NOT NULL CHECK (role <> ''),
    created_at INTEGER NOT NULL,
    UNIQUE (group_id, user_name)
) STRICT;

CREATE INDEX group_member_by_user ON group_member (user_name);

CREATE TABLE workflow_group (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    group_id    INTEGER NOT NULL REFERENCES access_group (id),
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (workflow_id, group_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workflow_group_by_group ON workflow_group (group_id);
CREATE INDEX workflow_by_user ON workflow (user_name);

CREATE TABLE api_token (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Of the token; whoever reads this cannot use it.
    hash         TEXT    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    user_name    TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    scopes       TEXT    NOT NULL CHECK (json_valid(scopes)),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

CREATE INDEX api_token_by_user ON api_token (user_name);

-- ---- who uses a file or a piece of user data: asked for every job that a client adds ----

CREATE INDEX job_file_by_file ON job_file (file_id);
CREATE INDEX job_user_data_by_piece ON job_user_data (user_data_id);

-- ---- what only clients look at: local schedulers, scheduled compute nodes, statistics of Slurm … ----

CREATE TABLE record (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER REFERENCES workflow (id),
    kind        TEXT    NOT NULL CHECK (kind <> ''),
    -- Where one of a kind must be the only one of its name in its workflow.
    name        TEXT,
    data        TEXT    NOT NULL CHECK (json_valid(data)),
    created_at  INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    UNIQUE (workflow_id, kind, name)
) STRICT;

-- ---- which server is the one that writes ----

CREATE TABLE server_epoch (
    one          INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    epoch        INTEGER NOT NULL CHECK (epoch >= 0),
    holder       TEXT,
    heartbeat_at INTEGER
) STRICT;

INSERT INTO server_epoch (one, epoch) VALUES (1, 0);
