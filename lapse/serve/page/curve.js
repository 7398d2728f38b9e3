// Memory sizes over time; a click on a moment shows memory as it was then.
function drawChart() {
  const all = [];
  let from = Infinity, largest = 1;
  (curves ?? []).forEach((lane, k) => lane.forEach((curve, l) => {
    const points = curve.points(view.range);
    if (points.length) from = Math.min(from, points[0][0]);
    for (const [, size] of points) largest = Math.max(largest, size);
    all.push({ points, layer: l, dashed: k > 0, strong: typeof view.layer === "string" || view.layer === l });
  }));
  range = { from: Number.isFinite(from) ? from : 0, to: Math.max(1, now - 1) };
  const pick = at(view.pick);
  const ends = pick ? pick.rows.flat().map((row) => row.gone ?? now) : [];
  element("chart").innerHTML = chart({ curves: all, ...range, largest, at: view.at, span: pick ? [pick.t, Math.max(...ends)] : null });
  const table = element("sizes");
  table.replaceChildren();
  if (!curves) return;
  row(table, ["", "rows now", "most"]);
  curves.forEach((lane, k) => lane.forEach((curve, l) => {
    const newest = curve.recent.at(-1) ?? (now > 0 ? "–" : 0);
    row(table, [`${curves.length > 1 ? `${"AB"[k]}, ` : ""}layer ${l}`, `${newest}`, `${Math.max(0, ...curve.buckets)}`]);
    const key = make("span", "", "key");
    key.style.backgroundColor = colourOf(l);
    table.lastChild.firstChild.prepend(key);
  }));
}
let range = { from: 0, to: 1 };
function showMoment(t) {
  view.at = t === null || !now ? null : Math.min(now - 1, Math.max(0, t));
  draw(true);
}
element("chart").addEventListener("click", (event) => {
  const box = element("chart").firstChild.getBoundingClientRect(), share = (((event.clientX - box.left) / box.width) * 400 - 38) / (400 - 46);
  showMoment(Math.round(range.from + Math.min(1, Math.max(0, share)) * (range.to - range.from)));
});
element("chart").addEventListener("keydown", (event) => {
  const from = moment(), t = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 20, PageDown: from + 20, Home: range.from, End: now - 1 }[event.key];
  if (t !== undefined) event.preventDefault(), showMoment(t);
});
