// What is written in a box, and how large that makes it.

const FONT = "13px system-ui, sans-serif";
const SMALL_FONT = "11px system-ui, sans-serif";
const TITLE_HEIGHT = 26;
const ROW_HEIGHT = 16;
const PADDING = 10;
const BUTTON = 18;
const WIDEST = 230;
const MOST_ROWS = 3;
const LONGEST_VALUES = 24; // letters of a small weight's values; its shape is shown otherwise

const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(text, font) {
  const key = font + text;
  let width = widths.get(key);
  if (width === undefined) {
    pen.font = font;
    widths.set(key, (width = pen.measureText(text).width));
  }
  return width;
}

function shortened(text, font, width = WIDEST) {
  if (textWidth(text, font) <= width) return text;
  let kept = text.length - 1;
  while (kept > 1 && textWidth(`${text.slice(0, kept)}\u2026`, font) > width) kept -= 1;
  return `${text.slice(0, kept)}\u2026`;
}

function names(numbers) {
  const shown = [...numbers].slice(0, 2).map((number) => values[number].name);
  return shown.join(", ") + (numbers.size > 2 ? `, ${numbers.size - 2} more` : "");
}

function weightRows(item) {
  const rows = weightsOf(item).map(([formal, number]) => {
    const { text } = values[number].weight;
    const isShort = text !== undefined && text !== null && text.length <= LONGEST_VALUES;
    return `${formal}  ${isShort ? text : shapeText(values[number])}`;
  });
  return rows.length > MOST_ROWS
    ? [...rows.slice(0, MOST_ROWS - 1), `${rows.length - MOST_ROWS + 1} more weights`]
    : rows;
}

// Lines of small text under the title, each with a class.
function rowsOf(item) {
  const rows = [];
  const add = (text, kind) => rows.push({ text: shortened(text, SMALL_FONT), kind });
  if (item.subtitle) add(item.subtitle, "name");
  if (item.kind === "input" || item.kind === "output") {
    const [, number] = (item.outputs ?? item.inputs)[0];
    add(typeText(values[number]), "type");
  }
  if (isGroup(item)) add(`${nodesWithin(item)} node${nodesWithin(item) === 1 ? "" : "s"}`, "type");
  for (const row of weightRows(item)) add(row, "weight");
  const shared = sharedBy(item);
  if (shared.size) add(`\u2190 ${names(shared)}`, "shared");
  return rows;
}

// The box of an item that is not opened.
function measured(item) {
  if (!item.box) {
    const title = shortened(item.title, `600 ${FONT}`);
    const rows = rowsOf(item);
    const beside = isGroup(item) ? BUTTON + 6 : 0;
    const width = Math.max(
      30,
      textWidth(title, `600 ${FONT}`) + beside,
      ...rows.map((row) => textWidth(row.text, SMALL_FONT)),
    );
    const below = rows.length ? rows.length * ROW_HEIGHT + 6 : 0;
    item.box = { title, rows, width: width + 2 * PADDING, height: TITLE_HEIGHT + below };
  }
  return item.box;
}

// The line above what is in an opened group.
function heading(item) {
  item.heading ??= shortened(
    item.subtitle ? `${item.title}  ${item.subtitle}` : item.title, `600 ${FONT}`, 400,
  );
  return item.heading;
}

// What a value is called where it enters or leaves an opened group.
function portText(numbers) {
  const text = numbers.size === 1 ? values[[...numbers][0]].name : `${numbers.size} values`;
  return shortened(text, SMALL_FONT, 140);
}
