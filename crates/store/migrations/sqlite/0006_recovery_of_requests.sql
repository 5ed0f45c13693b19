-- Recovery of requests: why there is a run, what people have changed about a request, what is done of its input, and what is
-- known of its failures.

-- JSON; NULL: nobody said anything.
ALTER TABLE request ADD COLUMN overrides TEXT CHECK (overrides IS NULL OR json_valid(overrides));

ALTER TABLE request_run ADD COLUMN cause TEXT NOT NULL DEFAULT 'first' CHECK (cause <> '');
-- How many of its round, with this one, went on after failures by themselves.
ALTER TABLE request_run ADD COLUMN rescues INTEGER NOT NULL DEFAULT 0 CHECK (rescues >= 0);
-- Since when nothing new of it begins.
ALTER TABLE request_run ADD COLUMN paused_at INTEGER;
-- Since when its backend does not answer.
ALTER TABLE request_run ADD COLUMN silent_since INTEGER;
-- Until now nothing but stops, and people, had one run go on with another.
UPDATE request_run SET cause = 'stop' WHERE parent IS NOT NULL;

-- So many work units will be in it: fewer than planned once its round is settled.
ALTER TABLE request_block ADD COLUMN units_expected INTEGER NOT NULL DEFAULT 0 CHECK (units_expected >= 0);
UPDATE request_block SET units_expected = last_unit - first_unit + 1;

-- Input files that rounds have touched.
CREATE TABLE request_file (
    process   TEXT    NOT NULL REFERENCES request_process (uuid),
    lfn       TEXT    NOT NULL CHECK (lfn <> ''),
    state     TEXT    NOT NULL CHECK (state <> ''),
    round     INTEGER NOT NULL CHECK (round >= 0),
    -- JSON: what is still to be done of it; NULL: all.
    remainder TEXT    CHECK (remainder IS NULL OR json_valid(remainder)),
    reason    TEXT,
    PRIMARY KEY (process, lfn)
) STRICT, WITHOUT ROWID;

-- What is known of the failed attempts of a run, summed up, as JSON.
CREATE TABLE request_failure (
    run   TEXT NOT NULL PRIMARY KEY REFERENCES request_run (uuid),
    tally TEXT NOT NULL CHECK (json_valid(tally))
) STRICT, WITHOUT ROWID;

-- When people were told that it is over.
ALTER TABLE site_ban ADD COLUMN expiry_told_at INTEGER;
