-- The books, first edition.
--
-- Conventions: times are microseconds since 1970 in UTC, durations microseconds, sizes bytes, booleans 0 or 1,
-- JSON is TEXT. Job states carry the numbers of the contract:
--   0 uninitialized, 1 blocked, 2 ready, 3 pending, 4 running, 5 completed, 6 failed, 7 canceled, 8 terminated,
--   9 disabled, 10 pending_failed.

-- Numbers that are handed out once and never again, also not after something was deleted: log files are named by them.
CREATE TABLE counter (
    name       TEXT    NOT NULL PRIMARY KEY,
    next_value INTEGER NOT NULL CHECK (next_value >= 1)
) STRICT, WITHOUT ROWID;

INSERT INTO counter (name, next_value) VALUES ('job', 1);

CREATE TABLE workflow (
    id                      INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid                    TEXT    NOT NULL UNIQUE CHECK (length(uuid) = 36),
    name                    TEXT    NOT NULL CHECK (name <> ''),
    user_name               TEXT    NOT NULL,
    description             TEXT,
    created_at              INTEGER NOT NULL,
    run_id                  INTEGER NOT NULL DEFAULT 1 CHECK (run_id >= 1),
    is_canceled             INTEGER NOT NULL DEFAULT 0 CHECK (is_canceled IN (0, 1)),
    cancel_requested_at     INTEGER,
    submission_dir          TEXT    NOT NULL,
    output_dir              TEXT    NOT NULL,
    spec_path               TEXT,
    spec_digest             TEXT,
    env                     TEXT    CHECK (env IS NULL OR json_valid(env)),
    stdio_mode              TEXT    NOT NULL
                            CHECK (stdio_mode IN ('separate', 'combined', 'none', 'no_stdout', 'no_stderr')),
    stdio_delete_on_success INTEGER NOT NULL CHECK (stdio_delete_on_success IN (0, 1)),
    -- The jobs of a workflow are one block of ids in creation order, so that all of them can be found without an index.
    first_job_id            INTEGER NOT NULL CHECK (first_job_id >= 1),
    job_count               INTEGER NOT NULL CHECK (job_count >= 0)
) STRICT;

CREATE INDEX workflow_by_digest ON workflow (spec_digest, submission_dir) WHERE spec_digest IS NOT NULL;

CREATE TABLE run (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    PRIMARY KEY (workflow_id, run_id)
) STRICT, WITHOUT ROWID;

-- Kept in step with job.status by every transaction, so that nobody has to count a million rows to tell how it stands.
CREATE TABLE status_count (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    status      INTEGER NOT NULL CHECK (status BETWEEN 0 AND 10),
    n           INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, status)
) STRICT, WITHOUT ROWID;

