// The leaderboard and the other tables.
function columns() {
  const figure = (metric, setting) => (row) => row.figures[setting][metric];
  const base = byId(state.base);
  const found = [
    { key: "label", title: "row", value: (row) => row.label },
    { key: "seeds", title: "runs", value: (row) => row.runs.length, text: (row) => String(row.runs.length) },
  ];
  for (const [setting, name] of Object.entries(SETTINGS)) {
    const acc = figure("acc", setting);
    found.push({ key: `acc.${setting}`, title: `${name} ACC`, value: (row) => acc(row) && acc(row).mean, text: (row) => spread(acc(row)), strong: true });
    const printed = (row) => row.published && row.published[setting] && row.published[setting].acc;
    if (within().some(printed)) {
      const text = (row) => (printed(row) ? spread({ mean: printed(row)[0], std: printed(row)[1] }) : "");
      found.push({ key: `published.${setting}`, title: "published", value: (row) => printed(row) && printed(row)[0], text, soft: true, hint: (row) => row.table });
    }
  }
  const forgetting = (row) => row.figures[state.setting].forgetting;
  found.push({ key: "forgetting", title: "forgetting", value: (row) => forgetting(row) && forgetting(row).mean, text: (row) => spread(forgetting(row)) });
  const more = (row) => (base && row !== base ? gain(row, base, state.setting) : null);
  found.push({ key: "gain", title: "gain, 95 %", value: (row) => more(row) && more(row).mean, text: (row) => (row === base ? "measured on this" : gained(more(row))) });
  found.push({ key: "seconds", title: "time a run", value: (row) => row.seconds && row.seconds.mean, text: (row) => duration(row.seconds && row.seconds.mean) });
  if (within().some((row) => row.again[0])) found.push({ key: "again", title: "run again", value: (row) => row.again[0], text: again, hint: repeated });
  return found;
}

function gained(found) {
  if (!found) return "–";
  const half = found.half === null ? "" : ` ± ${fixed(found.half)}`;
  return `${signed(found.mean)}${half} (${found.better} of ${found.seeds})`;
}

const again = (row) => (row.again[0] ? (row.again[0] === row.again[1] ? `✓ ${row.again[0]}` : `≠ ${row.again[0] - row.again[1]} of ${row.again[0]}`) : "");
const repeated = (row) => (row.again[0] ? `${plural(row.again[0], "run")} run again, ${row.again[1]} with the same accuracies` : null);

function sorted(rows) {
  const down = state.sort.startsWith("-");
  const column = columns().find((column) => column.key === state.sort.replace("-", ""));
  if (!column) return rows;
  const known = (row) => ![null, undefined, ""].includes(column.value(row));
  const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b) * (down ? -1 : 1);
  return [...rows].sort((a, b) => known(b) - known(a) || (known(a) ? order(column.value(a), column.value(b)) : 0));
}

function head(column) {
  const now = state.sort.replace("-", "") === column.key;
  const down = state.sort.startsWith("-");
  const next = now ? (down ? column.key : `-${column.key}`) : column.key === "label" ? column.key : `-${column.key}`;
  const button = h("button", { type: "button", "data-key": `sort ${column.key}`, onclick: () => change({ sort: next }) }, column.title, h("span", { "aria-hidden": "true" }, now ? (down ? " ▾" : " ▴") : ""));
  return h("th", { scope: "col", "aria-sort": now ? (down ? "descending" : "ascending") : null, class: column.key === "label" ? "name" : null }, button);
}

const mark = (row) => h("span", { class: `mark ${row.shape}`, style: { "--c": row.colour }, "aria-hidden": "true" });

// A label breaks between its settings rather than within one.
const parts = (label) => label.split(/(?<=, )/).map((part) => h("span", { class: "part" }, part));

function named(row) {
  const box = h("input", { type: "checkbox", "data-key": `show ${row.id}`, "aria-label": `draw ${row.label}`, onchange: (event) => toggle(row.id, event.target.checked) });
  box.checked = isShown(row);
  const pressed = String(row.id === state.base);
  const button = h("button", { type: "button", class: "pick", "data-key": `pick ${row.id}`, "aria-pressed": pressed, title: row.full, onclick: () => change({ base: row.id }) }, ...parts(row.label));
  return h("th", { scope: "row", class: "name" }, h("span", { class: "who" }, box, mark(row), button));
}

function leaderboard() {
  const all = columns();
  const cell = (row, column) => h("td", { class: column.strong ? "strong" : column.soft ? "soft" : null, title: column.hint ? column.hint(row) : null, "data-column": column.key }, column.text(row));
  const line = (row) => h("tr", { "data-row": row.id, class: row.id === state.base ? "base" : null }, named(row), ...all.slice(1).map((column) => cell(row, column)));
  $("summary").textContent = summary();
  fill("leaderboard", h("thead", {}, h("tr", {}, ...all.map(head))), h("tbody", {}, ...sorted(within()).map(line)));
}

function summary() {
  const best = sorted(within().filter((row) => row.figures.class_il.acc)).reduce((best, row) => (!best || row.figures.class_il.acc.mean > best.figures.class_il.acc.mean ? row : best), null);
  const base = byId(state.base);
  return [best ? `Highest Class-IL ACC: ${best.label}, ${spread(best.figures.class_il.acc)} %.` : "", base ? `Gains are ${SETTINGS[state.setting]} ACC over ${base.label}, on the same seeds; in brackets on how many of them it is more.` : ""].join(" ");
}

