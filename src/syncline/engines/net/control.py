"""What the processes of a run say to each other beside the protocol: who they are, what is trained, that it is over."""

from __future__ import annotations

from typing import Annotated

import msgspec

from syncline.errors import PeerError
from syncline.layout import Bucket, Layout
from syncline.messages import View

PROTOCOL = 5
"""Changes whenever frames of one version would be misread by another."""

MOST_SAMPLERS = 64
"""Of so many samplers of a program the epochs are known to those who join."""

MOST_VALUES = 1 << 40
"""No model is larger (4 TiB)."""

Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 16)]
"""Which worker or server; -1: not known yet."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""So small that no sum of a few leaves the range that a frame can hold."""

Word = Annotated[str, msgspec.Meta(max_length=256)]
"""A name, an address, or an identity."""

Text = Annotated[str, msgspec.Meta(max_length=1024)]
"""A part, as the command line writes it."""

Length = Annotated[int, msgspec.Meta(ge=0, le=MOST_VALUES)]
"""One side of a table."""


class Control(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of them all."""


class Hello(Control, frozen=True, tag="hello"):
    """The first frame of every connection: who I am, and which run I mean."""

    run: Word
    """The identity of the run; empty: I want to join whatever runs here."""
    role: Word
    number: Number = -1
    incarnation: Count = 0
    protocol: int = PROTOCOL
    pid: Count = 0
    host: Word = ""
    unix: Word = ""
    """Where a server listens on its own host."""
    tcp: Word = ""
    """Where a server listens for other hosts."""
    model: Word = "model"
    """Worker to server: which model this connection is about."""
    again: bool = False
    """Worker to coordinator: a further connection of this incarnation. A connection is about one model at most."""
    word: Word = ""
    """Server to server: the word that only servers of this model know."""


class Refused(Control, frozen=True, tag="refused"):
    """You cannot take part, and this is why; `usage`: what was asked for makes no sense."""

    reason: str
    usage: bool = False


class Welcome(Control, frozen=True, tag="welcome"):
    """Coordinator to worker, or to a server that joins: this is your number, and so many workers start the run."""

    run: str
    worker: int
    incarnation: int
    workers: int


class Declared(msgspec.Struct, frozen=True):
    """A table as it is declared: its name and shape."""

    name: Annotated[str, msgspec.Meta(max_length=4096)]
    shape: Annotated[tuple[Length, ...], msgspec.Meta(max_length=32)]


class Declare(Control, frozen=True, tag="declare"):
    """Worker to coordinator: what I train, and how, as far as my program says."""

    tables: tuple[Declared, ...]
    wishes: dict[str, str] = {}
    model: Word = "model"
    """Which of the run's models: each has its own layout, members and progress."""


class NodeAddress(msgspec.Struct, frozen=True):
    """Where a server or worker can be reached: by a name on its own host, or by an address."""

    host: Word
    unix: Word
    tcp: Word


class Begin(Control, frozen=True, tag="begin"):
    """Coordinator to all: this is trained, this is how, and these are there."""

    tables: tuple[Declared, ...]
    settings: dict[str, str]
    """Every setting of the strategy, in words."""
    view: View
    servers: tuple[NodeAddress, ...]
    """By server number; nowhere, if there is none of this number."""
    leader: int
    """The worker whose parameters all start with; -1: they are there already."""
    model: str = "model"
    origins: dict[str, str] = {}
    """Where each setting came from."""
    word: str = ""
    """For servers only: what they say to each other to be believed."""
    epochs: tuple[int, ...] = ()
    """For workers that join: the furthest epoch that somebody has begun, sampler by sampler."""


class Listening(Control, frozen=True, tag="listening"):
    """Worker to coordinator, where workers talk to each other: other workers can call me here."""

    address: NodeAddress


class Peers(Control, frozen=True, tag="peers"):
    """Coordinator to workers: where all workers of this model can be called, by their numbers."""

    addresses: dict[int, NodeAddress]


class Another(Control, frozen=True, tag="another"):
    """Coordinator to server: open another connection, for another model."""


class Seated(Control, frozen=True, tag="seated"):
    """Worker to coordinator: I hold the first parameters. Server to coordinator: workers may come."""


class Go(Control, frozen=True, tag="go"):
    """Coordinator to workers: all hold the first parameters."""


class Seed(Control, frozen=True, tag="seed"):
    """Leader to server: these are the first parameters of a bucket; before them, what its rule remembers by a name."""

    bucket: Bucket
    memory: str = ""


class Noted(Control, frozen=True, tag="noted"):
    """Server to leader: that is remembered, and its place in the lane's memory is free again."""

    bucket: Bucket


class Read(Control, frozen=True, tag="read"):
    """Worker to server, outside of any iteration: give me a bucket as it is, or what its rule remembers by a name."""

    bucket: Bucket
    memory: str = ""
    view: Count = 0
    """By which the bucket is this server's."""


class Whole(Control, frozen=True, tag="whole"):
    """Server to worker: the bucket as it is, in the place of parameters; what is remembered, in that of an update."""

    bucket: Bucket
    memory: str = ""


class Share(Control, frozen=True, tag="share"):
    """Worker to coordinator: this is what I have to say; tell me what all have to say."""

    kind: Word
    data: Annotated[bytes, msgspec.Meta(max_length=3 << 20)] = b""


class Gathered(Control, frozen=True, tag="shared"):
    """Coordinator to workers: what all have said, in worker order."""

    kind: str
    data: tuple[bytes, ...]


class Ended(Control, frozen=True, tag="ended"):
    """Coordinator to all: nobody is a member any more; nothing changes now."""


class Seen(Control, frozen=True, tag="seen"):
    """Coordinator to launcher and agents: what has become of a worker; launcher to coordinator: one has ended."""

    role: str
    number: int
    incarnation: int
    what: str
    usage: bool = False
    """What it asked for makes no sense."""
    pid: Count = 0
    """From a launcher: the process that was the worker; to one: the process that has joined as this worker."""
    of: Count = 0
    """To a launcher: the process, of its host or another, that this is about."""
    again: bool = False
    """From a launcher: this worker is started again."""


class Started(Control, frozen=True, tag="started"):
    """Launcher to coordinator: a process with a group of its own, which is to end when I do."""

    pid: Count


class Frozen(Control, frozen=True, tag="frozen"):
    """Agent to coordinator: this process of my host has been stopped for so many seconds."""

    host: Word
    pid: Count
    seconds: float


class Abort(Control, frozen=True, tag="abort"):
    """The run cannot go on, and this is why."""

    reason: str


class Figures(Control, frozen=True, tag="figures"):
    """Server to coordinator to launcher, at the end: what a server has counted."""

    server: Number
    updates: int
    dropped_updates: int
    delayed_pulls: int
    train_progress: int
    bytes_pushed: Count
    bytes_pulled: Count
    model: str = "model"
    left: bool = False
    """It holds nothing any more: how far it got says nothing about the run."""
    pushes_skipped: Count = 0
    fetches_skipped: Count = 0


class Pulse(Control, frozen=True, tag="pulse"):
    """Worker to coordinator to launcher, now and then: how far I am. Some of them may be lost."""

    iteration: Count
    """How many it has done."""
    computed: float = 0.0
    """Seconds in which it computed, so far."""
    waited: float = 0.0
    """Seconds in which it waited for others, so far."""
    staleness: int = 0
    """How many iterations it is ahead of the slowest."""
    loss: float | None = None
    accuracy: float | None = None
    model: Word = "model"
    worker: Number = -1
    """Who it is: the coordinator's word."""


class EpochBegun(Control, frozen=True, tag="epoch"):
    """Worker to coordinator: I have begun this epoch of a sampler; whoever joins is to begin with it."""

    sampler: Annotated[int, msgspec.Meta(ge=0, lt=MOST_SAMPLERS)]
    epoch: Count


class Stop(Control, frozen=True, tag="stop"):
    """Launcher to coordinator to servers: the workers are done; tell your figures and end."""


class Reach(Control, frozen=True, tag="reach"):
    """Coordinator to workers and servers: a server has come, and is to hold its share once all of you reach it."""

    server: Count
    place: NodeAddress


class Reached(Control, frozen=True, tag="reached"):
    """The answer: I have a connection to it, or what has gone wrong."""

    server: Count
    problem: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class Take(Control, frozen=True, tag="take"):
    """Server to server: I have adopted this view; hand over what is mine in it."""

    view: Count


class Withdraw(Control, frozen=True, tag="withdraw"):
    """Server to coordinator: I was asked to leave; have my part taken over."""


class Released(Control, frozen=True, tag="released"):
    """Coordinator to server: you hold nothing any more; go when no member is connected to you."""


class ChangeRequest(Control, frozen=True, tag="change"):
    """Worker or operator to coordinator: go on under another sync model, or another release, from now on."""

    number: Count
    """Comes back in the reply."""
    sync: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1 << 12)] = ()
    """One model for all servers, or one for each; none: as they are."""
    release: Word = ""
    models: Annotated[tuple[Word, ...], msgspec.Meta(max_length=64)] = ()
    """The names of what is trained; none: all of it."""


