"""The session of a worker, for PyTorch. Only the methods that need torch import it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.engines.net.wiring import Wiring
from syncline.engines.saving.folder import MODEL
from syncline.engines.worker.session import NumpySession
from syncline.errors import UsageError
from syncline.pytorch import torchrun

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import DataLoader

    from syncline.engines.launch.guard_link import GuardLink
    from syncline.engines.worker.replica import Replica
    from syncline.pytorch.distribute import Distributed
    from syncline.pytorch.run_checkpoints import TorchCheckpoints
    from syncline.pytorch.sampler import SharedSampler
    from syncline.pytorch.torchrun import TorchrunNode


class Session(NumpySession):
    """One worker of a run, with PyTorch models in addition to the tables of `NumpySession`."""

    def __init__(self) -> None:
        super().__init__()
        self._models: dict[str, Distributed] = {}
        self._samplers: list[SharedSampler] = []
        self._asked_to_leave = False
        self.own_scaler: Any = None
        """The GradScaler that the program has registered."""
        self._host: TorchrunNode | None = None
        """Under torchrun, on the first worker of a host: the process that runs the coordinator and the servers."""
        self._guard: GuardLink | None = None
        """Under torchrun: ends this worker when torchrun dies."""

    # Models.

    def distribute(
        self,
        model: nn.Module,
        optimizer: Any = None,
        *,
        mode: str | None = None,
        rule: object = None,
        sync: object = None,
        codec: object = None,
        overlap: bool | str = True,
        buffers: str = "local",
        name: str | None = None,
        clip: float | None = None,
        scaler: Any = None,
        on_nan: str | None = None,
        stage: bool = False,
        **wishes: object,
    ) -> Any:
        """Synchronise this model with the other workers from now on. Changes the model in place; returns `optimizer`.

        `optimizer`: the optimizer of the model, or a list if it has several; a wrapper of accelerate or Lightning is
        accepted. Without one, a stand-in is returned: call its step() after each change of the parameters. `name`: if
        left out, models are named in the order of these calls, which must be the same on all workers.
        `mode`: "gradients", "changes" or "rule". `rule`, `sync`, `codec`: a part or its text; options on the command
        line override them. `clip`, `scaler`: for mode "rule", which sends gradients during backward(). `stage`: copy
        parameters to and from the lane's memory, as for a model on an accelerator.
        """
        from syncline.pytorch.distribute import Options, distribute
        from syncline.pytorch.optimizers import unwrapped

        name = self._name_for(model, name)
        said = {"mode": mode, "rule": rule, "sync": sync, "codec": codec, "on_nan": on_nan, **wishes}
        asked = {key: wish for key, wish in said.items() if wish is not None}
        options = Options(overlap, buffers, stage, clip, scaler)
        own = unwrapped(optimizer)
        made = distribute(self, name, model, own, asked, options)
        self._models[name] = made
        made.hooks.stepped = lambda: self._stepped(name)
        if scaler is not None:
            self.scaler(scaler)
        self._install_sigterm_handler()
        self._catch_up()
        return optimizer if own else made.optimizers[0]

    @cached_property
    def run_checkpoints(self) -> TorchCheckpoints:
        """The checkpoints of the run, if it has any."""
        from syncline.pytorch.run_checkpoints import TorchCheckpoints

        return TorchCheckpoints(self, self.checkpoints)

    def _name_for(self, model: nn.Module, name: str | None) -> str:
        """The name of a model that is to be distributed: the one given, or one by order."""
        if any(each.model is model for each in self._models.values()):
            raise UsageError(
                "model",
                "is already distributed; give all its optimizers in one call: distribute(model, [first, second])",
            )
        if name is None:
            names = (MODEL, *(f"{MODEL} {number}" for number in range(2, len(self._models) + 2)))
            return next(each for each in names if each not in self._models)
        if name in self._models:
            raise UsageError("name", f"model {name!r} is already distributed; give another name, or leave it out")
        return name

    def _one(self, name: str | None) -> list[Distributed]:
        if name is None:
            return list(self._models.values())
        if name not in self._models:
            raise UsageError("name", f"there is no model {name!r}; the models are {', '.join(self._models) or 'none'}")
        return [self._models[name]]

    @contextmanager
    def no_sync(self, name: str | None = None) -> Iterator[None]:
        """Accumulate gradients on this worker only; the next backward() outside of the context exchanges their sum."""
        models = self._one(name)
        for each in models:
            each.hooks.paused += 1
        try:
            yield
        finally:
            for each in models:
                each.hooks.paused -= 1

    def wait(self) -> None:
        """Wait for all requested parameters; only needed with `overlap="forward"`."""
        for each in self._models.values():
            each.hooks.wait()

    def scaler(self, scaler: Any) -> Any:
        """Register a GradScaler, so that other workers do not wait for a step that it skips. Returns the scaler."""
        from syncline.pytorch.scaling import register

        self.own_scaler = scaler
        register(scaler, self._models)
        return scaler

    def _chosen(self, name: str | None) -> list[Replica]:
        return [each.replica for each in self._one(name)] if self._models else super()._chosen(name)

    # Data.

    def sampler(self, data: Any, *, shuffle: bool = True, drop_last: bool = False, seed: int = 0) -> SharedSampler:
        """A sampler that divides the examples of each epoch evenly among all live workers.

        A worker that joins begins with the current epoch of the others. For this, all workers must create their
        samplers in the same order.
        """
        from syncline.pytorch.sampler import SharedSampler

        number = len(self._samplers)
        made = SharedSampler(data, self.rank, lambda: self.members, shuffle=shuffle, drop_last=drop_last, seed=seed)
        made.begun = lambda epoch: self._note_epoch(number, epoch)
        self._samplers.append(made)
        self.run_checkpoints.add(made)
        self._catch_up()
        return made

    def _catch_up(self) -> None:
        """Set samplers that were not used yet to the current epoch of the other workers."""
        for number, sampler in enumerate(self._samplers):
            if sampler.is_new:
                sampler.set_epoch(self._epoch_of(number))

    def split(self, data: Any, **kwargs: Any) -> DataLoader[Any]:
        """A DataLoader over this worker's share of the data; the sampler gets `shuffle` and `drop_last`."""
        from torch.utils.data import DataLoader

        shuffle, drop_last = bool(kwargs.pop("shuffle", False)), bool(kwargs.pop("drop_last", False))
        sampler = self.sampler(data, shuffle=shuffle, drop_last=drop_last)
        return DataLoader(data, sampler=sampler, drop_last=drop_last, **kwargs)

    # All together.

    def mean(self, x: Any, what: str = "mean") -> Any:
        """The mean of all workers' x, a number or a small tensor or array; bit-identical on all workers."""
        tensor = hasattr(x, "detach")
        array = np.asarray(x.detach().cpu().double().numpy() if tensor else x, np.float64)
        parts = [np.frombuffer(each, np.float64) for each in self.share(f"{what} {array.shape}", array.tobytes())]
        found = (sum(parts[1:], parts[0]) / len(parts)).reshape(array.shape)
        if tensor:
            import torch

            return x.new_tensor(found, dtype=x.dtype if x.is_floating_point() else torch.get_default_dtype())
        return found if array.ndim else float(found)

    def any(self, flag: Any) -> bool:
        """Whether `flag` is true on any worker; the result is the same on all workers."""
        return b"1" in self.share("any", b"1" if flag else b"0")

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Copies of parameters, buffers, optimizer states and sampler positions, as plain tensors and values."""
        if not self._models:
            return super().state_dict()
        from syncline.pytorch.state import state_of

        return state_of(self, self._models, self._samplers)

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Continue from a saved state. Every worker must call this, after `distribute`.

        With tables instead of models it returns the tables, which replace those that `tables` returned.
        """
        if not self._models:
            return super().load_state_dict(state)
        from syncline.pytorch.state import load_state

        return load_state(self, self._models, self._samplers, state)

    # The end.

    def _install_sigterm_handler(self) -> None:
        """On SIGTERM (for example on a spot instance), finish the step, leave the run and exit with code 0."""
        alone = threading.current_thread() is not threading.main_thread()
        if not alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, frame: object) -> None:
        if self._asked_to_leave or self._closed or os.getpid() != self._pid:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._asked_to_leave = True

    def _stepped(self, name: str) -> None:
        self.run_checkpoints.stepped(name)
        if self._asked_to_leave:
            print(f"worker {self.rank} received SIGTERM and leaves after this step", file=sys.stderr, flush=True)
            self.leave()
            raise SystemExit(0)

    def leave(self) -> None:
        self._detach()
        super().leave()

    def close(self) -> None:
        self._detach()
        loaded = {name: each.hooks.loads.loaded() for name, each in self._models.items() if not self._closed}
        super().close()
        for each in self._models.values():
            each.hooks.final()
        for name, values in loaded.items():
            if values is not None:
                self._models[name].hooks.loads.restore(values)
        if self._host is not None:
            self._host.process.wait()

    def _cut(self) -> None:
        super()._cut()
        if self._host is not None:
            torchrun.end_host(self._host)
        if self._guard is not None:
            self._guard.close()

    def _detach(self) -> None:
        for each in self._models.values():
            each.detach()


