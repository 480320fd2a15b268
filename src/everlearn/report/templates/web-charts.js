// Charts: drawn once, then told what to show.
const drawn = new Map();
let printing = false;
const dark = () => !printing && matchMedia("(prefers-color-scheme: dark)").matches; // paper is white
const PALETTE = ["#0072B2", "#D55E00", "#009178", "#C0639A", "#A87400", "#2F8FCB", "#767676"];

function theme() {
  const [ink, soft, rule] = dark() ? ["#e8eaf0", "#a3abba", "#363b47"] : ["#1d2129", "#59606e", "#d9dbe0"];
  const ramp = dark() ? ["#1f2733", "#24507f", "#4f93cf", "#cfe6ff"] : ["#f3f6fb", "#a9c9ea", "#3f86c4", "#08386e"];
  return {
    background: null,
    aria: false,
    font: 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
    view: { stroke: rule },
    axis: { labelColor: soft, titleColor: soft, gridColor: rule, domainColor: soft, tickColor: soft, titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12 },
    axisBand: { grid: false },
    legend: { labelColor: soft, titleColor: soft, titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12, symbolOpacity: 1, symbolBaseFillColor: soft, symbolBaseStrokeColor: soft },
    range: { category: PALETTE, ordinal: { scheme: "viridis", extent: dark() ? [0.35, 1] : [0, 0.78] }, ramp, heatmap: ramp },
    rule: { color: soft },
    point: { color: "#2F8FCB" },
  };
}

const inks = () => (dark() ? { weak: "#e8eaf0", strong: "#0d1117" } : { weak: "#1d2129", strong: "#ffffff" });

// What is to be seen: where, which chart, what it is told, and a sentence for those who cannot see it.
function wanted() {
  const setting = state.setting;
  const some = { rows: shownIds(), setting };
  const drawnRows = `${plural(some.rows.length, "row")}, ${SETTINGS[setting]}`;
  const known = (value) => value !== null && value !== undefined;
  const having = (name, key) => some.rows.filter((row) => of(name, row).some((record) => known(record[key])));
  const drawnAnywhere = (row) => row.stream !== state.stream || isShown(row);
  const weighted = DATA.rows.filter((row) => drawnAnywhere(row) && of("runs", row.id).some((record) => known(record.to_new))).map((row) => row.id);
  const found = [
    { id: "average", name: "average", rows: having("average", "mean"), params: some, says: `Lines: mean accuracy of the tasks learned so far, after each task, of ${drawnRows}. ${ends("average", setting, some.rows)} The table below has the numbers.` },
    { id: "tradeoff", name: "tradeoff", rows: having("runs", "kept"), params: some, says: `Points: what each run learned of the tasks and what it kept of them, of ${drawnRows}.` },
    { id: "cost", name: "cost", rows: having("runs", "minutes"), params: some, says: `Points: accuracy against minutes a run, of ${drawnRows}. The table below has the minutes.` },
    { id: "similarity", name: "similarity", has: weighted.length, params: { rows: weighted, setting }, says: `Points: mean weights of new and of old validation samples at the end of runs, of ${plural(weighted.length, "row")}. ${reviewed(weighted)}` },
    { id: "live", name: "live", has: DATA.sets.live.length, params: {}, says: `Lines: the losses of ${plural(DATA.unfinished.length, "run")} under way, epoch by epoch.` },
  ];
  for (const chart of found) if (chart.rows) chart.has = chart.rows.length > 0;
  for (const [side, row] of [["base", state.base], ["other", state.other]]) {
    const label = byId(row) ? byId(row).label : "";
    const has = (name) => of(name, row).length;
    const names = has("confusion") ? of("confusion", row)[0].names : [];
    found.push(
      { id: `stream-${side}`, name: "stream", has: has("matrix"), params: { row, setting }, says: `Lines: accuracy of each task over the stream, ${label}, ${SETTINGS[setting]}. The numbers are in the table of the accuracy matrix.` },
      { id: `matrix-${side}`, name: "matrix", has: has("matrix"), params: { row, setting, ...inks() }, says: `Heat map: accuracy of each task after each task, ${label}, ${SETTINGS[setting]}. The table below has the numbers.` },
      { id: `confusion-${side}`, name: "confusion", has: has("confusion"), params: { row, names }, says: `Heat map: which class was taken for which at the end, ${label}. ${mistaken(row)}` },
      { id: `classes-${side}`, name: "classes", has: has("classes"), params: { row }, says: `Accuracy of each class when it was best and at the end, ${label}. The table below has the numbers.` },
      { id: `memory-${side}`, name: "memory", has: has("memory"), params: { row }, says: `Bars: samples of each class in the memory after each task, ${label}. ${held(row)}` },
      ...of("surface", row).map((record, n) => surface(side, n, record, label)),
      { id: `weights-${side}`, name: "weights", has: has("weights"), params: { row }, says: `Lines: the learned weights of each term over training, ${label}. ${weighed(row)}` },
    );
  }
  return found;
}

// A net answers for each of its terms: there are as many figures of it as its row has terms.
function surface(side, n, record, label) {
  const id = `surface-${side}-${n}`;
  if (!$(id)) $(`surface-${side}`).append(h("figure", {}, h("figcaption", { class: "title" }), h("div", { class: "chart", id, role: "img" })));
  $(id).previousSibling.textContent = `${label}: weight of ${record.term}`;
  const all = record.weight.flat();
  return { id, name: "surface", has: true, params: { row: record.row, term: record.term }, says: `Heat map: the weight of ${record.term} by the losses of a new and a memory sample, ${label}. It goes from ${fixed(Math.min(...all), 4)} to ${fixed(Math.max(...all), 4)}.` };
}

