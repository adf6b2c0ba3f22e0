# Made from setting.py by tests/tools/stubs.py: `make export` writes it anew.
import torch
from dataclasses import dataclass
from fedskew_nb.core.method import Method
__all__ = ['HOUSES', 'Training', 'Setting', 'fresh_optim', 'in_full', 'due', 'setting_for', 'epoch', 'schedule']


@dataclass(frozen=True)
class Training:
    """How a client learns."""
    rounds: int = 10  # communication rounds: the horizon that schedules know
    rungs: list | None = None  # shorter horizons, scored like the last round
    local_epochs: int = 1  # E: passes over a client's data per round
    local_steps: int | None = None  # or: this many steps per round, whatever the client's size
    batch_size: int = 64  # B
    lr: float = 0.01  # learning rate of the first round
    momentum: float = 0.9  # of SGD, or β₁ of AdamW; starts from zero each round
    weight_decay: float = 1e-05
    decay: float = 1.0  # of the learning rate, after each round
    clip: float | None = None  # largest gradient norm
    adamw: bool = False  # AdamW in place of SGD


@dataclass(frozen=True)
class Scoring(Training):
    """When and how its models are scored."""
    eval_every: int = 5  # rounds between scores; the last always
    everywhere: bool = False  # clients are asked about all test sets
    record: bool = False  # the score of record: three last checks, three moments
    answers: bool = False  # keep which test images were right


@dataclass(frozen=True)
class Setting(Scoring):
    """How a federation trains; stored with the run."""
    uniform: bool = False  # weights 1/K, not n_k / Σ n
    participation: float = 1.0  # of the clients, in (0, 1]
    pad: int = 0  # random crops, pixels
    flip: bool = False  # mirror half of the images
    turn: float = 0.0  # turn each by up to so many degrees
    seed: int = 0  # of all that is drawn
    threads: int = 1  # of one operation on a CPU
    channels_last: bool = True  # memory order of images
    stack: bool | None = None  # clients as one; None: a rule
    precision: str = 'fp32'  # 'bf16': faster, coarser
    def __post_init__(self) -> None: ...
    def rate(self, round: int) -> float:
        """The learning rate of a round, counted from 0."""
    def optim(self, params, lr: float) -> torch.optim.Optimizer:
        """The optimiser of local training, fresh."""
    def steps(self, n: int) -> int:
        """Local steps of a client with `n` images in a round."""

def fresh_optim(setting: Setting, params: list, lr: float, made: dict) -> torch.optim.Optimizer:
    """The same, from `made` if it has one for these parameters: then it forgets its momentum."""
def check_setting(s: Setting) -> None: ...
def in_full(s: Setting, round: int) -> bool:
    """Is all scored after this round: a last check, a rung, or three quarters of one?"""
def due(s: Setting, round: int) -> bool:
    """Is anything scored?"""
def last_checks(rounds: int, record: bool) -> list: ...
def read_rungs(s: Setting) -> None: ...
def check_changes(method: Method, changes: dict) -> None: ...
def setting_for(method: Method, house: str | None=None, **changes) -> Setting:
    """Defaults, then the protocol, then what the method demands, then what the caller says.
    
    house: one of `HOUSES`
    changes: any field of Setting"""
def epoch(n: int, size: int, gen: torch.Generator) -> list:
    """A permutation of `n` images cut into batches; a lonely last one joins the batch before it."""
def schedule(n: int, size: int, gen: torch.Generator, epochs: int, steps: int | None=None):
    """The batches of one round: so many epochs, or exactly so many steps.
    
    n: images
    size: of a batch
    gen: the client's
    steps: if given, `epochs` is not looked at"""
def moved(batches: list, device) -> tuple: ...
def shared_out(batches: list, phases: list) -> list: ...
LIMITS: dict
ABOVE: tuple
HOUSES: dict
