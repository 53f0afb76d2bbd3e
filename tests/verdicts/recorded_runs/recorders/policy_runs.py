"""A proximal policy gradient of one file that records under CleanRL's names, in event files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter

from tests.verdicts.recorded_runs.recorders.loop import mlp


@dataclass(frozen=True)
class Settings:
    """``sign`` is that of the policy's loss, ``rate_of`` the learning rate by the share of the run that is done."""

    rate_of: Callable[[float], float] = lambda done: 2.5e-3 * (1.0 - done)
    sign: float = 1.0
    clip: float = 0.2
    entropy: float = 0.01
    passes: int = 4
    updates: int = 50
    seed: int = 0


ROLLOUT = 512
Batch = dict[str, torch.Tensor]


def _collected(world: gymnasium.Env, seen: np.ndarray, actor: nn.Module, critic: nn.Module) -> tuple:
    rows, returns, total = [], [], 0.0
    for _ in range(ROLLOUT):
        x = torch.from_numpy(seen)
        chances = Categorical(logits=actor(x))
        action = chances.sample()
        following, reward, ended, cut, _ = world.step(int(action))
        total += float(reward)
        rows.append((x, action, chances.log_prob(action), float(reward), critic(x).squeeze(), ended or cut))
        seen = following
        if ended or cut:
            returns.append(total)
            total = 0.0
            seen, _ = world.reset()
    return rows, returns, seen


def _batch(rows: list, last: float) -> Batch:
    advantages, carried = torch.zeros(len(rows)), 0.0
    values = [float(row[4]) for row in rows] + [last]
    for place in reversed(range(len(rows))):
        goes_on = 0.0 if rows[place][5] else 1.0
        change = rows[place][3] + 0.99 * values[place + 1] * goes_on - values[place]
        carried = change + 0.99 * 0.95 * goes_on * carried
        advantages[place] = carried
    return {
        "x": torch.stack([row[0] for row in rows]),
        "action": torch.stack([row[1] for row in rows]),
        "log_prob": torch.stack([row[2] for row in rows]),
        "advantage": advantages,
        "goal": advantages + torch.tensor(values[:-1]),
    }


def _update(how: Settings, actor: nn.Module, critic: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> dict:
    found: dict[str, float] = {}
    for _ in range(how.passes):
        for part in torch.randperm(ROLLOUT).split(128):
            chances = Categorical(logits=actor(batch["x"][part]))
            change = chances.log_prob(batch["action"][part]) - batch["log_prob"][part]
            ratio = change.exp()
            advantage = batch["advantage"][part]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = ratio.clamp(1 - how.clip, 1 + how.clip)
            policy = how.sign * torch.max(-advantage * ratio, -advantage * clipped).mean()
            value = 0.5 * ((critic(batch["x"][part]).squeeze(-1) - batch["goal"][part]) ** 2).mean()
            entropy = chances.entropy().mean()
            optimizer.zero_grad()
            (policy + 0.5 * value - how.entropy * entropy).backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimizer.step()
            found = {
                "losses/value_loss": float(value.detach()),
                "losses/policy_loss": float(policy.detach()),
                "losses/entropy": float(entropy.detach()),
                "losses/old_approx_kl": float(-change.mean().detach()),
                "losses/approx_kl": float(((ratio - 1) - change).mean().detach()),
                "losses/clipfrac": float(((ratio - 1).abs() > how.clip).float().mean()),
            }
    return found


def record(how: Settings, folder: Path) -> None:
    """Learn to hold the pole up."""
    torch.manual_seed(how.seed)
    world = gymnasium.make("CartPole-v1")
    actor, critic = mlp(4, 64, 2, act=nn.Tanh)(), mlp(4, 64, 1, act=nn.Tanh)()
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], eps=1e-5)
    seen, _ = world.reset(seed=how.seed)
    with SummaryWriter(str(folder)) as writer:
        for update in range(how.updates):
            rate = how.rate_of(update / how.updates)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with torch.no_grad():
                rows, returns, seen = _collected(world, seen, actor, critic)
                batch = _batch(rows, float(critic(torch.from_numpy(seen))))
            step = (update + 1) * ROLLOUT
            for value in returns[-4:]:
                writer.add_scalar("charts/episodic_return", value, step)
            writer.add_scalar("charts/learning_rate", rate, step)
            goal = batch["goal"]
            explained = 1.0 - float(batch["advantage"].var() / goal.var())
            for name, value in (
                _update(how, actor, critic, optimizer, batch) | {"losses/explained_variance": explained}
            ).items():
                writer.add_scalar(name, value, step)


RUNS: dict[str, Callable[[Path], None]] = {
    "cleanrl-ppo": partial(record, Settings()),
    "cleanrl-ppo-constant-rate": partial(record, Settings(rate_of=lambda _: 1e-3, seed=1)),
    "cleanrl-ppo-wrong-sign": partial(record, Settings(sign=-1.0)),
    "cleanrl-ppo-rate-1": partial(record, Settings(rate_of=lambda _: 1.0)),
    "cleanrl-ppo-rate-spoils": partial(
        record, Settings(rate_of=lambda done: 2.5e-3 if done < 0.6 else 1.0, entropy=0.0, updates=60)
    ),
}
