-- The trace that the enqueuer was in: a JSON object of headers as W3C Trace Context names them.
ALTER TABLE yaoki_jobs ADD COLUMN trace TEXT;

-- What a worker says of its own parts, with its last sign of life (JSON).
ALTER TABLE yaoki_workers ADD COLUMN health TEXT;

-- What handlers wrote with ctx.log: a few lines of each attempt, for people.
CREATE TABLE yaoki_logs (
    job_id INTEGER NOT NULL,
    lease  INTEGER NOT NULL,                                -- the token of the attempt's claim
    line   INTEGER NOT NULL,                                -- 1, 2, 3, … in each attempt
    at     INTEGER NOT NULL,
    level  TEXT    NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error')),
    text   TEXT    NOT NULL,
    PRIMARY KEY (job_id, lease, line)
) WITHOUT ROWID;
