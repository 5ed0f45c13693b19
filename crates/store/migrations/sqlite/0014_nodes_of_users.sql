-- A node that fails jobs is set aside for the workers of one user. With an empty user it is set aside for all workers: by an
-- operator, or where the server shares blame.

ALTER TABLE node_aside RENAME TO node_aside_of_all;

CREATE TABLE node_aside (
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

INSERT INTO node_aside (host, user_name, since, until, set_by, reason, evidence)
SELECT host, '', since, until, set_by, reason, evidence FROM node_aside_of_all;
DROP TABLE node_aside_of_all;
