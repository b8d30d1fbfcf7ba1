"""A small training of PyTorch that is the same under `syncline run` and under Ray Train.

    syncline run -n 2 tests/ray_digits.py FOLDER
    python tests/ray_digits.py FOLDER CONFIG ADDRESS

The second form starts a `DataParallelTrainer` on the Ray cluster at ADDRESS; CONFIG is a dict in Python's syntax, with
the keys of `train` and of `start`. Each worker writes its final parameters to FOLDER/worker0.npy, and so on.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import syncline

BATCH = 32


def train(config: dict[str, Any]) -> None:
    """Train for `epochs`, or until the file `go` is there; save and report after each epoch, if under Ray Train."""
    folder = Path(config["folder"])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    found = load_digits()
    x, y = torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)
    x, y, x_test, y_test = x[:-360], y[:-360], x[-360:], y[-360:]
    session = syncline.connect()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    first = load_checkpoint(model) if config.get("reports") else 0
    optimizer = session.distribute(model, torch.optim.SGD(model.parameters(), 0.05, 0.9))
    print(f"training {session.rank} of {session.size} from epoch {first}", flush=True)
    (folder / f"start-{session.rank}-of-{session.size}-{os.getpid()}").touch()
    for epoch in range(first, config.get("epochs", 10**6)):
        random = torch.Generator().manual_seed(1000 * epoch + session.rank)
        for rows in torch.randperm(len(x), generator=random)[: BATCH * 20].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        (folder / f"members{session.rank}").write_text(str(len(session.members)))
        if config.get("reports"):
            report(model, epoch, session.rank)
        if config.get("until_go"):
            time.sleep(0.1)
            if (folder / "go").exists():
                break
    session.close()
    accuracy = float((model(x_test).argmax(1) == y_test).float().mean())
    vector = torch.cat([each.detach().flatten() for each in model.parameters()])
    np.save(folder / f"worker{session.rank}.npy", vector.numpy())
    (folder / f"accuracy{session.rank}").write_text(f"{accuracy:.3f}")


def report(model: nn.Module, epoch: int, rank: int) -> None:
    """Report to Ray Train; worker 0 adds a checkpoint."""
    import ray.train

    if rank != 0:
        ray.train.report({"epoch": epoch})
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"epoch": epoch, "model": model.state_dict()}, os.path.join(folder, "model.pt"))
        ray.train.report({"epoch": epoch}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def load_checkpoint(model: nn.Module) -> int:
    """Load the last checkpoint of Ray Train, if there is one; return the epoch to go on with."""
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        found = torch.load(os.path.join(folder, "model.pt"))
    model.load_state_dict(found["model"])
    return int(found["epoch"]) + 1


def start(config: dict[str, Any], address: str) -> None:
    """Train on a Ray cluster; `workers`, `failures`, and the settings of `SynclineConfig` come from `config`."""
    import ray
    import ray.train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from syncline.ray import SynclineConfig

    ray.init(address=address)
    scaling = ray.train.ScalingConfig(num_workers=config["workers"], **config.get("scaling", {}))
    trainer = DataParallelTrainer(
        train,
        train_loop_config=config,
        backend_config=SynclineConfig(**config.get("settings", {})),
        scaling_config=scaling,
        run_config=ray.train.RunConfig(
            name="digits",
            storage_path=str(Path(config["folder"]) / "storage"),
            failure_config=ray.train.FailureConfig(
                max_failures=config.get("failures", 0), controller_failure_limit=config.get("failures", 0)
            ),
        ),
    )
    result = trainer.fit()
    print("RESULT", result.metrics, result.checkpoint, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        start({**eval(sys.argv[2]), "folder": sys.argv[1]}, sys.argv[3])
    else:
        train({"folder": sys.argv[1], "epochs": 4})
