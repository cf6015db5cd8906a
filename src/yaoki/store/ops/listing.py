"""Lists of jobs, newest first, a page at a time: the only SQL that is composed."""

from dataclasses import dataclass

from yaoki.core.errors import InvalidOption
from yaoki.core.job import BIGGEST_ID, Job
from yaoki.core.states import Status
from yaoki.store.op import Op, Statement, Steps
from yaoki.store.ops.jobs import with_attempts


class Page(list[Job]):
    """Jobs, and the `cursor` of the page behind them (None on the last one).

    Pages are cut by id: jobs that are made meanwhile shift nothing.
    """

    def __init__(self, jobs: list[Job], cursor: str | None) -> None:
        super().__init__(jobs)
        self.cursor = cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class ListJobs(Op[Page]):
    """Up to `limit` jobs that fit every filter that is given."""

    writes = False
    status: Status | None = None
    queue: str | None = None
    type: str | None = None
    worker_id: str | None = None
    limit: int = 50
    cursor: str | None = None

    def steps(self) -> Steps[Page]:
        filters = {
            "status": self.status,
            "queue": self.queue,
            "type": self.type,
            "worker_id": self.worker_id,
        }
        params = {name: str(value) for name, value in filters.items() if value is not None}
        # The parity is what the index of running jobs is made for.
        running = ["lease % 2 = 1"] if self.status is Status.RUNNING else []
        before = [] if self.cursor is None else ["id < :before"]
        where = " AND ".join([*(f"{name} = :{name}" for name in params), *running, *before])
        text = (
            f"SELECT * FROM yaoki.jobs {'WHERE ' + where if where else ''} "
            "ORDER BY id DESC LIMIT :limit"
        )
        bound = params | {"limit": self.limit + 1, "before": _before(self.cursor)}
        rows = (yield Statement("list_jobs", bound, text=text)).rows
        jobs = yield from with_attempts(rows[: self.limit])
        return Page(jobs, str(jobs[-1].id) if len(rows) > self.limit else None)


def _before(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    is_number = cursor.isascii() and cursor.isdigit() and len(cursor) <= 19
    if not is_number or int(cursor) > BIGGEST_ID:
        raise InvalidOption(f"{cursor[:50]!a} is no cursor; pass the cursor of the page before")
    return int(cursor)
