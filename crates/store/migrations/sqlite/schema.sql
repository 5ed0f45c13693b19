-- Written by the test `schema_file_is_what_all_migrations_create`. Change migrations only.
CREATE TABLE schema_migration (
             version  INTEGER PRIMARY KEY,
             name     TEXT NOT NULL,
             checksum TEXT NOT NULL
         ) STRICT;
CREATE TABLE counter (
    name       TEXT    NOT NULL PRIMARY KEY,
    next_value INTEGER NOT NULL CHECK (next_value >= 1)
) STRICT, WITHOUT ROWID;
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
    requested_in_run     INTEGER,
    requested_in_attempt INTEGER,
    -- That job ran again and asked for something else: these jobs have given their names up.
    is_replaced  INTEGER NOT NULL DEFAULT 0 CHECK (is_replaced IN (0, 1)),
    PRIMARY KEY (workflow_id, first_job_id),
    CHECK ((spawned_by IS NULL) = (lineage IS NULL) AND (lineage IS NULL) = (iteration IS NULL)),
    CHECK ((requested_in_run IS NULL) = (requested_in_attempt IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX job_block_added_by ON job_block (workflow_id, spawned_by) WHERE spawned_by IS NOT NULL;
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
CREATE TABLE "job_group" (
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
    parameters              TEXT    NOT NULL CHECK (json_valid(parameters)), sites TEXT CHECK (sites IS NULL OR json_valid(sites)), limit_name TEXT CHECK (limit_name <> ''), elects_site INTEGER NOT NULL DEFAULT 0 CHECK (elects_site IN (0, 1)),
    CHECK ((stdio_mode IS NULL) = (stdio_delete_on_success IS NULL))
) STRICT;
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
    job_group_id                        INTEGER REFERENCES "job_group" (id),
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
    reused_work                    TEXT, options TEXT,
    UNIQUE (workflow_id, name),
    -- Held by a worker if and only if pending or running.
    CHECK ((status IN (3, 4)) = (worker_id IS NOT NULL)),
    -- Known to have started if and only if running.
    CHECK ((status = 4) = (started_at IS NOT NULL)),
    CHECK ((pid IS NULL) = (started_at IS NULL))
) STRICT;
CREATE INDEX job_watched ON job (workflow_id, status) WHERE status >= 3 AND status <> 5 AND status <> 9;
CREATE TABLE job_edge (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    depends_on   INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (workflow_id, job_id, depends_on),
    CHECK (job_id <> depends_on)
) STRICT, WITHOUT ROWID;
CREATE TABLE "dependency_group_member" (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    group_number        INTEGER NOT NULL CHECK (group_number >= 0),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (workflow_id, group_number, job_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE "job_dependency_group" (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    group_number        INTEGER NOT NULL CHECK (group_number >= 0),
    PRIMARY KEY (workflow_id, job_id, group_number)
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
, trigger_count INTEGER NOT NULL DEFAULT 0 CHECK (trigger_count >= 0), armed_after INTEGER NOT NULL DEFAULT 0 CHECK (armed_after >= 0), is_recovery INTEGER NOT NULL DEFAULT 0 CHECK (is_recovery IN (0, 1))) STRICT;
CREATE INDEX action_of ON action (workflow_id);
CREATE TABLE action_job (
    action_id INTEGER NOT NULL REFERENCES action (id),
    job_id    INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (action_id, job_id)
) STRICT, WITHOUT ROWID;
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
, job_id INTEGER, run_id INTEGER, attempt_id INTEGER, worker_id INTEGER, return_code INTEGER) STRICT;
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
    files             TEXT, recovered TEXT,
    UNIQUE (job_id, run_id, attempt_id),
    CHECK (exit_code IS NULL OR signal IS NULL)
) STRICT;
CREATE INDEX result_unsuccessful ON result (job_id, run_id, attempt_id) WHERE status <> 5;
CREATE TABLE "worker" (
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
, site TEXT CHECK (site <> '')) STRICT;
CREATE INDEX worker_of ON worker (workflow_id, ended_at);
CREATE INDEX worker_active ON worker (id) WHERE ended_at IS NULL;
CREATE INDEX run_open ON run (workflow_id) WHERE ended_at IS NULL;
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
CREATE INDEX job_file_by_file ON job_file (file_id);
CREATE INDEX job_user_data_by_piece ON job_user_data (user_data_id);
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
CREATE TABLE server_epoch (
    one          INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    epoch        INTEGER NOT NULL CHECK (epoch >= 0),
    holder       TEXT,
    heartbeat_at INTEGER
) STRICT;
CREATE TABLE failure (
    job_id      INTEGER NOT NULL REFERENCES job (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    attempt_id  INTEGER NOT NULL CHECK (attempt_id >= 1),
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    class       TEXT    NOT NULL CHECK (class <> ''),
    -- The rule of the classification that spoke, if one did.
    rule        TEXT,
    -- The same for all that failed alike; what those are called; and the telling line of this one.
    signature   TEXT    NOT NULL CHECK (signature <> ''),
    message     TEXT    NOT NULL,
    line        TEXT,
    -- The end of what it said, without secrets.
    log_excerpt  TEXT,
    -- What happens to the job after it, and why.
    retry_decision        TEXT    NOT NULL CHECK (retry_decision IN ('retry', 'excused', 'pending_failed', 'final')),
    decision_reason         TEXT, seq INTEGER CHECK (seq >= 1),
    PRIMARY KEY (job_id, run_id, attempt_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX failure_alike ON failure (workflow_id, run_id, signature);
CREATE TABLE "next_attempt" (
    job_id      INTEGER NOT NULL PRIMARY KEY REFERENCES job (id),
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    -- It is ready, and nobody may claim it earlier.
    not_before  INTEGER,
    -- JSON: the script that is owed, the attempt that failed and how, how long it may take.
    recovery    TEXT    CHECK (recovery IS NULL OR json_valid(recovery)),
    -- Attempts of this run that count for no rule.
    uncounted_retries     INTEGER NOT NULL CHECK (uncounted_retries >= 0)
, delay_us INTEGER CHECK (delay_us >= 0)) STRICT, WITHOUT ROWID;
CREATE TABLE "ignored_failure" (
    job_id      INTEGER NOT NULL PRIMARY KEY REFERENCES job (id),
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    attempt_id  INTEGER NOT NULL CHECK (attempt_id >= 1)
) STRICT, WITHOUT ROWID;
CREATE TABLE decision (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    -- The attempt that had failed.
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    attempt_id  INTEGER NOT NULL CHECK (attempt_id >= 1),
    made_at     INTEGER NOT NULL,
    made_by     TEXT    NOT NULL CHECK (made_by <> ''),
    is_agent    INTEGER NOT NULL CHECK (is_agent IN (0, 1)),
    command     TEXT    NOT NULL CHECK (command IN ('retry', 'fail', 'ignore', 'change')),
    -- From 0 to 1, where whoever decided says so.
    confidence  REAL    CHECK (confidence BETWEEN 0 AND 1),
    reason      TEXT    NOT NULL,
    -- JSON: lines of the log that speak for it.
    evidence    TEXT    CHECK (evidence IS NULL OR json_valid(evidence)),
    -- JSON: what the job is to ask for from then on, where that changes.
    changes     TEXT    CHECK (changes IS NULL OR json_valid(changes)),
    -- proposed: waits for a person.
    state       TEXT    NOT NULL CHECK (state IN ('proposed', 'done', 'declined')),
    reviewed_at  INTEGER,
    reviewed_by  TEXT
, superseded_at INTEGER) STRICT;
CREATE INDEX decision_on ON decision (job_id);
CREATE INDEX decision_in ON decision (workflow_id);
CREATE TABLE revision (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The first of those that were made together, and are undone together.
    batch       INTEGER NOT NULL,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    job_id      INTEGER NOT NULL REFERENCES job (id),
    made_at     INTEGER NOT NULL,
    made_by     TEXT    NOT NULL CHECK (made_by <> ''),
    reason      TEXT    NOT NULL,
    -- JSON: the fields that changed.
    before      TEXT    NOT NULL CHECK (json_valid(before)),
    after       TEXT    NOT NULL CHECK (json_valid(after)),
    undone_at   INTEGER,
    undone_by   TEXT
, attempts INTEGER CHECK (attempts >= 0)) STRICT;
CREATE INDEX revision_of ON revision (job_id);
CREATE INDEX revision_in ON revision (workflow_id, batch);
CREATE TABLE "pending_command" (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    made_at     INTEGER NOT NULL,
    made_by     TEXT    NOT NULL CHECK (made_by <> ''),
    -- JSON: what is wanted, and what came of it.
    command      TEXT    NOT NULL CHECK (json_valid(command)),
    answered_at INTEGER,
    answer      TEXT    CHECK (answer IS NULL OR json_valid(answer))
) STRICT;
CREATE TABLE request (
    name             TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    status           TEXT    NOT NULL CHECK (status <> ''),
    -- Rises with every change; a change that quotes another one is refused.
    version          INTEGER NOT NULL DEFAULT 1 CHECK (version >= 1),
    priority         INTEGER NOT NULL,
    is_urgent        INTEGER NOT NULL CHECK (is_urgent IN (0, 1)),
    campaign         TEXT,
    requestor        TEXT    NOT NULL,
    production_steps TEXT    NOT NULL CHECK (json_valid(production_steps)),
    previous_version TEXT    REFERENCES request (name),
    superseded_by    TEXT,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    -- When it came to its status, and why.
    since            INTEGER NOT NULL,
    reason           TEXT,
    -- JSON: what somebody wants of it and nobody has seen to yet.
    requested_change           TEXT    CHECK (requested_change IS NULL OR json_valid(requested_change)),
    alerted_at       INTEGER,
    -- As it was wished for. Apart from it what is handed on unread, and may be long.
    document         TEXT    NOT NULL CHECK (json_valid(document)),
    payload_config   TEXT    NOT NULL CHECK (json_valid(payload_config))
, overrides TEXT CHECK (overrides IS NULL OR json_valid(overrides))) STRICT, WITHOUT ROWID;
CREATE INDEX request_by_status ON request (status, priority);
CREATE INDEX request_by_campaign ON request (campaign) WHERE campaign IS NOT NULL;
CREATE INDEX request_by_priority ON request (priority);
CREATE INDEX request_open ON request (name) WHERE status NOT IN ('completed', 'failed', 'aborted');
CREATE INDEX request_next_version ON request (previous_version) WHERE previous_version IS NOT NULL;
CREATE TABLE request_transition (
    request     TEXT    NOT NULL REFERENCES request (name),
    n           INTEGER NOT NULL CHECK (n >= 1),
    from_status TEXT,
    to_status   TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    made_by     TEXT    NOT NULL,
    reason      TEXT,
    PRIMARY KEY (request, n)
) STRICT, WITHOUT ROWID;
CREATE TABLE request_process (
    uuid     TEXT NOT NULL PRIMARY KEY CHECK (uuid <> ''),
    request  TEXT NOT NULL UNIQUE REFERENCES request (name),
    document TEXT NOT NULL CHECK (json_valid(document))
) STRICT, WITHOUT ROWID;
CREATE TABLE request_run (
    uuid              TEXT    NOT NULL PRIMARY KEY CHECK (uuid <> ''),
    process           TEXT    NOT NULL REFERENCES request_process (uuid),
    -- Counted from 1 within the process; the highest is the current one.
    n                 INTEGER NOT NULL CHECK (n >= 1),
    round             INTEGER NOT NULL CHECK (round >= 0),
    parent            TEXT    REFERENCES request_run (uuid),
    status            TEXT    NOT NULL CHECK (status <> ''),
    backend           TEXT    NOT NULL CHECK (backend IN ('engine', 'htcondor')),
    -- Of the engine. They may outlive each other, so nothing refers.
    workflow_id       INTEGER,
    run_id            INTEGER,
    -- Of HTCondor.
    schedd            TEXT,
    cluster           TEXT,
    submit_dir        TEXT    NOT NULL,
    stop_requested_at INTEGER,
    stop_reason       TEXT,
    totals            TEXT    NOT NULL CHECK (json_valid(totals)),
    counts            TEXT    NOT NULL CHECK (json_valid(counts)),
    units_completed   INTEGER NOT NULL CHECK (units_completed >= 0),
    units_failed      INTEGER NOT NULL CHECK (units_failed >= 0),
    units_read        INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    submitted_at      INTEGER,
    completed_at      INTEGER, cause TEXT NOT NULL DEFAULT 'first' CHECK (cause <> ''), rescues INTEGER NOT NULL DEFAULT 0 CHECK (rescues >= 0), paused_at INTEGER, silent_since INTEGER, priority INTEGER,
    UNIQUE (process, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_run_by_status ON request_run (status);
CREATE INDEX request_run_by_workflow ON request_run (workflow_id) WHERE workflow_id IS NOT NULL;
CREATE INDEX request_run_by_schedd ON request_run (schedd, cluster) WHERE cluster IS NOT NULL;
CREATE INDEX request_run_by_parent ON request_run (parent) WHERE parent IS NOT NULL;
CREATE TABLE request_run_event (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    run         TEXT    NOT NULL REFERENCES request_run (uuid),
    event_type  TEXT    NOT NULL,
    from_status TEXT,
    to_status   TEXT,
    counts      TEXT    NOT NULL CHECK (json_valid(counts)),
    detail      TEXT    NOT NULL CHECK (json_valid(detail)),
    at          INTEGER NOT NULL
) STRICT;
CREATE INDEX request_run_event_of ON request_run_event (run, id);
CREATE TABLE request_block (
    uuid            TEXT    NOT NULL PRIMARY KEY CHECK (uuid <> ''),
    process         TEXT    NOT NULL REFERENCES request_process (uuid),
    round           INTEGER NOT NULL CHECK (round >= 0),
    dataset         TEXT    NOT NULL,
    -- Counted from 0 within the process and dataset.
    n               INTEGER NOT NULL CHECK (n >= 0),
    first_unit      INTEGER NOT NULL CHECK (first_unit >= 0),
    last_unit       INTEGER NOT NULL CHECK (last_unit >= first_unit),
    units_completed INTEGER NOT NULL CHECK (units_completed >= 0),
    -- What the catalog calls it.
    name            TEXT,
    is_closed       INTEGER NOT NULL CHECK (is_closed IN (0, 1)),
    tape_rule       TEXT,
    status          TEXT    NOT NULL CHECK (status <> ''),
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL, units_expected INTEGER NOT NULL DEFAULT 0 CHECK (units_expected >= 0),
    UNIQUE (process, dataset, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_block_of ON request_block (process, status);
CREATE INDEX request_block_by_status ON request_block (status);
CREATE TABLE output_step (
    block           TEXT    NOT NULL REFERENCES request_block (uuid),
    -- -1: about the block as a whole.
    unit            INTEGER NOT NULL CHECK (unit >= -1),
    kind            TEXT    NOT NULL CHECK (kind <> ''),
    -- That of the block, so that what is left of a process is found by itself.
    process         TEXT    NOT NULL,
    state           TEXT    NOT NULL CHECK (state <> ''),
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    due_at          INTEGER NOT NULL,
    first_failed_at INTEGER,
    last_error      TEXT,
    result          TEXT,
    detail          TEXT    CHECK (detail IS NULL OR json_valid(detail)),
    PRIMARY KEY (block, unit, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX output_step_open ON output_step (process, state, due_at) WHERE state IN ('pending', 'failed');
CREATE INDEX output_step_due ON output_step (due_at) WHERE state = 'pending';
CREATE TABLE site (
    name            TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    status          TEXT    NOT NULL CHECK (status <> ''),
    drain_until     INTEGER,
    total_slots     INTEGER CHECK (total_slots >= 0),
    running_slots   INTEGER NOT NULL CHECK (running_slots >= 0),
    pending_slots   INTEGER NOT NULL CHECK (pending_slots >= 0),
    thresholds      TEXT    NOT NULL CHECK (json_valid(thresholds)),
    schedd_name     TEXT,
    collector_host  TEXT,
    storage_element TEXT,
    storage_path    TEXT,
    updated_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE site_ban (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    site         TEXT    NOT NULL REFERENCES site (name),
    -- NULL: for every request.
    request      TEXT    REFERENCES request (name),
    reason       TEXT    NOT NULL,
    failure_data TEXT    NOT NULL CHECK (json_valid(failure_data)),
    made_by      TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    removed_at   INTEGER,
    removed_by   TEXT
, expiry_notified_at INTEGER) STRICT;
CREATE INDEX site_ban_active ON site_ban (site, expires_at) WHERE removed_at IS NULL;
CREATE INDEX site_ban_of_request ON site_ban (request) WHERE request IS NOT NULL;
CREATE TABLE setting (
    name       TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    value      TEXT    NOT NULL CHECK (json_valid(value)),
    changed_at INTEGER NOT NULL,
    changed_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE alert (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    kind    TEXT    NOT NULL CHECK (kind <> ''),
    request TEXT,
    message TEXT    NOT NULL,
    detail  TEXT    NOT NULL CHECK (json_valid(detail)),
    at      INTEGER NOT NULL,
    notified_at INTEGER
) STRICT;
CREATE INDEX alert_about ON alert (request, id) WHERE request IS NOT NULL;
CREATE TABLE dataset (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE CHECK (name <> ''),
    created_at INTEGER NOT NULL
, owner TEXT) STRICT;
CREATE TABLE dataset_block (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset_id INTEGER NOT NULL REFERENCES dataset (id),
    name       TEXT    NOT NULL UNIQUE CHECK (name <> ''),
    created_at INTEGER NOT NULL,
    -- NULL: files may still come.
    closed_at  INTEGER
) STRICT;
CREATE INDEX dataset_block_of ON dataset_block (dataset_id);
CREATE TABLE dataset_file (
    id         INTEGER PRIMARY KEY,
    dataset_id INTEGER NOT NULL REFERENCES dataset (id),
    block_id   INTEGER REFERENCES dataset_block (id),
    lfn        TEXT    NOT NULL UNIQUE CHECK (lfn <> ''),
    size       INTEGER NOT NULL CHECK (size >= 0),
    events     INTEGER NOT NULL CHECK (events >= 0),
    is_valid   INTEGER NOT NULL CHECK (is_valid IN (0, 1)),
    lumi_count INTEGER NOT NULL CHECK (lumi_count >= 0),
    -- JSON. Not checked here: a function in a condition makes many rows slow.
    checksums  TEXT,
    parents    TEXT,
    -- `RUN:LUMI,FIRST-LAST=EVENTS_EACH;RUN:…`
    lumis      TEXT
) STRICT;
CREATE INDEX dataset_file_of ON dataset_file (dataset_id, id, is_valid, events, size, lumi_count);
CREATE INDEX dataset_file_in ON dataset_file (block_id) WHERE block_id IS NOT NULL;
CREATE TABLE replica (
    dataset_id INTEGER NOT NULL REFERENCES dataset (id),
    file_id    INTEGER NOT NULL REFERENCES dataset_file (id),
    site       TEXT    NOT NULL CHECK (site <> ''),
    path       TEXT    NOT NULL,
    PRIMARY KEY (dataset_id, file_id, site)
) STRICT, WITHOUT ROWID;
CREATE TABLE replication_rule (
    uuid           TEXT    NOT NULL PRIMARY KEY,
    name           TEXT    NOT NULL CHECK (name <> ''),
    rse_expression TEXT    NOT NULL,
    copies         INTEGER NOT NULL CHECK (copies >= 1),
    lifetime       INTEGER CHECK (lifetime >= 0),
    comment        TEXT,
    created_at     INTEGER NOT NULL,
    UNIQUE (name, rse_expression, copies)
) STRICT, WITHOUT ROWID;
CREATE TABLE unit (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    number      INTEGER NOT NULL CHECK (number >= 0),
    -- Where its jobs run; NULL until that is known.
    site        TEXT    CHECK (site <> ''),
    status      TEXT    NOT NULL CHECK (status IN ('waiting', 'active', 'completed', 'failed', 'canceled')),
    ended_at    INTEGER,
    -- In which it last changed.
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    -- Higher than that of all units of the workflow that changed before it.
    seq         INTEGER NOT NULL CHECK (seq >= 1),
    PRIMARY KEY (workflow_id, number),
    CHECK ((ended_at IS NULL) = (status IN ('waiting', 'active')))
) STRICT, WITHOUT ROWID;
CREATE INDEX unit_changed ON unit (workflow_id, seq);
CREATE TABLE unit_jobs (
    workflow_id  INTEGER NOT NULL REFERENCES workflow (id),
    first_job_id INTEGER NOT NULL CHECK (first_job_id >= 1),
    job_count    INTEGER NOT NULL CHECK (job_count >= 1),
    number       INTEGER NOT NULL CHECK (number >= 0),
    PRIMARY KEY (workflow_id, first_job_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE unit_count (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    status      TEXT    NOT NULL,
    n           INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, status)
) STRICT, WITHOUT ROWID;
CREATE TABLE request_file (
    process   TEXT    NOT NULL REFERENCES request_process (uuid),
    lfn       TEXT    NOT NULL CHECK (lfn <> ''),
    state     TEXT    NOT NULL CHECK (state <> ''),
    round     INTEGER NOT NULL CHECK (round >= 0),
    -- JSON: what is still to be done of it; NULL: all.
    remainder TEXT    CHECK (remainder IS NULL OR json_valid(remainder)),
    reason    TEXT,
    PRIMARY KEY (process, lfn)
) STRICT, WITHOUT ROWID;
CREATE TABLE request_failure (
    run   TEXT NOT NULL PRIMARY KEY REFERENCES request_run (uuid),
    counts TEXT NOT NULL CHECK (json_valid(counts))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX failure_noted ON failure (workflow_id, seq) WHERE seq IS NOT NULL;
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
    is_ended        INTEGER NOT NULL CHECK (is_ended IN (0, 1)),
    job_id         INTEGER CHECK (job_id >= 0),
    restarts       INTEGER NOT NULL DEFAULT 0 CHECK (restarts >= 0),
    reason         TEXT,
    nodes          TEXT,
    -- Which execution of which action asked for it, and which of those that it asked for it is. NULL when the action is gone.
    action_id      INTEGER,
    action_attempt INTEGER CHECK (action_attempt >= 1),
    ordinal        INTEGER CHECK (ordinal >= 0),
    requested_by       TEXT    NOT NULL,
    -- Why nobody wants it any more.
    cancel_reason       TEXT,
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
    missed_polls         INTEGER NOT NULL DEFAULT 0 CHECK (missed_polls >= 0),
    CHECK ((state IN ('ended', 'refused', 'withdrawn')) = (is_ended = 1)),
    CHECK ((action_id IS NULL) = (action_attempt IS NULL) AND (action_id IS NULL) = (ordinal IS NULL)),
    UNIQUE (action_id, action_attempt, ordinal)
) STRICT;
CREATE INDEX allocation_of ON allocation (workflow_id);
CREATE INDEX allocation_open ON allocation (id) WHERE is_ended = 0;
CREATE TABLE slurm_calls (
    hour     INTEGER NOT NULL,
    command  TEXT    NOT NULL CHECK (command <> ''),
    calls    INTEGER NOT NULL CHECK (calls >= 0),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    took_us  INTEGER NOT NULL CHECK (took_us >= 0),
    PRIMARY KEY (hour, command)
) STRICT, WITHOUT ROWID;
CREATE TABLE site_count (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    site        TEXT    NOT NULL CHECK (site <> ''),
    -- The name of the failure handler of their jobs; empty: there is none, or they were counted together.
    handler     TEXT    NOT NULL,
    n           INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, site, handler)
) STRICT, WITHOUT ROWID;
CREATE TABLE request_output (
    dataset TEXT NOT NULL CHECK (dataset <> ''),
    request TEXT NOT NULL REFERENCES request (name),
    PRIMARY KEY (dataset, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_output_of ON request_output (request);
CREATE TABLE "quarantined_node" (
    host       TEXT    NOT NULL CHECK (host <> ''),
    -- Whose workers get no jobs there; empty: everyone's.
    user_name  TEXT    NOT NULL DEFAULT '',
    since      INTEGER NOT NULL,
    -- Then it is tried with one job.
    until      INTEGER NOT NULL,
    set_by     TEXT    NOT NULL CHECK (set_by <> ''),
    reason     TEXT    NOT NULL,
    -- JSON: what was counted.
    evidence   TEXT    CHECK (evidence IS NULL OR json_valid(evidence)),
    PRIMARY KEY (host, user_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_group_by_workflow ON job_group (workflow_id);
CREATE INDEX next_attempt_by_run ON next_attempt (workflow_id, run_id);
CREATE INDEX ignored_failure_by_run ON ignored_failure (workflow_id, run_id);
CREATE INDEX pending_command_by_workflow ON pending_command (workflow_id, answered_at);
CREATE INDEX alert_not_notified ON alert (id) WHERE notified_at IS NULL;
INSERT INTO counter VALUES ('file', 1);
INSERT INTO counter VALUES ('job', 1);
INSERT INTO counter VALUES ('user_data', 1);
INSERT INTO server_epoch VALUES (1, 0, NULL, NULL);
INSERT INTO sqlite_sequence VALUES ('allocation', 0);
INSERT INTO sqlite_sequence VALUES ('worker', 0);
