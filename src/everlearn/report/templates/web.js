"use strict";
// The page's state and its words. What comes from records is only ever put in as text.
let DATA = JSON.parse(document.getElementById("data").textContent);
const SPECS = JSON.parse(document.getElementById("charts").textContent);
const SETTINGS = { class_il: "Class-IL", task_il: "Task-IL" };
const MOST = 12; // rows that are drawn unless told otherwise
const $ = (id) => document.getElementById(id);
const state = { setting: "class_il", base: "", other: "", shown: null, sort: "", stream: "", memory: "" }; // "": of any size

function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, of] of Object.entries(value)) made.style.setProperty(name, of);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const byId = (id) => DATA.rows.find((row) => row.id === id);
const streams = () => [...new Set(DATA.rows.map((row) => row.stream))];
const unsized = (row) => [undefined, "–", "0"].includes(row.settings.memory); // it has no memory, or it is not known how large
const among = (stream, memory) => DATA.rows.filter((row) => row.stream === stream && (!memory || row.settings.memory === memory || unsized(row)));
const memories = (stream) => [...new Set(among(stream).filter((row) => !unsized(row)).map((row) => row.settings.memory))].sort((a, b) => a - b);
const within = () => among(state.stream, state.memory);
const shownIds = () => within().filter((row, n) => (state.shown ? state.shown.has(row.id) : n < MOST)).map((row) => row.id);
const isShown = (row) => shownIds().includes(row.id);
const of = (name, row) => DATA.sets[name].filter((record) => record.row === row);
const fixed = (value, places = 2) => (value === null || value === undefined ? "–" : value.toFixed(places).replace("-", "−"));
const signed = (value, places = 2) => (value > 0 ? "+" : "") + fixed(value, places);
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function spread(found, places = 2) {
  if (!found) return "–";
  return found.std === null ? fixed(found.mean, places) : `${fixed(found.mean, places)} ± ${fixed(found.std, places)}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// What a row has more than another on the same seeds: the mean, half of its 95 % interval, on how many seeds it is more.
function gain(row, base, setting, metric = "acc") {
  const theirs = new Map(base.runs.filter((run) => run.seed !== null).map((run) => [run.seed, run[setting][metric]]));
  const differences = row.runs
    .filter((run) => run.seed !== null && theirs.has(run.seed) && run[setting][metric] !== null && theirs.get(run.seed) !== null)
    .map((run) => run[setting][metric] - theirs.get(run.seed));
  const n = differences.length;
  if (!n) return null;
  const mean = differences.reduce((sum, value) => sum + value, 0) / n;
  const squares = differences.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const half = n > 1 ? DATA.t[n - 2] * Math.sqrt(squares / (n - 1) / n) : null;
  return { mean, half, better: differences.filter((value) => value > 0).length, seeds: n };
}

// A link to what is seen: only what is not as it would be anyway stands in it.
function fragment() {
  const words = new URLSearchParams();
  const first = { ...start(), ...pair(state.stream, state.memory) };
  for (const key of ["setting", "base", "other", "sort", "stream", "memory"]) if (state[key] !== first[key]) words.set(key, state[key]);
  if (state.shown) {
    const shown = shownIds();
    const hidden = within().map((row) => row.id).filter((id) => !shown.includes(id));
    words.set(...(hidden.length <= shown.length ? ["hide", hidden.join(".")] : ["show", shown.join(".")]));
  }
  return words.toString();
}

function start() {
  const all = streams();
  const counts = all.map((name) => among(name).reduce((sum, row) => sum + row.runs.length, 0));
  const stream = all.length ? all[counts.indexOf(Math.max(...counts))] : "";
  return { setting: "class_il", sort: "-acc.class_il", stream, memory: "" };
}

// The two rows that are compared at first.
function pair(stream, memory) {
  const ids = among(stream, memory).map((row) => row.id);
  const [base, other] = DATA.pairs.find((pair) => pair.every((id) => ids.includes(id))) || [ids[1] || ids[0] || "", ids[0] || ""];
  return { base, other };
}

function restore() {
  const words = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, start(), { shown: null });
  if (streams().includes(words.get("stream"))) state.stream = words.get("stream");
  if (memories(state.stream).includes(words.get("memory"))) state.memory = words.get("memory");
  Object.assign(state, pair(state.stream, state.memory));
  if (words.get("setting") in SETTINGS) state.setting = words.get("setting");
  for (const key of ["base", "other"]) if (byId(words.get(key))) state[key] = words.get(key);
  if (columns().some((column) => column.key === (words.get("sort") || "").replace("-", ""))) state.sort = words.get("sort");
  const ids = within().map((row) => row.id);
  const listed = (key) => words.get(key).split(".").filter(Boolean);
  if (words.has("hide")) state.shown = new Set(ids.filter((id) => !listed("hide").includes(id)));
  if (words.has("show")) state.shown = new Set(listed("show").filter((id) => ids.includes(id)));
}

function change(what) {
  Object.assign(state, what);
  const link = fragment();
  history.replaceState(null, "", link ? `#${link}` : location.pathname + location.search);
  render();
}

