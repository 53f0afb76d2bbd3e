"""Networks of the recorded programs, healthy and broken ones."""

import torch
from torch import nn

Tensor = torch.Tensor


class Characters(nn.Module):
    """A transformer of one or more layers over characters."""

    def __init__(self, letters: int = 96, width: int = 32, layers: int = 1) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(letters, width), nn.Parameter(torch.zeros(64, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.body(self.embed(x) + self.place[:length], mask=mask))


class Recurrent(nn.Module):
    """A recurrent network that answers after the last input; ``scale`` multiplies its first weights."""

    def __init__(self, kind: type[nn.Module] = nn.RNN, scale: float = 1.0, width: int = 48) -> None:
        super().__init__()
        self.body, self.head = kind(2, width, batch_first=True), nn.Linear(width, 1)
        with torch.no_grad():
            for weight in self.body.parameters():
                weight.mul_(scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1]).squeeze(-1)


class Pairs(nn.Module):
    """Two embedded numbers and a hidden layer: learns sums late, after it knows those of training by heart."""

    def __init__(self, numbers: int, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(numbers, width)
        self.body = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(), nn.Linear(128, numbers))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.embed(x).flatten(1))


class Residual(nn.Module):
    """Adds what a block makes to its input."""

    def __init__(self, *block: nn.Module) -> None:
        super().__init__()
        self.block = nn.Sequential(*block)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


def deep_sigmoids(depth: int = 20) -> nn.Module:
    """Sigmoid layers that pass no gradient on."""
    layers: list[nn.Module] = [nn.Linear(64, 32), nn.Sigmoid()]
    for _ in range(depth):
        layers += [nn.Linear(32, 32), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def deep_residual(depth: int = 20) -> nn.Module:
    """The same depth, normalised, with short cuts."""
    blocks = [Residual(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(depth)]
    return nn.Sequential(nn.Linear(64, 32), *blocks, nn.Linear(32, 10))


def dead_relu() -> nn.Module:
    """A ReLU that is 0 for every sample."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    nn.init.constant_(model[0].bias, -30.0)
    return model


def frozen() -> nn.Module:
    """All layers are frozen but the bias of the first, behind a head of zeros: no gradient reaches it."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    nn.init.zeros_(model[2].weight)
    for weight in (model[0].weight, *model[2].parameters()):
        weight.requires_grad_(False)
    return model


def with_dropout() -> nn.Module:
    """Half of the units are dropped in training, so that training looks worse than validation."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.7), nn.Linear(128, 10))


def batch_norm(momentum: float) -> nn.Module:
    """Normalised by batches; with a momentum of 1 validation uses the statistics of the last batch alone."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    """Images of 8 x 8 pixels through two convolutions."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