class ChangeReply(Control, frozen=True, tag="changed"):
    """Coordinator to whoever asked for a change: all servers have changed, or why none has."""

    number: Count
    option: str = ""
    """What of the request makes no sense."""
    problem: str = ""


class NewTerms(Control, frozen=True, tag="terms"):
    """Coordinator to server: go on under this sync model and this release; nothing: as it is."""

    number: Count
    sync: str = ""
    release: str = ""


class TermsTaken(Control, frozen=True, tag="taken-terms"):
    """Server to coordinator: I have changed, or what is in the way."""

    number: Count
    problem: Text = ""


class InForce(Control, frozen=True, tag="in-force"):
    """Coordinator to workers: these settings have changed."""

    settings: dict[str, str]


class Notice(Control, frozen=True, tag="notice"):
    """Coordinator to launchers: tell the user."""

    text: str


ControlMessage = (
    Hello
    | Refused
    | Welcome
    | Declare
    | Begin
    | Listening
    | Peers
    | Another
    | Seated
    | Go
    | Seed
    | Read
    | Whole
    | Noted
    | Share
    | Gathered
    | Ended
    | Seen
    | Started
    | Frozen
    | Abort
    | Figures
    | Pulse
    | EpochBegun
    | Stop
    | Reach
    | Reached
    | Take
    | Withdraw
    | Released
    | ChangeRequest
    | ChangeReply
    | NewTerms
    | TermsTaken
    | InForce
    | Notice
)


def declared(layout: Layout) -> tuple[Declared, ...]:
    return tuple(Declared(table.name, table.shape) for table in layout.tables)


def layout_of(tables: tuple[Declared, ...]) -> Layout:
    """The layout of a model as a peer has declared it, if there can be such a model."""
    layout = Layout.of((table.name, table.shape) for table in tables)
    if layout.size > MOST_VALUES:
        raise PeerError(f"a model of {layout.size:,} values; the largest has {MOST_VALUES:,}")
    if len({table.name for table in tables}) < len(tables):
        raise PeerError("a model with two tables of one name")
    return layout
