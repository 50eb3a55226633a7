// Runs models in onnxruntime-web (WebAssembly), in Node:
//
//     node probe_web.mjs MODULES PROBES ANSWERS
//
// MODULES is the folder of the installed packages; the files are those of probe_client.py.
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { createRequire } from "node:module";

const [modules, probes, answers] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), "package.json"));
const ort = require("onnxruntime-web");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";

const ARRAYS = {
  float16: globalThis.Float16Array ?? Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
};

function load({ dtype, shape, data }) {
  const bytes = new Uint8Array(Buffer.from(data, "base64"));
  return new ort.Tensor(dtype, new ARRAYS[dtype](bytes.buffer), shape);
}

function store({ type, dims, data }) {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return { dtype: type, shape: [...dims], data: bytes.toString("base64") };
}

async function run(probe) {
  const model = new Uint8Array(Buffer.from(probe.model, "base64"));
  const options = { executionProviders: ["wasm"], logSeverityLevel: 4 };
  const session = await ort.InferenceSession.create(model, options);
  try {
    const feeds = Object.fromEntries(probe.inputs.map((entry) => [entry.name, load(entry)]));
    const found = await session.run(feeds);
    return probe.outputs.map((name) => store(found[name]));
  } finally {
    await session.release();
  }
}

const told = fs.openSync(answers, "w");
const tell = (entry) => fs.writeSync(told, JSON.stringify(entry) + "\n");
const about = path.join(path.resolve(modules), "onnxruntime-web", "package.json");
const { version } = JSON.parse(fs.readFileSync(about, "utf8"));
tell({ name: "", version });
for await (const line of readline.createInterface({ input: fs.createReadStream(probes) })) {
  const probe = JSON.parse(line);
  try {
    tell({ name: probe.name, outputs: await run(probe) });
  } catch (error) {
    tell({ name: probe.name, reason: String(error?.message ?? error).slice(0, 300) });
  }
}
process.exit(0);