function toggle(id, on) {
  const shown = new Set(shownIds());
  if (on) shown.add(id);
  else shown.delete(id);
  change({ shown });
}

function choose(stream, memory) {
  if (stream !== state.stream) forget();
  change({ stream, memory, shown: null, ...pair(stream, memory) });
}

function fill(id, ...children) {
  $(id).replaceChildren(...children.filter(Boolean));
}

function options(id, rows, chosen) {
  fill(id, ...rows.map((row) => h("option", { value: row.id, selected: row.id === chosen }, row.label)));
  $(id).value = chosen;
}

function controls() {
  const all = streams();
  $("stream-box").hidden = all.length < 2;
  fill("stream", ...all.map((name) => h("option", { value: name }, name)));
  $("stream").value = state.stream;
  const sizes = memories(state.stream);
  $("memory-box").hidden = sizes.length < 2;
  fill("memory", h("option", { value: "" }, "any"), ...sizes.map((size) => h("option", { value: size }, size)));
  $("memory").value = state.memory;
  options("base", within(), state.base);
  options("other", within(), state.other);
  for (const key of Object.keys(SETTINGS)) $(key).checked = state.setting === key;
  for (const box of document.querySelectorAll(".needs-rows")) box.hidden = !DATA.rows.length;
}

// Tables are made anew; whoever had the focus has it still.
function render() {
  const focus = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  controls();
  tables();
  charts();
  const again = focus && [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key === focus);
  if (again) again.focus({ preventScroll: true });
}

function begin() {
  $("stream").addEventListener("change", (event) => choose(event.target.value, ""));
  $("memory").addEventListener("change", (event) => choose(state.stream, event.target.value));
  $("base").addEventListener("change", (event) => change({ base: event.target.value }));
  $("other").addEventListener("change", (event) => change({ other: event.target.value }));
  for (const key of Object.keys(SETTINGS)) $(key).addEventListener("change", () => change({ setting: key }));
  $("all").addEventListener("click", () => change({ shown: new Set(within().map((row) => row.id)) }));
  $("none").addEventListener("click", () => change({ shown: new Set() }));
  addEventListener("hashchange", () => { restore(); render(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => print(now));
  restore();
  render();
  if (document.body.dataset.live) setInterval(refresh, Number(document.body.dataset.live));
}

// While runs are under way the data are asked for again; a page that was left open says when nobody answers.
let tag = null;
let version = 0;
async function refresh() {
  try {
    const answer = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.status !== 304) {
      if (!answer.ok) throw new Error(String(answer.status));
      DATA = await answer.json();
      tag = answer.headers.get("ETag");
      const kept = within().length && [state.base, state.other].every((id) => byId(id));
      if (!kept) restore();
      version += 1;
      render();
    } else {
      underWay(); // a run may have been quiet for too long
    }
    $("status").textContent = `live, ${new Date().toLocaleTimeString()}`;
  } catch {
    $("status").textContent = "nobody answers; is `everlearn watch` still running?";
  }
}
