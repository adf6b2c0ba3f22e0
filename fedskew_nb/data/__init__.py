from . import datasets           # a Suite is whole: it can be made from datasets
