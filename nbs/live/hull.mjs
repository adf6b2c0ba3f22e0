// Three unit updates, their hull and its point nearest to the origin. Equals min_norm of fedskew_nb.methods.fdse.consensus.
import { draw, live } from './kit.mjs';

export const unit = degrees => [Math.cos(degrees * Math.PI / 180), Math.sin(degrees * Math.PI / 180)];
const cross = (a, b) => a[0] * b[1] - a[1] * b[0];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
const length = v => Math.hypot(...v);
const mixed = (d, lam) => [0, 1].map(i => d.reduce((sum, v, k) => sum + lam[k] * v[i], 0));

// The weights: where the triangle holds the origin, its areas seen from there; else the nearest side's middle,
// since two vectors of equal length get ½ each.
export function weights(d) {
  const areas = [cross(d[1], d[2]), cross(d[2], d[0]), cross(d[0], d[1])];
  const all = areas[0] + areas[1] + areas[2];
  if (areas.every(a => a * all > 0)) return areas.map(a => a / all);
  const sides = [[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]];
  return sides.reduce((best, lam) => length(mixed(d, lam)) < length(mixed(d, best)) - 1e-12 ? lam : best);
}

export function nearest(angles) {
  const d = angles.map(unit), lam = weights(d), u = mixed(d, lam), mean = mixed(d, [1 / 3, 1 / 3, 1 / 3]);
  return { d, lam, u, mean, worst: Math.min(...d.map(v => dot(v, mean))) };
}

const SIDE = 340, at = ([x, y]) => [(x + 1.3) / 2.6 * SIDE, (1.3 - y) / 2.6 * SIDE];

function arrow(svg, to, colour, width, name) {
  const [[x1, y1], [x2, y2], [x, y]] = [[0, 0], to, to.map(t => 1.13 * t)].map(at);
  draw(svg, 'line', { x1, y1, x2, y2, stroke: colour, 'stroke-width': width });
  draw(svg, 'circle', { cx: x2, cy: y2, r: 2 + width, fill: colour });
  if (name) draw(svg, 'text', { x, y: y + 5, fill: 'currentColor', 'font-size': 14, 'text-anchor': 'middle' }, name);
}

function show({ first, second, third }, svg, said) {
  const { d, lam, u, mean, worst } = nearest([first, second, third]), [cx, cy] = at([0, 0]);
  draw(svg, 'circle', { cx, cy, r: SIDE / 2.6, fill: 'none', stroke: 'currentColor', 'stroke-opacity': 0.3 });
  draw(svg, 'polygon', { points: d.map(at).join(' '), fill: 'currentColor', 'fill-opacity': 0.12 });
  d.forEach((v, k) => arrow(svg, v, 'currentColor', 1.5, k + 1));
  arrow(svg, mean, 'var(--client-2)', 2);
  arrow(svg, u, 'var(--client-1)', 4);
  if (length(u) > 1e-9) { // the promise: all arrows end on this line or beyond it
    const points = [-1.2, 1.2].map(t => at([u[0] - t * u[1] / length(u), u[1] + t * u[0] / length(u)]));
    draw(svg, 'polyline', { points: points.join(' '), stroke: 'var(--client-1)', 'stroke-dasharray': '5 4' });
  }
  draw(svg, 'text', { x: 8, y: SIDE - 26, fill: 'var(--client-1)', 'font-size': 14 }, '● u, nearest');
  draw(svg, 'text', { x: 8, y: SIDE - 8, fill: 'var(--client-2)', 'font-size': 14 }, '● mean');
  said.weights.textContent = lam.map(l => l.toFixed(2)).join(', ');
  said.length.textContent = length(u).toFixed(2);
  said.worst.textContent = (Math.round(100 * worst) / 100 + 0).toFixed(2).replace('-', '−');
}

if (globalThis.document) live('live-hull', SIDE, SIDE, show);
