"""Samples the system metrics of a training job in a process of its own, for TrainGuard.

``python -m trainguard_collector -- python train.py`` does so for any command, `start` from inside a script. The place
where objects are written is ``TRAINGUARD_OUTPUT``, ``s3://bucket/prefix`` or a folder; without it nothing happens.
"""

from trainguard_collector.session import start

__all__ = ["start"]
__version__ = "0.1.0"
