"""What every test of the worker starts from: an app, and workers on threads."""

from tests.worker.support_effects import noted
from tests.worker.support_workers import app, release, start_worker

__all__ = ["app", "noted", "release", "start_worker"]
