"""500 welcome mails after a bulk sign-up, with a progress bar."""

import random
import threading
import time

import yaoki
from yaoki import RetryPolicy, Yaoki

app = Yaoki("sqlite:///example-mails.db")

SIGNED_UP = [f"customer-{number}@example.com" for number in range(500)]


@app.job(
    "welcome-mail",
    retry=RetryPolicy(max_attempts=10, backoff=yaoki.exponential(first=0.2, cap=2)),
    idempotency_key="welcome-{to}",
)
def welcome_mail(to: str) -> None:
    time.sleep(0.01)  # your mail library goes here
    if random.random() < 0.05:
        raise ConnectionError("421 too busy, try again later")


def main() -> None:
    jobs = welcome_mail.enqueue_many({"to": address} for address in SIGNED_UP)
    again = welcome_mail.enqueue(to=SIGNED_UP[0])  # the sign-up form was sent twice
    print(f"{len(jobs)} mails are to be sent; the second request made none: {not again.created}")

    worker = app.worker(concurrency=20, until_empty=True)
    working = threading.Thread(target=worker.run)
    working.start()
    while working.is_alive():
        show(open_mails())
        working.join(0.2)
    show(open_mails())

    sent = [app.get(job) for job in jobs]
    print(f"\nsent: {sum(job.status == 'completed' for job in sent)}")
    print(f"not at the first attempt: {sum(job.attempt > 1 for job in sent)}")


def open_mails() -> int:
    return sum(queue.due + queue.delayed + queue.running for queue in app.queues())


def show(left: int) -> None:
    done = 1 - left / len(SIGNED_UP)
    print(f"\r[{'#' * round(40 * done):40}] {done:4.0%}", end="", flush=True)


if __name__ == "__main__":
    main()
