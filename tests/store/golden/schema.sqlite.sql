CREATE INDEX yaoki_jobs_due ON yaoki_jobs (priority, run_at, id) WHERE status = 'pending';

CREATE INDEX yaoki_jobs_failed ON yaoki_jobs (id) WHERE status = 'failed';

CREATE INDEX yaoki_jobs_held ON yaoki_jobs (id) WHERE lease % 2 = 1;

CREATE UNIQUE INDEX yaoki_jobs_key ON yaoki_jobs (idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE INDEX yaoki_jobs_lane ON yaoki_jobs (type, queue, priority, run_at, id)
    WHERE status = 'pending';

CREATE INDEX yaoki_once_done ON yaoki_once (done_at);

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE yaoki_attempts (
    job_id     INTEGER NOT NULL,
    lease      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    outcome    TEXT    NOT NULL
        CHECK (outcome IN ('completed', 'retried', 'failed', 'snoozed', 'released', 'cancelled')),
    worker_id  TEXT,
    claimed_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER NOT NULL,
    error      TEXT,
    traceback  TEXT,
    PRIMARY KEY (job_id, lease)
) WITHOUT ROWID;

CREATE TABLE yaoki_definitions (
    type         TEXT    NOT NULL PRIMARY KEY,
    definition   TEXT    NOT NULL,                          -- JSON
    published_by TEXT    NOT NULL,
    published_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE yaoki_jobs (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,  -- an id is never given twice
    type                TEXT    NOT NULL,
    queue               TEXT    NOT NULL,
    priority            INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    status              TEXT    NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled')),
    payload             TEXT    NOT NULL,
    run_at              INTEGER NOT NULL,
    attempt             INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    max_attempts        INTEGER NOT NULL CHECK (max_attempts >= 1),
    timeout             INTEGER CHECK (timeout > 0),        -- NULL is no limit
    backoff             TEXT,                               -- JSON; written by the claim
    said                INTEGER NOT NULL DEFAULT 0,         -- bits: what the caller chose (core/said.py)
    idempotency_key     TEXT,
    tags                TEXT,                               -- JSON array
    worker_id           TEXT,                               -- a label for people, no authority
    claimed_at          INTEGER,
    started_at          INTEGER,                            -- NULL while claimed ahead
    lease               INTEGER NOT NULL DEFAULT 0,         -- odd exactly while running; only grows
    lease_for           INTEGER,
    lease_expires_at    INTEGER,
    cancel_requested_at INTEGER,
    error               TEXT,
    result              TEXT,                               -- JSON
    progress            TEXT,                               -- JSON
    releases            INTEGER NOT NULL DEFAULT 0,         -- in a row
    snoozes             INTEGER NOT NULL DEFAULT 0,
    rescues             INTEGER NOT NULL DEFAULT 0,
    revision            INTEGER NOT NULL DEFAULT 1,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    finished_at         INTEGER, trace TEXT,
    CHECK ((status = 'running') = (lease % 2 = 1)),
    CHECK ((status = 'running') = (lease_expires_at IS NOT NULL))
);

CREATE TABLE yaoki_logs (
    job_id INTEGER NOT NULL,
    lease  INTEGER NOT NULL,                                -- the token of the attempt's claim
    line   INTEGER NOT NULL,                                -- 1, 2, 3, … in each attempt
    at     INTEGER NOT NULL,
    level  TEXT    NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error')),
    text   TEXT    NOT NULL,
    PRIMARY KEY (job_id, lease, line)
) WITHOUT ROWID;

CREATE TABLE yaoki_migrations (
    number     INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE TABLE yaoki_once (
    scope   TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    done_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE TABLE yaoki_paused (
    kind      TEXT    NOT NULL CHECK (kind IN ('queue', 'type')),
    name      TEXT    NOT NULL,
    paused_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE yaoki_workers (
    worker_id   TEXT    NOT NULL PRIMARY KEY,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    version     TEXT    NOT NULL,
    queues      TEXT,                                       -- JSON array; NULL is every queue
    types       TEXT    NOT NULL,                           -- JSON array
    concurrency INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('working', 'draining')),
    lease_for   INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL
, health TEXT) WITHOUT ROWID;

