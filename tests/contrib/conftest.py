"""What the tests of other people's tools start from: an app, and workers on threads."""

from tests.worker.support_workers import app, release, start_worker

__all__ = ["app", "release", "start_worker"]
