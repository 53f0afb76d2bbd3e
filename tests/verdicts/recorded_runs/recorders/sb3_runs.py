"""Stable Baselines 3 on small worlds: ``progress.csv``, or event files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

torch.set_num_threads(1)


class Signed(gymnasium.RewardWrapper):
    """The agent gets the reward times a factor; the monitor below it keeps the world's own."""

    def __init__(self, world: gymnasium.Env, factor: float) -> None:
        super().__init__(world)
        self.factor = factor

    def reward(self, reward: float) -> float:
        return self.factor * reward


class Blind(gymnasium.ObservationWrapper):
    """The agent sees zeros."""

    def observation(self, observation: Any) -> Any:
        return 0.0 * observation


class Cells(gymnasium.Env):
    """A corridor of cells: one step right is worth 0.1, the end 1, each step costs 0.01."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.age = 0, 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell, self.age = max(0, self.cell + (1 if action else -1)), self.age + 1
        end = self.cell >= 10
        reward = (0.1 if action else -0.1) - 0.01 + float(end)
        return self._seen(), reward, end, self.age >= 50, {}

    def _seen(self) -> Any:
        return np.array([self.cell / 10.0], np.float32)


POLE = partial(gymnasium.make, "CartPole-v1")


@dataclass(frozen=True)
class Agent:
    """Who learns what, and how it is recorded."""

    kind: Any = PPO
    world: Callable[[], gymnasium.Env] = POLE
    wrapped: Callable[[gymnasium.Env], gymnasium.Env] = lambda world: world
    steps: int = 20_000
    form: str = "csv"
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    then: Mapping[str, Any] = field(default_factory=dict)


def record(agent: Agent, folder: Path) -> None:
    """Let the agent learn; after half of the steps settings of ``then`` hold."""
    world = DummyVecEnv([lambda: agent.wrapped(Monitor(agent.world()))] * (1 if agent.kind is DQN else 4))
    learner = agent.kind("MlpPolicy", world, seed=agent.seed, device="cpu", **agent.settings)
    learner.set_logger(configure(str(folder), [agent.form]))
    half = agent.steps // 2 if agent.then else agent.steps
    more = {"log_interval": 10} if agent.kind is A2C else {}
    learner.learn(half, **more)
    if agent.then:
        for name, value in agent.then.items():
            setattr(learner, name, value)
        learner._setup_lr_schedule()
        learner.learn(agent.steps - half, reset_num_timesteps=False, **more)
    learner.logger.close()


P = Agent(settings={"n_steps": 128, "batch_size": 256, "n_epochs": 5, "learning_rate": 2e-3})
A = Agent(kind=A2C, steps=20_000, settings={"n_steps": 16, "learning_rate": 1e-3})
D = Agent(
    kind=DQN,
    steps=20_000,
    settings={
        "learning_rate": 2.3e-3,
        "buffer_size": 20_000,
        "learning_starts": 1000,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 48,
        "batch_size": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
)
CELLS = partial(replace, world=Cells)


def _with(base: Agent, **settings: Any) -> Agent:
    return replace(base, settings=base.settings | settings)


AGENTS: Mapping[str, Agent] = {
    "sb3-ppo": P,
    "sb3-ppo-events": replace(P, form="tensorboard", seed=1),
    "sb3-ppo-large-batches": replace(_with(P, n_steps=256, batch_size=256, ent_coef=0.01), seed=2),
    "sb3-ppo-small-rate": replace(_with(P, learning_rate=5e-4), seed=3),
    "sb3-ppo-cells": CELLS(replace(P, steps=12_000, form="tensorboard")),
    "sb3-ppo-pendulum": replace(
        _with(P, gamma=0.9, learning_rate=1e-3, use_sde=True, sde_sample_freq=4),
        world=partial(gymnasium.make, "Pendulum-v1"),
        steps=24_000,
    ),
    "sb3-ppo-mountain-car": replace(P, world=partial(gymnasium.make, "MountainCar-v0"), steps=15_000),
    "sb3-ppo-three-updates": replace(P, steps=1500),
    "sb3-a2c": A,
    "sb3-a2c-events": replace(A, form="tensorboard", seed=1),
    "sb3-a2c-cells": CELLS(replace(A, steps=10_000)),
    "sb3-dqn": D,
    "sb3-dqn-events": replace(D, form="tensorboard", seed=1),
    "sb3-dqn-cells": CELLS(replace(_with(D, learning_rate=1e-3), steps=12_000)),
    "sb3-ppo-rate-10": replace(_with(P, learning_rate=10.0), steps=12_000),
    "sb3-ppo-rate-spoils": replace(P, steps=20_000, then={"learning_rate": 3.0}),
    "sb3-ppo-rate-spoils-events": replace(
        P, steps=20_000, then={"learning_rate": 0.1, "max_grad_norm": 1e9}, form="tensorboard", seed=1
    ),
    "sb3-ppo-unclipped": replace(
        _with(P, clip_range=1e6, learning_rate=0.02, n_epochs=20, max_grad_norm=1e9), steps=20_000
    ),
    "sb3-ppo-wrong-sign": replace(P, steps=12_000, wrapped=partial(Signed, factor=-1.0)),
    "sb3-ppo-wrong-sign-later": CELLS(replace(P, steps=12_000, wrapped=partial(Signed, factor=-1.0))),
    "sb3-ppo-blind": replace(P, steps=12_000, wrapped=Blind),
    "sb3-ppo-reward-1e6": replace(P, wrapped=partial(Signed, factor=1e6), form="tensorboard"),
    "sb3-ppo-rate-0": replace(_with(P, learning_rate=0.0), steps=12_000),
    "sb3-a2c-rate-1": _with(A, learning_rate=1.0),
    "sb3-a2c-rate-spoils": replace(A, steps=30_000, then={"learning_rate": 1.0}),
    "sb3-dqn-rate-1": _with(D, learning_rate=1.0),
    "sb3-dqn-rate-spoils": replace(D, steps=30_000, then={"learning_rate": 1.0}, seed=1),
}
RUNS: dict[str, Callable[[Path], None]] = {name: partial(record, agent) for name, agent in AGENTS.items()}
