"""Which processes of Python are a training, by their command lines."""

import pytest

from trainguard_collector.autostart import trains


@pytest.mark.parametrize(
    "words",
    [
        "python train.py",
        "/usr/bin/python3.11 -u -X dev /opt/ml/code/train.py --lr 1",
        "python -W ignore -m torch.distributed.run train.py",
        "python -mmy_package.train",
        "python /usr/local/bin/torchrun --nproc-per-node 8 train.py",
        "python -O -m accelerate.commands.launch train.py",
    ],
)
def test_script_or_module_may_be_training(words: str) -> None:
    assert trains(words.split())


@pytest.mark.parametrize(
    "words",
    [
        "python",
        "",
        "python -",
        "python -c print()",
        "python -V",
        "python --version",
        "python -m pip install torch",
        "python /usr/bin/pip3.11 install torch",
        "python setup.py install",
        "python -m trainguard_collector -- python train.py",
        "python /usr/bin/trainguard-collector -- python train.py",
        "python -X",
        "python -m",
    ],
)
def test_tool_or_missing_program_is_no_training(words: str) -> None:
    assert not trains(words.split())
