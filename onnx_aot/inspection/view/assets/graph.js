// The tree of boxes and, for each group, what goes between its children.

const data = JSON.parse(document.getElementById("graph-data").textContent);
const { items, edges, values, summary, texts } = data;

items.forEach((item, id) => {
  item.id = id;
  item.title ??= "";
  item.children = [];
  item.expanded = id === 0;
  if (id > 0) items[item.parent].children.push(id);
});

const isGroup = (item) => item.children.length > 0;

// From the root to the item.
function lineage(id) {
  const path = [];
  for (let at = id; at !== undefined; at = at === 0 ? undefined : items[at].parent) path.push(at);
  return path.reverse();
}

// A value that goes to more boxes of one group than this is drawn once; the others name it.
const MOST_LINES = 6;

// Links of a group, by group: between children ("12"), from what lies outside it ("in7": 7 is the
// sibling of the group, or of one around it, where the value is made) and to there ("out9").
const links = new Map();

function addLink(group, from, to, value) {
  let ofGroup = links.get(group);
  if (!ofGroup) links.set(group, (ofGroup = new Map()));
  const key = `${from}>${to}`;
  let link = ofGroup.get(key);
  if (!link) ofGroup.set(key, (link = { from, to, values: new Set(), shared: new Set() }));
  link.values.add(value);
}

for (const [source, target, value] of edges) {
  const there = lineage(source);
  const here = lineage(target);
  let common = 0;
  while (there[common + 1] !== undefined && there[common + 1] === here[common + 1]) common += 1;
  const from = there[common + 1];
  const to = here[common + 1];
  if (from === undefined || to === undefined) continue; // a node and what is within it
  addLink(there[common], `${from}`, `${to}`, value);
  for (let i = common + 1; i < there.length - 1; i += 1) {
    addLink(there[i], `${there[i + 1]}`, `out${to}`, value);
  }
  for (let i = common + 1; i < here.length - 1; i += 1) {
    addLink(here[i], `in${from}`, `${here[i + 1]}`, value);
  }
}

for (const ofGroup of links.values()) {
  const takers = new Map();
  for (const link of ofGroup.values()) {
    for (const value of link.values) {
      const key = `${link.from}/${value}`;
      if (!takers.has(key)) takers.set(key, []);
      takers.get(key).push([link, value]);
    }
  }
  for (const taken of takers.values()) {
    if (taken.length <= MOST_LINES) continue;
    for (const [link, value] of taken.slice(1)) link.shared.add(value);
  }
}

const linksOf = (group) => [...(links.get(group)?.values() ?? [])];

const isDrawn = (link) => link.values.size > link.shared.size;

// Which values a box takes whose lines are not drawn.
function sharedBy(item) {
  if (item.shared) return item.shared;
  item.shared = new Set();
  for (const link of linksOf(item.parent)) {
    if (link.to === `${item.id}`) for (const value of link.shared) item.shared.add(value);
  }
  return item.shared;
}

const takersOf = new Map();
for (const [, target, value] of edges) {
  if (!takersOf.has(value)) takersOf.set(value, []);
  if (!takersOf.get(value).includes(target)) takersOf.get(value).push(target);
}

function nodesWithin(item) {
  item.nodes ??= isGroup(item)
    ? item.children.reduce((sum, child) => sum + nodesWithin(items[child]), 0)
    : Number(item.kind === "node" || item.kind === "function");
  return item.nodes;
}

// Sizes that take more letters than ``longest``, which expressions do, are left to the panel.
function shapeText(value, longest = Infinity) {
  if (!value.shape) return "";
  const sizes = value.shape.map((size) => (`${size}`.length > longest ? "\u2026" : size));
  return sizes.length ? sizes.join("\u00d7") : "scalar";
}

const typeText = (value) =>
  `${value.type || "?"}[${value.shape ? value.shape.join(", ") : "?"}]`;

const weightsOf = (item) =>
  (item.inputs ?? []).filter(([, number]) => number !== null && values[number].weight);
