"""The images of the plan's sets: `build(seed, suite, pilot, data)`; pilots see none that a verdict tests."""

import json
from dataclasses import replace
from functools import lru_cache
from fedskew_nb.data.suites.backgrounds import CONTEXT_KINDS, CONTEXT_SIZES, SEEN, all_classes
from fedskew_nb.data.suites.colored import COLORED, colored_clients, own_digits
from fedskew_nb.data.suites.emoji import CONTEXTS, draw_emoji
from fedskew_nb.data.load import load_suite
from fedskew_nb.data.splits import uneven as made_uneven
from fedskew_nb.data.suite import Suite
from fedskew_nb.core.names import Recipe
import photographs

def tested_on(suite:Suite, tests:dict)->Suite:
    "The suite with other test sets, which its clients have, too."
    clients = [replace(c, test=tests[c.domain]) for c in suite.clients]
    return replace(suite, clients=clients, tests=tests)

def emoji(seed:int, pilot:bool, tests:int, uneven:bool=False)->Suite:
    "The embedded suite with more test images; a pilot's seed draws others."
    suite = load_suite('emoji-pacs', 'quick', seed)
    suite = tested_on(suite, {d: draw_emoji(d, 'test', tests, suite.image_size, seed) for d in suite.tests})
    return made_uneven(suite, seed) if uneven else suite

def digits(seed:int, pilot:bool)->Suite:
    "Five digit domains; pilots are scored on validation images, for all seeds test the same optdigits."
    suite = load_suite('skew-digits', 'standard', seed)
    return tested_on(suite, {c.domain: c.val for c in suite.clients}) if pilot else suite

HUES = COLORED['quick'] | dict(test=250)       # all digits of the test half, in 20 hues

def hues(seed:int, pilot:bool, train:int)->Suite:
    "Twenty hues; pilots are scored on digits of the training half that nobody trains on."
    suite = load_suite('colored-mnist', 'quick', seed)
    s = HUES | dict(train=train)
    clients = colored_clients(s, seed, False)
    first = 100+100//5                         # of a client's 250 digits, what any of the sets trains on
    if pilot:
        others = [own_digits(s, c.id, 'train', 250, seed, False)[first:] for c in clients]
        clients = [replace(c, test=t) for c, t in zip(clients, others)]
    name = 'colored-mnist' if train == 100 else f'colored-mnist-{train}'
    tests = {c.domain: c.test for c in clients}
    return replace(suite, name=name, base='colored-mnist', clients=clients, tests=tests, unseen={})

def backgrounds(seed:int, pilot:bool, unseen:int)->Suite:
    "Vehicles before three backgrounds that nobody had; pilots are scored before those that somebody has."
    suite = load_suite('context-vehicles', 'quick', seed)
    if pilot: return replace(suite, unseen={})
    s, names = CONTEXT_KINDS[suite.name] | CONTEXT_SIZES['quick'], list(CONTEXTS)
    new = {names[c]: all_classes(suite.name, s, c, unseen, seed) for c in range(SEEN, len(names))}
    return replace(suite, unseen=new)

SUITES = dict(emoji=emoji, digits=digits, hues=hues, backgrounds=backgrounds,
              photographs=photographs.photographs)

@lru_cache(1)
def built(suite:str, seed:int, pilot:bool, data:str)->Suite:
    return SUITES[suite](seed, pilot, **json.loads(data))

def build(seed:int, suite:str, pilot:bool, data:str)->Suite: # seed first, for a Recipe; data: JSON
    return built(suite, seed, pilot, data)

NETS = {'lite0-adapter-64': photographs.lite0_adapter}

def model(name:str):
    "What `model_recipe` reads: a text, or a net of the plan's own, known by its name."
    return Recipe(name, NETS[name]) if name in NETS else name
