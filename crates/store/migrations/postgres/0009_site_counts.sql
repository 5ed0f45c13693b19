-- Attempts at sites by what their jobs are for. The comments are in the file of the same name for SQLite.

ALTER TABLE site_count RENAME TO site_count_together;
ALTER TABLE site_count_together RENAME CONSTRAINT site_count_pkey TO site_count_together_pkey;

CREATE TABLE site_count (
    workflow_id BIGINT NOT NULL REFERENCES workflow (id),
    site        TEXT   NOT NULL CHECK (site <> ''),
    handler     TEXT   NOT NULL,
    n           BIGINT NOT NULL CHECK (n >= 0),
    PRIMARY KEY (workflow_id, site, handler)
);

INSERT INTO site_count (workflow_id, site, handler, n) SELECT workflow_id, site, '', n FROM site_count_together;
DROP TABLE site_count_together;
