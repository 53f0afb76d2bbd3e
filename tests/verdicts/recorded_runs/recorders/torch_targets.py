"""Programs in PyTorch whose loss is no plain distance to the goal: pairs of networks, changing tasks, two sittings."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.tensorboard import SummaryWriter

from tests.verdicts.recorded_runs.recorders import nets, tasks
from tests.verdicts.recorded_runs.recorders.loop import Loop, mlp, train
from tests.verdicts.recorded_runs.recorders.torch_runs import TEXT, _Nothing

IMAGES = torch.from_numpy(tasks.digits().x)


def _batches(steps: int, size: int = 64) -> "list[torch.Tensor]":
    rng = np.random.default_rng(0)
    return [IMAGES[rng.integers(0, len(IMAGES), size)] for _ in range(steps)]


def adversarial(folder: Path, *, rates: tuple[float, float], names: tuple[str, str], steps: int = 1500) -> None:
    """A generator of digits and its discriminator."""
    torch.manual_seed(0)
    maker, judge = mlp(16, 64, 64)(), mlp(64, 64, 1, act=partial(nn.LeakyReLU, 0.2))()
    of_maker = torch.optim.Adam(maker.parameters(), rates[0], betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), rates[1], betas=(0.5, 0.999))
    with SummaryWriter(str(folder)) as writer:
        for step, real in enumerate(_batches(steps)):
            made = maker(torch.randn(len(real), 16)).sigmoid()
            loss = functional.softplus(-judge(real)).mean() + functional.softplus(judge(made.detach())).mean()
            of_judge.zero_grad()
            loss.backward()
            of_judge.step()
            fooled = functional.softplus(-judge(made)).mean()
            of_maker.zero_grad()
            fooled.backward()
            of_maker.step()
            if step % 10 == 0:
                writer.add_scalar(names[0], float(fooled.detach()), step)
                writer.add_scalar(names[1], float(loss.detach()), step)


def wasserstein(folder: Path) -> None:
    """The critic's estimate and the generator's loss change their sign and size freely."""
    torch.manual_seed(0)
    maker, critic = mlp(16, 64, 64)(), mlp(64, 64, 1)()
    of_maker = torch.optim.RMSprop(maker.parameters(), 5e-4)
    of_critic = torch.optim.RMSprop(critic.parameters(), 5e-4)
    with SummaryWriter(str(folder)) as writer:
        for step, real in enumerate(_batches(2000)):
            made = maker(torch.randn(len(real), 16)).sigmoid()
            loss = critic(made.detach()).mean() - critic(real).mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            with torch.no_grad():
                for weight in critic.parameters():
                    weight.clamp_(-0.05, 0.05)
            if step % 5:
                continue
            fooled = -critic(made).mean()
            of_maker.zero_grad()
            fooled.backward()
            of_maker.step()
            if step % 20 == 0:
                writer.add_scalar("critic_loss", float(loss.detach()), step)
                writer.add_scalar("generator_loss", float(fooled.detach()), step)


def autoencoder(folder: Path, *, weight: Callable[[int], float], rate: float = 2e-3, epochs: int = 40) -> None:
    """A variational autoencoder; ``weight`` of the divergence by epoch."""
    torch.manual_seed(0)
    encode, decode = mlp(64, 64, 16)(), mlp(8, 64, 64)()
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], rate)
    with SummaryWriter(str(folder)) as writer:
        for epoch in range(epochs):
            sums = []
            for x in IMAGES.split(64):
                mean, spread = encode(x).chunk(2, 1)
                code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
                built = functional.mse_loss(decode(code), x, reduction="none").sum(1).mean()
                divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
                loss = built + weight(epoch) * divergence
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sums.append([float(part.detach()) for part in (loss, built, divergence)])
            for name, value in zip(("loss", "recon_loss", "kl_loss"), np.mean(sums, 0), strict=True):
                writer.add_scalar(f"train/{name}", value, epoch)


def contrastive(folder: Path, *, rate: float, detached: bool = False, steps: int = 800) -> None:
    """Two noisy views of an image are to be found among the others of the batch: ln 128 is a guess."""
    torch.manual_seed(0)
    model = mlp(64, 64, 16)()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    with SummaryWriter(str(folder)) as writer:
        for step, x in enumerate(_batches(steps, 128)):
            views = [functional.normalize(model(x + 0.25 * torch.randn_like(x)), dim=1) for _ in range(2)]
            if detached:
                views = [view.detach() * 0.0 + 0.25 + 0.0 * view for view in views]
            loss = functional.cross_entropy(views[0] @ views[1].T / 0.2, torch.arange(len(x)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                writer.add_scalar("train/contrastive_loss", float(loss.detach()), step)


def triplets(folder: Path) -> None:
    """A margin loss that ends at exactly 0, for good: all triplets are apart."""
    torch.manual_seed(0)
    task = tasks.tumours()
    x, y = torch.from_numpy(task.x), torch.from_numpy(task.y)
    sides = [x[y == side] for side in (0, 1)]
    easy = [side[(side.mean(1) < 0.1) if mean else (side.mean(1) > 0.4)] for mean, side in enumerate(sides)]
    model = mlp(30, 32, 8)()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rng = np.random.default_rng(0)
    with SummaryWriter(str(folder)) as writer:
        for step in range(400):
            anchor, other = (easy[0][rng.integers(0, len(easy[0]), 32)] for _ in range(2))
            wrong = easy[1][rng.integers(0, len(easy[1]), 32)]
            loss = functional.triplet_margin_loss(model(anchor), model(other), model(wrong), margin=0.5)
            far = (model(anchor) - model(wrong)).norm(dim=1) > (model(anchor) - model(other)).norm(dim=1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 4 == 0:
                writer.add_scalar("train/triplet_loss", float(loss.detach()), step)
                writer.add_scalar("train/triplet_accuracy", float(far.float().mean()), step)


def stages(folder: Path, *, tasks_of: "list[Callable[[], tasks.Task]]", how: Loop) -> None:
    """A curriculum: the same model on tasks that become harder; its loss rises at each change."""
    model = how.model()
    begin = 0
    with SummaryWriter(str(folder)) as writer:
        for number, task in enumerate(tasks_of):
            model = train(writer, replace(how, task=task, seed=number), model, begin=begin)
            begin += how.epochs * -(-len(task().x) // how.batch)


def two_sittings(folder: Path, *, rate: float = 2e-3) -> None:
    """A run is resumed from its checkpoint 40 steps before the end of the first sitting, in a second event file."""
    with SummaryWriter(str(folder)) as writer:
        model = train(writer, replace(TEXT, epochs=3))
    with SummaryWriter(str(folder), filename_suffix=".resumed") as writer:
        train(writer, replace(TEXT, epochs=3, rate=rate, seed=1), model, begin=150)


def distilled(folder: Path) -> None:
    """A small model learns the outputs of a large one."""
    large = train(_Nothing(), Loop(model=mlp(64, 128, 10), optimizer="Adam", rate=3e-3))

    def distance(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.kl_div(out.log_softmax(1), y.softmax(1), reduction="batchmean")

    def task() -> tasks.Task:
        plain = tasks.digits()
        with torch.no_grad():
            return plain._replace(
                y=large(torch.from_numpy(plain.x)).numpy(), vy=large(torch.from_numpy(plain.vx)).numpy()
            )

    how = Loop(
        task=task,
        model=mlp(64, 12, 10),
        criterion=distance,
        score=None,
        optimizer="Adam",
        rate=3e-3,
        names=("train/distill_loss", "", "val/distill_loss", ""),
    )
    with SummaryWriter(str(folder)) as writer:
        train(writer, how)


def fine_tune(folder: Path) -> None:
    """A model at its optimum is trained further at a small rate; only its loss is recorded."""
    model = train(_Nothing(), Loop(task=tasks.blobs, model=mlp(6, 32, 5), optimizer="Adam", rate=3e-3, epochs=60))
    how = Loop(task=tasks.blobs, optimizer="Adam", rate=2e-5, epochs=6, every=1, score=None, evaluate=0, rates=True)
    with SummaryWriter(str(folder)) as writer:
        train(writer, how, model)


def side_by_side(folder: Path, *, rate: float) -> None:
    """Training and validation in one chart, by ``add_scalars``: each in a folder of its own."""

    class Pairs:
        def __init__(self, writer: SummaryWriter) -> None:
            self.writer = writer

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            part, name = tag.split("/")
            self.writer.add_scalars(name, {part: scalar_value}, global_step)

    with SummaryWriter(str(folder)) as writer:
        train(Pairs(writer), Loop(rate=rate, epochs=25))


def harder(noise: float) -> Callable[[], tasks.Task]:
    """Return what makes clouds of points with so much overlap."""
    return partial(tasks.blobs, noise=noise)


CLOUDS = Loop(model=mlp(6, 32, 5), optimizer="Adam", rate=3e-3, epochs=8, every=2, score=None, evaluate=0)
RUNS: dict[str, Callable[[Path], None]] = {
    "torch-gan": partial(adversarial, rates=(1e-3, 1e-3), names=("loss/G", "loss/D")),
    "torch-gan-steady": partial(adversarial, rates=(2e-3, 2e-4), names=("errG", "errD")),
    "torch-gan-discriminator-wins": partial(adversarial, rates=(1e-6, 5e-3), names=("G_loss", "D_loss")),
    "torch-gan-wasserstein": wasserstein,
    "torch-vae": partial(autoencoder, weight=lambda _: 0.05),
    "torch-vae-annealed": partial(autoencoder, weight=lambda epoch: min(1.0, epoch / 20)),
    "torch-vae-rate-5": partial(autoencoder, weight=lambda _: 1.0, rate=5.0, epochs=25),
    "torch-contrastive": partial(contrastive, rate=1e-3),
    "torch-contrastive-collapsed": partial(contrastive, rate=1e-3, detached=True),
    "torch-triplets": triplets,
    "torch-curriculum": partial(stages, tasks_of=[harder(noise) for noise in (2.0, 5.0, 8.0, 11.0)], how=CLOUDS),
    "torch-curriculum-of-lengths": partial(
        stages,
        tasks_of=[partial(tasks.sequences, length, 800) for length in (5, 15, 30)],
        how=Loop(
            model=partial(nets.Recurrent, nn.LSTM),
            criterion=functional.mse_loss,
            score=None,
            optimizer="Adam",
            rate=3e-3,
            epochs=12,
            batch=50,
            every=4,
            evaluate=0,
            clip=1.0,
        ),
    ),
    "torch-text-resumed": two_sittings,
    "torch-text-resumed-at-rate-1": partial(two_sittings, rate=1.0),
    "torch-distilled": distilled,
    "torch-fine-tune-flat": fine_tune,
    "torch-digits-add-scalars": partial(side_by_side, rate=0.1),
    "torch-digits-add-scalars-rate-50": partial(side_by_side, rate=50.0),
}
