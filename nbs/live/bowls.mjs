// Two clients on two bowls: where E local steps and FedProx's pull μ lead. The formulas of bowl_steps and bowl_rounds.
import { draw, live } from './kit.mjs';

const BOWLS = [[[8, 1], [-1, 1]], [[1, 8], [1, -1]]]; // curvatures and wish of each client
export const BEST = [-7 / 9, -7 / 9];

export function steps(w, k, E, mu, eta = 0.1) {
  const [h, a] = BOWLS[k];
  const rest = h.map((hi, i) => (hi * a[i] + mu * w[i]) / (hi + mu));
  return Array.from({ length: E + 1 }, (_, e) =>
    h.map((hi, i) => rest[i] + (1 - eta * (hi + mu)) ** e * (w[i] - rest[i])));
}

export function rounds(E, mu, n = 30, start = [0.9, 1.1]) {
  const path = [start];
  for (let r = 0; r < n; r++) {
    const [p, q] = [0, 1].map(k => steps(path[r], k, E, mu)[E]);
    path.push(p.map((pi, i) => (pi + q[i]) / 2));
  }
  return path;
}

export const away = w => Math.hypot(w[0] - BEST[0], w[1] - BEST[1]);
// rounds until the server is within .01 of where it ends
export const needed = path => path.filter(w => Math.hypot(w[0] - path.at(-1)[0], w[1] - path.at(-1)[1]) > 0.01).length;

const SIDE = 340, at = ([x, y]) => [(x + 1.5) / 3 * SIDE, (1.5 - y) / 3 * SIDE];

function line(svg, path, colour, radius) {
  const points = path.map(at);
  draw(svg, 'polyline', { points: points.join(' '), fill: 'none', stroke: colour, 'stroke-width': 1.5 });
  for (const [cx, cy] of points) draw(svg, 'circle', { cx, cy, r: radius, fill: colour });
}

function named(svg, w, sign, text, colour, anchor) {
  const [x, y] = at(w);
  draw(svg, 'text', { x, y: y + 6, fill: colour, 'font-size': 18, 'text-anchor': 'middle' }, sign);
  draw(svg, 'text', { x, y: y + 24, fill: colour, 'font-size': 13, 'text-anchor': anchor }, text);
}

function show({ E, mu }, svg, { end, rounds: count }) {
  const server = rounds(E, mu, 100), [cx, cy] = at(BEST);
  for (let r = 1; r <= 7; r++) // the loss of both together is round about its lowest point
    draw(svg, 'circle', { cx, cy, r: r * 45, fill: 'none', stroke: 'currentColor', 'stroke-opacity': 0.25 });
  const colours = ['var(--client-1)', 'var(--client-2)'];
  colours.forEach((c, k) => line(svg, steps(server[0], k, E, mu), c, 2));
  line(svg, server, 'currentColor', 3);
  colours.forEach((c, k) => named(svg, BOWLS[k][1], '×', `client ${k + 1} wants`, c, 'middle'));
  named(svg, BEST, '★', 'best for both', 'currentColor', 'middle');
  end.textContent = away(server.at(-1)).toFixed(2);
  count.textContent = needed(server);
}

if (globalThis.document) live('live-bowls', SIDE, SIDE, show);
