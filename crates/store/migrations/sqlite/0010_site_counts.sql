-- Attempts that have ended at sites are counted by what their jobs are for: a landing that goes well says nothing about a site
-- where all jobs of the unit fail.

ALTER TABLE site_count RENAME TO site_count_together;

CREATE TABLE site_count (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    site        TEXT    NOT NULL CHECK (site <> ''),
    -- The name of the failure handler of their jobs; empty: there is none, or they were counted together.
    handler     TEXT    NOT NULL,
    n           INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, site, handler)
) STRICT, WITHOUT ROWID;

INSERT INTO site_count (workflow_id, site, handler, n) SELECT workflow_id, site, '', n FROM site_count_together;
DROP TABLE site_count_together;
