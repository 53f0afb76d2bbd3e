"""The command of the node's pod: ``python -m trainguard_collector.kubernetes``."""

import os
import sys

from trainguard_collector.kubernetes.api import Api
from trainguard_collector.kubernetes.devices import SOCKET, allocated_gpus
from trainguard_collector.kubernetes.watch import ALIVE, NodeSampler, namespaces_of, stop_on_signals


def main() -> int:
    """Sample the node's jobs until SIGTERM; return 2 where a variable is missing."""
    missing = [name for name in ("NODE_NAME", "TRAINGUARD_OUTPUT") if not os.environ.get(name)]
    if missing:
        sys.stderr.write(f"trainguard-collector: set {' and '.join(missing)}\n")
        return 2
    stopping = stop_on_signals()
    api, environment = Api.of_pod(os.environ), dict(os.environ)
    socket = environment.get("TRAINGUARD_POD_RESOURCES", SOCKET)
    NodeSampler(
        lambda: api.pods(environment["NODE_NAME"], namespaces_of(environment)),
        lambda: allocated_gpus(socket),
        environment,
    ).run(stopping, ALIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
