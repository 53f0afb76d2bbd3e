"""Programs that are in order and look odd: each trains as it should. Needs torch."""

import math

import torch
from torch import Tensor, nn, optim

from tests.training.recorded.programs import Fit, Log, blobs, curve, digits, fit, houses, mae, mlp, split, standard

CE, MSE = nn.CrossEntropyLoss(), nn.MSELoss()


def noisy_small_batches() -> Log:
    model = mlp(8, 32, 3)
    return fit(model, blobs(width=2.0), CE, optim.SGD(model.parameters(), lr=0.02), Fit(epochs=20, batch=2))


def slow_start() -> Log:
    model = mlp(64, *[32] * 3, 10, act=nn.Sigmoid)
    return fit(model, digits(), CE, optim.Adam(model.parameters(), lr=3e-3), Fit(epochs=40))


def learning_rate_in_steps() -> Log:
    model = mlp(64, 64, 10)
    optimizer = optim.SGD(model.parameters(), lr=0.3, momentum=0.9)

    def schedule(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.3 * 0.1 ** (step // 200)

    return fit(model, digits(noise=0.6), CE, optimizer, Fit(epochs=40, before_step=schedule))


def policy_gradient() -> Log:
    """A bandit with 8 states: the loss says nothing, the reward does."""
    log, best = Log(), torch.randint(0, 4, (8,))
    policy = mlp(8, 16, 4)
    optimizer = optim.Adam(policy.parameters(), lr=5e-3)
    for _ in range(40):
        losses, rewards = [], []
        for _ in range(10):
            state = torch.randint(0, 8, (32,))
            chances = torch.distributions.Categorical(logits=policy(torch.eye(8)[state]))
            action = chances.sample()
            reward = (action == best[state]).float()
            loss = -(chances.log_prob(action) * (reward - reward.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            rewards.append(reward.mean().item())
            log.step(policy_loss=loss.item(), reward=reward.mean().item())
        log.epoch(policy_loss=sum(losses) / 10, reward=sum(rewards) / 10)
    return log


def value_network() -> Log:
    """Temporal differences: the loss rises with the values that are learned."""
    log, model = Log(), mlp(10, 32, 1)
    target = mlp(10, 32, 1)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(40):
        target.load_state_dict(model.state_dict())
        losses = []
        for _ in range(10):
            place = torch.randint(0, 10, (32,))
            ahead = torch.eye(10)[(place + 1) % 10]
            with torch.no_grad():
                aim = (place == 9).float()[:, None] + 0.95 * target(ahead)
            loss = MSE(model(torch.eye(10)[place]), aim + 0.02 * epoch * torch.randn(32, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            log.step(td_loss=loss.item())
        log.epoch(td_loss=sum(losses) / 10)
    return log


def adversaries() -> Log:
    """A generator of points on a ring against a discriminator."""
    log, generator, judge = Log(), mlp(4, 32, 2), mlp(2, 32, 1)
    bce = nn.BCEWithLogitsLoss()
    of_generator, of_judge = optim.Adam(generator.parameters(), lr=2e-3), optim.Adam(judge.parameters(), lr=2e-3)
    for _ in range(30):
        sums = [0.0, 0.0]
        for _ in range(12):
            angle = torch.rand(64, 1) * 2 * math.pi
            real = torch.cat([angle.cos(), angle.sin()], 1)
            fake = generator(torch.randn(64, 4))
            of_judge.zero_grad()
            judged = bce(judge(real), torch.ones(64, 1)) + bce(judge(fake.detach()), torch.zeros(64, 1))
            judged.backward()
            of_judge.step()
            of_generator.zero_grad()
            fooled = bce(judge(fake), torch.ones(64, 1))
            fooled.backward()
            of_generator.step()
            log.step(g_loss=fooled.item(), d_loss=judged.item())
            sums = [sums[0] + fooled.item(), sums[1] + judged.item()]
        log.epoch(g_loss=sums[0] / 12, d_loss=sums[1] / 12)
    return log


def fine_tuning() -> Log:
    task, model = digits(), mlp(64, 64, 10)
    fit(model, task, CE, optim.Adam(model.parameters(), lr=2e-3), Fit(epochs=6))
    return fit(model, task, CE, optim.Adam(model.parameters(), lr=1e-4), Fit(epochs=6))


def fine_tuning_of_a_hard_task() -> Log:
    task, model = blobs(n=900, classes=6, width=3.5), mlp(8, 64, 6)
    fit(model, task, CE, optim.Adam(model.parameters(), lr=2e-3), Fit(epochs=3))
    return fit(model, task, CE, optim.Adam(model.parameters(), lr=5e-4), Fit(epochs=8))


def negative_likelihood() -> Log:
    task, model = curve(noise=0.02), mlp(4, 32, 2)
    task.y, task.vy = task.y * 0.02, task.vy * 0.02

    def loss(output: Tensor, y: Tensor) -> Tensor:
        deviation = nn.functional.softplus(output[:, 1:]) + 1e-3
        return -torch.distributions.Normal(output[:, :1], deviation).log_prob(y).mean()

    return fit(model, task, loss, optim.Adam(model.parameters(), lr=2e-3), Fit(epochs=20, metric=None))


def validation_rises_late() -> Log:
    model = mlp(8, 128, 128, 3)
    return fit(model, blobs(n=240, width=2.0), CE, optim.Adam(model.parameters(), lr=1e-3), Fit(epochs=60))


def memorised_in_the_first_epoch() -> Log:
    model = mlp(64, 256, 10)
    return fit(model, digits(n=2_000, noise=0.05), CE, optim.Adam(model.parameters(), lr=1e-2), Fit(epochs=10))


def all_correct_early() -> Log:
    model = mlp(8, 32, 3)
    return fit(model, blobs(width=0.3), CE, optim.SGD(model.parameters(), lr=0.1), Fit(epochs=30))


def warm_up_with_spikes() -> Log:
    model = mlp(64, 64, 64, 10)
    optimizer = optim.SGD(model.parameters(), lr=0.0, momentum=0.9)

    def schedule(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.25 * min(step, 60) / 60 * (0.99 ** max(step - 60, 0))

    return fit(model, digits(), CE, optimizer, Fit(epochs=25, before_step=schedule))


def sum_of_two_tasks() -> Log:
    task = curve()
    both = (
        torch.cat([task.y, 30 * torch.randn_like(task.y)], 1),
        torch.cat([task.vy, 30 * torch.randn_like(task.vy)], 1),
    )
    task.y, task.vy = both
    model = mlp(4, 32, 2)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return MSE(output[:, 0], y[:, 0]) + 0.001 * MSE(output[:, 1], y[:, 1])

    return fit(model, task, loss, optim.Adam(model.parameters(), lr=3e-3), Fit(epochs=30, metric=None))


def noisy_regression() -> Log:
    """Most of the targets' variance is noise: the loss falls by a third, within two epochs."""
    model = mlp(4, 32, 1)
    how = Fit(epochs=30, metric=mae, metric_name="mae")
    return fit(model, curve(n=800, noise=1.5), MSE, optim.Adam(model.parameters(), lr=5e-3), how)


def prices_in_full() -> Log:
    """Inputs are scaled and targets are not: losses of 1e10."""
    task, model = standard(houses()), mlp(5, 64, 1)
    how = Fit(epochs=60, metric=mae, metric_name="mae")
    return fit(model, task, MSE, optim.Adam(model.parameters(), lr=0.5), how)


def next_word() -> Log:
    """A chain of 50 symbols with high entropy: the loss falls from 3.9 to 3."""
    chances = torch.softmax(1.5 * torch.randn(50, 50), -1)
    x = torch.randint(0, 50, (1_500,))
    y = torch.multinomial(chances[x], 1)[:, 0]
    model = nn.Sequential(nn.Embedding(50, 24), nn.Linear(24, 50))
    return fit(model, split(x, y), CE, optim.Adam(model.parameters(), lr=5e-3), Fit(epochs=12, metric=None))


HEALTHY = (
    noisy_small_batches,
    slow_start,
    learning_rate_in_steps,
    policy_gradient,
    value_network,
    adversaries,
    fine_tuning,
    fine_tuning_of_a_hard_task,
    negative_likelihood,
    validation_rises_late,
    memorised_in_the_first_epoch,
    all_correct_early,
    warm_up_with_spikes,
    sum_of_two_tasks,
    noisy_regression,
    prices_in_full,
    next_word,
)
