// Mouse, keys and buttons; the first sight.

const SMALLEST = 0.05;
const LARGEST = 3;
const READABLE = 0.6; // below this scale labels cannot be read

const clamp = (scale) => Math.min(LARGEST, Math.max(SMALLEST, scale));

let frame = 0;
function drawSoon() {
  frame ||= requestAnimationFrame(() => { frame = 0; draw(); });
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = clamp(view.scale * factor);
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  drawSoon();
}

// The whole graph; or, to begin with, its full width from the top, as far as that can be read.
function fit(whole = true) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const across = width / scene.width;
  const scale = whole ? Math.min(across, height / scene.height) : Math.max(across, READABLE);
  view.scale = Math.min(1, clamp(scale));
  view.x = (width - scene.width * view.scale) / 2;
  view.y = Math.max(0, (height - scene.height * view.scale) / 2);
  if (scene.height * view.scale <= height && scene.width * view.scale <= width) return drawSoon();
  const start = placeOf.get(items[0].children[0]); // what the model begins with stays in sight
  if (start && scene.width * view.scale > width) {
    view.x = width / 2 - (start.x + start.width / 2) * view.scale;
  }
  return drawSoon();
}

function center(id) {
  const box = placeOf.get(id);
  if (!box) return;
  view.scale = Math.max(view.scale, READABLE);
  const tall = box.height * view.scale > canvas.clientHeight * 0.8;
  view.x = canvas.clientWidth / 2 - (box.x + box.width / 2) * view.scale;
  view.y = tall
    ? 40 - box.y * view.scale
    : canvas.clientHeight / 2 - (box.y + box.height / 2) * view.scale;
}

function select(id) {
  selected = id;
  showPanel();
  redraw();
}

// Goes to an item wherever it is.
function visit(id) {
  if (reveal(id)) arrangeScene();
  center(id);
  select(id);
  layers.boxes.querySelector(`[data-item="${id}"]`)?.focus({ preventScroll: true });
}

// Opens or closes a group, whose upper left corner stays where it is.
function toggleInPlace(id) {
  const before = placeOf.get(id);
  if (!toggle(items[id])) return;
  arrangeScene();
  const after = placeOf.get(id);
  if (before && after) {
    const middle = (box) => box.x + box.width / 2;
    view.x += (middle(before) - middle(after)) * view.scale;
    view.y += (before.y - after.y) * view.scale;
  }
  redraw();
}

function collapseAll() {
  for (const item of items) toggle(item, false);
  if (selected !== null) selected = lineage(selected)[1] ?? null;
  arrangeScene();
  showPanel();
  fit(false);
  redraw();
}

// --- mouse and touch ------------------------------------------------------------------------------

const itemAt = (target) => {
  const found = target.closest?.("[data-item]");
  return found ? Number(found.dataset.item) : null;
};

const pointers = new Map();
let dragged = false;

canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  if (pointers.size === 1) dragged = false;
});

canvas.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
  if (!dragged && Math.hypot(dx, dy) < 4) return;
  dragged = true;
  canvas.setPointerCapture(event.pointerId); // not before: a click would lose what it is on
  const [first, second] = [...pointers.values()];
  const apart = second ? Math.hypot(first.x - second.x, first.y - second.y) : 0;
  Object.assign(last, { x: event.clientX, y: event.clientY });
  if (second && apart > 0) {
    const corner = canvas.getBoundingClientRect();
    const factor = Math.hypot(first.x - second.x, first.y - second.y) / apart;
    zoom(factor, (first.x + second.x) / 2 - corner.left, (first.y + second.y) / 2 - corner.top);
    return;
  }
  view.x += dx;
  view.y += dy;
  drawSoon();
});

for (const kind of ["pointerup", "pointercancel", "pointerleave"]) {
  canvas.addEventListener(kind, (event) => pointers.delete(event.pointerId));
}

canvas.addEventListener("click", (event) => {
  if (dragged) return;
  const id = itemAt(event.target);
  const isSecond = event.detail === 2; // of a double click, whose own event would come too late:
  if (event.target.closest(".toggle") || (isSecond && id !== null)) toggleInPlace(id);
  else select(id); // draws anew
});

// In a notebook the wheel scrolls past the graph until that is clicked on.
const isFramed = window.parent !== window;

canvas.addEventListener("wheel", (event) => {
  if (isFramed && !document.hasFocus()) return;
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) { // also what pinching a touchpad sends
    const corner = canvas.getBoundingClientRect();
    const factor = Math.exp(-Math.max(-50, Math.min(50, event.deltaY)) / 100);
    zoom(factor, event.clientX - corner.left, event.clientY - corner.top);
    return;
  }
  view.x -= event.shiftKey ? event.deltaY : event.deltaX;
  view.y -= event.shiftKey ? 0 : event.deltaY;
  drawSoon();
}, { passive: false });

// --- keys -----------------------------------------------------------------------------------------

const STEP = 60;
const KEYS = {
  "/": () => { searchInput.focus(); searchInput.select(); },
  "+": () => zoom(1.25),
  "=": () => zoom(1.25),
  "-": () => zoom(0.8),
  0: () => fit(),
  c: collapseAll,
  d: () => { if (data.first !== null) visit(data.first); },
  Escape: () => select(null),
  ArrowLeft: () => { view.x += STEP; drawSoon(); },
  ArrowRight: () => { view.x -= STEP; drawSoon(); },
  ArrowUp: () => { view.y += STEP; drawSoon(); },
  ArrowDown: () => { view.y -= STEP; drawSoon(); },
};

document.addEventListener("keydown", (event) => {
  if (event.target === searchInput || event.ctrlKey || event.metaKey || event.altKey) return;
  const onBox = canvas.contains(event.target) ? itemAt(event.target) : null;
  if (onBox !== null && event.key === "Enter") select(onBox);
  else if (onBox !== null && event.key === " ") toggleInPlace(onBox);
  else if (event.key.startsWith("Arrow") && panel.contains(event.target)) return;
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

// A box that gets the focus from the keyboard may lie at the edge.
canvas.addEventListener("focusin", (event) => {
  const id = itemAt(event.target);
  const box = placeOf.get(id);
  if (!box || !event.target.matches(":focus-visible")) return;
  const [x, y] = [box.x * view.scale + view.x, box.y * view.scale + view.y];
  if (x < 0 || y < 0 || x > canvas.clientWidth - 40 || y > canvas.clientHeight - 40) {
    center(id);
    drawSoon();
  }
});

// --- buttons and the first sight -------------------------------------------------------------------

const onClick = (id, action) => document.getElementById(id).addEventListener("click", action);
onClick("zoom-in", KEYS["+"]);
onClick("zoom-out", KEYS["-"]);
onClick("fit", () => fit());
onClick("collapse", collapseAll);
onClick("first", KEYS.d);
document.getElementById("first").hidden = data.first === null;

function showLegend() {
  const kinds = [["weights", "has weights"], ["moves", "moves data"], ["end", "input or output"],
    ["group", "module or group"]];
  if (summary.compared) {
    kinds.push(["within", "agrees with PyTorch"], ["deviates", "deviates"],
      ["follows", "follows from that"]);
  }
  document.getElementById("legend").replaceChildren(...kinds.map(([kind, text]) =>
    html("span", { className: `key ${kind}` }, text)));
}

showLegend();
openFirstLevels();
arrangeScene();
showPanel();
let size = 0; // a frame in a notebook has none at first
new ResizeObserver(() => {
  if (size === 0) fit(false);
  size = canvas.clientWidth * canvas.clientHeight;
  draw();
}).observe(canvas);
