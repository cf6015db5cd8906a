"""What each use of a file says: python -m tests.store.sqlite.try_everything URL."""

import sys
from collections.abc import Callable

from yaoki import StoreError, Yaoki


def main(url: str) -> None:
    app = Yaoki(url)

    @app.job("mail")
    def mail() -> None: ...

    uses: dict[str, Callable[[], object]] = {
        "enqueue": mail.enqueue,
        "again": mail.enqueue,
        "worker": lambda: app.run_worker(until_empty=True),
        "migrate": app.migrate,
        "read": app.jobs,
    }
    for name, use in uses.items():
        try:
            use()
            print(name, "went well", flush=True)
        except StoreError as error:
            print(name, type(error).__name__, ascii(str(error)), flush=True)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])
