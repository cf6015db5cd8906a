"""yaoki, but for the patience that a supervisor has with processes that do not answer."""

from yaoki.cli.main import main
from yaoki.supervisor import keeper, process, supervisor

process.SILENT_AFTER = 1.5
keeper.LOST_AFTER = 3.0
keeper.OVERTIME = 1_000_000
supervisor.KILL_AFTER_GRACE = 0.5
supervisor.SLOW_TO_BEGIN = 0.2

if __name__ == "__main__":
    main()
