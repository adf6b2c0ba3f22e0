# Made from digits.py by tests/tools/stubs.py: `make export` writes it anew.
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Suite
from torch import Generator
from torch import Tensor
__all__ = ['POOLS', 'pool', 'collection', 'mnist', 'optdigits', 'mnistm', 'backdrop', 'against', 'syn', 'svhnlike', 'draw_digits', 'skew_digits']

def pool(domain: str, part: str, data_seed: int=0) -> Tensor:
    """Which digits of its collection a domain may use: parts and domains never share one."""
def collection(name: str, i: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Digits `i` of a collection: MNIST framed by black, optdigits enlarged from 8 to `size` pixels."""
def mnist(i: Tensor, g: Generator, size: int) -> tuple[Tensor, Tensor]:
    """MNIST as it is."""
def optdigits(i: Tensor, g: Generator, size: int) -> tuple[Tensor, Tensor]:
    """Digits scanned at eight by eight pixels, full frame: our stand-in for USPS."""
def mnistm(i: Tensor, g: Generator, size: int) -> tuple[Tensor, Tensor]:
    """|photograph − digit|."""
def set_digit(y: Tensor, face: Tensor) -> Tensor: ...
def any_of(ids: Tensor, n: int, g: Generator) -> Tensor: ...
def backdrop(n: int, size: int, g: Generator) -> Tensor:
    """One colour, or in a third of the images a run from one to another."""
def against(bg: Tensor, g: Generator) -> Tensor:
    """A colour that stands out from the background's mean."""
def passers_by(x: Tensor, face: Tensor, g: Generator) -> Tensor: ...
def syn(i: Tensor, g: Generator, size: int) -> tuple[Tensor, Tensor]:
    """Digits in many faces and colours; `i` only says how many."""
def number_row(y: Tensor, face: Tensor, size: int, g: Generator) -> Tensor: ...
def wall_and_paint(n: int, g: Generator) -> tuple[Tensor, Tensor]: ...
def side_light(n: int, size: int, g: Generator, most=0.45) -> Tensor: ...
def svhnlike(i: Tensor, g: Generator, size: int) -> tuple[Tensor, Tensor]:
    """Digits as on houses; `i` only says how many."""
def draw_digits(domain: str, part: str, n: int, px: int, data_seed: int) -> Data:
    """`n` images of a domain's test part, or of 'fit': training and validation together."""
def per_domain(v, domain: str): ...
def hand_out(fit: Data, domain: str, k: int, n: int, first: int, test: Data) -> list: ...
def skew_digits(size: str='quick', data_seed: int=0) -> Suite:
    """Five digit domains; see `DIGITS` for the sizes."""
POOLS: dict
HOUSE: str
DRAW: dict
DIGITS: dict
ABOUT_DIGITS: dict
