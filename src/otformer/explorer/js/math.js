// The aligning transformer in float64: registers, prompt, the two heads as lists of weights, layers, attention, plan.
//
// As in network/weights.py. The logit of a head is z_i P z_jᵀ, and P has one entry (row, column, value) for every product
// "register of token i × register of token j": with λ = reg the head `rows` has
//
//     (2 x_i·y_j − ‖y_j‖² − ‖x_i‖² + u_i + v_j)/λ − 1,
//
// the sink's logit is 0 (log a_i with weights), and softmax over all tokens and the sink, with values +1 and −1, gives
// t_i = (S_i − a_i)/(S_i + a_i) = tanh(½ log(S_i/a_i)). A layer does u_i ← u_i − γ t_i; `columns` does the same to v.

import { REGISTERS, applyEdits, readEdits } from "./edits.js";

const ABSENT = 1e18;      // the square of a point that is not there: nobody attends to it
const NEGLIGIBLE = 60;    // exp(−60) = 9e-27 of a row's largest entry is left out
export const HEADS = ["rows", "columns"];
export const UNBROKEN = { sign: false, sink: false, index: false, identity: false, head: false, squares: false, step: 1, edits: "" };

export function registers(dim, marginals) {
  const names = marginals ? [...REGISTERS, "log_a", "log_b"] : REGISTERS;
  const at = {}, owner = [];
  for (const name of names) {
    at[name] = owner.length;
    const wide = name === "x" || name === "y" ? dim : 1;
    for (let k = 0; k < wide; k++) owner.push(wide > 1 ? name + (k + 1) : name);
  }
  return { dim, marginals, at, names: owner, width: owner.length };
}

// The entries of P of a head: what stands where, and which term of the logit it makes. `broken` holds switches of the page:
// index is erratum 2 (the entry for v in P⁽¹⁾ stands in row 3d + 5), identity erratum 3 (I_d in the columns of P⁽²⁾, d = 1).
export function entries(head, reg, r, broken = UNBROKEN) {
  const rows = head === "rows", own = rows ? "x" : "y", other = rows ? "y" : "x";
  const [mine, theirs] = rows ? ["u", "v"] : ["v", "u"], at = r.at, list = [];
  const add = (row, column, value, term) => {
    list.push({ row, column, value, term, scaled: term !== "−1" && term !== "weight" });
  };
  for (let k = 0; k < r.dim; k++) add(at[own] + k, at[other] + k, 2 / reg, "2 x·y");
  add(at.one1, at[other + "_sq"], -1 / reg, "−‖" + other + "‖²");
  add(at[own + "_sq"], at.one1, -1 / reg, "−‖" + own + "‖²");
  add(at[mine], at.one2, 1 / reg, mine);
  add(at.one3, at.one3, -1, "−1");
  add(broken.index && rows ? 3 * r.dim + 4 : at.one3, at[theirs], 1 / reg, theirs);
  if (r.marginals) {
    const weight = at[rows ? "log_a" : "log_b"];
    add(weight, at.one3, 1, "weight");
    add(weight, at.sign, -1, "weight");
  }
  if (broken.identity && !rows && r.dim === 1)
    for (const name of ["x_sq", "one1", "one2", "one3", "u"]) add(at.y, at[name], 1 / reg, "misprint");
  return list;
}

// Points x [n][d] and y [m][d] with the paper's weights a = 1, b = n/m. T = max(n, m) tokens and the sink, row by row.
export function makeProblem(x, y) {
  const n = x.length, m = y.length, dim = x[0].length, T = Math.max(n, m);
  return { x, y, n, m, dim, T, a: 1, b: n / m, registers: registers(dim, n !== m) };
}

export function prompt(problem, broken = UNBROKEN) {
  const { x, y, n, m, T, registers: r } = problem, w = r.width, Z = new Float64Array((T + 1) * w);
  const square = point => point.reduce((sum, t) => sum + t * t, 0);
  for (let i = 0; i < T; i++) {
    const row = i * w;
    for (let k = 0; k < r.dim; k++) {
      if (i < n) Z[row + r.at.x + k] = x[i][k];
      if (i < m) Z[row + r.at.y + k] = y[i][k];
    }
    Z[row + r.at.x_sq] = i >= n ? ABSENT : broken.squares ? 0 : square(x[i]);
    Z[row + r.at.y_sq] = i >= m ? ABSENT : broken.squares ? 0 : square(y[i]);
    for (const name of ["one1", "one2", "one3", "sign"]) Z[row + r.at[name]] = 1;
    if (r.marginals && i < n) Z[row + r.at.log_a] = Math.log(problem.a);
    if (r.marginals && i < m) Z[row + r.at.log_b] = Math.log(problem.b);
  }
  Z[T * w + r.at.sign] = -1;
  applyEdits(Z, readEdits(broken.edits), r);
  return Z;
}

