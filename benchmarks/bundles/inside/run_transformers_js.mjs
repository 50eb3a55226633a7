// Generates in transformers.js: node run_transformers_js.mjs FOLDER PROMPT STEPS DTYPE
// The package is looked up in the folder of the environment variable PACKAGES.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, prompt, steps, dtype] = process.argv.slice(2);
const require = createRequire(path.join(process.env.PACKAGES, "package.json"));
const found = pathToFileURL(require.resolve("@huggingface/transformers"));
const { AutoModelForCausalLM, Tensor, env } = await import(found);

env.allowRemoteModels = false;
env.localModelPath = path.dirname(folder) + path.sep;
const model = await AutoModelForCausalLM.from_pretrained(path.basename(folder), { dtype, device: "cpu" });
const tokens = JSON.parse(prompt);
const whole = (numbers) => new Tensor("int64", BigInt64Array.from(numbers.map(BigInt)), [1, numbers.length]);
const generated = await model.generate({
  input_ids: whole(tokens),
  attention_mask: whole(tokens.map(() => 1)),
  max_new_tokens: Number(steps),
  do_sample: false,
});
console.log(JSON.stringify(generated.tolist()[0].map(Number)));
