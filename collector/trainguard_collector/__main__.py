"""The command: ``python -m trainguard_collector [options] -- command``."""

import argparse
import os
import sys
from typing import Optional

from trainguard_collector.hangs.variables import set_variables
from trainguard_collector.names import identify, is_first_process_of_node, with_torchrun
from trainguard_collector.settings import INTERVALS_MS, SettingError, Settings, read_settings
from trainguard_collector.spawn import MARK
from trainguard_collector.wrap import run


def main() -> int:
    """Run the command line; return the command's exit code, or 2 for options that cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m trainguard_collector",
        description="Run a command and sample the system metrics of its node while it runs, for TrainGuard.",
        epilog="Without an output the command runs alone.",
    )
    parser.add_argument("--output", help="s3://bucket/prefix or a folder; by default TRAINGUARD_OUTPUT")
    parser.add_argument("--job", help="name of the job; by default that of SageMaker, AWS Batch, Slurm, Kubernetes, …")
    parser.add_argument("--node", help="name of the node; by default likewise, or the host's name")
    parser.add_argument("--interval-ms", type=int, choices=INTERVALS_MS, help="by default 500")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command with its arguments")
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("the command is missing: put it after --")
    given = {"TRAINGUARD_JOB": options.job, "TRAINGUARD_NODE": options.node}
    known = with_torchrun(os.environ, command)
    environment = {**known, **{name: value for name, value in given.items() if value}}
    settings: Optional[Settings] = None
    try:
        if MARK not in environment:
            identity = identify(environment)
            settings = read_settings(environment, identity, output=options.output, interval_ms=options.interval_ms)
    except SettingError as fault:
        if options.output or options.interval_ms:
            parser.error(str(fault))
        sys.stderr.write(f"trainguard-collector: not started: {fault}\n")
    if settings is not None:
        set_variables(os.environ, settings)
    if not is_first_process_of_node(environment):
        settings = None
    if settings is not None:
        os.environ[MARK] = str(os.getpid())
    return run(command, settings)


if __name__ == "__main__":
    sys.exit(main())
