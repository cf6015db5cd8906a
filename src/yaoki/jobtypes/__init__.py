"""Job types: names for functions, and everything said about them."""

from yaoki.jobtypes.context import HandlerTransaction, JobContext, running
from yaoki.jobtypes.hooks import Hooks
from yaoki.jobtypes.job_set import JobSet
from yaoki.jobtypes.job_type import AnyJobType, JobType, Prepared
from yaoki.jobtypes.options import Options

__all__ = [
    "AnyJobType",
    "HandlerTransaction",
    "Hooks",
    "JobContext",
    "JobSet",
    "JobType",
    "Options",
    "Prepared",
    "running",
]
