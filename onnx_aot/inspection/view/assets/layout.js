// Places the children of each opened group by itself, so that a click moves little.

const MARGIN = 18;
const PORT_HEIGHT = 18;
const LABEL_HEIGHT = 14;
const layouts = new Map();

// Opening or closing a box changes its own size and those of the groups around it.
function forgetLayout(id) {
  for (const group of lineage(id)) layouts.delete(group);
}

function sizeOf(item) {
  if (!item.expanded) return measured(item);
  const inner = layoutOf(item.id);
  return { width: inner.width, height: inner.height };
}

const isPort = (key) => key.startsWith("in") || key.startsWith("out");

function portsOf(drawn) {
  const ports = new Map();
  for (const link of drawn) {
    for (const key of [link.from, link.to].filter(isPort)) {
      if (!ports.has(key)) ports.set(key, new Set());
      for (const value of link.values) ports.get(key).add(value);
    }
  }
  return ports;
}

function labelOf(link) {
  if (isPort(link.from) || isPort(link.to)) return "";
  const shown = [...link.values].filter((value) => !link.shared.has(value));
  if (shown.length > 1) return `${shown.length} values`;
  return shortened(shapeText(values[shown[0]], 8), SMALL_FONT, 150);
}

// Ports belong to the edges of their group: those above everything, these below it.
function pinPorts(graph, ports) {
  for (const [key, taken] of ports) {
    const text = portText(taken);
    const width = textWidth(text, SMALL_FONT) + 16;
    graph.setNode(key, { width, height: PORT_HEIGHT, text, values: taken });
    const side = key.startsWith("in") ? "top" : "bottom";
    if (!graph.hasNode(side)) graph.setNode(side, { width: 1, height: 1 });
    const ends = side === "top" ? [side, key] : [key, side];
    graph.setEdge(...ends, { weight: 100, minlen: 1 });
  }
}

function dagreGraph(group) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 26, edgesep: 14, ranksep: 34 });
  for (const child of group.children) {
    const { width, height } = sizeOf(items[child]);
    graph.setNode(`${child}`, { width, height });
  }
  const drawn = linksOf(group.id).filter(isDrawn);
  pinPorts(graph, portsOf(drawn));
  for (const link of drawn) {
    const text = labelOf(link);
    const size = text ? { width: textWidth(text, SMALL_FONT) + 8, height: LABEL_HEIGHT } : {};
    graph.setEdge(link.from, link.to, { ...size, labelpos: "c", text, link });
  }
  return graph;
}

// Centers of ranks to their heights: lines bend between ranks, not beside the boxes in them.
function rankHeights(graph) {
  const heights = new Map();
  for (const key of graph.nodes()) {
    const { y, height } = graph.node(key);
    const rank = Math.round(y);
    heights.set(rank, Math.max(heights.get(rank) ?? 0, height));
  }
  return heights;
}

function bends(edge, heights) {
  return edge.points.slice(1, -1).flatMap(({ x, y }) => {
    const half = (heights.get(Math.round(y)) ?? 0) / 2;
    return half ? [{ x, y: y - half }, { x, y: y + half }] : [{ x, y }];
  });
}

// Where a line meets an opened group: at the port that its value goes through.
function attachment(key, box, port) {
  const item = isPort(key) ? null : items[key];
  const inner = item?.expanded ? layoutOf(item.id).boxes.get(port) : null;
  const left = box.x - box.width / 2;
  const top = box.y - box.height / 2;
  if (inner) {
    return { x: left + inner.x, top: top + inner.y - PORT_HEIGHT / 2,
             bottom: top + inner.y + PORT_HEIGHT / 2 };
  }
  return { x: box.x, top, bottom: top + box.height };
}

const afterPrefix = (key) => key.replace(/^(in|out)/, "");

function lineOf(graph, edge, heights) {
  const { link, text, x, y } = graph.edge(edge);
  const [a, b] = [graph.node(edge.v), graph.node(edge.w)];
  const start = attachment(edge.v, a, `out${afterPrefix(edge.w)}`);
  const end = attachment(edge.w, b, `in${afterPrefix(edge.v)}`);
  if (a.y >= b.y) { // a module that is called twice takes what comes after it
    return { link, text, x, y, points: graph.edge(edge).points };
  }
  const leave = a.y + (heights.get(Math.round(a.y)) ?? a.height) / 2;
  const arrive = b.y - (heights.get(Math.round(b.y)) ?? b.height) / 2;
  const points = [
    { x: start.x, y: start.bottom }, { x: start.x, y: leave },
    ...bends(graph.edge(edge), heights),
    { x: end.x, y: arrive }, { x: end.x, y: end.top },
  ];
  return { link, text, x, y, points };
}

const isSeen = (key) => key !== "top" && key !== "bottom";

// What is seen of boxes and lines: dagre counts lines without labels out.
function extent(graph, lines) {
  const boxes = graph.nodes().filter(isSeen).map((key) => graph.node(key));
  const xs = lines.flatMap((line) => line.points.map((point) => point.x));
  for (const { text, x } of lines.filter((line) => line.text)) {
    const half = textWidth(text, SMALL_FONT) / 2;
    xs.push(x - half, x + half);
  }
  return {
    left: Math.min(...xs, ...boxes.map((box) => box.x - box.width / 2)),
    right: Math.max(...xs, ...boxes.map((box) => box.x + box.width / 2)),
    top: Math.min(...boxes.map((box) => box.y - box.height / 2)),
    bottom: Math.max(...boxes.map((box) => box.y + box.height / 2)),
  };
}

function moved(points, dx, dy) {
  return points.map((point) => ({ x: point.x + dx, y: point.y + dy }));
}

// { width, height, boxes: key -> { x, y, width, height, text }, lines }, from the group's corner.
function layoutOf(id) {
  const found = layouts.get(id);
  if (found) return found;
  const group = items[id];
  const graph = dagreGraph(group);
  dagre.layout(graph);
  const heights = rankHeights(graph);
  const linked = graph.edges().filter((edge) => graph.edge(edge).link);
  const lines = linked.map((edge) => lineOf(graph, edge, heights));
  const { left, right, top, bottom } = extent(graph, lines);
  const above = id === 0 ? 0 : TITLE_HEIGHT;
  const title = id === 0 ? 0 : textWidth(heading(group), `600 ${FONT}`) + BUTTON + 3 * PADDING;
  const width = Math.max(right - left + 2 * MARGIN, title);
  const dx = (width - right - left) / 2;
  const dy = MARGIN + above - top;
  const boxes = new Map();
  for (const key of graph.nodes().filter(isSeen)) {
    const box = graph.node(key);
    boxes.set(key, { ...box, x: box.x + dx, y: box.y + dy });
  }
  const layout = {
    width, height: bottom + MARGIN + dy, boxes,
    lines: lines.map((line) => (
      { ...line, x: line.x + dx, y: line.y + dy, points: moved(line.points, dx, dy) })),
  };
  layouts.set(id, layout);
  return layout;
}
