"""The app that workers are given: `yaoki --app chaos.app:app worker`."""

import os
from pathlib import Path

from chaos.fleet import ISOLATES
from chaos.jobs import build

app = build(
    os.environ["CHAOS_URL"], Path(os.environ["CHAOS_LEDGER"]), isolates=ISOLATES in os.environ
)
