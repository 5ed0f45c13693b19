-- Requests: what is wished for, how far it is, what is to be done about its outputs; the sites it may use; and a catalog of
-- datasets for whoever has no other.
--
-- States are words, so that a later version can have more of them. Documents are JSON; what is looked for, or changes alone,
-- has a column.

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
    wanted           TEXT    CHECK (wanted IS NULL OR json_valid(wanted)),
    alerted_at       INTEGER,
    -- As it was wished for. Apart from it what is handed on unread, and may be long.
    document         TEXT    NOT NULL CHECK (json_valid(document)),
    payload_config   TEXT    NOT NULL CHECK (json_valid(payload_config))
) STRICT, WITHOUT ROWID;

CREATE INDEX request_by_status ON request (status, priority);
CREATE INDEX request_by_campaign ON request (campaign) WHERE campaign IS NOT NULL;
CREATE INDEX request_by_priority ON request (priority);
CREATE INDEX request_open ON request (name) WHERE status NOT IN ('completed', 'failed', 'aborted');
CREATE INDEX request_next_version ON request (previous_version) WHERE previous_version IS NOT NULL;

-- The audit trail.
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

-- How a request is being carried out; the API calls it a workflow.
CREATE TABLE request_process (
    uuid     TEXT NOT NULL PRIMARY KEY CHECK (uuid <> ''),
    request  TEXT NOT NULL UNIQUE REFERENCES request (name),
    document TEXT NOT NULL CHECK (json_valid(document))
) STRICT, WITHOUT ROWID;

-- One submission to a backend; the API calls it a DAG.
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
    completed_at      INTEGER,
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

-- Work units whose outputs become one block of a dataset.
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
    updated_at      INTEGER NOT NULL,
    UNIQUE (process, dataset, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX request_block_of ON request_block (process, status);
CREATE INDEX request_block_by_status ON request_block (status);

-- What is to be done about outputs in the catalog; each may be done twice without harm.
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

-- Only what stands in the way of something: most steps are done.
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
) STRICT;

CREATE INDEX site_ban_active ON site_ban (site, expires_at) WHERE removed_at IS NULL;
CREATE INDEX site_ban_of_request ON site_ban (request) WHERE request IS NOT NULL;

-- What is configured while the server runs.
CREATE TABLE setting (
    name       TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    value      TEXT    NOT NULL CHECK (json_valid(value)),
    changed_at INTEGER NOT NULL,
    changed_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- What a person should know. `request` is a name only: an alert outlives what it is about.
CREATE TABLE alert (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    kind    TEXT    NOT NULL CHECK (kind <> ''),
    request TEXT,
    message TEXT    NOT NULL,
    detail  TEXT    NOT NULL CHECK (json_valid(detail)),
    at      INTEGER NOT NULL,
    told_at INTEGER
) STRICT;

CREATE INDEX alert_untold ON alert (id) WHERE told_at IS NULL;
CREATE INDEX alert_about ON alert (request, id) WHERE request IS NOT NULL;

-- ---- the catalog ----

CREATE TABLE dataset (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE CHECK (name <> ''),
    created_at INTEGER NOT NULL
) STRICT;

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

-- Holds all that a summary is made of, and is the order in which files are read.
CREATE INDEX dataset_file_of ON dataset_file (dataset_id, id, is_valid, events, size, lumi_count);
CREATE INDEX dataset_file_in ON dataset_file (block_id) WHERE block_id IS NOT NULL;

CREATE TABLE replica (
    dataset_id INTEGER NOT NULL REFERENCES dataset (id),
    file_id    INTEGER NOT NULL REFERENCES dataset_file (id),
    site       TEXT    NOT NULL CHECK (site <> ''),
    path       TEXT    NOT NULL,
    PRIMARY KEY (dataset_id, file_id, site)
) STRICT, WITHOUT ROWID;

-- So many copies of a block or dataset are to be kept at such places.
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