function simple(id, heads, lines, caption) {
  $(id).hidden = !lines.length;
  const body = lines.map((cells) => h("tr", {}, ...cells.map((cell, n) => (n ? h("td", {}, cell) : h("th", { scope: "row" }, cell)))));
  fill(id, caption ? h("caption", {}, caption) : null, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...body));
}

function underWay() {
  const now = Date.now() / 1000;
  const bar = (run) => (run.epochs ? h("progress", { max: run.epochs, value: run.done, "aria-label": `epochs of ${run.name}` }) : "");
  // A run whose folder nobody on this machine has locked may be another machine's: then it is alive while it writes.
  const patience = (run) => (run.held === false ? Math.max(10, 3 * (run.pace || 0)) : Math.max(60, 5 * (run.pace || 0)));
  const alive = (run) => run.held || (!run.stopped && now - run.touched < patience(run));
  const quiet = (run) => `${run.stopped ? "stopped" : `quiet for ${duration(now - run.touched)}`}; ${run.resumable ? "goes on from its checkpoint" : "would start again"}`;
  const standing = (run) => run.damage || (!document.body.dataset.live ? "not complete when this page was made" : alive(run) ? "under way" : quiet(run));
  const seen = (run) => (run.seen[state.setting] === null ? "–" : `${fixed(run.seen[state.setting])} % of ${plural(run.tasks, "task")}`);
  const lines = DATA.unfinished.map((run) => [run.name, bar(run), `${run.done} of ${run.epochs ?? "?"}`, document.body.dataset.live && alive(run) ? duration(run.left) : "–", seen(run), standing(run)]);
  $("under-way").hidden = !lines.length;
  simple("unfinished", ["run", "progress", "epochs", "time left", `${SETTINGS[state.setting]} so far`, "state"], lines);
}

function settings() {
  const [one, other] = [byId(state.base), byId(state.other)];
  if (!one || !other) return simple("settings", [], []);
  const keys = [...new Set([...Object.keys(one.settings), ...Object.keys(other.settings)])].filter((key) => one.settings[key] !== other.settings[key]);
  $("same").textContent = keys.length ? `${Object.keys(one.settings).length - keys.filter((key) => key in one.settings).length} settings are the same.` : "No setting that is on record differs.";
  simple("settings", ["setting", one.label, other.label], keys.map((key) => [key, one.settings[key] ?? "–", other.settings[key] ?? "–"]));
}

function costs() {
  const lines = sorted(within()).filter((row) => row.seconds).map((row) => {
    const total = row.runs.reduce((sum, run) => sum + (run.seconds || 0), 0);
    return [row.label, duration(row.seconds.mean), String(row.runs.length), duration(total), row.devices.join(", ") || "–"];
  });
  const sum = within().reduce((sum, row) => sum + row.runs.reduce((sum, run) => sum + (run.seconds || 0), 0), 0);
  simple("costs", ["row", "a run", "runs", "in all", "on"], lines, `${duration(sum)} in all.`);
}

function problems() {
  const words = { failed: "failed", damaged: "damaged", foreign: "not ours" };
  simple("problems", ["what", "state", "why"], DATA.problems.map((problem) => [problem.place, words[problem.kind] || problem.kind, problem.why]));
  $("none-failed").hidden = Boolean(DATA.problems.length);
}

function lost(side, id) {
  const record = of("classes", id)[0];
  const taken = (to) => to.map(([name, points]) => `${name} ${signed(points, 1)}`).join(", ") || "–";
  const lines = record ? record.name.map((name, n) => [name, record.best[n], record.last[n], record.to[n]]).sort((a, b) => b[1] - b[2] - (a[1] - a[2])).slice(0, 12) : [];
  simple(`lost-${side}`, ["class", "best", "at the end", "lost", "taken for"], lines.map(([name, best, last, to]) => [name, fixed(best, 1), fixed(last, 1), fixed(best - last, 1), taken(to)]), `Which class was taken for which: ${record ? byId(id).label : ""}`);
}

function numbers(side, id) {
  const record = of("matrix", id).find((record) => record.setting === state.setting);
  const lines = record ? record.mean.map((row, n) => [String(record.after[n]), ...row.map((value) => fixed(value, 2))]) : [];
  simple(`numbers-${side}`, ["after task", ...(record ? record.task.map((task) => `task ${task}`) : [])], lines, byId(id) ? byId(id).label : "");
}

function averages() {
  const lines = DATA.sets.average.filter((record) => record.setting === state.setting && shownIds().includes(record.row));
  const last = Math.max(0, ...lines.flatMap((record) => record.after));
  const at = (record, after) => (record.after.includes(after) ? fixed(record.mean[record.after.indexOf(after)]) : "–");
  const tasks = Array.from({ length: last }, (_, n) => n + 1);
  simple("averages", ["row", ...tasks.map((task) => `after ${task}`)], lines.map((record) => [record.label, ...tasks.map((task) => at(record, task))]));
}

function tables() {
  const runs = DATA.rows.reduce((sum, row) => sum + row.runs.length, 0);
  $("count").textContent = `${plural(runs, "run")} in ${plural(DATA.rows.length, "row")}, from ${DATA.paths.join(", ")}`;
  fill("notes", ...DATA.notes.map((note) => h("p", { class: "note" }, note)));
  leaderboard();
  underWay();
  averages();
  for (const [side, id] of [["base", state.base], ["other", state.other]]) {
    for (const title of document.querySelectorAll(`.title-${side}`)) title.textContent = byId(id) ? byId(id).label : "";
    lost(side, id);
    numbers(side, id);
  }
  costs();
  problems();
  settings();
}
