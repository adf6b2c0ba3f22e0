# Made from pictures.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Tensor
from typing import Any as _Any
__all__ = ['rfeddis_picture', 'dirichlet_picture', 'opinion_bars', 'mass_square']

def rfeddis_picture(today=..., ax=None):
    """RFedDis inside one client, from an image to its uncertainty, with today's piece filled.
    
    today: names of the parts to fill: 'θ', 'e_G', 'e', 'L_Un', …"""
def dirichlet_picture(e: Tensor, ax=None):
    """The density of Dir(e+1) over the triangle of three probabilities; the dot is their mean.
    
    e: (3,) evidence"""
def opinion_bars(opinions: dict, ax=None):
    """Each opinion as a bar of length 1: the belief in each class, and in grey what is left.
    
    opinions: {name: (K,) evidence}, the first on top"""
def mass_square(across: Tensor, along: Tensor, ax=None):
    """All products of the masses of two opinions; colours: a class, grey: nobody, hatched: conflict.
    
    across: (K,) evidence
    along: (K,) evidence"""
RFEDDIS_BOXES: dict
RFEDDIS_ARROWS: _Any
CORNERS: _Any
