"""Jobs with their secret values hidden: as workers published them, and as the app says."""

from yaoki.app import Yaoki
from yaoki.core.job import Job


def hidden(client: Yaoki, job: Job) -> Job:
    """The job with *** in place of what its type calls secret."""
    published = client.definitions().get(job.type)
    own = client.types.get(job.type)
    secret = {*(published.secret if published else ()), *(own.secret if own else ())}
    return job.redacted(sorted(secret))
