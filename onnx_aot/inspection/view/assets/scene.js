// Everything that is visible with the present groups open, in the coordinates of the whole graph.

let scene = { width: 0, height: 0, boxes: [], ports: [], lines: [] };
const placeOf = new Map(); // of an item: its box in the scene

function place(group, left, top, depth) {
  const layout = layoutOf(group.id);
  for (const [key, box] of layout.boxes) {
    const x = left + box.x - box.width / 2;
    const y = top + box.y - box.height / 2;
    const common = { x, y, width: box.width, height: box.height, depth };
    if (isPort(key)) {
      scene.ports.push({ ...common, key: `${group.id}/${key}`, text: box.text, values: box.values });
      continue;
    }
    const item = items[key];
    const placed = { ...common, key, item };
    scene.boxes.push(placed);
    placeOf.set(item.id, placed);
    if (item.expanded) place(item, x, y, depth + 1);
  }
  for (const line of layout.lines) {
    const points = moved(line.points, left, top);
    const [xs, ys] = [points.map((p) => p.x), points.map((p) => p.y)];
    const [x, y] = [Math.min(...xs), Math.min(...ys)];
    scene.lines.push({
      key: `${group.id}/${line.link.from}>${line.link.to}`,
      link: line.link, text: line.text, points, depth,
      label: { x: left + line.x, y: top + line.y },
      x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y,
    });
  }
}

function arrangeScene() {
  const { width, height } = layoutOf(0);
  scene = { width, height, boxes: [], ports: [], lines: [] };
  placeOf.clear();
  place(items[0], 0, 0, 0);
}

function toggle(item, expanded = !item.expanded) {
  if (!isGroup(item) || item.id === 0 || item.expanded === expanded) return false;
  item.expanded = expanded;
  forgetLayout(item.id);
  return true;
}

// Opens what is around an item.
function reveal(id) {
  let changed = false;
  for (const group of lineage(id).slice(0, -1)) changed = toggle(items[group], true) || changed;
  return changed;
}

// Opens whole levels while the boxes remain few enough to take in at a glance.
const FEW = 60;

function openFirstLevels() {
  let level = items[0].children;
  let visible = level.length;
  for (;;) {
    const groups = level.filter((id) => isGroup(items[id]) && items[id].kind !== "part");
    const next = groups.flatMap((id) => items[id].children);
    visible += next.length;
    if (groups.length === 0 || visible > FEW) return;
    for (const id of groups) toggle(items[id], true);
    level = next;
  }
}
