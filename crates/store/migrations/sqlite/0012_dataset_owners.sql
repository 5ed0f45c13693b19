-- Which request writes which dataset, so that no two write the same one; and whose datasets are.

CREATE TABLE request_output (
    dataset TEXT NOT NULL CHECK (dataset <> ''),
    request TEXT NOT NULL REFERENCES request (name),
    PRIMARY KEY (dataset, request)
) STRICT, WITHOUT ROWID;

CREATE INDEX request_output_of ON request_output (request);

INSERT INTO request_output (dataset, request)
SELECT DISTINCT CAST(d.value AS TEXT), r.name FROM request r, json_each(r.document, '$.output_datasets') d
WHERE d.value <> '';

-- NULL: not known, from before owners were kept; only operators change these.
ALTER TABLE dataset ADD COLUMN owner TEXT;

UPDATE dataset SET owner = (
    SELECT r.requestor FROM request_output o JOIN request r ON r.name = o.request
    WHERE o.dataset = dataset.name ORDER BY r.created_at, r.name LIMIT 1
);
