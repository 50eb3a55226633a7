// Finds boxes by what they are called, in the order of the graph.

const searchInput = document.getElementById("search");
const foundList = document.getElementById("found");
const MOST_FOUND = 50;
let marked = -1;

function wordsOf(item) {
  item.words ??= [
    item.title, item.subtitle, item.name, item.path, item.operator,
    ...(item.outputs ?? []).map(([, n]) => values[n].name),
    ...(item.inputs ?? []).map(([, n]) => (n === null ? "" : values[n].name)),
  ].filter(Boolean).join("\n").toLowerCase();
  return item.words;
}

// Boxes that have every word; those whose own title has it first.
function find(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const all = items.filter((item) => item.id > 0 && words.every((w) => wordsOf(item).includes(w)));
  const titled = (item) => words.some((word) => item.title.toLowerCase().includes(word));
  return [...all.filter(titled), ...all.filter((item) => !titled(item))];
}

function closeSearch() {
  foundList.hidden = true;
  marked = -1;
  searchInput.setAttribute("aria-expanded", "false");
  searchInput.removeAttribute("aria-activedescendant");
}

function choose(id) {
  closeSearch();
  visit(id);
}

function optionFor(item) {
  const option = html("div", { className: "option", id: `found-${item.id}` },
    html("b", {}, item.title), " ",
    html("span", {}, [item.subtitle, item.path || item.name].filter(Boolean).join("  ")));
  option.setAttribute("role", "option");
  option.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // the list closes when the box loses the focus
    choose(item.id);
  });
  return option;
}

function showFound() {
  const all = find(searchInput.value);
  const options = all.slice(0, MOST_FOUND).map(optionFor);
  const more = all.length > MOST_FOUND ? `${all.length - MOST_FOUND} more; add a word` : "";
  const note = all.length ? more : "Nothing has these words";
  if (note) options.push(html("div", { className: "note" }, note));
  foundList.replaceChildren(...options);
  foundList.hidden = !searchInput.value.trim();
  searchInput.setAttribute("aria-expanded", String(!foundList.hidden));
  mark(all.length ? 0 : -1);
}

function mark(place) {
  const options = [...foundList.querySelectorAll(".option")];
  marked = options.length ? (place + options.length) % options.length : -1;
  options.forEach((option, i) => option.setAttribute("aria-selected", String(i === marked)));
  if (marked < 0) return;
  options[marked].scrollIntoView({ block: "nearest" });
  searchInput.setAttribute("aria-activedescendant", options[marked].id);
}

searchInput.addEventListener("input", showFound);
searchInput.addEventListener("focus", () => { if (searchInput.value) showFound(); });
searchInput.addEventListener("blur", closeSearch);
searchInput.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") mark(marked + 1);
  else if (event.key === "ArrowUp") mark(marked - 1);
  else if (event.key === "Enter") {
    const option = foundList.querySelectorAll(".option")[marked];
    if (option) choose(Number(option.id.replace("found-", "")));
  } else if (event.key === "Escape") {
    searchInput.value = "";
    searchInput.blur();
    canvas.focus();
  } else return;
  event.preventDefault();
});
