"""The control messages of a run: start, membership of processes, changes and end. Training messages: messages.py."""

from __future__ import annotations

from typing import Annotated

import msgspec

from syncline.errors import PeerError
from syncline.layout import Bucket, Layout
from syncline.messages import Count, Iteration, Number, Seconds, View
from syncline.nodes.staleness import MOST_VALUES as MOST_STALENESS

PROTOCOL = 13
"""The protocol version; it changes whenever an older version would misread a frame."""

MOST_SAMPLERS = 64
"""How many samplers of a program a joiner learns the epoch of."""

MOST_FILES = 256
"""How many files a worker writes for one checkpoint."""

MOST_VALUES = 1 << 40
"""The largest model, in values (4 TiB)."""

Word = Annotated[str, msgspec.Meta(max_length=256)]
"""A name, an address or an identifier."""

Text = Annotated[str, msgspec.Meta(max_length=1024)]
"""The text form of a part, as on the command line."""

Wish = Annotated[str, msgspec.Meta(max_length=1 << 16)]
"""The text of a setting that a program asks for; a codec that chooses by table can be long."""

Length = Annotated[int, msgspec.Meta(ge=0, le=MOST_VALUES)]
"""One dimension of a table's shape."""


class Control(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base class of all control messages."""


class HostShare(msgspec.Struct, frozen=True):
    """What one launcher starts of a run that begins on several hosts."""

    rank: Number
    hosts: Count
    workers: tuple[Count, Count]
    """The number of its first worker, and that of the next host's first."""
    servers: tuple[Count, Count]
    terms: Annotated[dict[Word, Word], msgspec.Meta(max_length=64)] = {}
    """What all these launchers must agree on, by option."""


class Hello(Control, frozen=True, tag="hello"):
    """The first frame of every connection: who I am, and which run I want to connect to."""

    run: Word
    """The identifier of the run; empty: I join the run that listens here."""
    role: Word
    number: Number = -1
    incarnation: Count = 0
    protocol: Count = PROTOCOL
    pid: Count = 0
    host: Word = ""
    unix: Word = ""
    """The Unix socket at which a server listens on its own host."""
    tcp: Word = ""
    """The address at which a server listens for other hosts."""
    model: Word = "model"
    """Worker to server: the model that this connection is for."""
    again: bool = False
    """To the coordinator: one more connection of the same process. A connection is for one model at most."""
    word: Word = ""
    """Server to server: the secret that only the servers of this model know. Worker to server or worker: its pass."""
    token: Word = ""
    """To the coordinator: the token of this process (tokens.py)."""
    line: Word = ""
    """To the coordinator: a secret by which this connection is recognised if the coordinator dies and starts again."""
    share: HostShare | None = None
    """A launcher that begins the run together with others: what it starts."""


class Passed(Control, frozen=True, tag="passed"):
    """Launcher to a process of its host, with a file descriptor: a connection to the port that they share."""


class Resume(Control, frozen=True, tag="resume"):
    """To a coordinator that has started again, instead of `Hello`: I had a connection with this secret."""

    line: Word
    heard: Count
    """How many counted messages I have received on it (lasting.py)."""


class Resumed(Control, frozen=True, tag="resumed"):
    """The answer to `Resume`: how many of your messages I have received; send the others again, Hello too."""

    heard: Count


class Heard(Control, frozen=True, tag="heard"):
    """How many counted messages I have received on this connection."""

    count: Count


class LastWord(Control, frozen=True, tag="last-word"):
    """Coordinator to all: I end, and nobody starts me again."""


class Refused(Control, frozen=True, tag="refused"):
    """You cannot take part, and why; `usage`: because a setting is invalid."""

    reason: str
    usage: bool = False


class Welcome(Control, frozen=True, tag="welcome"):
    """Coordinator to a worker or a joining server: your number, and how many workers start the run."""

    run: str
    worker: Number
    incarnation: Count
    workers: Count
    save_every: Word = ""
    """To a worker: how often the run writes checkpoints; empty: never."""
    late: bool = False
    """To a launcher that would begin the run together with others: the run has begun, so its processes join."""
    lasting: bool = False
    """The coordinator is started again if it dies, so keep what you send to it (lasting.py)."""


class Declared(msgspec.Struct, frozen=True):
    """The name and shape of a table."""

    name: Annotated[str, msgspec.Meta(max_length=4096)]
    shape: Annotated[tuple[Length, ...], msgspec.Meta(max_length=32)]


class Declare(Control, frozen=True, tag="declare"):
    """Worker to coordinator: the tables that my program trains, and the settings that it asks for."""

    tables: tuple[Declared, ...]
    wishes: Annotated[dict[Word, Wish], msgspec.Meta(max_length=64)] = {}
    model: Word = "model"
    """The name of the model. Each model of a run has its own layout, members and progress."""
    first: Count = 0
    """The first iteration: how many came before, if the run goes on from a checkpoint."""


class NodeAddress(msgspec.Struct, frozen=True):
    """Where a server or worker listens: a Unix socket for its own host, and an address for others."""

    host: Word
    unix: Word
    tcp: Word


class Begin(Control, frozen=True, tag="begin"):
    """Coordinator to servers and workers: the model, its settings, and who takes part."""

    tables: tuple[Declared, ...]
    settings: dict[str, str]
    """Every setting of the strategy, as text."""
    view: View
    servers: tuple[NodeAddress, ...]
    """By server number; an empty address if no server has this number."""
    leader: Number
    """The worker whose parameters all start with; -1: the servers already have parameters."""
    model: str = "model"
    origins: dict[str, str] = {}
    """Where each setting came from."""
    word: str = ""
    """For servers: the secret by which they recognise each other. For a worker: its pass for the servers."""
    own_workers: Count = 0
    """Workers with a lower number were started with the run."""
    epochs: tuple[Count, ...] = ()
    """For joining workers: for each sampler, the latest epoch that any worker has begun."""


class Listening(Control, frozen=True, tag="listening"):
    """Worker to coordinator: the address at which other workers can connect to me."""

    address: NodeAddress


class Peers(Control, frozen=True, tag="peers"):
    """Coordinator to workers: the address of every worker of this model, by number, and the passes for them."""

    addresses: dict[Number, NodeAddress]
    passes: dict[Number, Word] = {}
    """What the receiver shows to each of the others."""
    incarnations: dict[Number, Number] = {}
    """Which incarnation of each worker listens at its address."""


class Another(Control, frozen=True, tag="another"):
    """Coordinator to server: open one more connection, for one more model."""


class Seated(Control, frozen=True, tag="seated"):
    """Worker to coordinator: I have the initial parameters. Server to coordinator: workers can connect to me."""


class Go(Control, frozen=True, tag="go"):
    """Coordinator to workers: everyone has the initial parameters; start."""


class Seed(Control, frozen=True, tag="seed"):
    """Leader to server: the initial parameters of a bucket, or an array of its rule's state; state goes first."""

    bucket: Bucket
    memory: str = ""
    """The name of the array of the rule's state; empty: parameters."""


class Noted(Control, frozen=True, tag="noted"):
    """Server to leader: I have copied that array, so its place in the lane's memory is free again."""

    bucket: Bucket


class Read(Control, frozen=True, tag="read"):
    """Worker to server, outside of any iteration: send me a bucket's parameters, or an array of its rule's state."""

    bucket: Bucket
    memory: str = ""
    view: Count = 0
    """The view in which this server holds the bucket."""


class Whole(Control, frozen=True, tag="whole"):
    """The answer to `Read`: parameters, written in the place of parameters, or state, in the place of an update."""

    bucket: Bucket
    memory: str = ""


class Laid(Control, frozen=True, tag="laid", gc=False):
    """Between workers, or servers, of one host: the payload of my next message, in bytes, is in the shared memory."""

    size: Count


class Lifted(Control, frozen=True, tag="lifted", gc=False):
    """The answer to `Laid`: I have read that payload, so its place is free again."""


class Mapped(Control, frozen=True, tag="mapped", gc=False):
    """Server to a server of its host: I have mapped the memory of this worker."""

    worker: Number
    incarnation: Count


class Share(Control, frozen=True, tag="share"):
    """Worker to coordinator: my value for an all-gather."""

    kind: Word
    data: Annotated[bytes, msgspec.Meta(max_length=3 << 20)] = b""


class Gathered(Control, frozen=True, tag="shared"):
    """Coordinator to workers: the values of all workers, in worker order."""

    kind: str
    data: tuple[bytes, ...]


class Ended(Control, frozen=True, tag="ended"):
    """Coordinator to workers and launchers: the last member has left, so the parameters are final."""


class Seen(Control, frozen=True, tag="seen"):
    """Coordinator to launchers: what happened to a process. Launcher to coordinator: a process has ended."""

    role: str
    number: Number
    incarnation: Count
    what: str
    usage: bool = False
    """A setting that it asked for is invalid."""
    pid: Count = 0
    """From a launcher: the process that has ended. To a launcher: the process that has joined under this number."""
    of: Count = 0
    """To a launcher: the process that this is about, on its host or another."""
    again: bool = False
    """From a launcher: it restarts this worker or server."""


class Started(Control, frozen=True, tag="started"):
    """Launcher to coordinator: I have started a process, whose session must end when I do."""

    pid: Count


class Frozen(Control, frozen=True, tag="frozen"):
    """Launcher on another host to coordinator: a process of my host has been stopped (SIGSTOP) for `seconds`."""

    host: Word
    pid: Count
    seconds: Seconds


class Heartbeat(Control, frozen=True, tag="beat"):
    """Between the coordinator and a launcher: I am not stopped. At intervals, if the launcher has joined."""

    pausing: bool = False
    """The user stops this launcher now (Ctrl-Z): do not expect anything until the next message."""


class Abort(Control, frozen=True, tag="abort"):
    """The run has failed, and why."""

    reason: str


class Figures(Control, frozen=True, tag="figures"):
    """Server to coordinator to launcher, at the end: the server's counters.

    If workers send each other updates, every worker sends its own.
    """

    server: Number
    """The number of the server, or of the worker."""
    updates: Count
    dropped_updates: Count
    delayed_pulls: Count
    train_progress: Iteration
    bytes_pushed: Count
    bytes_pulled: Count
    model: Word = "model"
    left: bool = False
    """The server left during the run, so its progress is not the run's."""
    pushes_skipped: Count = 0
    fetches_skipped: Count = 0
    trace_lost: bool = False
    """The server could not write all of its trace (`--trace`)."""
    staleness: Annotated[dict[Count, Count], msgspec.Meta(max_length=MOST_STALENESS)] = {}
    """How many applied updates had each staleness, counted per bucket."""
    of_worker: bool = False
    partitions: Count = 0
    """Into how many ranges the worker cut the model at the end, if workers send each other parts of it."""
    restored_buckets: Count = 0
    """Buckets that the server has restored from the workers' copies."""
    lost_updates: Count = 0
    """Updates, counted per bucket, that were lost then because they had been answered without parameters."""


class Pulse(Control, frozen=True, tag="pulse"):
    """Worker to coordinator to launcher, at intervals: the worker's progress. Some of them may be dropped."""

    iteration: Count
    """How many iterations the worker has finished."""
    computed: Seconds = 0.0
    """Seconds spent computing so far."""
    waited: Seconds = 0.0
    """Seconds spent waiting for other processes so far."""
    staleness: Iteration = 0
    """How many iterations this worker is ahead of the slowest."""
    loss: float | None = None
    accuracy: float | None = None
    model: Word = "model"
    worker: Number = -1
    """The worker's number; the coordinator fills it in."""


class Waiting(Control, frozen=True, tag="waiting"):
    """Worker to coordinator: I have waited for this many seconds in a call that waits for others; 0: no longer."""

    seconds: Count
    still: bool = False
    """Everything that I sent has arrived, and nothing has come for a while."""


class EpochBegun(Control, frozen=True, tag="epoch"):
    """Worker to coordinator: I have begun this epoch of a sampler; joiners begin with the latest one."""

    sampler: Annotated[int, msgspec.Meta(ge=0, lt=MOST_SAMPLERS)]
    epoch: Count


class CheckpointWritten(Control, frozen=True, tag="checkpoint"):
    """Worker to coordinator: I have written my part of a checkpoint, or why I could not."""

    step: Count
    iteration: Count = 0
    """How many iterations I had finished."""
    has_models: bool = False
    """I have written the models too."""
    files: Annotated[dict[Word, tuple[Count, Count]], msgspec.Meta(max_length=MOST_FILES)] = {}
    """My files, each with its size in bytes and its CRC-32; none if I have no folder for checkpoints."""
    problem: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class CheckpointDue(Control, frozen=True, tag="checkpoint-due"):
    """Worker to coordinator: it is time for a checkpoint, with this number."""

    step: Count


class SaveNow(Control, frozen=True, tag="save-now"):
    """Coordinator to workers: write a checkpoint with this number, when you have finished so many iterations."""

    step: Count


class CheckpointWhole(Control, frozen=True, tag="checkpoint-whole"):
    """Coordinator to workers: this checkpoint is complete; older ones may be removed."""

    step: Count


class Stop(Control, frozen=True, tag="stop"):
    """Launcher to coordinator to servers: the workers have finished; send your counters and exit."""


class Reach(Control, frozen=True, tag="reach"):
    """Coordinator to workers and servers: a server wants to join; connect to it. It gets its part once all have."""

    server: Number
    place: NodeAddress
    arrival: Count = 0
    """Which arrival of this server that is, for the answer: a server can die and start again meanwhile."""


class Reached(Control, frozen=True, tag="reached"):
    """The answer to `Reach`: I have connected to the server, or why I could not."""

    server: Number
    problem: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    arrival: Count = 0


class Take(Control, frozen=True, tag="take"):
    """Server to server: I have adopted this view; hand over the buckets that it gives to me."""

    view: Count


class TakeFirst(Control, frozen=True, tag="take-first"):
    """Server to server: I join the run; send me the initial parameters of this model."""


class First(Control, frozen=True, tag="first"):
    """The answer to `TakeFirst`, once for each bucket: its initial parameters."""

    bucket: Bucket


class Withdraw(Control, frozen=True, tag="withdraw"):
    """Server to coordinator: I was asked to leave; let other servers take over my part."""


class Released(Control, frozen=True, tag="released"):
    """Coordinator to server: you hold nothing any more; exit when no member is connected to you."""


class AskRest(Control, frozen=True, tag="ask-rest"):
    """Coordinator to server: do you still have something to send to other servers, or to receive from them?"""

    number: Count
    """The reply carries the same number."""


class Rest(Control, frozen=True, tag="rest"):
    """The answer to `AskRest`."""

    number: Count
    at_rest: bool
    handled: Count
    """How many events the server's node has handled so far: if it is the same twice, nothing has happened since."""


class SurvivesServers(Control, frozen=True, tag="survives"):
    """Coordinator to launcher: whether the run goes on without a server that dies."""

    survives: bool


class TrainingBegun(Control, frozen=True, tag="begun"):
    """Coordinator to launcher: the training of a model has begun."""


class ChangeRequest(Control, frozen=True, tag="change"):
    """Worker or operator to coordinator: change the sync model, release, topology or nodes from now on."""

    number: Count
    """The reply carries the same number."""
    sync: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1 << 12)] = ()
    """One sync model for all servers, or one for each; empty: no change."""
    release: Word = ""
    models: Annotated[tuple[Word, ...], msgspec.Meta(max_length=64)] = ()
    """The names of the models to change; empty: all models."""
    topology: Wish = ""
    """Who talks to whom from now on; empty: no change. It comes alone."""
    merge: Annotated[tuple[Number, ...], msgspec.Meta(max_length=1 << 12)] = ()
    """Servers of which the first takes the place of all; empty: no change. It comes alone, and is for all models."""


