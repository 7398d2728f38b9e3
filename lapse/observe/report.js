// Draws the record that stands in #data. A cell is what can be pointed at: the tokens of one character, one token, or a
// step of an agent. A token stands here for a step too, and a window for an episode.
// With --compare there are two records, A and B, side by side; else one.
// Comes after draw.js.
const data = JSON.parse(document.getElementById("data").textContent);
const records = data.other ? [data, data.other] : [data];
const layers = data.layers, numbers = Object.keys(data.numbers), count = Math.max(...records.map((record) => record.count));
const letter = (record) => "AB"[records.indexOf(record)];

// ---- cells: their tokens first ... last, and what is known of them ----
const cells = [];  // of all records
for (const record of records)
  record.cells.forEach((texts, window) => {
    let next = record.begins[window];
    for (const [text, tokens, step] of texts) {
      cells.push({ number: cells.length, of: record, text, window, step, first: next, last: next + tokens - 1, read: tokens > 0, partner: null });
      next += tokens;
    }
  });
// Of two records, cells all of whose tokens stand in both texts are partners.
if (data.other) {
  const inOther = new Map(cells.filter((cell) => cell.of === data.other && cell.read).map((cell) => [cell.first, cell]));
  for (const cell of cells) {
    const partner = cell.of === data && cell.read ? inOther.get(data.partner[cell.first]) : null;
    if (!partner || partner.last - partner.first !== cell.last - cell.first) continue;
    const places = data.partner.slice(cell.first, cell.last + 1);
    if (places.every((place, i) => place === partner.first + i)) (cell.partner = partner), (partner.partner = cell);
  }
}
const told = layers.length ? Object.keys(layers[0].told) : [];
const over = (cell, values, join) => {
  let result = null;
  for (let i = cell.first; i <= cell.last; ++i)
    if (values[i] !== null) result = result === null ? values[i] : join(result, values[i]);
  return result;
};
// Bits with which the cell was predicted: the loss of a token is that of what follows it, or of the answer that it asks for.
const surprise = (cell) => {
  let bits = null;
  const { nats, begins, answers } = cell.of, before = answers ? 0 : 1;
  if (nats.length === 0) return bits;
  for (let i = cell.first; i <= Math.max(cell.last, cell.first); ++i)
    if (i - before >= begins[cell.window] && (nats[i - before] ?? null) !== null) bits = (bits ?? 0) + nats[i - before] / Math.LN2;
  return bits;
};
const held = (cell, l) => over(cell, cell.of.layers[l].held, larger);
const there = (cell, l) => over(cell, cell.of.layers[l].there, larger) === 1;
// Whether the query of token t could find the cell in memory: its row, or the token itself.
const inMemory = (cell, l, t) => {
  if (t === null || cell.window !== windowOf(cell.of, t)) return false;
  for (let i = cell.first; i <= cell.last; ++i) if (i <= t && t - i <= cell.of.layers[l].held[i]) return true;
  return false;
};
const windowOf = (record, t) => record.begins.findLastIndex((begin) => begin <= t);

// ---- what is shown ----
const state = { by: "held", layer: layers.length > 1 ? "mean" : 0, at: null, of: data };  // `at`: a token of record `of`
// The token that was clicked, in this record; null where it does not have it.
const atIn = (record) => {
  if (record === state.of || state.at === null) return state.at;
  return cells.find((cell) => cell.of === state.of && cell.last === state.at)?.partner?.last ?? null;
};
const shownLayers = (pane) => (pane === "mean" ? layers.map((_, l) => l) : [pane]);
const panesShown = () => (state.layer === "all" ? layers.map((_, l) => l) : [state.layer]).flatMap((pane) => records.map((record) => [pane, record]));
const single = layers.map((_, l) => [l, `${l}`]);
const layerChoices = layers.length > 1 ? [["mean", "mean"], ...single, ["all", "side by side"]] : single;
const ways = [["held", "how long it was held"], ...told.map((name) => [`told:${name}`, name]),
  ...numbers.map((name) => [`number:${name}`, name]), ...(data.nats.length ? [["surprise", "surprise"]] : [])];
