// Runs a model in onnxruntime-node or onnxruntime-web (WebAssembly):
//
//     node run_node.mjs PACKAGE MODULES MODEL FOLDER
//
// MODULES is the folder of the installed packages. The folder has the inputs, as exchange.py writes
// them, and gets the outputs.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";

const [name, modules, model, folder] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), "package.json"));

// Names of data types in NumPy and here.
const TYPES = {
  float32: ["float32", Float32Array],
  float64: ["float64", Float64Array],
  int64: ["int64", BigInt64Array],
  int32: ["int32", Int32Array],
  uint8: ["uint8", Uint8Array],
  int8: ["int8", Int8Array],
  bool: ["bool", Uint8Array],
};

const read = (file) => JSON.parse(fs.readFileSync(path.join(folder, file), "utf8"));
const describe = (error) => String(error?.message ?? error).split(/\s+/).join(" ");

function load(ort, entry) {
  const [type, kind] = TYPES[entry.dtype];
  const bytes = fs.readFileSync(path.join(folder, entry.file));
  const copy = new Uint8Array(bytes).buffer;
  return new ort.Tensor(type, new kind(copy), entry.shape);
}

function store(tensor, file) {
  const dtype = Object.keys(TYPES).find((key) => TYPES[key][0] === tensor.type);
  const data = tensor.data;
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  fs.writeFileSync(path.join(folder, file), bytes);
  return { dtype, shape: [...tensor.dims], file };
}

const given = read("case.json");
const answer = { loaded: false, sizes: [] };
const write = () => fs.writeFileSync(path.join(folder, "answer.json"), JSON.stringify(answer));
try {
  const ort = require(name);
  if (name === "onnxruntime-web") ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "fatal";
  const provider = name === "onnxruntime-web" ? "wasm" : "cpu";
  const options = { executionProviders: [provider], intraOpNumThreads: 1, logSeverityLevel: 4 };
  const source = name === "onnxruntime-web" ? new Uint8Array(fs.readFileSync(model)) : model;
  const session = await ort.InferenceSession.create(source, options);
  answer.loaded = true;
  for (const [index, size] of given.sizes.entries()) {
    try {
      const tensors = size.map((entry) => load(ort, entry));
      const feeds = Object.fromEntries(given.inputs.map((key, place) => [key, tensors[place]]));
      const found = await session.run(feeds);
      const outputs = given.outputs.map((key, place) =>
        store(found[key], `output-${index}-${place}.bin`),
      );
      answer.sizes.push({ outputs });
    } catch (error) {
      answer.sizes.push({ reason: describe(error) });
    }
    write();
  }
} catch (error) {
  answer.reason = describe(error);
}
write();
process.exit(0);
