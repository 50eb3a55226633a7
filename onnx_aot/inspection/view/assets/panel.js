// Tells everything of what is selected. Texts of the model are only ever set as text.

const panel = document.getElementById("panel");

function html(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const section = (title, ...children) =>
  children.length ? html("section", {}, html("h3", {}, title), ...children) : null;

function table(rows) {
  const body = rows.map(([name, ...cells]) =>
    html("tr", {}, html("th", { scope: "row" }, name), ...cells.map((c) => html("td", {}, c))));
  return html("table", {}, ...body);
}

function goTo(id) {
  const item = items[id];
  const label = item.path ? `${item.title} in ${item.path}` : item.title;
  return html("button", { className: "link", onclick: () => visit(id), title: item.name ?? "" }, label);
}

function bytesText(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let size = bytes;
  for (; size >= 1000 && unit < units.length - 1; unit += 1) size /= 1000;
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

const numberText = (number) =>
  number === null ? "-" : Number.isInteger(number) ? `${number}` : number.toPrecision(5);

function statisticsTable(weight) {
  const all = weight.statistics;
  const rows = [["size", bytesText(weight.bytes)]];
  if (weight.absent) rows.push(["values", "not in the model yet, only type and shape"]);
  if (weight.text) rows.push(["values", weight.text]);
  if (all) {
    rows.push(
      ["min", numberText(all.minimum)], ["max", numberText(all.maximum)],
      ["mean", numberText(all.mean)], ["std", numberText(all.deviation)],
      ["zeros", `${all.zeros} (${((100 * all.zeros) / all.seen).toFixed(1)} %)`],
      ["NaN", `${all.nan}`], ["infinite", `${all.infinite}`],
    );
    if (all.seen < all.elements) rows.push(["sampled", `${all.seen} of ${all.elements} elements`]);
  }
  return table(rows);
}

const VERDICTS = {
  within: "within the tolerance",
  follows: "deviates, as values before it do",
  deviates: "deviates",
};

const ORIGINS = {
  own: "wrong from PyTorch's own inputs too",
  inherited: "right from PyTorch's own inputs",
  runtime: "right once values before it can be seen: ONNX Runtime fuses nodes here",
};

function differenceTable(difference) {
  const rows = [["PyTorch", VERDICTS[difference.verdict] ?? "no verdict"]];
  if (difference.origin) rows.push(["by itself", ORIGINS[difference.origin] ?? difference.origin]);
  if (difference.absolute) rows.push(["max absolute", difference.absolute]);
  if (difference.relative) rows.push(["max relative", difference.relative]);
  if (difference.remark) rows.push(["remark", difference.remark]);
  return html("div", { className: `difference ${difference.verdict ?? ""}` }, table(rows));
}

const MOST_LINKS = 30;

function goToAll(ids) {
  const shown = ids.slice(0, MOST_LINKS).map(goTo);
  return ids.length > MOST_LINKS ? [...shown, `and ${ids.length - MOST_LINKS} more`] : shown;
}

function valueEntry(formal, number, isInput) {
  if (number === null) return html("div", { className: "value" }, html("b", {}, formal), " left out");
  const value = values[number];
  const head = html("div", {}, html("b", {}, formal ? `${formal} ` : ""), `${value.name} `,
    html("span", { className: "type" }, typeText(value)));
  const entry = html("div", { className: "value" }, head);
  if (value.weight) entry.append(statisticsTable(value.weight));
  else if (isInput && value.producer !== undefined) {
    entry.append(html("div", { className: "links" }, "from ", goTo(value.producer)));
  }
  if (!isInput) {
    const takers = takersOf.get(number) ?? [];
    if (takers.length) entry.append(html("div", { className: "links" }, "to ", ...goToAll(takers)));
    if (value.difference) entry.append(differenceTable(value.difference));
  }
  return entry;
}

const FRAME = /^\s*File "/;
const IN_TORCH = /^\s*File "([^"]*\/)?torch\//;

// A stack trace, in which the innermost frame of code that is not torch's is marked.
function traceOf(text) {
  const lines = text.split("\n");
  const own = lines.findLastIndex((line) => FRAME.test(line) && !IN_TORCH.test(line));
  const after = lines.findIndex((line, i) => i > own && FRAME.test(line));
  const end = after < 0 ? lines.length : after;
  return html("pre", { className: "trace" }, ...lines.map((line, i) =>
    html("span", { className: own >= 0 && i >= own && i < end ? "own" : "" }, `${line}\n`)));
}

const SOURCE = "pkg.torch.onnx.stack_trace";

function metadataSections(metadata) {
  const rest = Object.entries(metadata).filter(([key]) => key !== SOURCE);
  const trace = texts[metadata[SOURCE]];
  return [
    trace ? section("Source", traceOf(trace)) : null,
    rest.length ? section("Metadata", ...rest.map(([key, number]) =>
      html("div", { className: "meta" }, html("b", {}, key),
        html("div", {}, texts[number])))) : null,
  ];
}

