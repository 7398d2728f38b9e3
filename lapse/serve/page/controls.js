// What a person can do, by pointer and by keyboard.
function choices(id, entries, key) {
  element(id).replaceChildren(...entries.map(([name, text]) => {
    const button = make("button", text);
    button.setAttribute("aria-pressed", view[key] === name);
    button.dataset.value = name;
    button.addEventListener("click", () => {
      view[key] = name;
      choices(id, entries, key);
      element(id).querySelector('[aria-pressed="true"]').focus();
      if (key === "layer") buildPanes();
      else if (key === "by") view.at = null;
      draw(true), refreshTold();
    });
    return button;
  }));
}
// `named`: what methods report is known; before the first step it is not.
function buildChoices(named = false) {
  const names = [...new Set(lanesOf().flatMap((lane) => lane.names))], count = mostLayers();
  if (/^told:\d+$/.test(view.by) && names.length) view.by = `told:${names[view.by.slice(5)]}`;  // of links of before names
  const ways = [["live", "remembered"], ["held", "how long"], ...names.map((name) => [`told:${name}`, name]), ...(about.kind === "text" ? [["surprise", "surprise"]] : [])];
  if (!ways.some(([name]) => name === view.by) && (named || !view.by.startsWith("told:"))) view.by = "live";
  if (view.layer !== "mean" && view.layer !== "all" && !(view.layer < count)) view.layer = "mean";
  choices("by", ways, "by");
  choices("layer", [...(count > 1 ? [["mean", "mean"]] : []), ...Array.from({ length: count }, (_, l) => [l, `${l}`]), ...(count > 1 ? [["all", "side by side"]] : [])], "layer");
  choices("range", [["recent", `last ${RECENT}`], ["all", "all"]], "range");
  element("unit").textContent = about.kind === "text" ? "token" : "step";
  element("typing").hidden = element("temperature-choice").hidden = about.kind !== "text";
  element("episodes").hidden = about.kind === "text";
  if (about.kind !== "text") (element("seed").value = about.seed), (element("greedy").checked = about.greedy);
  element("title").textContent = document.title = `Lapse · ${lanesOf().map((lane) => lane.name).join(" and ")}`;
}

// How each lane is read: a run, a method and its options.
function buildLanes() {
  const made = ["A", "B"].map((letter, lane) => {
    const box = make("fieldset"), own = lanesOf()[lane], run = make("select"), method = make("select"), options = make("span");
    box.append(make("legend", letter));
    if (lane > 0) run.append(new Option("off", "-1"));
    info.runs.forEach((one, i) => run.append(new Option(one.name, i)));
    run.value = own ? own.run : -1;
    method.append(new Option(info.as_trained ? "as trained" : "as served", ""));
    for (const one of info.runs[0].methods) method.append(new Option(one.name, one.name));
    const given = own?.options ?? {};
    method.value = own?.asked ?? "";
    const fill = () => {
      options.replaceChildren();
      method.disabled = Number(run.value) < 0;
      if (method.disabled) return;
      const asked = info.runs[Number(run.value)], fields = method.value ? asked.methods.find((one) => one.name === method.value).options : asked.options;
      for (const field of fields) {
        const label = make("label", `${field.name} `), input = make("input");
        input.type = "number", (input.name = field.name), (input.title = field.help);
        if (field.low !== undefined) (input.min = field.low), (input.max = field.high);
        input.value = given[field.name] ?? field.value;
        input.dataset.usual = field.value;
        input.addEventListener("change", apply);
        label.append(input);
        options.append(label);
      }
    };
    const choose = () => (fill(), apply());
    run.addEventListener("change", choose), method.addEventListener("change", choose);
    for (const [name, select] of [["run", run], ["method", method]]) {
      const label = make("label", `${name} `);
      (select.id = `${name}-${letter}`), label.append(select), box.append(label);
    }
    box.append(options);
    fill();
    return box;
  });
  const box = element("lanes"), held = document.activeElement, lane = [...box.children].findIndex((one) => one.contains(held));
  box.replaceChildren(...made);
  // Whoever changes a value by its keys goes on with it.
  made[lane]?.querySelectorAll("select, input").forEach((one) => (one.id || one.name) === (held.id || held.name) && one.focus());
}
function lanesWanted() {
  return [...element("lanes").children].flatMap((box) => {
    const [run, method] = box.querySelectorAll("select");
    if (Number(run.value) < 0) return [];
    const options = {};
    for (const input of box.querySelectorAll("input")) if (input.value !== "" && input.value !== input.dataset.usual) options[input.name] = input.value;
    return [{ run: Number(run.value), ...(method.value ? { method: method.value } : {}), options }];
  });
}
// Of agents: which episodes they play, and how they choose.
const episodesWanted = () => (about.kind === "text" ? {} : { seed: Number(element("seed").value), greedy: element("greedy").checked, anew: true });
async function apply() {
  say(about.kind === "text" ? "Reading the text anew …" : "Beginning anew …");
  await command("settings", { lanes: lanesWanted(), ...episodesWanted() });  // what is refused stays there, to be mended
}
element("seed").addEventListener("change", apply);
element("greedy").addEventListener("change", apply);

