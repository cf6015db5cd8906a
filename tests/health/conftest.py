"""What the tests of health start from: an app on each database, and workers on threads."""

from tests.worker.support_workers import release, start_worker

__all__ = ["release", "start_worker"]