CREATE TABLE resource_requirements (
    id           INTEGER PRIMARY KEY,
    workflow_id  INTEGER NOT NULL REFERENCES workflow (id),
    name         TEXT    NOT NULL,
    cpus         INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
    gpus         INTEGER NOT NULL CHECK (gpus >= 0),
    nodes        INTEGER NOT NULL CHECK (nodes >= 1),
    runtime_us   INTEGER CHECK (runtime_us >= 0),
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE worker (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id     INTEGER NOT NULL REFERENCES workflow (id),
    run_id          INTEGER NOT NULL CHECK (run_id >= 1),
    host            TEXT    NOT NULL,
    boot_id         TEXT    NOT NULL,
    pid             INTEGER NOT NULL CHECK (pid >= 0),
    pid_start_ticks INTEGER NOT NULL,
    token           TEXT    NOT NULL,
    ledger_path     TEXT    NOT NULL,
    cpus            INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes    INTEGER NOT NULL CHECK (memory_bytes >= 0),
    gpus            INTEGER NOT NULL CHECK (gpus >= 0),
    nodes           INTEGER NOT NULL CHECK (nodes >= 0),
    max_jobs        INTEGER CHECK (max_jobs >= 0),
    started_at      INTEGER NOT NULL,
    ended_at        INTEGER
) STRICT;

CREATE INDEX worker_active ON worker (workflow_id) WHERE ended_at IS NULL;

-- What changes comes first and what may be long comes last: a status is read without touching the command.
CREATE TABLE job (
    id                             INTEGER PRIMARY KEY,
    workflow_id                    INTEGER NOT NULL REFERENCES workflow (id),
    status                         INTEGER NOT NULL CHECK (status BETWEEN 0 AND 10),
    attempt_id                     INTEGER NOT NULL DEFAULT 1 CHECK (attempt_id >= 1),
    orphaned_attempts              INTEGER NOT NULL DEFAULT 0 CHECK (orphaned_attempts >= 0),
    worker_id                      INTEGER REFERENCES worker (id),
    pid                            INTEGER,
    started_at                     INTEGER,
    priority                       INTEGER NOT NULL,
    cancel_on_blocking_job_failure INTEGER NOT NULL CHECK (cancel_on_blocking_job_failure IN (0, 1)),
    requirements_id                INTEGER REFERENCES resource_requirements (id),
    name                           TEXT    NOT NULL CHECK (name <> ''),
    command                        TEXT    NOT NULL,
    -- JSON. Not checked here: a function in a condition makes the bulk insert twice as slow.
    env                            TEXT,
    UNIQUE (workflow_id, name),
    -- Held by a worker if and only if pending or running.
    CHECK ((status IN (3, 4)) = (worker_id IS NOT NULL)),
    -- Known to have started if and only if running.
    CHECK ((status = 4) = (started_at IS NOT NULL)),
    CHECK ((pid IS NULL) = (started_at IS NULL))
) STRICT;

-- The few that somebody looks for among the many: held by a worker, or in trouble. Ready, blocked and completed jobs
-- are not in it, so that unblocking a job touches its row and nothing else. (Comparisons, because SQLite would build a
-- table for a list in every statement that writes a job.)
CREATE INDEX job_watched ON job (workflow_id, status) WHERE status >= 3 AND status <> 5 AND status <> 9;

CREATE TABLE job_edge (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    waits_for   INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (workflow_id, job_id, waits_for),
    CHECK (job_id <> waits_for)
) STRICT, WITHOUT ROWID;

-- A gate is a set of jobs that several jobs wait for, kept once; gates are numbered from 0 in their workflow.
CREATE TABLE gate_member (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    gate        INTEGER NOT NULL CHECK (gate >= 0),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (workflow_id, gate, job_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_gate (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    gate        INTEGER NOT NULL CHECK (gate >= 0),
    PRIMARY KEY (workflow_id, job_id, gate)
) STRICT, WITHOUT ROWID;

CREATE TABLE result (
    id                INTEGER PRIMARY KEY,
    job_id            INTEGER NOT NULL REFERENCES job (id),
    run_id            INTEGER NOT NULL CHECK (run_id >= 1),
    attempt_id        INTEGER NOT NULL CHECK (attempt_id >= 1),
    worker_id         INTEGER NOT NULL REFERENCES worker (id),
    -- How the attempt ended; it did end.
    status            INTEGER NOT NULL CHECK (status BETWEEN 5 AND 10 AND status <> 9),
    return_code       INTEGER NOT NULL,
    exit_code         INTEGER,
    signal            INTEGER,
    out_of_memory     INTEGER NOT NULL CHECK (out_of_memory IN (0, 1)),
    started_at        INTEGER,
    ended_at          INTEGER NOT NULL,
    wall_us           INTEGER NOT NULL CHECK (wall_us >= 0),
    cpu_time_us       INTEGER NOT NULL CHECK (cpu_time_us >= 0),
    peak_memory_bytes INTEGER CHECK (peak_memory_bytes >= 0),
    avg_memory_bytes  INTEGER CHECK (avg_memory_bytes >= 0),
    peak_cpu_percent  REAL,
    avg_cpu_percent   REAL,
    reason            TEXT,
    UNIQUE (job_id, run_id, attempt_id),
    CHECK (exit_code IS NULL OR signal IS NULL)
) STRICT;

CREATE INDEX result_unsuccessful ON result (job_id, run_id, attempt_id) WHERE status <> 5;