// A network on a problem, computed as far as it is asked for. layers: [{reg, rows, columns}], the step γ of each head;
// with `exact` a layer is Sinkhorn's half-step u ← u − λ log(S/a) instead (not attention; for comparison).
export class Run {
  constructor(problem, layers, { sink = "frozen", broken = UNBROKEN } = {}) {
    Object.assign(this, { problem, layers, broken, frozen: sink === "frozen" && !broken.sink });
    this.depth = layers.length;
    this.Z = prompt(problem, broken);
    this.memory = [this._duals()];           // u and v of all tokens and the sink after 0, 1, … layers
    this._fixed = { rows: null, columns: null };
    this._row = new Float64Array(problem.T + 1);
  }

  get done() { return this.memory.length - 1; }

  advance(layer, deadline = Infinity) {      // compute up to `layer`, or until the clock says stop; one layer at least
    const goal = Math.min(layer, this.depth);
    this._restore(this.done);
    while (this.done < goal) {
      this._step(this.layers[this.done]);
      this.memory.push(this._duals());
      if (performance.now() > deadline) break;
    }
    return this.done >= goal;
  }

  u(layer) { return this.memory[layer].subarray(0, this.problem.n); }
  v(layer) { return this.memory[layer].subarray(this.problem.T + 1, this.problem.T + 1 + this.problem.m); }
  reg(layer) { return this.layers[Math.min(layer, this.depth - 1)].reg; }

  // Attention of a head that reads Z_layer, [n × m] for rows and [m × n] for columns, over real tokens; with `sink` one
  // column more, which is where the tanh comes from.
  attention(layer, head = "rows", sink = false) {
    const { n, m, T } = this.problem, [queries, keys] = head === "rows" ? [n, m] : [m, n], wide = keys + (sink ? 1 : 0);
    const out = new Float64Array(queries * wide);
    this._restore(layer);
    const look = this._looker(head, this.reg(layer));
    for (let i = 0; i < queries; i++) {
      const row = look(i);
      let top = sink ? row[T] : -Infinity, sum = 0;
      for (let j = 0; j < keys; j++) if (row[j] > top) top = row[j];
      for (let j = 0; j < wide; j++) sum += out[i * wide + j] = Math.exp(row[j < keys ? j : T] - top);
      for (let j = 0; j < wide; j++) out[i * wide + j] /= sum;
    }
    return out;
  }

  // P_ij = exp(logit) of the head `rows`, [n × m]: before any normalisation; its marginals tend to a and b.
  plan(layer) {
    const { n, m } = this.problem, out = new Float64Array(n * m);
    this._restore(layer);
    const look = this._looker("rows", this.reg(layer));
    for (let i = 0; i < n; i++) {
      const row = look(i);
      for (let j = 0; j < m; j++) out[i * m + j] = Math.exp(row[j]);
    }
    return out;
  }

  logits(layer, head, i) {                   // of one query token: all tokens, the sink last
    this._restore(layer);
    return this._looker(head, this.reg(layer))(i).slice();
  }

  error(layer) { return marginalError(this.plan(layer), this.problem); }

  // The share of attention that is not on the cells of a matching, mean over rows: 1 − Σ A_iσ(i) / n.
  off(layer, cells) {
    const { n, m } = this.problem, A = this.attention(layer);
    return 1 - cells.reduce((sum, [i, j]) => sum + A[i * m + j], 0) / n;
  }

  state(layer) { this._restore(layer); return this.Z; }

  _duals() {
    const { T, registers: r } = this.problem, out = new Float64Array(2 * (T + 1));
    for (let i = 0; i <= T; i++) {
      out[i] = this.Z[i * r.width + r.at.u];
      out[T + 1 + i] = this.Z[i * r.width + r.at.v];
    }
    return out;
  }

  _restore(layer) {
    const { T, registers: r } = this.problem, kept = this.memory[layer];
    for (let i = 0; i <= T; i++) {
      this.Z[i * r.width + r.at.u] = kept[i];
      this.Z[i * r.width + r.at.v] = kept[T + 1 + i];
    }
  }

