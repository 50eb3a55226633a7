const data = JSON.parse(document.getElementById("sweep-data").textContent);
const PAGE = 200;
const SVG = "http://www.w3.org/2000/svg";
const byName = new Map(data.rows.map((row) => [row.name, row]));
const changeOf = new Map(data.changes.map(([name, kind, text]) => [name, { kind, text }]));
const state = { statuses: new Set(), kind: "", text: "", options: data.options.map(() => ""), sort: "", down: false, limit: PAGE, chosen: "" };

const $ = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function marked(node, status) {
  node.style.setProperty("--mark", `var(--${status})`);
  return node;
}

const size = (bytes) => bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e3).toFixed(1)} kB`;
const when = (seconds) => new Date(seconds * 1000).toLocaleString();

// --- columns ---------------------------------------------------------------------------------

const COLUMNS = [
  { title: "Row", value: (row) => row.name },
  ...data.options.map((option, index) => ({ title: option, value: (row) => row.options?.[index] ?? "" })),
  { title: "Status", value: (row) => Object.keys(data.statuses).indexOf(row.status), show: statusCell },
  { title: "Reason", value: (row) => row.first ?? "", show: (row) => element("td", { className: "reason", title: row.first ?? "" }, row.first ?? "") },
  { title: "Seconds", number: true, value: (row) => row.seconds, text: (row) => row.seconds?.toFixed(1) },
  { title: "Memory", number: true, value: (row) => row.memory, text: (row) => row.memory && size(row.memory) },
  { title: "Nodes", number: true, value: (row) => row.nodes },
  { title: "Size", number: true, value: (row) => row.bytes, text: (row) => row.bytes && size(row.bytes) },
  { title: "Latency ms", number: true, value: (row) => row.latency },
].filter((column) => !column.number || data.rows.some((row) => column.value(row) !== undefined));

function statusCell(row) {
  const change = changeOf.get(row.name);
  return element("td", { className: "status" }, marked(element("span", { className: "dot" }), row.status),
    row.status, change ? ` (${data.kinds[change.kind].toLowerCase()})` : "");
}

// --- which rows ------------------------------------------------------------------------------

function matches(row, except = "") {
  if (except !== "status" && state.statuses.size && !state.statuses.has(row.status)) return false;
  if (state.kind && changeOf.get(row.name)?.kind !== state.kind) return false;
  if (state.options.some((wanted, index) => wanted && row.options?.[index] !== wanted)) return false;
  return !state.text || `${row.name} ${row.reason ?? ""}`.toLowerCase().includes(state.text);
}

function sorted(rows) {
  const column = COLUMNS.find((one) => one.title === state.sort);
  if (!column) return rows;
  const sign = state.down ? -1 : 1;
  const compare = (a, b) => a === b ? 0 : a === undefined ? 1 : b === undefined ? -1 : sign * (a < b ? -1 : 1);
  return [...rows].sort((a, b) => compare(column.value(a), column.value(b)));
}

function change(changes) {
  Object.assign(state, { limit: PAGE }, changes);
  draw();
}

// --- drawing ---------------------------------------------------------------------------------

function draw() {
  const rows = sorted(data.rows.filter((row) => matches(row)));
  drawStatuses();
  drawKinds();
  $("shown").textContent = `${rows.length} of ${data.rows.length} rows`;
  $("search").value = document.activeElement === $("search") ? $("search").value : state.text;
  document.querySelectorAll("#option-filters select").forEach((select, index) => { select.value = state.options[index]; });
  document.querySelectorAll("#rows th").forEach((cell) => {
    cell.setAttribute("aria-sort", cell.dataset.title !== state.sort ? "none" : state.down ? "descending" : "ascending");
    cell.querySelector("span").textContent = cell.dataset.title !== state.sort ? "" : state.down ? " \u25be" : " \u25b4";
  });
  document.querySelector("#rows tbody").replaceChildren(...rows.slice(0, state.limit).map(drawRow));
  $("more").hidden = rows.length <= state.limit;
  $("more").textContent = `Show ${Math.min(PAGE, rows.length - state.limit)} more`;
}

function drawRow(row) {
  const line = element("tr", { className: row.name === state.chosen ? "chosen" : "" });
  line.addEventListener("click", () => choose(row.name));
  for (const column of COLUMNS) {
    if (column.show) line.append(column.show(row));
    else if (column.title === "Row") line.append(element("td", {}, element("a", { href: `#${encodeURIComponent(row.name)}` }, row.name)));
    else line.append(element("td", { className: column.number ? "number" : "" }, String((column.text ?? column.value)(row) ?? "")));
  }
  return line;
}

