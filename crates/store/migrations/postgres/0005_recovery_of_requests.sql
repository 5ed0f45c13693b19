-- Recovery of requests. The comments are in the file of the same name for SQLite.

ALTER TABLE request ADD COLUMN overrides TEXT COLLATE "C";

ALTER TABLE request_run ADD COLUMN cause TEXT COLLATE "C" NOT NULL DEFAULT 'first' CHECK (cause <> '');
ALTER TABLE request_run ADD COLUMN rescues BIGINT NOT NULL DEFAULT 0 CHECK (rescues >= 0);
ALTER TABLE request_run ADD COLUMN paused_at BIGINT;
ALTER TABLE request_run ADD COLUMN silent_since BIGINT;
UPDATE request_run SET cause = 'stop' WHERE parent IS NOT NULL;

ALTER TABLE request_block ADD COLUMN units_expected BIGINT NOT NULL DEFAULT 0 CHECK (units_expected >= 0);
UPDATE request_block SET units_expected = last_unit - first_unit + 1;

CREATE TABLE request_file (
    process   TEXT COLLATE "C" NOT NULL REFERENCES request_process (uuid) DEFERRABLE,
    lfn       TEXT COLLATE "C" NOT NULL CHECK (lfn <> ''),
    state     TEXT COLLATE "C" NOT NULL CHECK (state <> ''),
    round     BIGINT NOT NULL CHECK (round >= 0),
    remainder TEXT COLLATE "C",
    reason    TEXT COLLATE "C",
    PRIMARY KEY (process, lfn)
);

CREATE TABLE request_failure (
    run   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES request_run (uuid) DEFERRABLE,
    tally TEXT COLLATE "C" NOT NULL
);

ALTER TABLE site_ban ADD COLUMN expiry_told_at BIGINT;
