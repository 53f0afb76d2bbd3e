"""What the recorded programs share: data, a loop that trains, and what it writes down. Needs torch."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Log:
    """Series by name: of each epoch, and of each step."""

    epochs: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[str, list[float]] = field(default_factory=dict)

    def epoch(self, **values: float) -> None:
        for name, value in values.items():
            self.epochs.setdefault(name, []).append(float(value))

    def step(self, **values: float) -> None:
        for name, value in values.items():
            self.steps.setdefault(name, []).append(float(value))


@dataclass
class Task:
    """Inputs and targets of training, and of validation."""

    x: Tensor
    y: Tensor
    vx: Tensor
    vy: Tensor


def split(x: Tensor, y: Tensor, share: float = 0.75) -> Task:
    cut = int(len(x) * share)
    return Task(x[:cut], y[:cut], x[cut:], y[cut:])


def digits(n: int = 640, noise: float = 0.35) -> Task:
    """Ten classes of 64 pixels, 0 to 1."""
    shapes = torch.rand(10, 64).round()
    y = torch.randint(0, 10, (n,))
    return split((shapes[y] + noise * torch.randn(n, 64)).clamp(0, 1), y)


def blobs(n: int = 480, classes: int = 3, width: float = 1.0) -> Task:
    centres = 2.5 * torch.randn(classes, 8)
    y = torch.randint(0, classes, (n,))
    return split(centres[y] + width * torch.randn(n, 8), y)


def binary(n: int = 480, width: float = 1.2) -> Task:
    """Two classes of 6 features, float targets of shape (n, 1)."""
    y = torch.randint(0, 2, (n,))
    x = torch.randn(n, 6) * width + (y * 2 - 1)[:, None] * torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0, 0.7])
    return split(x, y[:, None].float())


def spirals(n: int = 600) -> Task:
    y = torch.randint(0, 2, (n,))
    turn = torch.rand(n) * 7 + 0.5
    angle = turn + y * torch.pi
    x = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 4 + 0.05 * torch.randn(n, 2)
    return split(x, y)


def houses(n: int = 480) -> Task:
    """Prices of about 200,000 from raw features of up to 10,000."""
    x = torch.rand(n, 5) * torch.tensor([3_000.0, 10.0, 100.0, 9_000.0, 5.0])
    price = 60 * x[:, 0] + 5_000 * x[:, 1] - 300 * x[:, 2] + 3 * x[:, 3] + 9_000 * x[:, 4]
    return split(x, (price + 9_000 * torch.randn(n))[:, None])


def curve(n: int = 480, noise: float = 0.1) -> Task:
    """A smooth function of 4 features with mean 0, negative values among them."""
    x = torch.randn(n, 4)
    y = torch.sin(x[:, 0] * 1.5) + x[:, 1] * x[:, 2] * 0.5 - 0.4 * x[:, 3]
    return split(x, (y + noise * torch.randn(n))[:, None])


def standard(task: Task, *, targets: bool = False) -> Task:
    """Scale inputs, and targets if asked to, to mean 0 and deviation 1."""
    mean, deviation = task.x.mean(0), task.x.std(0)
    scaled = Task((task.x - mean) / deviation, task.y, (task.vx - mean) / deviation, task.vy)
    if targets:
        middle, width = task.y.mean(), task.y.std()
        scaled.y, scaled.vy = (task.y - middle) / width, (task.vy - middle) / width
    return scaled


def mlp(*sizes: int, act: Callable[[], nn.Module] = nn.ReLU, last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1], *([last] if last is not None else []))


def accuracy(output: Tensor, y: Tensor) -> Tensor:
    """Of logits by class; of probabilities where there is one output."""
    if output.shape[-1] == 1:
        return ((output > 0.5).float() == y).float().mean()
    return (output.argmax(-1) == y).float().mean()


def logit_accuracy(output: Tensor, y: Tensor) -> Tensor:
    return ((output > 0.0).float() == y).float().mean()


def mae(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).abs().mean()


def batches(task: Task, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(task.x))
    for start in range(0, len(order) - size + 1, size):
        part = order[start : start + size]
        yield task.x[part], task.y[part]


@dataclass
class Fit:
    """How a model is trained; ``before_step`` is called with the number of the step."""

    epochs: int = 20
    batch: int = 32
    metric: Loss | None = accuracy
    metric_name: str = "accuracy"
    validate: bool = True
    zero_grad: bool = True
    clip: float | None = None
    before_step: Callable[[int], None] = lambda _: None


def fit(model: nn.Module, task: Task, loss: Loss, optimizer: torch.optim.Optimizer, how: Fit) -> Log:
    """Train, and write down what trainers write down: means over an epoch, and each step's loss and gradient norm."""
    log, step = Log(), 0
    for _ in range(how.epochs):
        losses, metrics = [], []
        model.train()
        for x, y in batches(task, how.batch):
            how.before_step(step)
            output = model(x)
            value = loss(output, y)
            if how.zero_grad:
                optimizer.zero_grad()
            if value.requires_grad:
                value.backward()
            limit = how.clip if how.clip is not None else float("inf")
            norm = nn.utils.clip_grad_norm_(model.parameters(), limit) if value.requires_grad else torch.tensor(0.0)
            optimizer.step()
            log.step(loss=value.item(), grad_norm=float(norm), lr=optimizer.param_groups[0]["lr"])
            losses.append(value.item())
            if how.metric is not None:
                metrics.append(how.metric(output.detach(), y).item())
            step += 1
        row = {"loss": sum(losses) / len(losses)}
        if how.metric is not None:
            row[how.metric_name] = sum(metrics) / len(metrics)
        if how.validate:
            row |= validated(model, task, loss, how)
        log.epoch(**row)
    return log


def validated(model: nn.Module, task: Task, loss: Loss, how: Fit) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        output = model(task.vx)
        row = {"val_loss": loss(output, task.vy).item()}
        if how.metric is not None:
            row[f"val_{how.metric_name}"] = how.metric(output, task.vy).item()
    return row