function drawStatuses() {
  const counts = new Map();
  for (const row of data.rows) if (matches(row, "status")) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
  $("statuses").replaceChildren(...Object.keys(data.statuses).filter((status) => data.rows.some((row) => row.status === status)).map((status) => {
    const button = marked(element("button", { type: "button", title: data.statuses[status], "aria-pressed": String(state.statuses.has(status)) },
      element("span", { className: "dot" }), `${status} ${counts.get(status) ?? 0}`), status);
    button.addEventListener("click", () => {
      const statuses = new Set(state.statuses);
      if (!statuses.delete(status)) statuses.add(status);
      change({ statuses });
    });
    return button;
  }));
}

function drawKinds() {
  const counts = new Map();
  for (const [, kind] of data.changes) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  $("kinds").replaceChildren(...Object.keys(data.kinds).filter((kind) => counts.has(kind)).map((kind) => {
    const button = element("button", { type: "button", "aria-pressed": String(state.kind === kind) }, `${data.kinds[kind]} ${counts.get(kind)}`);
    button.addEventListener("click", () => change({ kind: state.kind === kind ? "" : kind }));
    return button;
  }));
  const shown = data.changes.filter(([, kind]) => !state.kind || kind === state.kind);
  $("changes").replaceChildren(...shown.slice(0, PAGE).map(([name, kind, text]) => {
    const link = byName.has(name) ? element("a", { href: `#${encodeURIComponent(name)}` }, name) : name;
    return element("li", {}, element("span", { className: "kind" }, data.kinds[kind]), link, text ? `: ${text}` : "");
  }));
  if (!data.changes.length) {
    $("changes").append(element("li", {}, data.compared ? `Nothing changed in ${data.compared} rows.` : "This is the first sweep in this folder."));
  }
}

function drawOptions() {
  const lines = [];
  data.options.forEach((option, index) => {
    for (const value of new Set(data.rows.map((row) => row.options?.[index] ?? ""))) {
      const rows = data.rows.filter((row) => (row.options?.[index] ?? "") === value);
      const bar = element("div", { className: "bar" });
      for (const status of Object.keys(data.statuses)) {
        const count = rows.filter((row) => row.status === status).length;
        if (count) bar.append(marked(element("span", { title: `${count} ${status}`, style: `width:${(100 * count) / rows.length}%` }), status));
      }
      const button = element("button", { type: "button" }, `${option} ${value || "not set"}`);
      button.addEventListener("click", () => {
        const options = [...state.options];
        options[index] = options[index] === value ? "" : value; // "" is no filter
        change({ options });
      });
      const right = rows.filter((row) => row.status === "right").length;
      lines.push(element("tr", {}, element("td", {}, button), element("td", {}, bar), element("td", {}, `${right} of ${rows.length} right`)));
    }
  });
  $("by-option").replaceChildren(...lines);
  $("option-filters").replaceChildren(...data.options.map((option, index) => {
    const select = element("select", { "aria-label": option }, element("option", { value: "" }, `${option}: all`),
      ...[...new Set(data.rows.map((row) => row.options?.[index] ?? ""))].filter((value) => value).map((value) => element("option", { value }, `${option}: ${value}`)));
    select.addEventListener("change", () => change({ options: state.options.map((old, at) => at === index ? select.value : old) }));
    return select;
  }));
}

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Rows of the last run that ran something, in as many lanes per machine as ran at a time.
function drawTimeline() {
  const last = Math.max(...data.rows.map((row) => row.run ?? 0));
  const rows = data.rows.filter((row) => row.run === last && row.started && row.seconds !== undefined).sort((a, b) => a.started - b.started);
  if (!rows.length) return;
  const begin = rows[0].started;
  const span = Math.max(1, ...rows.map((row) => row.started + row.seconds - begin));
  const lanes = new Map();
  const placed = rows.map((row) => {
    const own = lanes.get(row.worker) ?? [];
    lanes.set(row.worker, own);
    let lane = own.findIndex((end) => end <= row.started + 0.01);
    if (lane < 0) lane = own.length;
    own[lane] = row.started + row.seconds;
    return { row, lane };
  });
  const tops = new Map();
  let top = 6;
  for (const [worker, own] of lanes) {
    tops.set(worker, top);
    top += Math.max(own.length * 14, 16) + 8;
  }
  const svg = shape("svg", { viewBox: `0 0 1400 ${top + 16}`, role: "img", "aria-label": "When each row ran" });
  const x = (seconds) => 130 + (1250 * seconds) / span;
  for (let tick = 0; tick <= 5; tick += 1) {
    const at = x((span * tick) / 5);
    const label = `${((span * tick) / 5).toFixed(span < 20 ? 1 : 0)} s`;
    const place = { x: at, y: top + 12, "text-anchor": tick === 5 ? "end" : "start" };
    svg.append(shape("line", { x1: at, x2: at, y1: 0, y2: top }), shape("text", place, label));
  }
  for (const [worker, y] of tops) svg.append(shape("text", { x: 6, y: y + 11 }, worker));
  for (const { row, lane } of placed) {
    const from = x(row.started - begin);
    const bar = marked(shape("rect", { x: from, y: tops.get(row.worker) + lane * 14, height: 12, rx: 2, width: Math.max(1, x(row.started - begin + row.seconds) - from - 0.5) }), row.status);
    bar.append(shape("title", {}, `${row.name}: ${row.status}, ${row.seconds.toFixed(1)} s`));
    bar.addEventListener("click", () => choose(row.name));
    svg.append(bar);
  }
  $("timeline").replaceChildren(svg);
}

