// The trained networks that ship with the package (learning/model.py), in float64 with their stored weights:
//
//     Z ← Z + 1/20 Σ_heads softmax(Z P Zᵀ) Z V,      output attention softmax(Z P_out Zᵀ) over the tokens without the sink.
//
// Row j of the output attention is y_j, column i is x_i.
import { makeProblem, prompt } from "./math.js";

const MIX = 1 / 20;

export function bytesOf(text) { return Uint8Array.from(atob(text), c => c.charCodeAt(0)); }

function half(bits) {                        // a float16 as a number
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function numbers(stored) {                   // {dtype, data}: base64 of little-endian numbers
  const bytes = bytesOf(stored.data), view = new DataView(bytes.buffer), size = stored.dtype === "float16" ? 2 : 4;
  return Float64Array.from({ length: bytes.length / size }, (_, k) =>
    size === 2 ? half(view.getUint16(2 * k, true)) : view.getFloat32(4 * k, true));
}

export class Learned {
  constructor(stored) {
    this.about = stored.about;
    this.set = stored.architecture;
    this.weights = Object.fromEntries(Object.entries(stored.weights).map(([name, each]) => [name, numbers(each)]));
    this.width = 11;
    this.depth = this.set.depth;
  }

  // Output attention [n × n] after 0, 1, …, depth layers, for lists of numbers x and y.
  attentions(x, y) {
    const [xs, ys] = known(x, y) ? [x, y] : [mapped(x), mapped(y)];
    const problem = makeProblem(xs.map(t => [t]), ys.map(t => [t]));
    let Z = prompt(problem);
    const found = [this._output(Z, problem.n)];
    for (let layer = 0; layer < this.depth; layer++) {
      Z = this._block(Z, problem.n + 1, layer);
      found.push(this._output(Z, problem.n));
    }
    return found;
  }

  _block(Z, T, layer) {
    const w = this.width, { P, V, tau, step } = this.weights, index = this.set.tied ? 0 : layer, out = Z.slice();
    const written = this.set.written === "all" ? w : 3, first = this.set.written === "all" ? 0 : 8;
    const time = layer / this.depth, updated = this.set.sink === "frozen" ? T - 1 : T;
    for (let h = 0; h < 2; h++) {
      const [sharp, size] = [tau, step].map(e => e ? Math.exp(e[2 * h] + e[2 * h + 1] * time) : 1);
      const at = (2 * index + h) * w, A = softmax(scores(Z, P.subarray(at * w, (at + w) * w), T, w, sharp), T);
      for (let i = 0; i < updated; i++) {
        const mixed = new Float64Array(w);
        for (let j = 0; j < T; j++) for (let k = 0; k < w; k++) mixed[k] += A[i * T + j] * Z[j * w + k];
        for (let k = 0; k < w; k++) for (let c = 0; c < written; c++)
          out[i * w + first + c] += MIX * size * mixed[k] * V[(at + k) * written + c];
      }
    }
    return out;
  }

  _output(Z, n) {
    const { P_out, tau_out } = this.weights;
    return softmax(scores(Z, P_out, n, this.width, tau_out ? Math.exp(tau_out[0]) : 1), n);
  }
}

function scores(Z, P, T, w, factor) {        // factor · Z P Zᵀ over the first T tokens
  const out = new Float64Array(T * T), query = new Float64Array(w);
  for (let i = 0; i < T; i++) {
    query.fill(0);
    for (let k = 0; k < w; k++) for (let c = 0; c < w; c++) query[c] += factor * Z[i * w + k] * P[k * w + c];
    for (let j = 0; j < T; j++) for (let c = 0; c < w; c++) out[i * T + j] += query[c] * Z[j * w + c];
  }
  return out;
}

function softmax(logits, T) {
  for (let i = 0; i < T; i++) {
    const row = logits.subarray(i * T, (i + 1) * T), top = Math.max(...row);
    let sum = 0;
    for (let j = 0; j < T; j++) sum += row[j] = Math.exp(row[j] - top);
    for (let j = 0; j < T; j++) row[j] /= sum;
  }
  return logits;
}

function known(...sides) {                   // lists such as the networks have learned from
  return sides.every(t => Math.min(...t) >= 0 && Math.max(...t) <= 1 && Math.max(...t) - Math.min(...t) >= 1 / 12);
}

function mapped(t) {                         // onto [1/n, 1], which changes no answer
  const low = Math.min(...t), range = Math.max(...t) - low || 1, n = t.length;
  return t.map(each => (1 + (n - 1) * (each - low) / range) / n);
}
