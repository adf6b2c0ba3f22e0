from . import story    # a Comparison is whole: it can be told in five sentences