// --- one row ---------------------------------------------------------------------------------

function choose(name) {
  const row = byName.get(name);
  state.chosen = row ? name : "";
  const hash = row ? `#${encodeURIComponent(name)}` : "";
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  draw();
  $("panel").hidden = !row;
  if (!row) return;
  const close = element("button", { type: "button", className: "close", "aria-label": "Close" }, "\u00d7");
  close.addEventListener("click", () => choose(""));
  const facts = element("dl");
  const fact = (title, value) => { if (value !== undefined && value !== null && value !== "") facts.append(element("dt", {}, title), element("dd", {}, String(value))); };
  fact("Status", `${row.status}: ${data.statuses[row.status]}`);
  fact("Stage", row.stage);
  fact("Change", changeOf.has(name) ? `${data.kinds[changeOf.get(name).kind]}: ${changeOf.get(name).text}` : "");
  data.options.forEach((option, index) => fact(option, row.options?.[index]));
  fact("Began", row.started && when(row.started));
  fact("Seconds", row.seconds);
  fact("Memory", row.memory && size(row.memory));
  fact("Tries", row.attempts);
  fact("Machine", row.worker);
  fact("Largest difference", row.worst);
  for (const [key, value] of Object.entries(row.metrics ?? {})) fact(key.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : value);
  const links = (row.files ?? []).map((file) => element("a", { href: `${row.place}/${encodeURIComponent(file)}` }, file));
  $("panel").replaceChildren(close, element("h3", {}, row.name), ...(row.reason ? [element("pre", {}, row.reason)] : []), element("p", {}, ...links), facts);
}

// --- start -----------------------------------------------------------------------------------

const last = data.runs[data.runs.length - 1];
const missing = data.missing ? `, ${data.missing} without a result` : "";
document.title = `Sweep of ${data.plan}`;
$("title").textContent = `Sweep of ${data.plan}`;
$("about").textContent = `Run ${last.run} of ${when(last.started)}${last.ended ? "" : ", not complete"}: ${data.rows.length} rows${missing}, ${last.skipped} unchanged; ` +
  `${data.engine}; ${["torch", "onnxruntime", "python"].filter((name) => data.versions[name]).map((name) => `${name} ${data.versions[name]}`).join(", ")}`;
for (const column of COLUMNS) {
  const button = element("button", { type: "button" }, column.title, element("span"));
  button.addEventListener("click", () => change({ sort: column.title, down: state.sort === column.title && !state.down }));
  const cell = element("th", { className: column.number ? "number" : "" }, button);
  cell.dataset.title = column.title;
  document.querySelector("#rows thead tr").append(cell);
}
$("search").addEventListener("input", () => change({ text: $("search").value.toLowerCase() }));
$("clear").addEventListener("click", () => { $("search").value = ""; change({ statuses: new Set(), kind: "", text: "", options: data.options.map(() => "") }); });
$("more").addEventListener("click", () => { state.limit += PAGE; draw(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== $("search")) { event.preventDefault(); $("search").focus(); }
  if (event.key === "Escape") choose("");
});
addEventListener("hashchange", () => choose(decodeURIComponent(location.hash.slice(1))));
drawOptions();
drawTimeline();
draw();
if (location.hash.length > 1) choose(decodeURIComponent(location.hash.slice(1)));