if (data.other) ways.unshift(...["held", ...told.map((name) => `told:${name}`)].map((way) => [`change:${way}`, `change of ${way.split(":").at(-1)}`])), (state.by = "change:held");

// report.html#by=surprise&layer=all&at=500 opens in that view.
function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1)), at = Number(wanted.get("at") ?? NaN);
  const layer = layerChoices.find(([name]) => String(name) === wanted.get("layer"));
  if (ways.some(([name]) => name === wanted.get("by"))) state.by = wanted.get("by");
  if (layer) state.layer = layer[0];
  if (Number.isInteger(at) && at >= 0 && at < count) state.at = at;
}

// How much longer B's cell was held than A's, mean of the layers. A cell that is there at the end was held for as long as the
// text went on: nothing is known of two such cells, nor of one that was held for less than the other.
function changeOfHeld([a, b], pane) {
  if (!a || !b || !a.read || !b.read) return null;
  const known = shownLayers(pane).map((l) => {
    const stays = [there(a, l), there(b, l)], change = held(b, l) - held(a, l);
    if (stays[0] && stays[1]) return 0;
    return (stays[0] && change > 0) || (stays[1] && change < 0) ? null : change;
  }).filter((x) => x !== null);
  return known.length ? mean(known) : null;
}

// The number that a cell is shaded by, in one pane; null: none. A change is B's number less A's, for both partners.
function value(cell, pane, by = state.by) {
  if (!cell.read && by !== "surprise") return null;
  if (by === "surprise") return surprise(cell);
  const [kind, name] = by.split(":");
  if (kind === "number") return over(cell, cell.of.numbers[name], larger);
  if (kind === "change") {
    const pair = cell.of === data ? [cell, cell.partner] : [cell.partner, cell];
    if (by === "change:held") return changeOfHeld(pair, pane);
    const [a, b] = pair.map((one) => one && value(one, pane, by.slice(7)));
    return a === null || b === null ? null : b - a;
  }
  const all = shownLayers(pane).map((l) => (by === "held" ? held(cell, l) : over(cell, cell.of.layers[l].told[name], larger)));
  const known = all.filter((x) => x !== null);
  return known.length ? mean(known) : null;
}

// The scale's ends: the 2nd and 98th percentile of all panes, so that few extremes do not make all else pale.
function scaleOf() {
  const all = [];
  for (const [pane, record] of panesShown())
    for (const cell of cells) {
      if (cell.of !== record) continue;
      if (state.by === "held" && cell.read && shownLayers(pane).some((l) => there(cell, l))) continue;
      const x = value(cell, pane);
      if (x !== null && !(changes() && x === 0)) all.push(changes() ? Math.abs(x) : x);
    }
  all.sort((a, b) => a - b);
  return all.length ? [all[Math.floor(0.02 * (all.length - 1))], all[Math.ceil(0.98 * (all.length - 1))]] : null;
}

const changes = () => state.by.startsWith("change:");

function paint() {
  const scale = scaleOf();
  document.querySelectorAll(".text").forEach((text, p) => {
    const [pane, record] = panesShown()[p], ls = shownLayers(pane), at = atIn(record);
    text.querySelectorAll("span[data-cell]").forEach((span) => {
      const cell = cells[span.dataset.cell];
      let colour = "", gone = false;
      if (state.at !== null) {
        const share = cell.read ? mean(ls.map((l) => (inMemory(cell, l, at) ? 1 : 0))) : 0;
        gone = share === 0;
        if (!gone) colour = shade("there", 0.15 + 0.6 * share);
      } else {
        const stays = state.by === "held" && cell.read ? mean(ls.map((l) => (there(cell, l) ? 1 : 0))) : 0;
        const x = value(cell, pane);
        if (changes() && x !== null && scale) colour = x === 0 ? "" : shade(x < 0 ? "there" : "ended", Math.min(1, Math.abs(x) / (scale[1] || 1)));
        else if (stays > 0) colour = shade("there", 0.15 + 0.6 * stays);
        else if (x !== null && scale)
          colour = shade("ended", scale[1] > scale[0] ? Math.min(1, Math.max(0, (x - scale[0]) / (scale[1] - scale[0]))) : 0.5);
      }
      span.style.backgroundColor = colour;
      span.classList.toggle("gone", gone);
      span.classList.toggle("now", at !== null && cell.first <= at && at <= cell.last);
    });
  });
  legend(scale);
}

