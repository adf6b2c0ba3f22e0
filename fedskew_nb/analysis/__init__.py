from . import overview, story    # a Comparison is whole: it can be seen at one glance, and told in five sentences
