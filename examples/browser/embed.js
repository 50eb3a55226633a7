// Embeds sentences with the model that `python examples/browser/serve.py` exports.

import * as ort from "onnxruntime-web";
import { Tokenizer } from "tokenizers";

const fetchJson = async (path) => (await fetch(path)).json();

export class Encoder {
  /** Loads `model.onnx` and the tokenizer's files from a folder. */
  static async load(folder) {
    const [definition, config, session] = await Promise.all([
      fetchJson(`${folder}/tokenizer.json`),
      fetchJson(`${folder}/tokenizer_config.json`),
      ort.InferenceSession.create(`${folder}/model.onnx`),
    ]);
    return new Encoder(new Tokenizer(definition, config), session);
  }

  constructor(tokenizer, session) {
    this.tokenizer = tokenizer;
    this.session = session;
  }

  /** Maps sentences to unit vectors: an array of Float32Array. */
  async embed(sentences) {
    const encoded = sentences.map((sentence) => this.tokenizer.encode(sentence).ids);
    const length = Math.max(...encoded.map((ids) => ids.length));
    const shape = [sentences.length, length];
    const ids = new BigInt64Array(shape[0] * length);
    const mask = new BigInt64Array(shape[0] * length);
    encoded.forEach((row, index) => {
      ids.set(row.map(BigInt), index * length);
      mask.fill(1n, index * length, index * length + row.length);
    });
    const { embedding } = await this.session.run({
      input_ids: new ort.Tensor("int64", ids, shape),
      attention_mask: new ort.Tensor("int64", mask, shape),
    });
    const width = embedding.dims[1];
    return sentences.map((_, index) => embedding.data.slice(index * width, (index + 1) * width));
  }
}

/** The cosine of the angle between two unit vectors. */
export const similarity = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
