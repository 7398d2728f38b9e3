// What is known of one token: when its rows went and why, and what reads them now.
const nameOf = (by) => (by.startsWith("told:") ? by.slice(5) : null);
const why = {
  expired: () => "its span had ended",
  evicted: (names, told) => `evicted, over budget${names.length ? `: its ${names[0]} was ${write(told[0])}` : ""}`,
  begun: () => "an episode began",
};
const percent = (x) => (x > 0 && x < 5e-5 ? "<0.01" : (100 * x).toFixed(2).replace(/\.?0+$/, ""));
const quoted = (t) => `${t}${at(t) ? ` “${visible(at(t).text).replace(/\n/g, "↵")}”` : ""}`;

let asking = 0;  // which call is the last
async function showChosen() {
  const box = element("chosen"), one = at(view.pick), own = ++asking;
  if (!one) {
    if (!box.querySelector(".hint")) box.replaceChildren(make("p", "Click one, or walk there with the arrow keys. Click the curve to see memory as it was.", "hint"));
    return;
  }
  const head = make("div"), bits = one.bits ? one.bits.map((x) => (x === null ? "–" : write(x))).join(" / ") : null;
  head.append(make("span", visible(one.text).replace(/\n/g, "↵").replace(/ /g, "␣") || (one.bos ? "BOS" : "·"), "whole"), ` came at time ${one.t}${bits ? `, predicted with ${bits} bits` : ""}${one.written ? ", written by the model" : ""}`);
  one.acts?.forEach((act, lane) => head.append(make("div", `${one.acts.length > 1 ? `${"AB"[lane]}: ` : ""}action ${act.action} (${Object.entries(act.policy).map(([name, p]) => `${name} ${write(p)}`).join(", ")}), value ${write(act.value)}`)));
  const buttons = make("div"), back = make("button", "Go back to here"), then = make("button", "Memory then");
  back.id = "back", then.id = "then";
  back.addEventListener("click", () => goBack(one.t + 1));
  then.addEventListener("click", () => showMoment(one.t));
  buttons.append(back, then);
  box.replaceChildren(head, buttons);
  const said = playing ? null : await ask("GET", `/api/sessions/${session}/row?t=${one.t}`).then((reply) => reply.json()).catch(() => null);
  if (own !== asking) return;
  one.rows.forEach((rows, lane) => {
    const table = make("table"), names = lanesOf()[lane].names;
    row(table, [lanesOf().length > 1 ? `${"AB"[lane]}, layer` : "layer", "went", "why", ...names, "read now with"]);
    rows.forEach((known, l) => {
      const live = said?.lanes[lane][l], reads = live?.reads ?? [];
      const told = live?.told ?? known.told, raised = live?.raised ?? known.raised;
      const by = [];
      for (let i = 0; i + 1 < raised.length; i += 2) by.push(`${quoted(raised[i])} +${write(raised[i + 1])}`);
      const reason = known.gone === null ? "" : why[known.why](names, known.told);
      row(table, [`${l}`, known.gone === null ? "still there" : `after ${known.gone}`, reason, ...told.map(write),
        known.gone === null ? (reads.length ? `${percent(mean(reads))} % (heads ${reads.map(percent).join(", ")})` : playing ? "pause to see" : "–") : "–"]);
      if (by.length) {
        row(table, ["", `${names[0]} raised most by ${by.join("; ")}`]);
        table.lastChild.lastChild.colSpan = 4 + names.length;
      }
    });
    box.append(table);
  });
}

// The numbers that queries change, of rows that are there.
async function refreshTold() {
  if (!session || !view.by.startsWith("told:") || !now) return;
  const said = await ask("GET", `/api/sessions/${session}/told`).then((reply) => reply.json()).catch(() => null);
  said?.forEach((layers, lane) => layers.forEach(({ time, told }, l) => time.forEach((t, i) => {
    const row = at(t)?.rows[lane]?.[l];
    if (row) row.told = told.map((values) => values[i]);
  })));
  draw(true);
}
setInterval(() => playing && refreshTold(), 500);
