from . import overview           # a Comparison is whole: it can be seen at one glance
