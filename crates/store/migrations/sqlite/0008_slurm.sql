-- Allocations: what is asked of Slurm, and what became of it.

CREATE TABLE allocation (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id    INTEGER NOT NULL REFERENCES workflow (id),
    -- 0: a client of Torc's API looks after it.
    is_ours        INTEGER NOT NULL CHECK (is_ours IN (0, 1)),
    -- Not a reference: a client may mean a scheduler of another sort.
    scheduler_id   INTEGER,
    scheduler_name TEXT    NOT NULL,
    -- What it is found by in Slurm. NULL for a client's, and for a moment while one is made from the id.
    tag            TEXT    UNIQUE CHECK (tag <> ''),
    request        TEXT    NOT NULL CHECK (json_valid(request)),
    state          TEXT    NOT NULL CHECK (state IN ('intended', 'submitting', 'pending', 'running', 'completing', 'ended',
                       'refused', 'withdrawn')),
    is_over        INTEGER NOT NULL CHECK (is_over IN (0, 1)),
    job_id         INTEGER CHECK (job_id >= 0),
    restarts       INTEGER NOT NULL DEFAULT 0 CHECK (restarts >= 0),
    reason         TEXT,
    nodes          TEXT,
    -- Which execution of which action asked for it, and which of those that it asked for it is. NULL when the action is gone.
    action_id      INTEGER,
    action_attempt INTEGER CHECK (action_attempt >= 1),
    ordinal        INTEGER CHECK (ordinal >= 0),
    asked_by       TEXT    NOT NULL,
    -- Why nobody wants it any more.
    unwanted       TEXT,
    created_at     INTEGER NOT NULL,
    submitted_at   INTEGER,
    submissions    INTEGER NOT NULL DEFAULT 0 CHECK (submissions >= 0),
    started_at     INTEGER,
    ends_at        INTEGER,
    ended_at       INTEGER,
    -- As Slurm spells it.
    end_state      TEXT,
    exit_code      TEXT,
    seen_at        INTEGER,
    missed         INTEGER NOT NULL DEFAULT 0 CHECK (missed >= 0),
    CHECK ((state IN ('ended', 'refused', 'withdrawn')) = (is_over = 1)),
    CHECK ((action_id IS NULL) = (action_attempt IS NULL) AND (action_id IS NULL) = (ordinal IS NULL)),
    UNIQUE (action_id, action_attempt, ordinal)
) STRICT;

CREATE INDEX allocation_of ON allocation (workflow_id);
CREATE INDEX allocation_open ON allocation (id) WHERE is_over = 0;

-- How often which command of Slurm was called in an hour.
CREATE TABLE slurm_calls (
    hour     INTEGER NOT NULL,
    command  TEXT    NOT NULL CHECK (command <> ''),
    calls    INTEGER NOT NULL CHECK (calls >= 0),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    took_us  INTEGER NOT NULL CHECK (took_us >= 0),
    PRIMARY KEY (hour, command)
) STRICT, WITHOUT ROWID;

-- ---- allocations that clients spoke of were kept unread; workers refer to them by their numbers ----

INSERT INTO sqlite_sequence (name, seq) SELECT 'allocation', seq FROM sqlite_sequence WHERE name = 'record';

INSERT INTO allocation (id, workflow_id, is_ours, scheduler_id, scheduler_name, request, state, is_over, job_id, asked_by,
    created_at, ended_at, end_state)
SELECT r.id, r.workflow_id, 0, CAST(json_extract(r.data, '$.scheduler_config_id') AS INTEGER),
    COALESCE(CAST(json_extract(r.data, '$.scheduler_type') AS TEXT), ''),
    json_object('scheduler', COALESCE(CAST(json_extract(r.data, '$.scheduler_type') AS TEXT), '')),
    CASE json_extract(r.data, '$.status') WHEN 'pending' THEN 'pending' WHEN 'active' THEN 'running' ELSE 'ended' END,
    CASE WHEN json_extract(r.data, '$.status') IN ('pending', 'active') THEN 0 ELSE 1 END,
    MAX(0, CAST(json_extract(r.data, '$.scheduler_id') AS INTEGER)), '', r.created_at,
    CASE WHEN json_extract(r.data, '$.status') IN ('pending', 'active') THEN NULL ELSE r.changed_at END,
    CASE json_extract(r.data, '$.status') WHEN 'canceled' THEN 'CANCELLED' END
FROM record r WHERE r.kind = 'scheduled_compute_node' AND r.workflow_id IS NOT NULL;

DELETE FROM record WHERE kind = 'scheduled_compute_node';