const letters = lettersOf(cells.filter((cell) => cell.step).map((cell) => cell.step.sight));

function legend(scale) {
  const box = element("legend");
  box.replaceChildren();
  if (letters.length) box.append(make("span", `●: the agent, ${letters.join(", ")}; on the colour that it has ·`));
  const patch = (colour, text) => {
    const made = make("span", "", "box");
    made.style.backgroundColor = colour;
    box.append(made, make("span", text));
  };
  if (state.at !== null) {
    const sizes = panesShown().filter(([, record]) => atIn(record) !== null)
      .map(([pane, record]) => mean(shownLayers(pane).map((l) => record.layers[l].sizes[atIn(record)])));
    box.append(make("span", `When ${data.unit} ${state.at} was read, ${sizes.map(write).join(", ")} rows could be read` +
      `${state.layer === "mean" ? " (mean of the layers)" : ""}.`));
    patch(shade("there", 0.75), "in memory then");
    box.append(make("span", `(click the ${data.unit} again, or press Escape, to go back)`));
    return;
  }
  const unit = { held: `timesteps for which later ${data.unit}s could read it`, surprise: "bits with which it was predicted" }[state.by] ??
    (state.by.startsWith("told") ? `${state.by.slice(5)}, as last told` : state.by.slice(7));
  if (changes()) {
    box.append(make("span", `${ways.find(([name]) => name === state.by)[1]}, B less A; edits are underlined`));
    if (scale) patch(shade("there", 1), write(-scale[1])), patch(shade("ended", 1), `+${write(scale[1])}`);
    return;
  }
  box.append(make("span", unit));
  if (scale) {
    const bar = make("span", "", "scale");
    bar.style.background = `linear-gradient(90deg, ${shade("ended", 0)}, ${shade("ended", 1)})`;
    if (scale[0] === scale[1]) bar.style.background = shade("ended", 0.5);
    box.append(make("span", write(scale[0])), bar, make("span", write(scale[1])));
  }
  if (state.by === "held") patch(shade("there", 0.75), data.headings.length ? `still there when its ${data.part} ended` : "still there at the end");
  box.append(make("span", `· click a ${data.unit} to see what was in memory when it was read`));
}

// ---- the text ----
function fill(text, record) {
  const own = cells.filter((cell) => cell.of === record);
  own.forEach((cell, number) => {
    if (record.headings.length && (number === 0 || own[number - 1].window !== cell.window))
      text.append(make("div", record.headings[cell.window], "window"));
    const span = make("span", "", cell.step ? "step" : !cell.read ? "unread" : data.other && !cell.partner ? "edited" : "");
    span.dataset.cell = cell.number;
    text.append(span);
    if (cell.step) return fillSight(span, cell.step.sight, cell.text);
    if (cell.text === "") span.append(make("span", data.bos && cell.first === record.begins[cell.window] ? "BOS" : "∅", "mark"));
    visible(cell.text).split("\n").forEach((line, i) => {
      if (i > 0) span.append(make("span", "↵", "mark"), "\n");
      span.append(line);
    });
  });
}

