"""A report that takes a while: a job at once, its progress, its result; one report a month."""

import csv
import threading
import time
from pathlib import Path

from yaoki import JobContext, Yaoki

app = Yaoki("sqlite:///example-report.db")


@app.job("sales-report", title="Sales report", timeout=600, idempotency_key="sales-report-{month}")
def sales_report(ctx: JobContext, month: str, days: int = 30) -> dict[str, object]:
    file = Path(f"example-sales-{month}.csv")
    total = 0
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["day", "sales"])
        for day in range(1, days + 1):
            ctx.progress(day, days, f"{month}-{day:02}")
            time.sleep(0.03)  # a slow query goes here
            total += day * 100
            rows.writerow([f"{month}-{day:02}", day * 100])
    return {"file": str(file), "total": total}


def main() -> None:
    worker = app.worker()
    working = threading.Thread(target=worker.run)
    working.start()

    # In a web application: answer with job.id, and let the browser ask for it now and then.
    job = sales_report.enqueue(month="2027-01")
    asked_again = sales_report.enqueue(month="2027-01")
    print(f"receipt number {job.id}; asked again: {asked_again.id}")
    follow(job.id)

    done = app.wait(job, timeout=60)
    print(f"{done.status}: {done.result}")
    worker.drain()
    working.join()


def follow(job_id: int) -> None:
    while not (job := app.get(job_id)).is_final:
        if job.progress is not None:
            print(f"  {job.progress.fraction:4.0%}  {job.progress.message}")
        time.sleep(0.3)


if __name__ == "__main__":
    main()
