"""The app that the tests give to the program: copied beside its database as `shop`."""

import sys
import time

from yaoki import JobContext, RetryPolicy, Yaoki, fixed

app = Yaoki()


@app.job("mail", queue="mail", secret=("card",))
def mail(to: str, card: str = "") -> None: ...


@app.job("broken", retry=RetryPolicy(max_attempts=2, backoff=fixed(0.05)))
def broken(why: str) -> None:
    raise ValueError(f"{why}\nand a second line \x1b[31m")


@app.job("steps")
def steps(ctx: JobContext, count: int) -> dict[str, int]:
    for done in range(1, count + 1):
        ctx.progress(done, count, f"step {done}")
        time.sleep(0.3)
    return {"steps": count}


@app.job("sleep")
def sleep(seconds: float) -> None:
    print("begun", flush=True)
    time.sleep(seconds)


@app.job("own-waits", retry=RetryPolicy(max_attempts=3, backoff=lambda attempt: attempt * 7))
def own_waits() -> None: ...


print("the shop is imported", file=sys.stdout)