function build() {
  const panes = element("panes");
  panes.replaceChildren();
  document.body.classList.toggle("wide", state.layer === "all" || Boolean(data.other));
  for (const [pane, record] of panesShown()) {
    const made = make("div", "", "pane"), text = make("div", "", "text");
    const title = [...(data.other ? [letter(record)] : []), ...(state.layer === "all" ? [`layer ${pane}`] : [])];
    if (title.length) made.append(make("h2", title.join(", ")));
    text.tabIndex = 0;
    text.setAttribute("role", "textbox");
    text.setAttribute("aria-readonly", "true");
    text.setAttribute("aria-label", ["What was read; arrow keys point, Enter shows memory then", ...title].join(", "));
    fill(text, record);
    made.append(text);
    panes.append(made);
  }
  paint();
}

function choices(id, entries, key) {
  const box = element(id);
  for (const [name, text] of entries) {
    const button = make("button", text);
    button.setAttribute("aria-pressed", state[key] === name);
    button.dataset.value = name;
    button.addEventListener("click", () => {
      state[key] = name;
      for (const other of box.children) other.setAttribute("aria-pressed", other === button);
      if (key === "layer") build(), drawChart();
      else state.at = null, paint();
    });
    box.append(button);
  }
}

// ---- the chart of sizes ----
const largest = Math.max(1, ...records.flatMap((record) => record.layers.map((layer) => layer.max)));

// `cell`: one that is pointed at; null: none.
function drawChart(cell = null) {
  const bucket = Math.ceil(count / 1500), curves = [];
  for (const record of records) record.layers.forEach((layer, l) => {
    const points = [];
    for (let t = 0; t < record.count; t += bucket) points.push([t, Math.max(...layer.sizes.slice(t, t + bucket))]);
    curves.push({ points, layer: l, dashed: record !== data, strong: typeof state.layer === "string" || state.layer === l });
  });
  const span = cell && cell.read ? [cell.first, cell.last + Math.max(...layers.map((_, l) => held(cell, l)))] : null;
  element("chart").innerHTML = chart({ curves, from: 0, to: count - 1, largest, begins: data.begins.slice(1), span });
}

// ---- the tooltip ----
function tip(cell, event) {
  const box = element("tip"), table = make("table"), bits = surprise(cell), begin = cell.of.begins[cell.window];
  const place = (data.other ? `${letter(cell.of)}, ` : "") + (cell.of.headings.length ? `${data.part} ${cell.window}, ` : "");
  const times = cell.last > cell.first ? `times ${cell.first - begin}–${cell.last - begin}` : `time ${cell.first - begin}`;
  const head = make("div");
  head.append(make("b", cell.text === "" ? (cell.step ? "nothing of note" : "no text") : visible(cell.text).replace(/\n/g, "↵")), ` ${place}${cell.read ? times : "predicted, not read"}`,
    bits === null ? "" : `, ${cell.of.answers ? "answered" : "predicted"} with ${write(bits)} bits`);
  box.replaceChildren(head);
  if (cell.step) head.append(sightTable(cell.step.sight), make("div", `action ${cell.step.act}`), make("div", numbers.map((name) => `${name} ${write(cell.of.numbers[name][cell.first])}`).join(", ")));
  if (cell.read) {
    row(table, ["layer", "held for", ...told], "th");
    for (const one of cell.partner ? [cell, cell.partner] : [cell]) one.of.layers.forEach((layer, l) => row(table, [one === cell ? `${l}` : `${l} in ${letter(one.of)}`, there(one, l) ? `${held(one, l)}, still there` : `${held(one, l)}`,
      ...told.map((name) => write(over(one, layer.told[name], larger)))]));
    box.append(table);
  }
  placeTip(event);
}

