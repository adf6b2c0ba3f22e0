from . import overview, story    # a Comparison is whole: it has tables over suites, and can be told in sentences
