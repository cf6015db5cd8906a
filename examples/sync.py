"""Copying from a service that fails now and then: retried, never too early, written once."""

import itertools
import sqlite3
from contextlib import closing

import yaoki
from yaoki import JobContext, RetryAfter, RetryPolicy, Yaoki

app = Yaoki("sqlite:///example-sync.db")

PAGES = 6
answers = itertools.cycle(["time-out", "ok", "too many requests", "ok"])


@app.job(
    "sync-page",
    retry=RetryPolicy(
        max_attempts=8,
        backoff=yaoki.exponential(first=0.1, cap=1),
        retry_on=yaoki.transient,  # network errors are retried,
        give_up_on=Exception,  # and mistakes of our own are not
    ),
)
def sync_page(ctx: JobContext, page: int) -> int:
    orders = fetch(page)  # the slow part, before the transaction
    with ctx.transaction() as tx:  # the rows, the next page and the completion: one commit
        tx.executemany("INSERT INTO orders (id, page) VALUES (?, ?)", [(id, page) for id in orders])
        if page < PAGES:
            sync_page.enqueue(page=page + 1)
    return len(orders)


def fetch(page: int) -> list[int]:
    """Stands for an HTTP client."""
    match next(answers):
        case "time-out":
            raise TimeoutError("the service did not answer")
        case "too many requests":
            raise RetryAfter(0.2, "429 too many requests")
    return [page * 100 + number for number in range(10)]


def main() -> None:
    app.migrate()
    with closing(sqlite3.connect("example-sync.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, page INTEGER)")
        sync_page.enqueue(page=1)
        app.run_worker(until_empty=True)
        [(orders,)] = database.execute("SELECT count(*) FROM orders")
    failures = sum(len(job.errors) for job in app.jobs(type="sync-page"))
    print(f"{orders} orders from {PAGES} pages are here, after {failures} failed attempts")


if __name__ == "__main__":
    main()
