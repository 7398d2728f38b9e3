"use strict";
// What the pages of `lapse inspect` and `lapse serve` share: words, numbers, shades, what an agent sees, and curves.
// Text only ever enters a page as text nodes, never as markup.
const element = (id) => document.getElementById(id);
const make = (name, text = "", kind = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const write = (x) => (x === null || !isFinite(x) ? "–" : Math.abs(x) >= 100 || Number.isInteger(x) ? x.toFixed(0) : x.toPrecision(3));

const larger = (a, b) => Math.max(a, b);
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const shade = (hue, share) => `rgba(var(--${hue}), ${(0.06 + 0.84 * share).toFixed(3)})`;

// Characters that would not be seen, or would move others, become marks: controls (C0, C1), marks of direction, spaces without
// width, soft hyphens, the byte order mark. Joiners within emoji stay.
const UNSEEN = /[\u0080-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
function visible(text) {
  return text.replace(/[\u0000-\u0009\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0))).replace(/\u007f/g, "\u2421")
    .replace(UNSEEN, "\u25cc");
}

// What an agent saw, the agent in the middle: in each place the first letter of what is there, in its colour if one of
// its words is one; below that a label. `sight`: the words of each place.
function fillSight(span, sight, label) {
  const side = Math.sqrt(sight.length);
  if (sight.length > 1 && Number.isInteger(side)) {
    const view = make("div", "", "view");
    view.style.gridTemplateColumns = `repeat(${side}, 1fr)`;
    sight.forEach((words, i) => {
      const colour = words.find((word) => CSS.supports("color", word)), thing = words.find((word) => word !== colour);
      const place = make("i", i === (sight.length - 1) / 2 ? "●" : thing?.[0] ?? "", colour ? "coloured" : words.length ? "thing" : "");
      if (colour) place.style.backgroundColor = colour;
      view.append(place);
    });
    span.append(view);
  }
  span.append(make("div", label === "" ? "·" : label, "label"));
}

// The letter of each thing that was seen, "b: block"; the middle place, where the agent is, shows none.
function lettersOf(sights) {
  const around = sights.flatMap((sight) => sight.filter((_, i) => i !== (sight.length - 1) / 2));
  const things = new Set(around.map((words) => words.find((word) => !CSS.supports("color", word))));
  return [...things].filter((thing) => thing).sort().map((thing) => `${thing[0]}: ${thing}`);
}

// The words of each place that was seen, as a table.
function sightTable(sight) {
  const side = Number.isInteger(Math.sqrt(sight.length)) ? Math.sqrt(sight.length) : sight.length, table = make("table", "", "sight");
  for (let i = 0; i < sight.length; i += side) row(table, sight.slice(i, i + side).map((words) => words.join(" ")), "td");
  return table;
}

// ---- the chart of sizes ----
const colours = ["#2f81f7", "#d6409f", "#2da44e", "#bf8700", "#a371f7", "#f0503c", "#7d8590", "#0aa5c2"];
const colourOf = (l) => colours[l % colours.length];

function ticks(top, from = 0) {
  const range = Math.max(1, top - from);
  const step = [1, 2, 5].map((m) => m * 10 ** Math.floor(Math.log10(range))).flatMap((s) => [s / 10, s]).sort((a, b) => a - b)
    .find((s) => s >= 1 && range / s <= 5) ?? Math.max(1, range);
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.floor((top - first) / step) + 1 }, (_, i) => first + i * step);
}

// Curves of sizes over times from ... to, as SVG. curves: [{points: [[time, size]], layer, dashed, strong}]; begins: times
// at which memory began anew; span: the times of what is pointed at; at: a time. Made of numbers and words of our own only.
function chart({ curves, from, to, largest, begins = [], span = null, at = null, W = 400, H = 210 }) {
  const LEFT = 38, RIGHT = 8, TOP = 8, BOTTOM = 22;
  const X = (t) => LEFT + ((W - LEFT - RIGHT) * (t - from)) / Math.max(1, to - from);
  const Y = (size) => H - BOTTOM - ((H - TOP - BOTTOM) * size) / largest;
  const line = (x1, y1, x2, y2, colour) => `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${colour}"/>`;
  const parts = [];
  for (const size of ticks(largest))
    parts.push(line(LEFT, Y(size), W - RIGHT, Y(size), "var(--grid)"), `<text x="${LEFT - 5}" y="${Y(size) + 3}" text-anchor="end" class="axis">${size}</text>`);
  for (const t of ticks(Math.max(to, from + 1), from))
    parts.push(`<text x="${X(t)}" y="${H - 8}" text-anchor="middle" class="axis">${t}</text>`);
  for (const begin of begins) parts.push(line(X(begin), TOP, X(begin), H - BOTTOM, "var(--line)"));
  for (const { points, layer, dashed, strong } of curves)
    parts.push(`<polyline class="curve" points="${points.map(([t, size]) => `${X(t).toFixed(1)},${Y(size).toFixed(1)}`).join(" ")}" fill="none" stroke="${colourOf(layer)}" stroke-dasharray="${dashed ? "3 2" : "none"}" stroke-width="${strong ? 1.4 : 0.7}" opacity="${strong ? 1 : 0.4}"/>`);
  if (span) {
    const begin = Math.max(from, span[0]);
    parts.push(`<rect x="${X(begin)}" y="${TOP}" width="${Math.max(0, X(Math.min(to, span[1])) - X(begin))}" height="${H - TOP - BOTTOM}" fill="rgb(245, 158, 11)" opacity="0.15"/>`,
      line(X(begin), TOP, X(begin), H - BOTTOM, "var(--ink)"));
  }
  if (at !== null) parts.push(line(X(at), TOP, X(at), H - BOTTOM, "var(--now)"));
  return `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="Memory sizes of each layer over time">${parts.join("")}</svg>`;
}

// ---- the tooltip ----
function row(table, texts, first = "th") {
  const made = make("tr");
  texts.forEach((text, i) => made.append(make(i === 0 ? first : "td", text)));
  table.append(made);
}

// Beside the pointer, and within the window.
function placeTip(event) {
  const box = element("tip");
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  box.style.top = `${event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 12) : event.clientY + 18}px`;
}