function reviewed(rows) {
  const records = DATA.sets.runs.filter((record) => record.setting === state.setting && rows.includes(record.row) && (record.to_new ?? null) !== null);
  return records.slice(0, 6).map((record) => `${record.full}, seed ${record.seed}: new ${fixed(record.to_new, 4)}, old ${fixed(record.to_old, 4)}.`).join(" ");
}

function ends(name, setting, rows) {
  const records = DATA.sets[name].filter((record) => record.setting === setting && rows.includes(record.row));
  return records.slice(0, 3).map((record) => `${record.label}: ${fixed(record.mean.at(-1))} % at the end.`).join(" ");
}

function mistaken(row) {
  const record = of("confusion", row)[0];
  if (!record) return "";
  const wrong = record.share.map((share, n) => [share, n]).filter(([, n]) => record.true[n] !== record.predicted[n]).sort((a, b) => b[0] - a[0])[0];
  return wrong ? `Most often ${record.names[record.true[wrong[1]]]} was taken for ${record.names[record.predicted[wrong[1]]]}: ${fixed(wrong[0], 1)} %.` : "";
}

function held(row) {
  const last = of("memory", row).at(-1);
  return last ? `At the end: ${last.name.slice(0, 12).map((name, n) => `${name} ${fixed(last.count[n], 0)}`).join(", ")}.` : "";
}

const weighed = (row) => of("weights", row).map((record) => `${record.term}: ${fixed(record.mean.at(-1), 4)} in the last epoch drawn.`).join(" ");

async function draw(chart) {
  const spec = structuredClone(SPECS[chart.name]);
  spec.datasets = { [spec.data.name]: structuredClone(DATA.sets[spec.data.name]) };
  for (const param of spec.params || []) if (param.name in chart.params) param.value = chart.params[param.name];
  if (chart.name === "classes") spec.height = Math.min(900, 17 * Math.max(...DATA.sets.classes.map((record) => record.name.length)));
  const tasks = DATA.sets.matrix.filter((record) => within().some((row) => row.id === record.row)).map((record) => record.task.length);
  if (chart.name === "stream" && Math.max(...tasks) <= PALETTE.length) {
    for (const layer of spec.layer) layer.encoding.color.type = "nominal"; // few tasks: colours further apart
  }
  const place = h("div", { class: "drawing" }); // Vega gives the element it draws in a role of its own
  $(chart.id).replaceChildren(place);
  const { view, vgSpec } = await vegaEmbed(place, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: theme(), tooltip: { theme: dark() ? "dark" : "light" } });
  place.setAttribute("aria-hidden", "true");
  return { view, spec, version, tables: vgSpec.data.map((table) => table.name) };
}

// `version` of the data is counted up when new ones come; a chart that was hidden meanwhile gets them when it is shown.
async function update(chart, there) {
  const { view, spec } = there;
  if (there.version !== version) view.data(spec.data.name, structuredClone(DATA.sets[spec.data.name]));
  there.version = version;
  for (const [name, value] of Object.entries(chart.params)) view.signal(name, value);
  view.width(view.container().clientWidth); // what stands beside it may have come or gone
  await view.runAsync();
}

let drawing = Promise.resolve();
function charts() {
  const all = wanted();
  const drawable = typeof vegaEmbed !== "undefined";
  for (const figure of document.querySelectorAll(".maps > figure")) figure.hidden = true; // of a net with more terms
  for (const chart of all) {
    const place = $(chart.id);
    const figure = place.closest("figure");
    figure.hidden = !chart.has || !drawable;
    place.setAttribute("aria-label", chart.says);
    if (chart.rows) figure.querySelector(".legend").replaceChildren(...chart.rows.map((id) => h("span", {}, mark(byId(id)), byId(id).label)));
  }
  for (const section of document.querySelectorAll("section[data-charts]")) {
    const any = section.dataset.charts.split(" ").some((name) => all.some((chart) => chart.name === name && chart.has));
    for (const empty of section.querySelectorAll(".empty")) empty.hidden = any;
    for (const words of section.querySelectorAll("[data-with]")) words.hidden = !drawable || !all.some((chart) => chart.name === words.dataset.with && chart.has);
    if (!drawable && !section.querySelector("table")) section.hidden = true; // there is nothing in it
  }
  if (!drawable) return;
  drawing = drawing.then(async () => {
    for (const chart of all.filter((chart) => chart.has)) {
      if (drawn.has(chart.id)) await update(chart, drawn.get(chart.id));
      else drawn.set(chart.id, await draw(chart));
    }
    document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
  }).catch((error) => console.error(error));
}

function forget() {
  for (const { view } of drawn.values()) view.finalize();
  drawn.clear();
}

function redraw() {
  forget();
  charts();
}

// Charts that were drawn on a dark page are drawn anew for paper.
function print(now) {
  const before = dark();
  printing = now;
  if (dark() !== before) redraw();
}

// For whoever looks from outside: when everything is drawn, and of what a chart is.
function marks({ view, spec, tables }) {
  const made = tables.filter((name) => name !== spec.data.name && !name.endsWith("_store")).map((name) => view.data(name));
  return made.reduce((most, rows) => (rows.length > most.length ? rows : most), []);
}
window.everlearn = { settled: () => drawing.then(() => true), shown: (id) => marks(drawn.get(id)) };
begin();
