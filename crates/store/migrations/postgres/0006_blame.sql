-- Failures in the order in which they were noted, and attempts by site. The comments are in the file of the same name for
-- SQLite.

ALTER TABLE failure ADD COLUMN seq BIGINT CHECK (seq >= 1);
CREATE UNIQUE INDEX failure_noted ON failure (workflow_id, seq) WHERE seq IS NOT NULL;

CREATE TABLE site_count (
    workflow_id BIGINT NOT NULL REFERENCES workflow (id),
    site        TEXT   NOT NULL CHECK (site <> ''),
    n           BIGINT NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, site)
);
