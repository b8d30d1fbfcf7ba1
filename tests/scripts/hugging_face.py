"""A Hugging Face Trainer: accumulation, the best model at the end, and a second Trainer that resumes the training."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from toy import say_ok
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import syncline

WORDS, LENGTH = 16, 8

session = syncline.connect()
for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
    os.environ.pop(variable, None)  # under torchrun the Trainer would use DDP as well


class Distribute(TrainerCallback):
    """Called when the Trainer has made its optimizer, and loaded a checkpoint if it resumes."""

    def on_train_begin(self, *_: Any, model: Any = None, optimizer: Any = None, **__: Any) -> None:
        session.distribute(model, optimizer)


class DistributedTrainer(Trainer):
    def _get_train_sampler(self, *_: Any) -> Any:
        return session.sampler(self.train_dataset)


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Each example counts upwards from another word."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": words, "labels": words}


def build() -> GPT2LMHeadModel:
    torch.manual_seed(session.rank)
    size = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": LENGTH, "vocab_size": WORDS}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**size, **quiet))


def trainer(folder: Path, steps: int) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder / str(session.rank)),  # every worker is a main process, and saves its own
        max_steps=steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        eval_strategy="steps",
        eval_steps=8,
        save_steps=8,
        load_best_model_at_end=True,
        seed=session.rank,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
    )
    data = Counting()
    return DistributedTrainer(build(), arguments, train_dataset=data, eval_dataset=data, callbacks=[Distribute()])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        first = trainer(Path(directory), 16)
        first.train()
        second = trainer(Path(directory), 32)
        second.train(resume_from_checkpoint=True)
        before, after = (each.evaluate()["eval_loss"] for each in (first, second))
        assert second.state.global_step == 32
        assert after < before < 2.0, (before, after)
    session.close()
    say_ok(session.rank, first.model, second.model)


if __name__ == "__main__":
    main()
