// The Gumbel mask on one picture. Equals brightness_scores and gumbel_mask of fedskew_nb.methods.f2dc.mask.
import { draw, live, uniforms } from './kit.mjs';

const N = 32;
// red + green + blue of each pixel of the page's photo, three hexadecimal digits each
const SUMS = [
  '22d21a22622420e21322722020821d20c2212002211fd1ea20b20f22322b22722420521721021222b22c22823e21b242',
  '23422022f21b22020e21d22021a22420c21821820a21321e22a20a22322523021022122221d22522d23824922b22b213',
  '21822721522922020821321b22120c21d22121a20e21420b21322221021d22a23021e23c21f22c22223a24724123021d',
  '23623a22e22f23b21e21d20622622021f20521722c20c20221622921321524a21722923a22521c22f229227232245223',
  '25222423e22b24a23721522822422220c21b2151fc1fb22423022e24024023921923522221d22722e24122c24e23c254',
  '23621f24823e25523f21d23821f21022521d20420a20821323421a21c23525022c24a24d22c24023924724a257228243',
  '23523323a22b24122222422622c22220722721a21c22620f21e23f22224923824725322d24023923624b24223325a24d',
  '24e24a22323522e24523723122f21420c23521322b21122e23922822821a24e25a25124123423a24025823023a24023b',
  '24124c24f25225823023321520821d21321721820d20721223122f2041d11f522e22322922923f239248245249252240',
  '23c25824c23a24123a22c21d2312102261f31be1821731a21df1e719613a1a61c321e22a23824c25024626a26124724b',
  '24625f25124a24223f23422722421c2081b414410a0df10e14714c1020e40f61491be23125823224c25025224a26624f',
  '25827c25d26a24a24824123b2282201f118010d0d10be0b70c60d80b60ba0b50f419521623623f25824d24324525c24d',
  '26826027d24e25d25224a2442281ff1b31230dc0ee0b90ba0890ad0a609c0ba0c01341b322225825d24a248280261240',
  '26726627626d26924d2362081ce17710a0ea0cf0d20800ad0b40b50ba0b50b80b70d816d20922c25e24724b25126d253',
  '25c26526225d25926022d1c011d0fd0d60c80c80c20a90910a90a70b30a40b30bc0b51101ce22023c23b25025526e270',
  '2702762512582562361e91650e40d60cb0be0c108b0bf0a10ad09b0be0aa0c50b10a40f81761b922623f25224424e270',
  '26424125524d25223a19a1130e60e20d20d30d90c70bb09d0ad0a80a40c70b00950ab0d110517f1d3224263263256252',
  '24f25a24b25a2482031670fe0e10ce0dd0c10be0b90b60a80bf08b0a50b30cb0b90bf0ca0d915d1b422925222f257276',
  '25125825623c2602081360e90fb0bf0d40c90d50c80ce0cb08f0aa0b70ac0be0c40bb08e0b713419321825e24d24d250',
  '25a24226024024520c14f0fa0ee0d30d00c60c50c70dc0c60c30c80ac0c50c30e70dd0c30dc1181891f924023624c249',
  '25125f25c2552551fc15b0f40d60c70d80d40d20c70c80be0cf0c90b80c70cb0e812b10810213b18022823e245244256',
  '23025b24c25524e2241970f50c80c00c80c20e20b90bd0c20cf0c70c40c40c213818516c15214f17422c24b24f25f256',
  '24824224423b2382391d41190d00bf0c80d10cd0ce0c40b30d40cd0bd0b90ea1851f21da1921261101f523423124c23a',
  '25524923223d24223f2121510ec0cf0d50be0b50b90d00b80ad0bb0bf0c60e41a321221c19b0f00fa1a823722224a237',
  '24f22223524023721f1fc18b0e80f10c70b90c60b50b60b90a10bb0d40b20da15e1fb1fa1451000f21a722b24723b242',
  '24124724f23a24c2272201d51270da0c20bf0bf0ce0eb0c60b50b40cb0c00be0f61941d013d0f41461f123024b25d23a',
  '24423a25024224025422120215c0ee0a30cf0bb11d16b11d0a809a0b20d40c30d910f17018519a1ea23926425723b248',
  '23423e25024b23e23c2362041a20fc0c70c80c61291b81810ce09609509d0cf0c40c110615d1ef241255265244234231',
  '23822a23124a23022422e2311cf1320dc0ba0da1171b61cd10b0a10970b012a1080cf0e014a1ed246251248234230240',
  '24823224924024623d2442482121680ff0b90b30f21be1db1400c10ae0ed16717413d1681b222424325924c252245213',
  '24324024822f23723722d23e2321c51130c00b30df1871cc1a91180ff15e1c721d1f720f21524524325b23e25524224a',
  '24c24625a24023323123122d23c1f61420b30be0b51331f31fc1db1ce20420523925323b23626e23f25725724b258246',
].flatMap(row => row.match(/.../g).map(digits => parseInt(digits, 16)));
const NOISE = uniforms(N * N);

const mean = v => v.reduce((sum, x) => sum + x, 0) / v.length;

// each pixel is the mean of those within one of it, then mean 0 and standard deviation `factor`
export function scores(factor) {
  const near = i => [i - 1, i, i + 1].filter(j => j >= 0 && j < N);
  const around = i => near(Math.floor(i / N)).flatMap(r => near(i % N).map(c => SUMS[N * r + c]));
  const blurred = SUMS.map((_, i) => mean(around(i)) / 3);
  const middle = mean(blurred), sd = Math.hypot(...blurred.map(b => b - middle)) / Math.sqrt(N * N - 1);
  return blurred.map(b => factor * (b - middle) / sd);
}

export const mask = (S, sigma, u) =>
  S.map((s, i) => 1 / (1 + Math.exp(-(s + (u ? Math.log(u[i] / (1 - u[i])) : 0)) / sigma)));

export function masks(sigma, factor) {
  const S = scores(factor);
  return { noisy: mask(S, sigma, NOISE), plain: mask(S, sigma) };
}

export const open = M => mean(M.map(m => Number(m > 0.01 && m < 0.99)));
export const turned = (M, plain) => mean(M.map((m, i) => Number((m > 0.5) !== (plain[i] > 0.5))));

const GAP = 12, TOP = 20, SIDE = 4 * N;

function square(svg, place, name, shades) {
  const x = place * (SIDE + GAP);
  draw(svg, 'text', { x: x + SIDE / 2, y: 14, fill: 'currentColor', 'font-size': 13, 'text-anchor': 'middle' }, name);
  const g = draw(svg, 'g', { transform: `translate(${x} ${TOP}) scale(4)`, 'shape-rendering': 'crispEdges' });
  draw(g, 'rect', { width: N, height: N, stroke: 'currentColor', 'stroke-width': 0.3 });
  shades.forEach((shade, i) => {
    const grey = Math.round(255 * shade);
    const look = { x: i % N, y: Math.floor(i / N), width: 1, height: 1, fill: `rgb(${grey} ${grey} ${grey})` };
    draw(g, 'rect', look);
  });
}

function show({ sigma, factor }, svg, said) {
  const { noisy, plain } = masks(sigma, factor);
  square(svg, 0, 'brightness', SUMS.map(s => s / 765));
  square(svg, 1, 'M with noise', noisy);
  square(svg, 2, 'M without', plain);
  said.open.textContent = Math.round(100 * open(noisy));
  said.turned.textContent = Math.round(100 * turned(noisy, plain));
}

if (globalThis.document) live('live-mask', 3 * SIDE + 2 * GAP, TOP + SIDE + 2, show);
