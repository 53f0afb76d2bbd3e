"""The command ``trainguard-agent``, which runs on the cluster."""

import argparse
import logging
import os
import signal
import sys
import threading

from trainguard_collector.agent.carrying_out import Agent
from trainguard_collector.agent.desk import StackDesk
from trainguard_collector.agent.kubernetes import Kubernetes
from trainguard_collector.agent.resources import Platform
from trainguard_collector.agent.slurm import Slurm
from trainguard_collector.kubernetes.api import Api

EVERY_S = 15.0


def main() -> int:
    """Answer the stack's requests until SIGTERM, or once; return 1 where a single run failed."""
    parser = argparse.ArgumentParser(
        prog="trainguard-agent",
        description="Do what a TrainGuard stack asks to workloads and nodes of a cluster whose owners opted in.",
    )
    parser.add_argument("platform", choices=("kubernetes", "slurm"))
    parser.add_argument("--cluster", required=True, help="the cluster's name in job.json and in the role's policy")
    parser.add_argument("--table", required=True, help="name or ARN of the stack's BookkeepingTable")
    parser.add_argument("--stack", default="TrainGuard", help="the stack's name, of its switch and brakes")
    parser.add_argument("--nodes", action="store_true", help="act on nodes with broken GPUs, too")
    parser.add_argument("--namespace", action="append", default=[], help="only this namespace; may be given repeatedly")
    parser.add_argument("--kueue", default="v1beta1", help="version of Kueue's API")
    parser.add_argument("--dry-run", action="store_true", help="answer what would be done, and do nothing")
    parser.add_argument("--once", action="store_true", help="look once, for a timer of systemd or cron")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if options.platform == "slurm":
        platform: Platform = Slurm(with_nodes=options.nodes)
    else:
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):
            parser.error("KUBERNETES_SERVICE_HOST is not set: the agent runs in a pod of the cluster")
        api = Api.of_pod(os.environ)
        platform = Kubernetes(api, options.namespace, with_nodes=options.nodes, kueue=options.kueue)
    desk = StackDesk(options.table, options.stack, options.cluster)
    agent = Agent(desk, platform, desk.clock, dry_run=options.dry_run)
    if options.once:
        return 1 if agent.run_once() else 0
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(EVERY_S):
        agent.run_once()
    return 0


if __name__ == "__main__":
    sys.exit(main())
