// Forty draws of a pair of methods, and the interval of each. Equals t_interval of fedskew_nb.analysis.stats with the
// floor of image_error of fedskew_nb.analysis.pairs.
import { draw, live, uniforms } from './kit.mjs';

// 97.5 % point of Student's distribution for 2, 3, … 20 seeds
export const T = [
  12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836, 2.446911851, 2.364624252,
  2.306004135, 2.262157163, 2.228138852, 2.200985160, 2.178812830, 2.160368656, 2.144786688,
  2.131449546, 2.119905299, 2.109815578, 2.100922040, 2.093024054,
];
const DRAWS = 40, MOST = 20, APART = 0.1; // the methods disagree on one image in ten

// Differences of n seeds in points: the seed's own luck has a standard deviation of 1, the images' the binomial one.
export function seeds(n, images, truth, which) {
  const u = uniforms(2 * n, 2 * MOST * which);
  return Array.from({ length: n }, (_, s) => {
    const far = Math.sqrt(-2 * Math.log(u[2 * s])), angle = 2 * Math.PI * u[2 * s + 1];
    return truth + far * Math.cos(angle) + 100 * Math.sqrt(APART / images) * far * Math.sin(angle);
  });
}

export function interval(values, images) {
  const n = values.length, sum = v => v.reduce((a, b) => a + b, 0), mean = sum(values) / n;
  const shares = values.map(v => Math.abs(v) / 100);
  const floor = 100 * Math.max(Math.sqrt(sum(shares.map(p => p * (1 - p) / images))), 0.5 / images) / n;
  const se = Math.max(Math.sqrt(sum(values.map(v => (v - mean) ** 2)) / (n - 1) / n), floor);
  return { mean, lo: mean - T[n - 2] * se, hi: mean + T[n - 2] * se };
}

export const forty = (n, images, truth) =>
  Array.from({ length: DRAWS }, (_, which) => interval(seeds(n, images, truth, which), images));

const WIDE = 400, ROW = 6, TOP = 22, LOW = TOP + ROW * DRAWS + 8, x = points => (points + 8) / 20 * WIDE;

function upright(svg, points, text, anchor, dashes) {
  const [x1, x2] = [x(points), x(points)];
  draw(svg, 'line', { x1, x2, y1: TOP - 4, y2: LOW, stroke: 'currentColor', 'stroke-dasharray': dashes });
  draw(svg, 'text', { x: x1, y: TOP - 8, fill: 'currentColor', 'font-size': 13, 'text-anchor': anchor }, text);
}

function show({ n, images, truth }, svg, said) {
  const all = forty(n, images, truth);
  upright(svg, 0, 'no difference', truth < 0 ? 'start' : 'end', '2 3');
  upright(svg, truth, 'the true one', truth < 0 ? 'end' : 'start', '6 3');
  all.forEach(({ mean, lo, hi }, i) => {
    const y = TOP + ROW * (i + 1), ink = lo > 0 ? 'var(--client-1)' : hi < 0 ? 'var(--client-2)' : 'currentColor';
    draw(svg, 'line', { x1: x(lo), x2: x(hi), y1: y, y2: y, stroke: ink, 'stroke-width': 2 });
    draw(svg, 'circle', { cx: x(mean), cy: y, r: 2.5, fill: ink });
  });
  for (const [points, text] of [[-4, '−4'], [0, 0], [4, 4], [8, '8 points']])
    draw(svg, 'text', { x: x(points), y: LOW + 16, fill: 'currentColor', 'font-size': 13, 'text-anchor': 'middle' }, text);
  said.above.textContent = all.filter(i => i.lo > 0).length;
  said.below.textContent = all.filter(i => i.hi < 0).length;
  said.holds.textContent = all.filter(i => i.lo <= truth && truth <= i.hi).length;
}

if (globalThis.document) live('live-interval', WIDE, LOW + 24, show);
