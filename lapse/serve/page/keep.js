// What can be kept of a session: a page, a picture, a link; and how the page begins, perhaps from such a link.
function save(blob, name) {
  const link = make("a");
  (link.href = URL.createObjectURL(blob)), (link.download = name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
element("save-page").addEventListener("click", async () => {
  say("Making the page …");
  try {
    save(await (await ask("GET", `/api/sessions/${session}/page`)).blob(), "remembered.html");
    say("");
  } catch (problem) {
    say(problem.message, true);
  }
});

// The shaded text of all panes, and the curve below, as a picture.
const WIDE = 760, CELL = 8.4, LINE = 20, CURVE = 190;
// Each letter of a lane with its place: [token, letter, column, line].
function lettersOf(lane) {
  const columns = Math.floor(WIDE / CELL), placed = [];
  let x = 0, y = 0;
  for (const one of tokens.slice(-6000)) {
    const act = one.acts?.[lane];
    for (const letter of act ? `[${act.text || "·"}: ${act.action}] ` : visible(one.text)) {
      if (letter === "\n" || x >= columns) (x = 0), ++y;
      if (letter !== "\n") placed.push([one, letter, x++, y]);
    }
  }
  return placed;
}
function picture() {
  const style = getComputedStyle(document.body), ink = style.color, shown = panes(), letters = lanesOf().map((_, lane) => lettersOf(lane));
  const H = (Math.max(...letters.map((all) => all.at(-1)?.[3] ?? 0)) + 1) * LINE + 50, canvas = make("canvas"), g = canvas.getContext("2d");
  (canvas.width = shown.length * (WIDE + 20) + 20), (canvas.height = H + CURVE + 42 + 14 * lanesOf().reduce((rows, lane) => rows + labelRows(lane.layers), 0));
  (g.fillStyle = style.backgroundColor), g.fillRect(0, 0, canvas.width, canvas.height);
  element("panes").querySelectorAll(".pane").forEach((pane, p) => {
    (g.fillStyle = ink), (g.font = "14px sans-serif");
    g.fillText(pane.querySelector("h2")?.textContent ?? `${lanesOf()[0].name}, ${lanesOf()[0].method}`, 20 + p * (WIDE + 20), 20);
  });
  g.font = "14px ui-monospace, 'DejaVu Sans Mono', monospace";
  shown.forEach(([pane, lane], p) => {
    for (const [one, letter, column, line] of letters[lane]) {
      const { gone, hue, strength } = shadeOf(one, pane, lane), x = 20 + p * (WIDE + 20) + column * CELL, y = 34 + line * LINE;
      if (hue) (g.fillStyle = resolved(shade(hue, strength))), g.fillRect(x, y, CELL + 0.5, LINE - 2);
      (g.fillStyle = ink), (g.globalAlpha = gone ? 0.35 : 1);
      g.fillText(letter, x, y + 14);
      g.globalAlpha = 1;
    }
  });
  drawCurves(g, 60, H, ink);
  return canvas;
}
const LABELS = 8;  // in a line
const labelRows = (layers) => Math.ceil(layers / LABELS);
function drawCurves(g, left, top, ink) {
  const all = (curves ?? []).map((lane) => lane.map((curve) => curve.points(view.range)));
  const largest = Math.max(1, ...all.flat().flat().map(([, size]) => size));
  const X = (t) => left + ((t - range.from) / Math.max(1, range.to - range.from)) * 640, Y = (size) => top + CURVE - (size / largest) * (CURVE - 10);
  (g.fillStyle = ink), (g.font = "11px sans-serif");
  for (const size of ticks(largest)) g.fillText(size, left - 32, Y(size) + 4);
  for (const t of ticks(range.to, range.from)) g.fillText(t, X(t) - 8, top + CURVE + 16);
  const above = (k) => (k > 0 ? labelRows(all[0].length) : 0);
  all.forEach((lane, k) => lane.forEach((points, l) => {
    (g.strokeStyle = g.fillStyle = colourOf(l)), g.setLineDash(k > 0 ? [4, 3] : []), g.beginPath();
    for (const [t, size] of points) g.lineTo(X(t), Y(size));
    g.stroke();
    g.fillText(`${all.length > 1 ? `${"AB"[k]}, ` : ""}layer ${l}`, left + 20 + 80 * (l % LABELS), top + CURVE + 32 + 14 * (above(k) + Math.floor(l / LABELS)));
  }));
}
// A canvas knows no variables.
function resolved(colour) {
  const style = getComputedStyle(document.documentElement);
  return colour.replace(/var\((--\w+)\)/, (_, name) => style.getPropertyValue(name));
}
element("save-picture").addEventListener("click", () => picture().toBlob((blob) => {
  if (blob) save(blob, "remembered.png");
  else say("The picture is too large for this browser; choose one layer, or keep the page.", true);
}));

// What the session has read and how, within an address: whoever opens it sees the same, of a long text the newest tokens.
const LINKED = 4000;
const lanesRead = () => lanesOf().map(({ run, asked, options }) => ({ run, ...(asked ? { method: asked } : {}), options }));
function linkToState() {
  const all = new URLSearchParams({ by: view.by, layer: view.layer, lanes: JSON.stringify(lanesRead()), temperature });
  const shared = tokens.slice(tokens[0]?.bos ? 1 : 0).slice(-LINKED), first = shared[0]?.t ?? 0;
  if (about.kind === "text") all.set("ids", shared.map((one) => one.id).join("."));
  else Object.entries({ steps: now, ...episodesWanted() }).forEach(([name, value]) => all.set(name, value));
  // Whoever opens the link begins at time 0, where a BOS is again.
  const moment = view.at - (about.kind === "text" ? first - (about.bos ? 1 : 0) : 0);
  if (view.at !== null && moment >= 0) all.set("at", moment);
  return `${location.origin}/#${all}`;
}
element("link").addEventListener("click", async () => {
  const address = linkToState();
  history.replaceState(null, "", token ? `${address}&token=${encodeURIComponent(token)}` : address);
  const copied = await navigator.clipboard?.writeText(address).then(() => true, () => false);
  say(copied ? "The link was copied." : "The link stands in the address bar.");
});

// ---- begin ----
async function begin() {
  info = await (await ask("GET", "/api")).json();
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.get("by")) view.by = asked.get("by");
  if (asked.get("layer")) view.layer = isNaN(asked.get("layer")) ? asked.get("layer") : Number(asked.get("layer"));
  temperature = Number(asked.get("temperature") ?? info.temperature);
  element("temperature").max = Math.max(2, temperature);
  element("temperature").value = element("temperature-shown").textContent = temperature;
  const body = { lanes: asked.get("lanes") ? JSON.parse(asked.get("lanes")) : info.runs.map((_, run) => ({ run })) };
  if (info.runs[0].kind === "text") body.temperature = temperature;
  else if (asked.get("seed")) (body.seed = Number(asked.get("seed"))), (body.greedy = asked.get("greedy") === "true");
  session = (await (await ask("POST", "/api/sessions", body)).json()).session;
  listen(session).catch((problem) => say(problem.message, true));
  row(element("facts"), ["version", info.version]);
  for (const run of info.runs) row(element("facts"), ["checkpoint", run.checkpoint]);
  if (asked.get("ids")) mark(), await command("read", { ids: asked.get("ids").split(".").map(Number) });
  else if (asked.get("text")) mark(), await command("read", { text: asked.get("text") });
  if (Number(asked.get("steps")) > 0) await command("play", { steps: Number(asked.get("steps")) });
  if (asked.get("at")) (view.at = Number(asked.get("at"))), draw(true);  // which may be still to come
}
begin().catch((problem) => say(problem.message, true));
