from . import merge, places      # a Method is whole: its laws are in merge, its surgery and rules in places
