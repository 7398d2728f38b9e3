// The text of each pane, token by token, and its shades.
const shownLayers = (pane, lane) => (pane === "mean" ? Array.from({ length: layersOf(lane) }, (_, l) => l) : [pane]);
const mostLayers = () => Math.max(...lanesOf().map((lane) => lane.layers));
const panes = () => (view.layer === "all" ? Array.from({ length: mostLayers() }, (_, l) => l) : [view.layer]).flatMap((pane) => lanesOf().map((_, lane) => [pane, lane]))
  .filter(([pane, lane]) => pane === "mean" || pane < layersOf(lane));
const moment = () => view.at ?? now;
const inMemory = (one, lane, l, t) => one.t <= t && (one.rows[lane][l].gone === null || t <= one.rows[lane][l].gone);
const bitsOf = (one, lane) => one.bits?.[lane] ?? null;

// The number that a token is shaded by; null: none.
function value(one, pane, lane) {
  if (view.by === "surprise") return bitsOf(one, lane);
  const name = lanesOf()[lane].names.indexOf(nameOf(view.by));  // -1: its method does not tell of that
  const all = shownLayers(pane, lane).map((l) => {
    const row = one.rows[lane][l];
    if (view.by === "held") return row.gone === null ? null : row.gone - one.t;
    return row.told[name] ?? null;
  });
  const known = all.filter((x) => x !== null);
  return known.length ? mean(known) : null;
}

let scale = null;
function findScale() {
  if (view.by === "live") return (scale = null);
  const all = [];
  for (const [pane, lane] of panes()) for (const one of tokens) {
    const x = value(one, pane, lane);
    if (x !== null) all.push(x);
  }
  all.sort((a, b) => a - b);
  scale = all.length ? [all[Math.floor(0.02 * (all.length - 1))], all[Math.ceil(0.98 * (all.length - 1))]] : null;
}

// How a token is shaded: with a hue ("": none), how strongly, and whether it is forgotten.
function shadeOf(one, pane, lane) {
  const first = pane === "mean" ? 0 : pane, last = pane === "mean" ? layersOf(lane) : pane + 1, t = moment();
  let count = 0;
  for (let l = first; l < last; ++l) if (inMemory(one, lane, l, t)) ++count;
  const share = count / (last - first), there = { gone: false, hue: share > 0 ? "there" : "", strength: 0.15 + 0.6 * share };
  if (view.at !== null || view.by === "live") return { ...there, gone: share === 0 };
  const x = value(one, pane, lane);
  if (x === null || !scale) return view.by === "held" ? there : { gone: false, hue: "", strength: 0 };
  return { gone: false, hue: "ended", strength: scale[1] > scale[0] ? Math.min(1, Math.max(0, (x - scale[0]) / (scale[1] - scale[0]))) : 0.5 };
}
// Shades are classes, which many tokens share: a colour of its own for each would cost the browser as much as its text.
const SHADES = 20;
const rules = ["there", "ended"].flatMap((hue) => Array.from({ length: SHADES + 1 }, (_, k) => `.text .${hue}${k} { background: ${shade(hue, k / SHADES)}; }`));
document.head.append(make("style", rules.join("\n")));

// ---- the text ----
let texts = [];  // elements, one for each pane
function buildPanes() {
  element("panes").replaceChildren();
  texts = panes().map(([pane, lane]) => {
    const made = make("div", "", "pane"), text = make("div", "", "text");
    const { name, method, options } = lanesOf()[lane], changed = Object.entries(options).map(([key, value]) => `${key} ${value}`);
    const title = [...(lanesOf().length > 1 ? [`${"AB"[lane]}: ${[name, method, ...changed].join(", ")}`] : []), ...(view.layer === "all" ? [`layer ${pane}`] : [])];
    if (title.length) made.append(make("h2", title.join(", ")));
    text.tabIndex = 0;
    text.setAttribute("role", "textbox");
    text.setAttribute("aria-readonly", "true");
    text.setAttribute("aria-label", ["What was read", ...title].join(", "));
    made.append(text);
    element("panes").append(made);
    return text;
  });
  for (const one of tokens) one.spans = [];
  (placedTo = base), (gaps = false);
  draw(true);
}

// The text goes into an element for each line: to add to one costs the browser nothing for the others. Lines without end
// are cut, at a space if one comes.
const LONG = 800;
function placed(one, text, lane) {
  const act = one.acts?.[lane], span = document.createElement("span");
  span.kind = act ? "step " : one.written ? "written " : "";
  span.setAttribute("data-t", one.t);
  let line = text.lastChild;
  const long = line?.count > LONG && (line.count > 1.2 * LONG || /\s$/.test(line.lastChild.textContent));
  if (!line || line.ended || long || act?.begins) text.append((line = make("div", "", "line"))), (line.count = 0);
  ++line.count;
  if (act?.begins) line.append(make("div", `episode ${act.episode}`, "window"));
  line.append(span);
  if (act) {
    fillSight(span, act.sight, act.text);
    span.append(make("div", `${act.action}${act.reward ? `, reward ${write(act.reward)}` : ""}`, "mark"));
    if ("score" in act) span.append(make("div", `${about.score} ${write(act.score)}`, "mark"));
    return span;
  }
  if (one.text === "") span.append(make("span", one.bos ? "BOS" : "·", "mark"));
  const parts = visible(one.text).split("\n");
  span.append(parts[0]);
  for (let i = 1; i < parts.length; ++i) span.append(make("span", "↵", "mark"), i + 1 < parts.length || parts[i] !== "" ? "\n" : "", parts[i]);
  line.ended = one.text.endsWith("\n");
  return span;
}

