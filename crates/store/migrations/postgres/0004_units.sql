-- Sites, limits and units. The comments are in the file of the same name for SQLite.

ALTER TABLE worker ADD COLUMN site TEXT COLLATE "C" CHECK (site <> '');
UPDATE worker SET site = 'local' WHERE kind IN ('local', 'remote');

ALTER TABLE job_kind ADD COLUMN sites TEXT COLLATE "C";
ALTER TABLE job_kind ADD COLUMN limit_name TEXT COLLATE "C" CHECK (limit_name <> '');
ALTER TABLE job_kind ADD COLUMN elects BIGINT NOT NULL DEFAULT 0 CHECK (elects IN (0, 1));

CREATE TABLE unit (
    workflow_id BIGINT NOT NULL,
    number      BIGINT NOT NULL CHECK (number >= 0),
    site        TEXT COLLATE "C" CHECK (site <> ''),
    status      TEXT COLLATE "C" NOT NULL
                CHECK (status IN ('waiting', 'active', 'completed', 'failed', 'canceled')),
    ended_at    BIGINT,
    run_id      BIGINT NOT NULL CHECK (run_id >= 1),
    seq         BIGINT NOT NULL CHECK (seq >= 1),
    PRIMARY KEY (workflow_id, number),
    CHECK ((ended_at IS NULL) = (status IN ('waiting', 'active')))
);

CREATE INDEX unit_changed ON unit (workflow_id, seq);

CREATE TABLE unit_jobs (
    workflow_id  BIGINT NOT NULL,
    first_job_id BIGINT NOT NULL CHECK (first_job_id >= 1),
    job_count    BIGINT NOT NULL CHECK (job_count >= 1),
    number       BIGINT NOT NULL CHECK (number >= 0),
    PRIMARY KEY (workflow_id, first_job_id)
);

CREATE TABLE unit_count (
    workflow_id BIGINT NOT NULL,
    status      TEXT COLLATE "C" NOT NULL,
    n           BIGINT NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, status)
);
