// What the pictures that move share: SVG elements, and sliders that stand in a sentence. No library, no network.
const NS = 'http://www.w3.org/2000/svg';

export function draw(parent, tag, attributes = {}, text) {
  const e = parent.appendChild(document.createElementNS(NS, tag));
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// `n` numbers between 0 and 1, always the same, from place `from` on: Park and Miller's generator
export function uniforms(n, from = 0) {
  const u = [];
  for (let i = 0, s = 1; i < from + n + 10; i++) {
    s = s * 48271 % 2147483647;
    if (i >= from + 10) u.push(s / 2147483647); // the first ones are small
  }
  return u;
}

// `id` names a paragraph whose <b data-slider="NAME" data-says data-min data-max data-step> are numbers. Each gets
// a slider beside it, and `show(values, svg, outputs)` draws at once and after each move. The paragraph is read
// aloud when a slider has come to rest.
export function live(id, width, height, show) {
  const said = document.getElementById(id);
  if (!said) return;
  const values = {}, outputs = {};
  for (const o of said.querySelectorAll('[data-shows]')) outputs[o.dataset.shows] = o;
  const picture = document.createElement('div');
  picture.className = 'live';
  said.after(picture);
  const svg = draw(picture, 'svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' });
  const spoken = picture.appendChild(document.createElement('span'));
  spoken.className = 'visually-hidden';
  spoken.setAttribute('aria-live', 'polite');
  const redraw = () => {
    svg.replaceChildren();
    show(values, svg, outputs);
    svg.setAttribute('aria-label', said.textContent);
  };
  for (const b of said.querySelectorAll('[data-slider]')) {
    const name = b.dataset.slider, input = document.createElement('input');
    const { min, max, step } = b.dataset;
    Object.assign(input, { type: 'range', min, max, step });
    input.setAttribute('aria-label', b.dataset.says);
    const both = document.createElement('span'); // a number and its slider stay on one line
    both.style.whiteSpace = 'nowrap';
    b.replaceWith(both);
    both.append(b, ' ', input);
    input.value = b.textContent;
    values[name] = Number(input.value);
    input.addEventListener('input', () => {
      values[name] = Number(input.value);
      b.textContent = input.value;
      redraw();
    });
    input.addEventListener('change', () => { spoken.textContent = said.textContent; });
  }
  redraw();
}
