"""The worker: claims jobs, runs them, records how they ended."""

from yaoki.worker.beside import WorkerBeside
from yaoki.worker.settings import WorkerSettings, new_worker_id, worker_settings
from yaoki.worker.worker import Ending, Worker

__all__ = [
    "Ending",
    "Worker",
    "WorkerBeside",
    "WorkerSettings",
    "new_worker_id",
    "worker_settings",
]
