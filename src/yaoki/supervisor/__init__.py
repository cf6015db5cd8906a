"""A process that runs no user code, and looks after those that do."""

from yaoki.supervisor.settings import SupervisorSettings
from yaoki.supervisor.supervisor import Supervisor

__all__ = ["Supervisor", "SupervisorSettings"]
