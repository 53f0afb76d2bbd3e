"""One rank of gloo that records: ``python recorded.py KIND``, started by `test_sent`; RANK stands still in STEP."""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

from trainguard_collector.recorder.recorder import Recorder

STEP, RANK = 20, 2


def reads_a_batch() -> None:
    read, _write = os.pipe()
    os.read(read, 1)


def holds_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def is_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


FAULTS = {each.__name__: each for each in (reads_a_batch, holds_a_lock, is_stopped)}


def main(kind: str) -> None:
    recorder = Recorder()
    dist.init_process_group("gloo")
    for step in range(50):
        with recorder.step():
            if step == STEP and dist.get_rank() == RANK:
                FAULTS[kind]()
            dist.all_reduce(torch.ones(64))
    recorder.close()


if __name__ == "__main__":
    main(sys.argv[1])
