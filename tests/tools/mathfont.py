"""Make the maths font of the site: Latin Modern Math, cut to blocks of characters, under another name.

    python tests/tools/mathfont.py [latinmodern-math.otf]      # Debian: apt install fonts-lmodern

Without such a font a browser sets formulas in what the reader has, and where that has no table of maths,
indices stand on the line. Blocks and not single characters, so that a new formula seldom needs a new font.
WOFF, not WOFF2: 14 kB more, and the docs check reads it without a library for Brotli.
"""

import sys
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from project import NBS

DEBIAN = '/usr/share/texmf/fonts/opentype/public/lm-math/latinmodern-math.otf'
FONT = NBS / 'fonts/fedskew-math.woff'
NAME = 'Fedskew Math'
BLOCKS = (
    '0020-007E 00A0-00B7 00D7-00D7 00F7-00F7 0302-0308 0391-03F5 2010-2063 2102-2135 '
    '2190-2195 21A6-21A6 21D0-21D5 2200-22A5 22C0-22C6 22EE-22F1 2308-230B 23DE-23DF 27E8-27E9 2A7D-2A7E '
    '1D400-1D49B 1D49C-1D4CF 1D538-1D56B 1D6E2-1D71B 1D7CF-1D7CF 1D7D9-1D7D9'
    # last: bold, italic, both, script, double-struck; italic Greek; a bold 1, a double-struck 1
)

def wanted():
    "Every code point of the blocks."
    ends = ([int(end, 16) for end in block.split('-')] for block in BLOCKS.split())
    return [c for first, last in ends for c in range(first, last + 1)]

def characters(path=FONT):
    "What a font has a glyph for."
    return {chr(c) for c in TTFont(path).getBestCmap()}

def rename(font):
    "Another name, as the licence asks; copyright and version stay."
    names = {1: NAME, 3: f'{NAME}, from Latin Modern Math', 4: NAME, 6: NAME.replace(' ', '')}
    for record in font['name'].names[:]:
        if record.nameID in names:
            record.string = names[record.nameID]
        elif record.nameID > 6:
            font['name'].names.remove(record)
    cff = font['CFF '].cff
    cff.fontNames = [names[6]]
    cff.topDictIndex[0].FullName = cff.topDictIndex[0].FamilyName = NAME

def make(source, path=FONT):
    font = TTFont(source, recalcTimestamp=False)
    for table in font['cmap'].tables:
        table.cmap[0x203E] = 'overlinecmb'  # what MathML has for \overline
    kept = Options(layout_features=[], hinting=False, desubroutinize=True, name_IDs=['*'])
    kept.drop_tables += ['FFTM', 'GDEF', 'GPOS', 'GSUB']
    cut = Subsetter(kept)
    cut.populate(unicodes=wanted())
    cut.subset(font)
    rename(font)
    font.flavor = 'woff'
    path.parent.mkdir(exist_ok=True)
    font.save(path)

def main(source=DEBIAN):
    make(source)
    print(f'{FONT.name}: {len(characters())} characters, {FONT.stat().st_size:,} bytes')

if __name__ == '__main__':
    main(*sys.argv[1:])
