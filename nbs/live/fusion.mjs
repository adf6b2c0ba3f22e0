// Two opinions about three classes, and what Dempster's rule makes of them. Equals fuse and beliefs of
// fedskew_nb.methods.rfeddis.evidence.
import { draw, live } from './kit.mjs';

const K = 3;
export const fuse = (a, b) => a.map((x, k) => x + b[k] + x * b[k] / K);

// beliefs e/S and what is left open, K/S
export function masses(e) {
  const S = e.reduce((sum, x) => sum + x, K);
  return [...e.map(x => x / S), K / S];
}

const [L, TOP, SIDE] = [110, 20, 280], HIGH = SIDE * Math.sqrt(3) / 2;
// the mean of Dir(e + 1) in a triangle whose corners are the classes
const at = e => {
  const S = e.reduce((sum, x) => sum + x, K), p = e.map(x => (x + 1) / S);
  return [L + SIDE * (p[1] + p[2] / 2), TOP + HIGH * (1 - p[2])];
};
const CLASSES = ['var(--class-0)', 'var(--class-1)', 'var(--class-2)', 'currentColor'];

function bar(svg, y, name, e) {
  let x = L;
  draw(svg, 'text', { x: L - 8, y: y + 16, fill: 'currentColor', 'font-size': 14, 'text-anchor': 'end' }, name);
  masses(e).forEach((width, k) => {
    draw(svg, 'rect', { x, y, width: SIDE * width, height: 22, fill: CLASSES[k], 'fill-opacity': k === K ? 0.25 : 1 });
    x += SIDE * width;
  });
}

function show({ g0, g1, g2, l0, l1, l2 }, svg, said) {
  const G = [g0, g1, g2], l = [l0, l1, l2], both = fuse(G, l);
  const corners = [[L, TOP + HIGH], [L + SIDE, TOP + HIGH], [L + SIDE / 2, TOP]];
  draw(svg, 'polygon', { points: corners.join(' '), fill: 'none', stroke: 'currentColor', 'stroke-opacity': 0.4 });
  corners.forEach(([cx, cy], k) => {
    draw(svg, 'circle', { cx, cy, r: 6, fill: CLASSES[k] });
    draw(svg, 'text', { x: cx + 10, y: cy - 8, fill: 'currentColor', 'font-size': 13 }, `class ${k}`);
  });
  for (const [name, e, r] of [['global', G, 4], ['local', l, 4], ['fused', both, 6]]) {
    const [cx, cy] = at(e);
    draw(svg, 'circle', { cx, cy, r, fill: 'currentColor' });
    draw(svg, 'text', { x: cx + 9, y: cy + 5, fill: 'currentColor', 'font-size': 14 }, name);
  }
  [['global', G], ['local', l], ['fused', both]].forEach(([name, e], i) => bar(svg, TOP + HIGH + 24 + 30 * i, name, e));
  const m = masses(both);
  said.beliefs.textContent = m.slice(0, K).map(b => b.toFixed(2)).join(', ');
  said.open.textContent = m[K].toFixed(2);
}

if (globalThis.document) live('live-fusion', L + SIDE + 60, TOP + HIGH + 120, show);
