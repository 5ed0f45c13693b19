-- Where workers are and jobs may run, how many of some jobs run at once, and units: numbered groups of jobs that elect a
-- site once and are over as a whole.

-- NULL: at no site, so that it gets nothing that has to do with sites.
ALTER TABLE worker ADD COLUMN site TEXT CHECK (site <> '');
UPDATE worker SET site = 'local' WHERE kind IN ('local', 'remote');

-- JSON: a list of names; NULL: anywhere.
ALTER TABLE job_kind ADD COLUMN sites TEXT CHECK (sites IS NULL OR json_valid(sites));
-- The limit of the workflow that its jobs count for.
ALTER TABLE job_kind ADD COLUMN limit_name TEXT CHECK (limit_name <> '');
-- Where a job of it completes is where its unit is.
ALTER TABLE job_kind ADD COLUMN elects INTEGER NOT NULL DEFAULT 0 CHECK (elects IN (0, 1));

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

-- Which jobs a unit has: rows of ids, because they are usually made one after the other. Deleted jobs are not cut out.
CREATE TABLE unit_jobs (
    workflow_id  INTEGER NOT NULL REFERENCES workflow (id),
    first_job_id INTEGER NOT NULL CHECK (first_job_id >= 1),
    job_count    INTEGER NOT NULL CHECK (job_count >= 1),
    number       INTEGER NOT NULL CHECK (number >= 0),
    PRIMARY KEY (workflow_id, first_job_id)
) STRICT, WITHOUT ROWID;

-- How many units stand how, so that nobody has to count them.
CREATE TABLE unit_count (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    status      TEXT    NOT NULL,
    n           INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, status)
) STRICT, WITHOUT ROWID;
