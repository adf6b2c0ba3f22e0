from . import reading            # a History is whole: it can be read