const cellAt = (event) => {
  const span = event.target.closest?.("span[data-cell]");
  return span ? cells[span.dataset.cell] : null;
};
let pointed = null;
function point(cell, place) {
  if (cell) tip(cell, place);
  else element("tip").hidden = true;
  if (cell !== pointed) drawChart((pointed = cell));
}
// Memory as it was when the cell was read; once more: as it is at the end.
function choose(cell) {
  if (!cell || !cell.read) return;
  state.at = state.of === cell.of && state.at === cell.last ? null : cell.last;
  state.of = cell.of;
  paint();
}
element("panes").addEventListener("mousemove", (event) => point(cellAt(event), event));
element("panes").addEventListener("mouseleave", () => {
  element("tip").hidden = true;
  drawChart((pointed = null));
});
element("panes").addEventListener("click", (event) => choose(cellAt(event)));
element("panes").addEventListener("keydown", (event) => {
  const spans = [...event.target.querySelectorAll("span[data-cell]")], from = spans.findIndex((span) => cells[span.dataset.cell] === pointed);
  if (event.key === "Enter" && pointed) return event.preventDefault(), choose(pointed);
  const to = { ArrowLeft: from - 1, ArrowRight: from + 1, ArrowUp: from - 20, ArrowDown: from + 20, Home: 0, End: spans.length - 1 }[event.key];
  if (to === undefined || !spans.length) return;
  event.preventDefault();
  const span = spans[Math.min(spans.length - 1, Math.max(0, to))];
  document.querySelectorAll(".text .pointed").forEach((one) => one.classList.remove("pointed"));
  span.classList.add("pointed");
  span.scrollIntoView({ block: "nearest" });
  const { left, bottom } = span.getBoundingClientRect();
  point(cells[span.dataset.cell], { clientX: left, clientY: bottom });
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.at !== null) state.at = null, paint();
});

// ---- the whole page ----
element("title").textContent = data.title;
element("configuration").textContent = data.configuration;
for (const [name, text] of data.facts) row(element("facts"), [name, text]);
row(element("sizes"), ["", "mean rows", "max rows", "mean time held", "still there"]);
for (const record of records) record.layers.forEach((layer, l) => {
  const ended = layer.held.filter((_, i) => !layer.there[i]);
  row(element("sizes"), [data.other ? `${letter(record)}, layer ${l}` : `layer ${l}`, write(layer.mean), `${layer.max}`, ended.length ? write(mean(ended)) : "–", `${layer.there.reduce((a, b) => a + b, 0)}`]);
  const key = make("span", "", "key");
  const colour = colourOf(l);  // dashed as its curve is
  key.style.background = record === data ? colour : `repeating-linear-gradient(90deg, ${colour} 0 3px, transparent 3px 5px)`;
  element("sizes").lastChild.firstChild.prepend(key);
});
// The first edits: what stands in A and in B, for how long its cell that was held longest was held, with a + where one is still
// there, and the largest span or other number that the method tells; means of the layers.
function edits() {
  const [a, b] = records.map((record) => cells.filter((cell) => cell.of === record && cell.read)), table = make("table");
  const place = new Map(b.map((cell, i) => [cell, i])), largest = (of, number) => of.reduce((most, cell) => Math.max(most, mean(layers.map((_, l) => number(cell, l)))), -Infinity);
  const stays = (of) => (of.some((cell) => layers.some((_, l) => there(cell, l))) ? "+" : "");
  const numbersOf = (of) => told.map((name) => write(largest(of, (cell, l) => over(cell, cell.of.layers[l].told[name], larger) ?? 0)));
  const said = (of) => (of.length ? [visible(of.map((cell) => cell.text).join("")).replace(/\n/g, "↵"), write(largest(of, held)) + stays(of), ...numbersOf(of)] : ["–", "", ...told.map(() => "")]);
  let edited = [], next = 0, more = 0;
  row(table, ["A", "held for", ...told, "B", "held for", ...told]);
  for (const cell of [...a, null]) {
    if (cell && !cell.partner) edited.push(cell);
    else {
      const end = cell ? place.get(cell.partner) : b.length, inserted = b.slice(next, end);
      const changed = edited.length || inserted.length;
      if (changed && table.rows.length <= 30) row(table, [...said(edited), ...said(inserted)], "td");
      else if (changed) ++more;
      (edited = []), (next = end + 1);
    }
  }
  element("edits").append(make("h2", "Edits"), table);
  if (more) element("edits").append(make("p", `… and ${more} more, which the text shows`));
}
if (data.other) edits();
readAddress();
choices("by", ways, "by");
choices("layer", layerChoices, "layer");
drawChart();
build();