  // i ↦ the logits of token i towards all tokens and the sink. What does not contain u or v is G/λ + K, with G and K the
  // same in all layers, and kept; an entry that does is a product of two numbers, one of each token.
  _looker(head, reg) {
    const { T, registers: r } = this.problem, w = r.width, Z = this.Z, N = T + 1, { u, v } = r.at;
    const all = entries(head, reg, r, this.broken), moves = e => [u, v].includes(e.row) || [u, v].includes(e.column);
    this._fixed[head] ??= this._still(entries(head, 1, r, this.broken).filter(e => !moves(e)));
    const kept = this._fixed[head], fixed = kept.logits;
    if (kept.reg !== reg) {
      for (let k = 0; k < N * N; k++) fixed[k] = kept.G[k] / reg + kept.K[k];
      kept.reg = reg;
    }
    const moving = all.filter(moves), row = this._row;
    const keys = moving.map(e => Float64Array.from({ length: N }, (_, j) => Z[j * w + e.column]));
    const key0 = keys[0], key1 = keys[1];    // u_i one2_j and one3_i v_j; a misprint adds more
    return i => {
      const q0 = moving[0].value * Z[i * w + moving[0].row], q1 = moving[1].value * Z[i * w + moving[1].row];
      for (let j = 0, k = i * N; j < N; j++, k++) row[j] = fixed[k] + q0 * key0[j] + q1 * key1[j];
      for (let e = 2; e < moving.length; e++) {
        const q = moving[e].value * Z[i * w + moving[e].row];
        for (let j = 0; j < N; j++) row[j] += q * keys[e][j];
      }
      return row;
    };
  }

  _still(list) {                             // G and K, [tokens × tokens], from entries at λ = 1
    const { T, registers: r } = this.problem, N = T + 1, w = r.width;
    const [G, K, logits] = [0, 0, 0].map(() => new Float64Array(N * N));
    for (const e of list) {
      const into = e.scaled ? G : K, keys = Float64Array.from({ length: N }, (_, j) => this.Z[j * w + e.column]);
      for (let i = 0; i < N; i++) {
        const query = e.value * this.Z[i * w + e.row];
        if (query !== 0) for (let j = 0; j < N; j++) into[i * N + j] += query * keys[j];
      }
    }
    return { G, K, logits, reg: null };
  }

  _step(layer) {
    const { T, registers: r } = this.problem, w = r.width, tokens = this.frozen ? T : T + 1, writes = [];
    const signs = Float64Array.from({ length: T + 1 }, (_, j) => this.Z[j * w + r.at.sign]);
    for (const [head, column] of [["rows", r.at.u], ["columns", r.at.v]]) {
      let step = layer[head] * this.broken.step;
      if (this.broken.head && head === "columns") step = 0;
      if (step === 0) continue;
      const look = this._looker(head, layer.reg), moved = new Float64Array(tokens);
      for (let i = 0; i < tokens; i++) {
        const row = look(i);
        moved[i] = layer.exact ? -layer.reg * logRatio(row, T) : (this.broken.sign ? 1 : -1) * step * value(row, signs);
      }
      writes.push([column, moved]);
    }
    for (const [column, moved] of writes) for (let i = 0; i < tokens; i++) this.Z[i * w + column] += moved[i];
  }
}

function value(row, signs) {                 // what the head returns: the mean of the register sign by the softmax's weights
  const T = signs.length - 1;
  let top = row[T], sum = 0, moved = 0;
  for (let j = 0; j < T; j++) if (row[j] > top) top = row[j];
  const least = top - NEGLIGIBLE;
  for (let j = 0; j < T; j++) if (row[j] > least) {
    const share = Math.exp(row[j] - top);
    sum += share;
    moved += share * signs[j];
  }
  const sink = Math.exp(row[T] - top);
  return (moved + sink * signs[T]) / (sum + sink);
}

function logRatio(row, T) {                  // log(S/a)
  let top = -Infinity, real = 0;
  for (let j = 0; j < T; j++) if (row[j] > top) top = row[j];
  if (top < -ABSENT / 1e6) return 0;         // a point that is not there
  for (let j = 0; j < T; j++) real += Math.exp(row[j] - top);
  return top + Math.log(real) - row[T];
}

export function sums(matrix, n, m) {         // of rows [n] and of columns [m]
  const rows = new Float64Array(n), columns = new Float64Array(m);
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) {
    rows[i] += matrix[i * m + j];
    columns[j] += matrix[i * m + j];
  }
  return { rows, columns };
}

export function apart(A, B, n) {             // the share of a row that is elsewhere: half the L1 distance, mean over n rows
  return A.reduce((sum, t, k) => sum + Math.abs(t - B[k]), 0) / (2 * n);
}

export function marginalError(plan, { n, m, a, b }) {   // Σ|row sum − a| + Σ|column sum − b|
  const { rows, columns } = sums(plan, n, m);
  return rows.reduce((sum, t) => sum + Math.abs(t - a), 0) + columns.reduce((sum, t) => sum + Math.abs(t - b), 0);
}
