"""An app whose handlers do nothing: on a thread, and in processes that import this module."""

from yaoki import Yaoki

app = Yaoki("sqlite:///:memory:")  # the workload gives it a database


@app.job("on-a-thread")
def on_a_thread(n: int, to: str) -> None: ...


@app.job("isolated", isolation="process")
def isolated(n: int, to: str) -> None: ...


@app.job("isolated-async", isolation="process")
async def isolated_async(n: int, to: str) -> None: ...
