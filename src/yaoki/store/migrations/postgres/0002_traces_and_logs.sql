-- The trace that the enqueuer was in: a JSON object of headers as W3C Trace Context names them.
ALTER TABLE yaoki.jobs ADD COLUMN trace text;

-- What a worker says of its own parts, with its last sign of life (JSON).
ALTER TABLE yaoki.workers ADD COLUMN health text;

-- What handlers wrote with ctx.log: a few lines of each attempt, for people.
CREATE TABLE yaoki.logs (
    job_id bigint  NOT NULL,
    lease  bigint  NOT NULL,                                -- the token of the attempt's claim
    line   bigint  NOT NULL,                                -- 1, 2, 3, … in each attempt
    at     bigint  NOT NULL,
    level  text    NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error')),
    text   text    NOT NULL,
    PRIMARY KEY (job_id, lease, line)
);
