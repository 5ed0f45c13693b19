-- Which request writes which dataset, and whose datasets are. The comments are in the file of the same name for SQLite.

CREATE TABLE request_output (
    dataset TEXT COLLATE "C" NOT NULL CHECK (dataset <> ''),
    request TEXT COLLATE "C" NOT NULL REFERENCES request (name) DEFERRABLE,
    PRIMARY KEY (dataset, request)
);

CREATE INDEX request_output_of ON request_output (request);

INSERT INTO request_output (dataset, request)
SELECT DISTINCT d.value, r.name FROM request r, jsonb_array_elements_text(r.document::jsonb -> 'output_datasets') AS d (value)
WHERE d.value <> '';

ALTER TABLE dataset ADD COLUMN owner TEXT COLLATE "C";

UPDATE dataset SET owner = (
    SELECT r.requestor FROM request_output o JOIN request r ON r.name = o.request
    WHERE o.dataset = dataset.name ORDER BY r.created_at, r.name LIMIT 1
);
