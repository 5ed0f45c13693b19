-- What whoever follows a workflow with units has to know of its attempts without looking at all of them: failures in the order
-- in which they were noted, and how many attempts have ended at each site.

-- Higher than that of all failures of the workflow that were noted before it; NULL: from before there were such numbers.
ALTER TABLE failure ADD COLUMN seq INTEGER CHECK (seq >= 1);
CREATE UNIQUE INDEX failure_noted ON failure (workflow_id, seq) WHERE seq IS NOT NULL;

CREATE TABLE site_count (
    workflow_id INTEGER NOT NULL REFERENCES workflow (id),
    site        TEXT    NOT NULL CHECK (site <> ''),
    n           INTEGER NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, site)
) STRICT, WITHOUT ROWID;
