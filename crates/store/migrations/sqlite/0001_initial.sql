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

INSERT INTO counter (name, next_value) VALUES ('job', 1), ('file', 1), ('user_data', 1);

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
    is_archived             INTEGER NOT NULL DEFAULT 0 CHECK (is_archived IN (0, 1)),
    -- What no column of its own holds: project, metadata, execution_config …
    settings                TEXT    NOT NULL CHECK (json_valid(settings)),
    -- How many files it names.
    file_count              INTEGER NOT NULL CHECK (file_count >= 0)
) STRICT;

CREATE INDEX workflow_by_digest ON workflow (spec_digest, submission_dir) WHERE spec_digest IS NOT NULL;

CREATE TABLE run (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    PRIMARY KEY (workflow_id, run_id)
) STRICT, WITHOUT ROWID;

-- The jobs of a workflow lie in blocks of ids in creation order, so that all of them can be found without an index: one
-- block for those it was created with, one for each time that a running job added some, and one for what a user added
-- later. Deleting a job cuts its block in two.
CREATE TABLE job_block (
    workflow_id  INTEGER NOT NULL REFERENCES workflow (id),
    first_job_id INTEGER NOT NULL CHECK (first_job_id >= 1),
    job_count    INTEGER NOT NULL CHECK (job_count >= 1),
    -- The job that added them, the lineage it spoke for, and how often that lineage has added jobs by then.
    spawned_by   INTEGER REFERENCES job (id),
    lineage      TEXT,
    iteration    INTEGER CHECK (iteration >= 1),
    -- What was asked for, and the attempt of that job which last did. NULL where it came from a file.
    digest        TEXT,
    asked_run     INTEGER,
    asked_attempt INTEGER,
    -- That job ran again and asked for something else: these jobs have given their names up.
    is_replaced  INTEGER NOT NULL DEFAULT 0 CHECK (is_replaced IN (0, 1)),
    PRIMARY KEY (workflow_id, first_job_id),
    CHECK ((spawned_by IS NULL) = (lineage IS NULL) AND (lineage IS NULL) = (iteration IS NULL)),
    CHECK ((asked_run IS NULL) = (asked_attempt IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX job_block_added_by ON job_block (workflow_id, spawned_by) WHERE spawned_by IS NOT NULL;

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

CREATE TABLE failure_handler (
    id          INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    name        TEXT    NOT NULL,
    rules       TEXT    NOT NULL CHECK (json_valid(rules)),
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE slurm_scheduler (
    id          INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    name        TEXT    NOT NULL,
    settings    TEXT    NOT NULL CHECK (json_valid(settings)),
    UNIQUE (workflow_id, name)
) STRICT;

-- What all jobs of one entry of a spec share. A job without any of it has no kind.
CREATE TABLE job_kind (
    id                      INTEGER PRIMARY KEY,
    workflow_id             INTEGER NOT NULL REFERENCES workflow (id),
    -- As written, with its parameters: `solve_{nu}`.
    name                    TEXT    NOT NULL,
    env                     TEXT    CHECK (env IS NULL OR json_valid(env)),
    invocation_script       TEXT,
    stdio_mode              TEXT    CHECK (stdio_mode IN ('separate', 'combined', 'none', 'no_stdout', 'no_stderr')),
    stdio_delete_on_success INTEGER CHECK (stdio_delete_on_success IN (0, 1)),
    supports_termination    INTEGER CHECK (supports_termination IN (0, 1)),
    failure_handler_id      INTEGER REFERENCES failure_handler (id),
    scheduler_id            INTEGER REFERENCES slurm_scheduler (id),
    labels                  TEXT    NOT NULL CHECK (json_valid(labels)),
    parameters              TEXT    NOT NULL CHECK (json_valid(parameters)),
    CHECK ((stdio_mode IS NULL) = (stdio_delete_on_success IS NULL))
) STRICT;

CREATE INDEX job_kind_of ON job_kind (workflow_id);

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

CREATE INDEX worker_of ON worker (workflow_id, ended_at);

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
    kind_id                        INTEGER REFERENCES job_kind (id),
    -- Whether job_file has rows of it: most jobs have none, and nobody should have to look.
    has_files                      INTEGER NOT NULL DEFAULT 0 CHECK (has_files IN (0, 1)),
    -- Completed, because that job of an earlier workflow was the same and had done it. That one may have been deleted.
    reused_from                    INTEGER,
    origin                         TEXT    CHECK (origin = 'retry' OR origin = 'spawn'),
    name                           TEXT    NOT NULL CHECK (name <> ''),
    command                        TEXT    NOT NULL,
    -- Where it differs from the kind's.
    invocation_script              TEXT,
    -- JSON: pairs of strings, on top of the kind's; and an object, the parameters it was made with. Not checked here: a
    -- function in a condition makes the bulk insert twice as slow.
    env                            TEXT,
    params                         TEXT,
    -- The command that completed it, where a user has changed the command since.
    done_with                      TEXT,
    -- JSON, where reused_from is set: which attempt did the work, when, and the files as they were when it was taken over.
    -- A copy, so that this workflow stands alone whatever becomes of that one.
    reused_work                    TEXT,
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

CREATE TABLE file (
    id          INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    name        TEXT    NOT NULL CHECK (name <> ''),
    path        TEXT    NOT NULL CHECK (path <> ''),
    identifier  TEXT,
    -- As last seen, or as the spec says it was: nanoseconds since 1970, bytes.
    mtime_ns    INTEGER,
    size_bytes  INTEGER CHECK (size_bytes >= 0),
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE user_data (
    id           INTEGER PRIMARY KEY,
    workflow_id  INTEGER NOT NULL REFERENCES workflow (id),
    name         TEXT    NOT NULL CHECK (name <> ''),
    data         TEXT    CHECK (data IS NULL OR json_valid(data)),
    is_ephemeral INTEGER NOT NULL CHECK (is_ephemeral IN (0, 1)),
    changed_at   INTEGER NOT NULL,
    UNIQUE (workflow_id, name)
) STRICT;

CREATE TABLE job_file (
    job_id    INTEGER NOT NULL REFERENCES job (id),
    is_output INTEGER NOT NULL CHECK (is_output IN (0, 1)),
    file_id   INTEGER NOT NULL REFERENCES file (id),
    PRIMARY KEY (job_id, is_output, file_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_user_data (
    job_id       INTEGER NOT NULL REFERENCES job (id),
    is_output    INTEGER NOT NULL CHECK (is_output IN (0, 1)),
    user_data_id INTEGER NOT NULL REFERENCES user_data (id),
    PRIMARY KEY (job_id, is_output, user_data_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE action (
    id          INTEGER PRIMARY KEY,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    settings    TEXT    NOT NULL CHECK (json_valid(settings))
) STRICT;

CREATE INDEX action_of ON action (workflow_id);

-- The jobs that an action waits for.
CREATE TABLE action_job (
    action_id INTEGER NOT NULL REFERENCES action (id),
    job_id    INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (action_id, job_id)
) STRICT, WITHOUT ROWID;

-- Who did what to a workflow, when and why. The ends of single jobs are not in it: those are results.
CREATE TABLE event (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    -- NULL for what outlives its workflow, such as that it was deleted.
    workflow_id INTEGER REFERENCES workflow (id),
    at          INTEGER NOT NULL,
    -- 0 debug, 1 info, 2 warning, 3 error.
    severity    INTEGER NOT NULL CHECK (severity BETWEEN 0 AND 3),
    category    TEXT    NOT NULL CHECK (category <> ''),
    actor       TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    data        TEXT    CHECK (data IS NULL OR json_valid(data))
) STRICT;

CREATE INDEX event_of ON event (workflow_id, id);

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
    -- Its files as it found and left them, in the order of job_file. JSON, written once per attempt that has files.
    files             TEXT,
    UNIQUE (job_id, run_id, attempt_id),
    CHECK (exit_code IS NULL OR signal IS NULL)
) STRICT;

CREATE INDEX result_unsuccessful ON result (job_id, run_id, attempt_id) WHERE status <> 5;
