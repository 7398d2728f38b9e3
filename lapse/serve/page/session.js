// The live page of `lapse serve`: a session's events come in, and what changed is drawn. It keeps the newest WINDOW
// tokens and a summary of the rest, so a text without end takes no more memory. A step of agents stands for a token
// here too. Comes after draw.js; the files of this folder follow each other in one script.
const WINDOW = 4000, RECENT = 600, BUCKETS = 600;
const token = new URLSearchParams(location.hash.slice(1)).get("token");
let info = null, session = null, about = null;  // of the server; its id; what the session says of itself
let tokens = [], base = 0, now = 0;             // those of times base ... now - 1
let old = [];                                   // no longer kept, perhaps still shown
let playing = false, marks = [];                // times to undo to
let endless = false;                            // it plays until somebody pauses it
const view = { by: "live", layer: "mean", at: null, pick: null, range: "recent" };
const latency = { count: 0, sum: 0, max: 0 };
const lanesOf = () => about?.lanes ?? [];
const layersOf = (lane) => lanesOf()[lane]?.layers ?? 0;
const at = (t) => (t === null || t < base || t >= now ? null : tokens[t - base]);

// ---- asking the server ----
async function ask(method, path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => null);
  throw new Error(problem?.error?.message ?? `the server answered ${reply.status}`);
}
const say = (text, failed = false) => {
  element("status").textContent = text;
  element("status").classList.toggle("failed", failed);
};
// What a control does; a failure is said, not thrown.
const command = async (name, body = {}) => {
  try {
    const reply = await ask("POST", `/api/sessions/${session}/${name}`, body);
    return await reply.json();
  } catch (problem) {
    say(problem.message, true);
    return null;
  }
};

async function listen(id) {
  const reply = await ask("GET", `/api/sessions/${id}/events`);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) break;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const event = /^event: (\w+)\ndata: (.*)$/s.exec(message);
      if (event && id === session) receive(event[1], JSON.parse(event[2]));
    }
  }
  if (id === session) say("The server has ended, or the connection is lost; reload the page to begin anew.", true);
}

const receivers = {
  begin(said) {
    if (about) (marks = []), (view.at = view.pick = null);  // of what is read anew; a link may have set those of the first already
    about = said;
    tokens = [], old = [], base = now = 0, curves = null;
    buildChoices(), buildLanes(), buildPanes(), showChosen();
  },
  names(said) {
    about = said;
    buildChoices(true);
  },
  steps(steps) {
    const time = Date.now();
    for (const step of steps) {
      latency.count++, (latency.sum += time - step.ms), (latency.max = Math.max(latency.max, time - step.ms));
      take(step);
    }
    fresh += steps.length;
    draw();
  },
  undo({ t }) {
    while (now > t && tokens.length) now--, forget(tokens.pop());
    now = t;
    placedTo = Math.min(placedTo, t);
    if (tokens.length === 0) base = t;
    for (const one of tokens) for (const rows of one.rows) for (const row of rows) if (row.gone !== null && row.ended >= t) row.gone = row.why = null;
    const recent = tokens.slice(-RECENT);
    curves?.forEach((lane, k) => lane.forEach((curve, l) => curve.cut(t, recent.map((one) => one.rows[k][l].size))));
    if (view.pick >= t) view.pick = null;
    if (view.at >= t) view.at = null;
    marks = marks.filter((mark) => mark < t);
    draw(true), showChosen(), refreshTold();
  },
  state(said) {
    playing = said.playing;
    if (!playing) endless = false;
    element("play").textContent = playing ? "Pause" : "Play";
    element("play").setAttribute("aria-pressed", playing);
    say(said.stuck ? `${said.stuck}; undo, or begin anew` : "");
    element("step").disabled = Boolean(said.stuck);
    if (!playing) draw(true), refreshTold(), showChosen();
  },
  failed({ message }) {
    say(message, true);
  },
};
const receive = (name, data) => receivers[name]?.(data);

// ---- what was read ----
// Sizes over time: the newest one by one, those before time `end`, and all in buckets that grow.
class Curve {
  recent = [];
  end = 0;
  buckets = [];
  width = 1;
  add(t, size) {
    this.recent.push(size);
    this.end = t + 1;
    if (this.recent.length > 2 * RECENT) this.recent.splice(0, RECENT);
    const bucket = Math.floor(t / this.width);
    if (bucket < this.buckets.length) this.buckets[bucket] = Math.max(this.buckets[bucket], size);
    else this.buckets.push(size);
    if (this.buckets.length < BUCKETS) return;
    this.buckets = Array.from({ length: BUCKETS / 2 }, (_, i) => Math.max(this.buckets[2 * i], this.buckets[2 * i + 1]));
    this.width *= 2;
  }
  at(t) {
    return this.recent[t - this.begin()] ?? null;
  }
  begin() {
    return this.end - this.recent.length;
  }
  // `sizes`: those before t that are known.
  cut(t, sizes) {
    this.recent.length = Math.max(0, Math.min(this.recent.length, t - this.begin()));
    if (this.recent.length < sizes.length) this.recent = sizes;
    this.end = Math.min(this.end, t);
    this.buckets.length = Math.min(this.buckets.length, Math.ceil(t / this.width));
    const last = this.buckets.length - 1, from = last * this.width - this.begin();
    if (last >= 0 && from >= 0) this.buckets[last] = Math.max(...this.recent.slice(from));
  }
  points(range) {
    if (range !== "recent") return this.buckets.map((size, i) => [i * this.width, size]);
    const shown = this.recent.slice(-RECENT);
    return shown.map((size, i) => [this.end - shown.length + i, size]);
  }
}
let curves = null;  // [lane][layer]
const NOTHING = [];

function take(step) {
  const { t, text, bits = null, acts = null, written, bos } = step;  // acts: what the agent of each lane saw and did
  const one = { t, id: step.id, text: text ?? acts[0].text, bits, acts, written, bos, rows: [], spans: [], dirty: true };
  curves ??= lanesOf().map((lane) => Array.from({ length: lane.layers }, () => new Curve()));
  if (tokens.length === 0) base = step.t;
  tokens.push(one);
  now = step.t + 1;
  step.lanes.forEach((layers, lane) => {
    one.rows.push(layers.map(([size, told], l) => (curves[lane][l].add(step.t, size), { size, gone: null, ended: null, why: null, told, raised: NOTHING })));
    layers.forEach(([, , ended], l) => {
      for (const [t, last, why, told, raised] of ended) {
        const one = at(t);
        if (one) Object.assign(one.rows[lane][l], { gone: last, ended: step.t, why, told, raised }), (one.dirty = true);
      }
    });
  });
  if (step.t === view.pick) view.pick = null;
  if (tokens.length > WINDOW + 200) {
    old.push(...tokens.splice(0, tokens.length - WINDOW));  // they go with the next frame: each change lays the page out
    if (old.length > WINDOW) old.splice(0).forEach(forget);  // a hidden page has no frames
    base = tokens[0].t;
  }
}
const forget = (one) => {
  for (const span of one.spans) {
    const line = span?.parentElement;
    span?.remove();
    if (line) (line.ended = false), --line.count;
    if (line && !line.querySelector("span[data-t]")) line.remove();
  }
};
