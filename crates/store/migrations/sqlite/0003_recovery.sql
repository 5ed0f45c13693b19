-- What is made of failures: of what sort each was, which are alike, what the next attempt brings along, and what people and
-- agents decided about them.

-- JSON: how the recovery script ended that was owed before the attempt.
ALTER TABLE result ADD COLUMN recovered TEXT;

-- Beside the result of an attempt that ended badly. No columns of result: most attempts end well.
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
    last_words  TEXT,
    -- What happens to the job after it, and why.
    next        TEXT    NOT NULL CHECK (next IN ('retry', 'excused', 'pending_failed', 'final')),
    why         TEXT,
    PRIMARY KEY (job_id, run_id, attempt_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX failure_alike ON failure (workflow_id, run_id, signature);

-- What the attempts of a job left to the next one. Holds for its run only.
CREATE TABLE carried (
    job_id      INTEGER NOT NULL PRIMARY KEY REFERENCES job (id),
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    -- It is ready, and nobody may claim it earlier.
    not_before  INTEGER,
    -- JSON: the script that is owed, the attempt that failed and how, how long it may take.
    recovery    TEXT    CHECK (recovery IS NULL OR json_valid(recovery)),
    -- Attempts of this run that count for no rule.
    excused     INTEGER NOT NULL CHECK (excused >= 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX carried_in ON carried (workflow_id, run_id);

-- The attempt has failed, and those that wait for its job are to go on as if it had not.
CREATE TABLE ignored (
    job_id      INTEGER NOT NULL PRIMARY KEY REFERENCES job (id),
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    run_id      INTEGER NOT NULL CHECK (run_id >= 1),
    attempt_id  INTEGER NOT NULL CHECK (attempt_id >= 1)
) STRICT, WITHOUT ROWID;

CREATE INDEX ignored_in ON ignored (workflow_id, run_id);

-- What somebody decided about a failure: a person or an agent.
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
    verdict     TEXT    NOT NULL CHECK (verdict IN ('retry', 'fail', 'ignore', 'change')),
    -- From 0 to 1, where whoever decided says so.
    confidence  REAL    CHECK (confidence BETWEEN 0 AND 1),
    reason      TEXT    NOT NULL,
    -- JSON: lines of the log that speak for it.
    evidence    TEXT    CHECK (evidence IS NULL OR json_valid(evidence)),
    -- JSON: what the job is to ask for from then on, where that changes.
    changes     TEXT    CHECK (changes IS NULL OR json_valid(changes)),
    -- proposed: waits for a person.
    state       TEXT    NOT NULL CHECK (state IN ('proposed', 'done', 'declined')),
    settled_at  INTEGER,
    settled_by  TEXT
) STRICT;

CREATE INDEX decision_on ON decision (job_id);
CREATE INDEX decision_in ON decision (workflow_id);

-- A change that somebody made to a job that waits or has failed, with what was before.
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
) STRICT;

CREATE INDEX revision_of ON revision (job_id);
CREATE INDEX revision_in ON revision (workflow_id, batch);

-- What somebody wants of whoever runs the workflow at the moment, who alone may change where its jobs stand.
CREATE TABLE wish (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    made_at     INTEGER NOT NULL,
    made_by     TEXT    NOT NULL CHECK (made_by <> ''),
    -- JSON: what is wanted, and what came of it.
    wanted      TEXT    NOT NULL CHECK (json_valid(wanted)),
    answered_at INTEGER,
    answer      TEXT    CHECK (answer IS NULL OR json_valid(answer))
) STRICT;

CREATE INDEX wish_in ON wish (workflow_id, answered_at);

-- A node that fails jobs which others do not gets none for a while.
CREATE TABLE node_aside (
    host       TEXT    NOT NULL PRIMARY KEY CHECK (host <> ''),
    since      INTEGER NOT NULL,
    -- Then it is tried with one job.
    until      INTEGER NOT NULL,
    set_by     TEXT    NOT NULL CHECK (set_by <> ''),
    reason     TEXT    NOT NULL,
    -- JSON: what was counted.
    evidence   TEXT    CHECK (evidence IS NULL OR json_valid(evidence))
) STRICT, WITHOUT ROWID;
