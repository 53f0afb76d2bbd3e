"""PyTorch Lightning: ``metrics.csv`` of its CSVLogger, event files of its TensorBoardLogger."""

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from tests.verdicts.recorded_runs.recorders import nets, tasks
from tests.verdicts.recorded_runs.recorders.loop import DENSE, mlp
from tests.verdicts.recorded_runs.recorders.tasks import Task

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Setup:
    """What is trained, how, and what is recorded."""

    task: Callable[[], Task] = tasks.digits
    model: Callable[[], nn.Module] = DENSE
    optimizer: str = "Adam"
    rate: float = 2e-3
    epochs: int = 20
    batch: int = 64
    board: bool = False
    classes: bool = True
    on_step: bool = True
    monitor: bool = False
    sign: float = 1.0
    schedule: Callable[[Any], Any] | None = None
    nan_after: int | None = None
    sittings: int = 1
    trainer: Mapping[str, Any] | None = None


class Module(lightning.LightningModule):
    """Logs losses and scores under the names of Lightning's examples."""

    def __init__(self, how: Setup) -> None:
        super().__init__()
        self.how, self.model = how, how.model()

    def _loss(self, batch: list[torch.Tensor], stage: str) -> torch.Tensor:
        out = self.model(batch[0])
        if not self.how.classes:
            loss = functional.mse_loss(out.squeeze(-1), batch[1])
        else:
            loss = functional.cross_entropy(out, batch[1])
            score = (out.argmax(1) == batch[1]).float().mean()
            self.log(f"{stage}_acc", score, on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        loss = self.how.sign * self._loss(batch, "train")
        if self.how.nan_after is not None and self.global_step >= self.how.nan_after:
            loss = loss * float("nan")
        self.log("train_loss", loss, on_step=self.how.on_step, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        self.log("val_loss", self._loss(batch, "val"))

    def configure_optimizers(self) -> Any:
        made = getattr(torch.optim, self.how.optimizer)(self.parameters(), lr=self.how.rate)
        if self.how.schedule is None:
            return made
        return {"optimizer": made, "lr_scheduler": {"scheduler": self.how.schedule(made), "interval": "step"}}


class Adversarial(lightning.LightningModule):
    """The GAN of Lightning's examples, optimised by hand, with its names."""

    def __init__(self, rates: tuple[float, float]) -> None:
        super().__init__()
        self.automatic_optimization, self.rates = False, rates
        self.maker, self.judge = mlp(16, 64, 64)(), mlp(64, 64, 1)()

    def training_step(self, batch: list[torch.Tensor], _index: int) -> None:
        of_maker, of_judge = self.optimizers()
        made = self.maker(torch.randn(len(batch[0]), 16)).sigmoid()
        fooled = functional.softplus(-self.judge(made)).mean()
        of_maker.zero_grad()
        self.manual_backward(fooled)
        of_maker.step()
        wrong = functional.softplus(self.judge(made.detach())).mean()
        loss = (functional.softplus(-self.judge(batch[0])).mean() + wrong) / 2
        of_judge.zero_grad()
        self.manual_backward(loss)
        of_judge.step()
        self.log_dict({"g_loss": fooled, "d_loss": loss})

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        parts = zip((self.maker, self.judge), self.rates, strict=True)
        return [torch.optim.Adam(part.parameters(), rate, betas=(0.5, 0.999)) for part, rate in parts]


def record(how: Setup, folder: Path) -> None:
    """Train the module, twice where it has two sittings, the second from the first one's checkpoint."""
    torch.manual_seed(0)
    task = Task(*map(torch.from_numpy, how.task()))
    loaders = [
        DataLoader(TensorDataset(task.x, task.y), how.batch, shuffle=True),
        DataLoader(TensorDataset(task.vx, task.vy), 256),
    ]
    checkpoint = None
    for sitting in range(how.sittings):
        trainer = _trainer(how, folder, how.epochs * (sitting + 1))
        trainer.fit(Module(how), *loaders, ckpt_path=checkpoint)
        checkpoint = folder.parent / "lightning.ckpt"
        trainer.save_checkpoint(checkpoint)
    checkpoint.unlink(missing_ok=True)


def _trainer(how: Setup, folder: Path, epochs: int) -> lightning.Trainer:
    kind = TensorBoardLogger if how.board else CSVLogger
    settings = {"log_every_n_steps": 5, "max_epochs": epochs} | dict(how.trainer or {})
    return lightning.Trainer(
        accelerator="cpu",
        logger=kind(str(folder), name="lightning_logs", version=0),
        callbacks=[LearningRateMonitor()] if how.monitor else [],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def adversarial(rates: tuple[float, float], folder: Path) -> None:
    torch.manual_seed(0)
    task = tasks.digits()
    loader = DataLoader(TensorDataset(torch.from_numpy(task.x), torch.from_numpy(task.y)), 64, shuffle=True)
    _trainer(Setup(trainer={"log_every_n_steps": 10}), folder, 60).fit(Adversarial(rates), loader)


PLAIN, BOARD = Setup(), Setup(board=True, monitor=True)
ERRORS = Setup(tasks.surface, mlp(8, 64, 1), classes=False)
SETUPS: Mapping[str, Setup] = {
    "lightning-digits": PLAIN,
    "lightning-digits-epochs": replace(PLAIN, on_step=False),
    "lightning-digits-accumulated": replace(PLAIN, trainer={"accumulate_grad_batches": 4, "log_every_n_steps": 2}),
    "lightning-digits-evaluated-within": replace(
        PLAIN, epochs=6, trainer={"val_check_interval": 0.25, "log_every_n_steps": 1}
    ),
    "lightning-digits-resumed": replace(PLAIN, epochs=8, sittings=2, board=True),
    "lightning-digits-one-cycle": replace(
        PLAIN, monitor=True, optimizer="SGD", schedule=lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=401)
    ),
    "lightning-regression": ERRORS,
    "lightning-fast-run": replace(PLAIN, epochs=1, trainer={"limit_train_batches": 4, "log_every_n_steps": 1}),
    "lightning-board-digits": BOARD,
    "lightning-board-batch-norm": replace(BOARD, model=partial(nets.batch_norm, 0.1), batch=16, epochs=12),
    "lightning-digits-rate-30": replace(PLAIN, optimizer="SGD", rate=30.0),
    "lightning-digits-adam-rate-3": replace(BOARD, rate=3.0),
    "lightning-digits-rate-0": replace(PLAIN, rate=0.0, monitor=True),
    "lightning-digits-labels-shuffled": replace(PLAIN, task=lambda: tasks.shuffled(tasks.digits()), epochs=12),
    "lightning-digits-by-heart": replace(
        PLAIN, task=lambda: tasks.few_digits(150), model=mlp(64, 256, 256, 10), batch=16, epochs=60, on_step=False
    ),
    "lightning-digits-dead-relu": replace(BOARD, model=nets.dead_relu),
    "lightning-digits-wrong-sign": replace(PLAIN, sign=-1.0),
    "lightning-digits-nan": replace(PLAIN, nan_after=300),
    "lightning-regression-raw": replace(ERRORS, task=tasks.raw_diabetes, model=mlp(10, 64, 1), optimizer="SGD"),
    "lightning-digits-deep-sigmoids": replace(PLAIN, model=nets.deep_sigmoids, optimizer="SGD", on_step=False),
}
RUNS: dict[str, Callable[[Path], None]] = {name: partial(record, how) for name, how in SETUPS.items()} | {
    "lightning-gan": partial(adversarial, (1e-3, 3e-4)),
    "lightning-gan-discriminator-wins": partial(adversarial, (1e-6, 5e-3)),
}