class ChangeReply(Control, frozen=True, tag="changed"):
    """The answer to `ChangeRequest`: all servers have changed, or none has, and why."""

    number: Count
    option: str = ""
    """The part of the request that is invalid."""
    problem: str = ""


class NewTerms(Control, frozen=True, tag="terms"):
    """Coordinator to server: use this sync model and this release from now on; empty: no change."""

    number: Count
    sync: str = ""
    release: str = ""


class TermsTaken(Control, frozen=True, tag="taken-terms"):
    """Server to coordinator: I have changed, or why I could not."""

    number: Count
    problem: Text = ""


class InForce(Control, frozen=True, tag="in-force"):
    """Coordinator to workers: these settings have changed."""

    settings: dict[str, str]


class Notice(Control, frozen=True, tag="notice"):
    """Coordinator to launchers: print this line for the user."""

    text: str
    late_start: bool = False
    """The start of the run takes long, so check your host too."""
    passing: bool = False
    """It is about this moment: nobody repeats it if it is lost."""


ControlMessage = (
    Hello
    | Passed
    | Resume
    | Resumed
    | Heard
    | LastWord
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
    | Laid
    | Lifted
    | Mapped
    | Share
    | Gathered
    | Ended
    | Seen
    | Started
    | Frozen
    | Heartbeat
    | Abort
    | Figures
    | Pulse
    | Waiting
    | EpochBegun
    | CheckpointWritten
    | CheckpointDue
    | SaveNow
    | CheckpointWhole
    | Stop
    | Reach
    | Reached
    | Take
    | TakeFirst
    | First
    | Withdraw
    | Released
    | AskRest
    | Rest
    | SurvivesServers
    | TrainingBegun
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
    """The layout of a model that a peer has declared; `PeerError` if it is not a possible model."""
    layout = Layout.of((table.name, table.shape) for table in tables)
    if layout.size > MOST_VALUES:
        raise PeerError(f"it declared a model of {layout.size:,} values; the limit is {MOST_VALUES:,}")
    if len({table.name for table in tables}) < len(tables):
        raise PeerError("it declared two tables with the same name")
    return layout
