"""TRL on a tiny model with random weights over letters: ``trainer_state.json`` of SFT, DPO and GRPO."""

import random
import string
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, logging
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

logging.set_verbosity_error()
# Checkpoints lie there, if any.
OUT = str(Path(tempfile.gettempdir()) / "trainer-out")

COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
    "seed": 0,
}


def letters() -> PreTrainedTokenizerFast:
    """Each letter is a token."""
    known = {letter: place for place, letter in enumerate(["<pad>", "<eos>", *string.ascii_lowercase])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def model(seed: int = 0) -> GPT2LMHeadModel:
    """A model of one small layer, loaded from a file: the trainers load their reference from there."""
    torch.manual_seed(seed)
    made = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=28,
            n_positions=64,
            n_embd=32,
            n_layer=1,
            n_head=2,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )
    made.save_pretrained(f"{OUT}-model")
    return GPT2LMHeadModel.from_pretrained(f"{OUT}-model")


def _words(number: int, alphabet: str) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices(alphabet, k=8)) for _ in range(number)]


def tuned(folder: Path, **settings: Any) -> None:
    """Supervised fine-tuning on words that repeat a letter."""
    texts = ["".join(letter * 2 for letter in word) for word in _words(400, "abcdefgh")]
    trainer = SFTTrainer(
        model(),
        SFTConfig(OUT, **(COMMON | {"max_steps": 120, "packing": False} | settings)),
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=letters(),
    )
    trainer.train()
    trainer.state.save_to_json(str(folder / "trainer_state.json"))


def preferred(folder: Path, **settings: Any) -> None:
    """Words of vowels are preferred."""
    prompts, good, bad = _words(320, "abc"), _words(320, "aeiou"), _words(320, "bcdfg")
    data = Dataset.from_dict({"prompt": prompts, "chosen": good, "rejected": bad})
    trainer = DPOTrainer(
        model(),
        args=DPOConfig(OUT, **(COMMON | {"max_steps": 80} | settings)),
        train_dataset=data,
        processing_class=letters(),
    )
    trainer.train()
    trainer.state.save_to_json(str(folder / "trainer_state.json"))


def share_of_a(completions: list[str], **_: Any) -> list[float]:
    return [text.count("a") / max(1, len(text)) for text in completions]


def rewarded(folder: Path, **settings: Any) -> None:
    """A reward for each "a" of a completion."""
    own = {
        "max_steps": 60,
        "num_generations": 8,
        "max_completion_length": 12,
        "beta": 0.04,
        "learning_rate": 3e-3,
    }
    trainer = GRPOTrainer(
        model(),
        share_of_a,
        args=GRPOConfig(OUT, **(COMMON | own | settings)),
        train_dataset=Dataset.from_dict({"prompt": _words(64, "abcdefgh")}),
        processing_class=letters(),
    )
    trainer.train()
    trainer.state.save_to_json(str(folder / "trainer_state.json"))


RUNS: dict[str, Callable[[Path], None]] = {
    "trl-sft": partial(tuned, learning_rate=5e-3),
    "trl-sft-rate-0": partial(tuned, learning_rate=0.0),
    "trl-sft-rate-5": partial(tuned, learning_rate=5.0, max_grad_norm=0.0),
    "trl-dpo": partial(preferred, learning_rate=1e-3),
    "trl-dpo-rate-0": partial(preferred, learning_rate=0.0),
    "trl-dpo-short": partial(preferred, learning_rate=1e-5, max_steps=5),
    "trl-grpo": rewarded,
    "trl-grpo-without-reference": partial(rewarded, beta=0.0),
    "trl-grpo-kl-explodes": partial(rewarded, learning_rate=1.0, max_grad_norm=0.0),
    "trl-grpo-rate-spoils": partial(
        rewarded, learning_rate=0.3, max_grad_norm=0.0, lr_scheduler_type="constant", max_steps=80
    ),
}
