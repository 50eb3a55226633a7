import { Encoder, similarity } from "./embed.js";

const [query, others, status, result] = ["query", "others", "status", "result"].map((id) =>
  document.getElementById(id),
);

function show(sentences, scores) {
  const rows = sentences.map((sentence, index) => [sentence, scores[index]]);
  rows.sort((a, b) => b[1] - a[1]);
  result.replaceChildren(
    ...rows.map(([sentence, score]) => {
      const row = document.createElement("tr");
      const meter = document.createElement("meter");
      meter.value = Math.max(score, 0);
      const cells = [sentence, meter, score.toFixed(4)];
      row.append(
        ...cells.map((content) => {
          const cell = document.createElement("td");
          cell.append(content);
          return cell;
        }),
      );
      return row;
    }),
  );
}

let latest = 0;

async function update(encoder) {
  const number = ++latest;
  const sentences = others.value.split("\n").filter((line) => line.trim());
  const start = performance.now();
  const [first, ...rest] = await encoder.embed([query.value, ...sentences]);
  if (number !== latest) return; // a later call has begun
  show(sentences, rest.map((vector) => similarity(first, vector)));
  const milliseconds = Math.round(performance.now() - start);
  status.textContent = `${sentences.length + 1} sentences in ${milliseconds} ms`;
}

try {
  const encoder = await Encoder.load("site");
  const refresh = () => update(encoder);
  query.addEventListener("input", refresh);
  others.addEventListener("input", refresh);
  await refresh();
} catch (error) {
  status.textContent = `The model could not be loaded: ${error.message}`;
  throw error;
}
