"""A Lightning Trainer that saves a checkpoint, and a second one that resumes from it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline

session = syncline.connect()
for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
    os.environ.pop(variable, None)  # under torchrun Lightning would use DDP as well


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = classifier()

    def on_train_start(self) -> None:
        """Called when Lightning has made the optimizer, and loaded a checkpoint if it resumes."""
        session.distribute(self, self.optimizers())

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.model(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02)


def trainer(epochs: int) -> lightning.Trainer:
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    return lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, accumulate_grad_batches=2, enable_checkpointing=False, **quiet
    )


def main() -> None:
    torch.manual_seed(session.rank)
    data = examples()
    first, second = Classifier(), Classifier()
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory) / "half.ckpt"  # every worker saves its own
        for model, epochs in ((first, 2), (second, 4)):
            loader = DataLoader(data, 8, sampler=session.sampler(data, shuffle=True))
            resumed = {"ckpt_path": str(checkpoint)} if model is second else {}
            runner = trainer(epochs)
            runner.fit(model, loader, **resumed)
            runner.save_checkpoint(checkpoint)
        assert runner.current_epoch == 4
    assert accuracy(second.model, data) > 0.9
    session.close()
    say_ok(session.rank, first, second)


if __name__ == "__main__":
    main()
