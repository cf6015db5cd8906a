"""One attempt in the child: it is judged there, so only texts have to come back."""

from yaoki.core.job import Job
from yaoki.core.outcomes import Change
from yaoki.jobtypes import AnyJobType
from yaoki.worker.isolated import memory
from yaoki.worker.isolated.context import IsolatedContext
from yaoki.worker.run import Run


class Attempt(Run):
    """A run whose outcome is known by its number."""

    __slots__ = ("number", "worn")

    context: IsolatedContext

    def __init__(self, number: int, job: Job, kind: AnyJobType, context: IsolatedContext) -> None:
        super().__init__(job, kind, context, marked=True)
        self.number = number
        self.worn = False
        """It ran out of memory: what it left of this process is not to be trusted."""

    def raised(self, error: BaseException) -> Change | None:
        memory.limit(None)  # to be judged takes some, too
        if issubclass(type(error), MemoryError):
            self.worn = True
            limit = self.kind.memory_limit
            if limit is not None and not error.args:
                error.args = (f"it needed more than its memory limit of {limit} MB",)
        return super().raised(error)

    def cancel(self) -> None:
        """On the loop: raise CancelledError in the handler, where it awaits."""
        self.cancelled = True
        if self.task is not None and self.entered:
            self.task.cancel()
