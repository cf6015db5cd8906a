"""The app of a worker on a host of its own: `yaoki --app tests.network.served:app worker`."""

import os
from pathlib import Path

from tests.network.program import build

app = build(
    os.environ["NETWORK_URL"], Path(os.environ["NETWORK_LEDGER"]), os.environ["NETWORK_HOST"]
)
