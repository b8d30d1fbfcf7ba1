"""The tables (names and shapes) of well-known networks, for placements and simulations.

A convolution has no bias; a batch normalisation follows it. Running statistics do not count as parameters.

    resnet56()      CIFAR-10, shortcuts without parameters (He et al. 2015)                           853,018 values
    googlenet()     ImageNet, as torchvision builds it (3x3 in place of 5x5), no auxiliary heads    6,624,904 values
    googlenet(auxiliary=True)                                                                      13,004,888 values
    inception_v4()  ImageNet, as timm builds it (Szegedy et al. 2016)                              42,679,816 values
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from syncline.layout import Layout

Tables = Iterator[tuple[str, tuple[int, ...]]]

Step = tuple[int, int, int]
"""(channels out, kernel height, kernel width)"""


def resnet56() -> Layout:
    """Three stages of nine blocks of two convolutions, of 16, 32 and 64 channels."""
    return Layout.of(_resnet56())


def googlenet(auxiliary: bool = False) -> Layout:
    """Nine inception blocks; with `auxiliary`, also the two heads that are used in training only."""
    return Layout.of(_googlenet(auxiliary))


def inception_v4() -> Layout:
    """A stem, four blocks A, seven blocks B and three blocks C, with a reduction between them."""
    return Layout.of(_inception_v4())


LAYER_LISTS: Mapping[str, Callable[[], Layout]] = {
    "resnet56": resnet56,
    "googlenet": googlenet,
    "inception-v4": inception_v4,
}


def _convolution(name: str, channels: int, step: Step) -> Tables:
    out, height, width = step
    yield f"{name}.conv.weight", (out, channels, height, width)
    yield f"{name}.norm.weight", (out,)
    yield f"{name}.norm.bias", (out,)


def _dense(name: str, inputs: int, outputs: int) -> Tables:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _chain(name: str, channels: int, *steps: Step) -> Tables:
    """A sequence of convolutions."""
    for number, step in enumerate(steps):
        yield from _convolution(f"{name}.{number}", channels, step)
        channels = step[0]


def _branches(name: str, channels: int, *branches: tuple[Step, ...]) -> Tables:
    """Parallel chains of convolutions; a branch without a step is a pooling layer."""
    for number, steps in enumerate(branches):
        yield from _chain(f"{name}.branch{number}", channels, *steps)


def _one(out: int) -> Step:
    return out, 1, 1


def _three(out: int) -> Step:
    return out, 3, 3


def _resnet56() -> Tables:
    yield from _convolution("stem", 3, _three(16))
    channels = 16
    for stage, width in enumerate((16, 32, 64)):
        for block in range(9):
            yield from _chain(f"stage{stage}.block{block}", channels, _three(width), _three(width))
            channels = width
    yield from _dense("head", 64, 10)


_INCEPTION = {
    "3a": (192, 64, 96, 128, 16, 32, 32),
    "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128),
    "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}
"""For each block: input channels, then the outputs of 1x1; 3x3 reduction and 3x3; 5x5 reduction and 5x5; projection
after the pooling."""


def _googlenet(auxiliary: bool) -> Tables:
    yield from _chain("stem", 3, (64, 7, 7), _one(64), _three(192))
    for name, (channels, one, less_three, three, less_five, five, pooled) in _INCEPTION.items():
        yield from _branches(
            f"inception{name}",
            channels,
            (_one(one),),
            (_one(less_three), _three(three)),
            (_one(less_five), _three(five)),
            (_one(pooled),),
        )
    for name, channels in (("aux1", 512), ("aux2", 528)) if auxiliary else ():
        yield from _convolution(name, channels, _one(128))
        yield from _dense(f"{name}.hidden", 2048, 1024)
        yield from _dense(f"{name}.head", 1024, 1000)
    yield from _dense("head", 1024, 1000)


def _inception_v4() -> Tables:
    yield from _chain("stem", 3, _three(32), _three(32), _three(64))
    yield from _convolution("mixed3a", 64, _three(96))
    deep = (_one(64), (64, 1, 7), (64, 7, 1), _three(96))
    yield from _branches("mixed4a", 160, (_one(64), _three(96)), deep)
    yield from _convolution("mixed5a", 192, _three(192))
    for block in range(4):
        yield from _block_a(f"a{block}")
    yield from _branches("reduction_a", 384, (_three(384),), (_one(192), _three(224), _three(256)))
    for block in range(7):
        yield from _block_b(f"b{block}")
    deep = (_one(256), (256, 1, 7), (320, 7, 1), _three(320))
    yield from _branches("reduction_b", 1024, (_one(192), _three(192)), deep)
    for block in range(3):
        yield from _block_c(f"c{block}")
    yield from _dense("head", 1536, 1000)


def _block_a(name: str) -> Tables:
    deep = (_one(64), _three(96), _three(96))
    yield from _branches(name, 384, (_one(96),), (_one(64), _three(96)), deep, (_one(96),))


def _block_b(name: str) -> Tables:
    deeper = (_one(192), (192, 7, 1), (224, 1, 7), (224, 7, 1), (256, 1, 7))
    yield from _branches(name, 1024, (_one(384),), (_one(192), (224, 1, 7), (256, 7, 1)), deeper, (_one(128),))


def _block_c(name: str) -> Tables:
    """Two of the branches split in two at their end."""
    yield from _branches(name, 1536, (_one(256),), (_one(384),), (_one(384), (448, 3, 1), (512, 1, 3)), (_one(256),))
    for branch, channels in (("branch1", 384), ("branch2", 512)):
        yield from _convolution(f"{name}.{branch}.wide", channels, (256, 1, 3))
        yield from _convolution(f"{name}.{branch}.high", channels, (256, 3, 1))
