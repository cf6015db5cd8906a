"""What a handler says through the standard library's logging: it is named, and may be kept."""

import logging

from yaoki.jobtypes.context import running


def name_the_job(record: logging.LogRecord) -> bool:
    """Write on a record in which attempt it was made, where it does not say so itself."""
    context = running()
    if context is not None and not hasattr(record, "job"):
        job = context.job
        record.job, record.type, record.attempt = job.id, job.type, job.attempt
        record.worker = job.worker_id
    return True


class JobLogHandler(logging.Handler):
    """Gives what is logged inside an attempt to its `ctx.log`; whatever else is not its concern.

    Add it to the root logger, or to the loggers whose lines are to be kept with jobs. Records of
    yaoki's own loggers are left out. Inside an attempt is what runs in its thread or task, and in
    tasks that it began; not in threads that it began.
    """

    def emit(self, record: logging.LogRecord) -> None:
        context = running()
        if context is None or record.name.partition(".")[0] == "yaoki":
            return
        try:
            context.log(self.format(record), _level(record.levelno))
        except Exception:
            self.handleError(record)


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