// Of tokens that come faster than anybody reads, only the newest are placed; a line "…" stands for the others until the
// text stops, and all that are kept are placed anew.
const MOST = 80;
let placedTo = 0, gaps = false;  // tokens before this time have their place, or are in a gap
let settle = 0;                  // frames to come that scroll again: lines get their heights as they come into view
function leaveGap(text) {
  const gap = make("div", "…", "dropped");
  gap.ended = gap.gap = true;
  text.append(gap);
}

// While tokens come faster than they can be told apart, frames are so far apart that drawing takes about a sixteenth of the
// time (the model may need the core), and curves are drawn rarely (ms).
const SHARE = 16, SOONEST = 50, LATEST = 1000, RARE = 400;
let wanted = false, late = 0, whole = false, wholeAt = 0, drawnAt = 0, chartLate = 0;
let fresh = 0;  // tokens that came since the last frame
let took = 0;   // ms that the last frame took, layout and painting included
// Draws what changed, at most once a frame. Everything where the scale may have changed, at most twice a second.
function draw(all = false) {
  whole ||= all;
  if (wanted && !(all && late)) return;
  clearTimeout(late), (late = 0), (wanted = true);
  const wait = fresh > 2 && !all ? drawnAt + Math.min(LATEST, Math.max(SOONEST, SHARE * took)) - performance.now() : 0;
  if (wait > 0) late = setTimeout(() => ((late = 0), requestAnimationFrame(frame)), wait);
  else requestAnimationFrame(frame);
}
function frame(time) {
  const busy = fresh > 2, hurried = playing && fresh > MOST;
  (wanted = false), (drawnAt = time), (fresh = 0);
  if (gaps && !playing) buildPanes(), (whole = true), (settle = 3);
  const begin = performance.now();
  setTimeout(() => (took = performance.now() - begin));  // comes after the browser has painted
  if (view.by !== "live" && time - wholeAt > 500) whole = true;
  if (whole) wholeAt = time, findScale(), legend();
  const shown = panes();
  // Asked first: of a page in which nothing has changed yet, it costs the browser nothing.
  const following = view.pick === null ? texts.filter((text) => text.scrollHeight - text.scrollTop - text.clientHeight < 40) : [];
  old.splice(0).forEach(forget);
  const from = hurried ? Math.max(placedTo, now - MOST) : placedTo;
  if (from > placedTo) (gaps = true), texts.forEach(leaveGap);
  for (const one of tokens) {
    if (!whole && !one.dirty) continue;
    one.dirty = false;
    if (one.spans.length || one.t >= from) shown.forEach(([pane, lane], p) => texts[p] && paint(one, p, pane, lane));
  }
  placedTo = now;
  for (const text of texts) while (text.firstChild?.gap) text.firstChild.remove();
  for (const text of following) text.scrollTop = text.scrollHeight;
  if (settle > 0) {
    const picked = at(view.pick)?.spans ?? [];
    texts.forEach((text, p) => (picked[p] ? picked[p].scrollIntoView({ block: "nearest" }) : (text.scrollTop = text.scrollHeight)));
    --settle, draw();
  }
  chartSoon(whole ? 0 : busy ? RARE : 100);
  whole = false;
}
// Curves have frames of their own: text and curves together would keep what comes waiting.
function chartSoon(wait) {
  if (chartLate && wait > 0) return;
  clearTimeout(chartLate);
  const drawn = () => ((chartLate = 0), drawChart());
  if (wait === 0) drawn();
  else chartLate = setTimeout(drawn, wait);
}
// Only what differs is written: each write costs the browser.
function paint(one, p, pane, lane) {
  const span = (one.spans[p] ??= placed(one, texts[p], lane)), { gone, hue, strength } = shadeOf(one, pane, lane);
  const marks = (gone ? "gone " : "") + (one.t === view.pick ? "chosen " : "") + (one.t === view.at ? "now " : "");
  const shown = span.kind + marks + (hue && hue + Math.round(SHADES * strength));
  if (span.shown !== shown) span.className = span.shown = shown;
}

function legend() {
  const box = element("legend");
  box.replaceChildren();
  const patch = (colour, text) => {
    const made = make("span", "", "box");
    made.style.backgroundColor = colour;
    box.append(made, make("span", text));
  };
  if (view.at !== null) {
    const then = at(view.at);
    const sizes = (curves ?? []).map((lane, k) => lane.map((curve, l) => then?.rows[k][l].size ?? curve.at(view.at) ?? "–").join(", ")).join(" / ");
    patch(shade("there", 0.75), `in memory at time ${view.at}: ${sizes} rows${layersOf(0) > 1 ? " in the layers" : ""}`);
    if (view.at < base) box.append(make("span", `· the page keeps the text from time ${base} on`));
    const back = make("button", "Back to now");
    back.id = "to-now";
    back.addEventListener("click", () => showMoment(null));
    box.append(back);
    return;
  }
  if (view.by === "live") return patch(shade("there", 0.75), "remembered: the more layers, the stronger"), patch("transparent", "forgotten");
  const unit = { held: "timesteps that it was held", surprise: "bits with which it was predicted" }[view.by] ?? `${nameOf(view.by)}, as last told`;
  box.append(make("span", unit));
  if (scale) {
    const bar = make("span", "", "scale");
    bar.style.background = `linear-gradient(90deg, ${shade("ended", 0)}, ${shade("ended", 1)})`;
    box.append(make("span", write(scale[0])), bar, make("span", write(scale[1])));
  }
  if (view.by === "held") patch(shade("there", 0.75), "still remembered");
}
