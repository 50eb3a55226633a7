// Draws the part of the scene that can be seen; the rest is not in the document.

const SVG = "http://www.w3.org/2000/svg";
const canvas = document.getElementById("canvas");
const world = document.getElementById("world");
const layers = Object.fromEntries(
  ["groups", "lines", "boxes"].map((name) => [name, document.getElementById(name)]),
);
const view = { x: 0, y: 0, scale: 1 };
const drawn = new Map();
let selected = null;

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const svgText = (text, x, y, kind) => svg("text", { x, y, class: kind }, text);

function classesOf(item) {
  const classes = ["box", item.kind, item.family ?? ""];
  if (isGroup(item)) classes.push("group");
  if (item.difference) classes.push(item.difference);
  if (selected === item.id) classes.push("selected");
  return classes.filter(Boolean).join(" ");
}

function button(item, x, y) {
  const sign = svg("path", { d: item.expanded ? "M-4 0H4" : "M-4 0H4M0 -4V4" });
  return svg("g", { class: "toggle", transform: `translate(${x} ${y})` },
    svg("title", {}, item.expanded ? "Collapse" : "Expand"),
    svg("circle", { r: BUTTON / 2 }), sign);
}

function spoken(item) {
  const what = { node: "", function: "function", module: "module", part: "group" };
  const parts = [item.title, item.subtitle, what[item.kind] ?? item.kind, item.difference];
  return parts.filter(Boolean).join(", ");
}

function boxElement({ item, x, y, width, height }) {
  const element = svg("g", {
    class: classesOf(item), transform: `translate(${x} ${y})`, "data-item": item.id,
    tabindex: 0, role: "button", "aria-label": spoken(item),
    "aria-expanded": isGroup(item) ? item.expanded : null,
  });
  if (item.expanded) {
    const wide = textWidth(heading(item), `600 ${FONT}`) + BUTTON + 2.5 * PADDING;
    element.append(
      svg("rect", { class: "heading", width: wide, height: TITLE_HEIGHT, rx: 6 }),
      svgText(heading(item), BUTTON + 1.5 * PADDING, 18, "title"),
      button(item, PADDING + BUTTON / 2 - 4, TITLE_HEIGHT / 2),
    );
    return element;
  }
  const box = measured(item);
  element.append(
    svg("title", {}, [item.title, item.subtitle, item.name ?? item.path].filter(Boolean).join("\n")),
    svg("rect", { class: "back", width, height, rx: item.kind === "node" ? 4 : 8 }),
    svgText(box.title, PADDING, 18, "title"),
    ...box.rows.map((row, i) =>
      svgText(row.text, PADDING, TITLE_HEIGHT + 9 + i * ROW_HEIGHT, row.kind)),
  );
  if (isGroup(item)) element.append(button(item, width - PADDING - 5, TITLE_HEIGHT / 2));
  return element;
}

const backElement = ({ item, x, y, width, height, depth }) =>
  svg("rect", {
    class: `back open ${depth % 2 ? "odd" : "even"} ${classesOf(item)}`, x, y, width, height, rx: 8,
    "data-item": item.id,
  });

function curve(points) {
  let path = `M${points[0].x} ${points[0].y}`;
  points.slice(1).forEach((to, i) => {
    const from = points[i];
    if (from.x === to.x && from.y === to.y) return; // an arrow there would point anywhere
    const middle = (from.y + to.y) / 2;
    path += from.x === to.x
      ? `V${to.y}`
      : `C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.y}`;
  });
  return path;
}

// What a tooltip tells of values, of the first of many.
const toldOf = (numbers) => [...numbers].slice(0, 20)
  .map((n) => `${values[n].name}: ${typeText(values[n])}`).join("\n");

function lineElement(line) {
  const ends = [line.link.from, line.link.to];
  const near = selected !== null && ends.includes(`${selected}`);
  const element = svg("g", { class: near ? "line near" : "line" },
    svg("title", {}, toldOf(line.link.values)),
    svg("path", { class: "hit", d: curve(line.points) }),
    svg("path", { d: curve(line.points), "marker-end": "url(#arrow)" }));
  if (line.text) {
    const width = textWidth(line.text, SMALL_FONT) + 4;
    const { x, y } = line.label;
    element.append(
      svg("rect", { class: "behind", x: x - width / 2, y: y - 7, width, height: LABEL_HEIGHT }),
      svgText(line.text, x, y + 4, "label"));
  }
  return element;
}

function portElement({ x, y, width, height, text, values: taken }) {
  return svg("g", { class: "port", transform: `translate(${x} ${y})` },
    svg("title", {}, toldOf(taken)),
    svg("rect", { width, height, rx: height / 2 }),
    svgText(text, 8, 13, "label"));
}

// [layer, key, element maker] of all that meets a rectangle.
function* seen(left, top, right, bottom) {
  const meets = (o) =>
    o.x < right && o.x + o.width > left && o.y < bottom && o.y + o.height > top;
  for (const box of scene.boxes) {
    if (!meets(box)) continue;
    if (box.item.expanded) yield ["groups", `back ${box.key}`, () => backElement(box), box.depth];
    yield ["boxes", `box ${box.key}`, () => boxElement(box)];
  }
  for (const line of scene.lines) {
    if (meets(line)) yield ["lines", `line ${line.key}`, () => lineElement(line)];
  }
  for (const port of scene.ports) {
    if (meets(port)) yield ["boxes", `port ${port.key}`, () => portElement(port)];
  }
}

// Groups lie on those around them, whenever each came into sight.
function layerAt(name, depth) {
  if (depth === undefined) return layers[name];
  while (layers[name].children.length <= depth) layers[name].append(svg("g"));
  return layers[name].children[depth];
}

function draw() {
  const { clientWidth, clientHeight } = canvas;
  const margin = 100;
  world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  canvas.classList.toggle("far", view.scale < 0.35);
  const left = (-view.x - margin) / view.scale;
  const top = (-view.y - margin) / view.scale;
  const right = (clientWidth - view.x + margin) / view.scale;
  const bottom = (clientHeight - view.y + margin) / view.scale;
  const wanted = new Set();
  for (const [layer, key, make, depth] of seen(left, top, right, bottom)) {
    wanted.add(key);
    if (drawn.has(key)) continue;
    const element = make();
    drawn.set(key, element);
    layerAt(layer, depth).append(element);
  }
  for (const [key, element] of drawn) {
    if (wanted.has(key)) continue;
    element.remove();
    drawn.delete(key);
  }
}

// After the scene or the selection has changed. Where the focus was, it is again.
function redraw() {
  const focused = document.activeElement?.dataset?.item;
  for (const element of drawn.values()) element.remove();
  drawn.clear();
  draw();
  if (focused) layers.boxes.querySelector(`[data-item="${focused}"]`)?.focus({ preventScroll: true });
}
