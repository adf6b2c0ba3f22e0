# Made from explain.py by tests/tools/stubs.py: `make export` writes it anew.
import numpy as np
import torch
from matplotlib.axes import Axes
__all__ = ['tsne', 'spectra', 'gradcam', 'gradcam_grid', 'pixel_gradients']

def tsne(features, labels, domains, classes=None, seed: int=0, ax: Axes | None=None) -> Axes:
    """Features in the plane: the colour of a point says its domain, the sign its class.
    
    features: (N, d)
    labels: (N,) class numbers
    domains: (N,) domain names
    classes: names of the classes"""
def spectra(values, ax: Axes | None=None) -> Axes:
    """Singular values over their rank, each divided by the first; the height is logarithmic.
    
    values: {name: singular values, largest first}"""
def gradcam(net, x, labels, layer=None) -> torch.Tensor:
    """Where a layer speaks for a class (Selvaraju et al. 2017), by captum.
    
    net: a Net: body → neck → pool → head
    x: (B,3,H,W) normalised images
    labels: (B,) the class asked about
    layer: a module that gives maps (B,C,h,w); default: the body"""
def warm(image, heat) -> np.ndarray: ...
def gradcam_grid(nets, images, labels, classes=None, ax: Axes | None=None) -> Axes:
    """The images, what each net attends to for the right class, and what it says.
    
    nets: a Net, or {name: Net}
    images, labels: (B,3,H,W) uint8; (B,) right classes
    classes: their names"""
def pixel_gradients(net, x, labels, steps: int=32) -> torch.Tensor:
    """Integrated gradients (Sundararajan et al. 2017), by captum.
    
    net: a Net
    x: (B,3,H,W) normalised images
    labels: (B,) the class asked about
    steps: points on the way from the mean image"""