const speeds = [["0", "as fast as it can"], ["1", "1 a second"], ["5", "5 a second"], ["20", "20 a second"], ["100", "100 a second"]];
for (const [speed, text] of speeds) element("speed").append(new Option(text, speed));
element("speed").value = "20";
element("speed").addEventListener("change", () => endless && play());

let temperature = 1;  // as given, which the slider need not be able to show
const mark = () => marks.at(-1) !== now && marks.push(now);
async function play() {
  mark();
  if (await command("play", { speed: Number(element("speed").value) })) endless = true;
}
const pause = () => command("pause");
async function goBack(t) {
  if (await command("undo", { to: t })) view.pick = null, showChosen();
}
async function read() {
  const text = element("text").value;
  if (text === "") return;
  mark();
  if (await command("read", { text })) element("text").value = "";
}
element("play").addEventListener("click", () => (playing ? pause() : play()));
element("step").addEventListener("click", () => (mark(), command("step")));
element("undo").addEventListener("click", () => {
  const to = marks.filter((t) => t < now).at(-1);
  if (to === undefined) say("There is nothing to undo.", true);
  else goBack(to);
});
element("anew").addEventListener("click", () => command("settings", { anew: true }));
element("typing").addEventListener("submit", (event) => (event.preventDefault(), read()));
element("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), read();
});
element("temperature").addEventListener("input", () => (element("temperature-shown").textContent = element("temperature").value));
element("temperature").addEventListener("change", () => command("settings", { temperature: (temperature = Number(element("temperature").value)) }));

function pick(t) {
  view.pick = view.pick === t ? null : t;
  draw(true), showChosen();
}
element("panes").addEventListener("click", (event) => {
  const span = event.target.closest?.("span[data-t]");
  if (span) pick(Number(span.dataset.t));
});
element("panes").addEventListener("keydown", (event) => {
  const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -20, ArrowDown: 20, Home: -Infinity, End: Infinity }[event.key];
  if (move === undefined || !tokens.length) return;
  event.preventDefault();
  const from = view.pick ?? now;
  view.pick = Math.min(now - 1, Math.max(base, move === -Infinity ? base : move === Infinity ? now - 1 : from + move));
  at(view.pick).spans[0]?.scrollIntoView({ block: "nearest" });
  draw(true), showChosen();
});

const keys = [["Space", "play, pause", () => (playing ? pause() : play())], ["s", "one step", () => element("step").click()],
  ["b", "go back to the chosen token", () => view.pick !== null && goBack(view.pick + 1)],
  ["m", "memory at the chosen token", () => view.pick !== null && showMoment(view.pick)],
  ["t", "type a text", () => element("text").focus()], ["v", "next way to shade", () => nextChoice("by")], ["l", "next layer", () => nextChoice("layer")]];
const nextChoice = (id) => {
  const all = [...element(id).children], next = all[(all.findIndex((one) => one.getAttribute("aria-pressed") === "true") + 1) % all.length];
  next.click();
};
for (const [key, text] of [...keys, ["Ctrl+Z", "undo"], ["Escape", "back to now"], ["← → ↑ ↓ Home End", "in the text: choose a token"], ["← → PgUp PgDn Home End", "in the curve: memory at that time"]]) {
  row(element("keys"), ["", text]);
  element("keys").lastChild.firstChild.append(make("kbd", key));
}
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("textarea, input, select");
  if (event.key === "Escape") {
    if (typing) typing.blur();
    (view.at = view.pick = null), draw(true), showChosen();
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing) return event.preventDefault(), element("undo").click();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && event.target.closest?.("button, summary")) return;
  const found = keys.find(([key]) => key === event.key || (key === "Space" && event.key === " "));
  if (found) event.preventDefault(), found[2]();
});