function operatorHead(item) {
  const rows = [["name", item.name ?? "-"], ["domain", item.domain]];
  if (item.overload) rows.push(["overload", item.overload]);
  if (item.path) rows.push(["module", item.path]);
  const parts = [table(rows)];
  if (item.domain === "ai.onnx") {
    parts.push(html("a", {
      href: `https://onnx.ai/onnx/operators/onnx__${encodeURIComponent(item.operator)}.html`,
      target: "_blank", rel: "noreferrer",
    }, "What the operator does"));
  }
  return parts;
}

function describeNode(item) {
  const attributes = Object.entries(item.attributes ?? {});
  const listed = (entries, isInput) => (entries ?? []).map(([f, n]) => valueEntry(f, n, isInput));
  return [
    ...(item.operator ? operatorHead(item) : [table([["name", item.title]])]),
    attributes.length ? section("Attributes", table(attributes)) : null,
    section("Inputs", ...listed(item.inputs, true)),
    section("Outputs", ...listed(item.outputs, false)),
    ...metadataSections(item.metadata ?? {}),
  ];
}

// Values that enter and leave a group.
function boundary(item) {
  const within = new Set();
  const visitAll = (at) => {
    within.add(at.id);
    for (const child of at.children) visitAll(items[child]);
  };
  visitAll(item);
  const [takes, gives] = [new Set(), new Set()];
  for (const [source, target, value] of edges) {
    if (!within.has(source) && within.has(target)) takes.add(value);
    if (within.has(source) && !within.has(target)) gives.add(value);
  }
  const listed = (numbers, isInput) =>
    [...numbers].slice(0, MOST_LINKS).map((number) => valueEntry("", number, isInput));
  return [section("Takes", ...listed(takes, true)), section("Gives", ...listed(gives, false))];
}

function describeGroup(item) {
  const counts = new Map();
  const weights = new Set();
  const visitAll = (at) => {
    if (at.operator && !isGroup(at)) counts.set(at.operator, (counts.get(at.operator) ?? 0) + 1);
    for (const [, number] of weightsOf(at)) weights.add(number);
    for (const child of at.children) visitAll(items[child]);
  };
  visitAll(item);
  const bytes = [...weights].reduce((sum, number) => sum + values[number].weight.bytes, 0);
  const rows = [["nodes", `${nodesWithin(item)}`], ["weights", `${weights.size}, ${bytesText(bytes)}`]];
  if (item.class) rows.unshift(["class", item.class]);
  if (item.path) rows.unshift(["module", item.path]);
  if (item.difference) {
    const verdict = item.difference === "within" ? "all within the tolerance" : "deviates";
    rows.push(["PyTorch", verdict]);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => [name, `${n}`]);
  const operators = sorted.length ? section("Operators", table(sorted)) : null;
  return [table(rows), ...boundary(item), operators];
}

function describeModel() {
  const all = items.filter((item) => items[item.parent]?.kind !== "body");
  const ends = (kind) => all.filter((item) => item.kind === kind).map((item) => {
    const [, number] = (item.outputs ?? item.inputs)[0];
    return html("div", { className: "value" }, goTo(item.id), " ",
      html("span", { className: "type" }, typeText(values[number])));
  });
  const opsets = Object.entries(summary.opsets).map(([domain, version]) => `${domain} ${version}`);
  const rows = [["nodes", `${summary.nodes}`], ["weights", `${summary.weights}, ${bytesText(summary.bytes)}`],
    ["operator sets", opsets.join(", ")]];
  if (summary.functions) rows.push(["functions", `${summary.functions}`]);
  if (summary.producer) rows.push(["producer", summary.producer]);
  if (summary.compared) {
    rows.push(["PyTorch", `${summary.deviating} of ${summary.compared} values deviate`]);
  }
  const metadata = Object.entries(summary.metadata).map(([key, text]) =>
    html("details", { className: "meta" }, html("summary", {}, key), html("div", {}, text)));
  return [table(rows), section("Inputs", ...ends("input")), section("Outputs", ...ends("output")),
    section("Metadata", ...metadata)];
}

function showPanel() {
  const item = selected === null ? null : items[selected];
  const isModule = item?.kind === "module" && item.path;
  const title = isModule ? item.path : item?.title ?? summary.name;
  const parts = !item || item.id === 0
    ? describeModel()
    : item.operator || item.kind === "input" || item.kind === "output"
      ? describeNode(item) : describeGroup(item);
  const subtitle = item?.subtitle ? html("p", { className: "subtitle" }, item.subtitle) : null;
  panel.replaceChildren(html("h2", {}, title), ...[subtitle, ...parts].filter(Boolean));
  panel.scrollTop = 0;
}
