"""A small transformer that learns to predict the letters of a text. Four lines of it are for Syncline.

    python examples/char_gpt.py                                   one process
    syncline run -n 2 examples/char_gpt.py                        two workers, like DDP
    syncline run -n 4 --sync ssp:3 examples/char_gpt.py           a worker may be 3 steps ahead of the slowest
    syncline run -n 2 examples/char_gpt.py --save gpt.pt          save at the end; run it again to resume from the file

It shows AdamW, warm-up and cosine schedule, clipping, tied weights, gradient accumulation, evaluation and resume.
"""

from __future__ import annotations

import argparse
import math
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import syncline

TEXT = """
Many hands pull one long rope up the hill. Some hands are strong and some are slow, and the path is not the same for
everyone. If all of them pull at the same beat, the rope moves as fast as the slowest hand. If each pulls when it
likes, the rope moves, but it jerks and turns, and now and then it slips. So they agree on a rule. Nobody may be
more than three pulls ahead of the last one. Whoever is ahead sits down for a moment and looks at the valley.
Whoever is behind is not pushed, only waited for, and not for long. When one of them goes home, the others close the
gap. When a new one comes, it takes the rope where the rope is, not where it was. Nobody counts a pull twice, and no
pull is lost on the way. In the evening the rope is at the top, every hand knows how it got there, and in the
morning they can tell from a small book with numbers where each of them stood at any time of the day. The book is
the best part. A rope that moves is good; a rope of which one can say why it moved is better. The wind may blow, the
path may break, a hand may fall asleep in the middle of a pull, and still there is a next line in the book, and it
says what happened, to whom, and when.
""".strip()

LETTERS = sorted(set(TEXT))
CODES = torch.tensor([LETTERS.index(letter) for letter in TEXT])
KEPT = len(CODES) // 10
"""The number of letters at the end of the text that are kept for evaluation."""


class Pieces(Dataset[tuple[Tensor, Tensor]]):
    """All pieces of the text of a given length; the target of each is the same piece, one letter later."""

    def __init__(self, codes: Tensor, length: int) -> None:
        self._codes, self._length = codes, length

    def __len__(self) -> int:
        return len(self._codes) - self._length

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        piece = self._codes[at : at + self._length + 1]
        return piece[:-1], piece[1:]


class Block(nn.Module):
    """Causal self-attention, then a small network, both with residual connections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.norms[1](x))


class CharGPT(nn.Module):
    """Predicts the next letter; the first and the last layer share their weights."""

    def __init__(self, letters: int, length: int, width: int, blocks: int, heads: int) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        self.head.weight = self.letter.weight
        for embedding in (self.letter, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.letter(x) + self.place(places))))


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(model: nn.Module, data: Dataset[tuple[Tensor, Tensor]]) -> float:
    model.eval()
    losses = [float(loss_of(model, x, y)) for x, y in DataLoader(data, 32)]
    model.train()
    return sum(losses) / len(losses)


def main() -> None:
    options = argparse.ArgumentParser(description="Train a small transformer on a small text.")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--accumulate", type=int, default=2)
    options.add_argument("--save", type=Path, help="resume from this file if it exists, and save to it at the end")
    options.add_argument("--stop", type=int, help="save and stop after this many steps")
    args = options.parse_args()

    torch.manual_seed(0)
    session = syncline.connect()
    train, held_out = Pieces(CODES[:-KEPT], 32), Pieces(CODES[-KEPT:], 32)
    model = CharGPT(len(LETTERS), length=32, width=48, blocks=2, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    warm, whole = args.steps // 10, args.steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (step + 1) / (warm + 1) if step < warm else 0.5 + 0.5 * math.cos(math.pi * step / whole),
    )
    session.distribute(model, optimizer)
    loader = DataLoader(train, args.batch, sampler=session.sampler(train, shuffle=True, drop_last=True), drop_last=True)

    step = 0
    if args.save is not None and args.save.exists():
        saved = torch.load(args.save, weights_only=True)
        session.load_state_dict(saved["session"])
        schedule.load_state_dict(saved["schedule"])
        step = saved["step"]

    last = min(args.stop or args.steps, args.steps)
    part = 0
    while step < last:
        for x, y in loader:
            part += 1
            with session.no_sync() if part % args.accumulate else nullcontext():
                loss = loss_of(model, x, y) / args.accumulate
                loss.backward()
            if part % args.accumulate:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                mean = session.mean(loss.item() * args.accumulate)
                if session.is_leader:
                    print(f"step {step}: loss {mean:.3f}, on text not seen {evaluate(model, held_out):.3f}")
            if step == last:
                break

    if args.save is not None and session.is_leader:
        torch.save({"session": session.state_dict(), "schedule": schedule.state_dict(), "step": step}, args.save)
    session.close()
    if session.is_leader:
        print(f"after {step} steps: {evaluate(model, held_out):.6f} on text not seen")


if __name__ == "__main__":
    main()