_connected: list[Session] = []
"""The sessions that this process has had with a run. It has one at a time, because a process is one worker."""


def connect(environment: Mapping[str, str] = os.environ) -> Session:
    """Connect to the run that started this program (`syncline run` or torchrun); otherwise start a run of 1 worker.

    A process takes part in a run once: until its session is closed, further calls return the same session; after that
    they raise `UsageError`. Without a launcher, every call after `close()` starts another run of 1 worker.
    """
    for session in _connected:
        if session.is_open:
            return session
    under_torchrun = "SYNCLINE_COORDINATOR" not in environment and torchrun.started_this(environment)
    wiring = Wiring.read(environment)
    if under_torchrun or wiring.coordinator:
        _check_first(wiring.coordinator)
    session = Session()
    if under_torchrun:
        session._guard = torchrun.end_with_torchrun()
        wiring, session._host = torchrun.find_run(environment)
    session.start(wiring)
    if wiring.coordinator:
        _connected.append(session)
    return session


def _check_first(coordinator: str) -> None:
    """Raise `UsageError` if this process has left this run; "": the run of torchrun, which has no other."""
    if any(session._has_left(coordinator) for session in _connected):
        raise UsageError(
            "connect",
            "the session of this process has ended, and it cannot be opened again within this run; "
            "call close() or leave() once, after the last use of the session",
        )


def number_of_worker() -> int | None:
    """The number of this process in the run that it has taken part in; None if it has not connected to one."""
    return _connected[-1].rank if _connected else None


def open_session() -> Session | None:
    """The session of this process that has not ended; None if there is none."""
    return next((session for session in _connected if session.is_open), None)
