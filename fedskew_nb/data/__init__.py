from . import datasets, rows      # a Suite is whole: it can be made from datasets and from rows
