// Section 3: one network, any n. Its weights are summed up for every n, so that one sees that they stay.
import { $ } from "./app.js";
import { css, heat, matrixWithSums, open, upright } from "./draw.js";
import { HEADS, Run, UNBROKEN, entries, makeProblem, registers, sums } from "./math.js";
import { player } from "./player.js";
import { SCHEDULES, layersOf } from "./schedules.js";
import { fillTables, foldable, ofMatrix } from "./tables.js";

const DEPTH = 288;                           // of the network that sorts
const regOf = schedule => schedule === "paper" ? 0.1 : 1e-6;   // the paper's γ at 1e-6 is 0 in float64
let run = null;

export function mountSame(app) {
  SCHEDULES.forEach(name => $("sorter").add(new Option(name, name)));
  $("sorter").onchange = () => app.set({ sorter: $("sorter").value });
  const bar = player($("same-player"), {
    label: "n", least: 5, most: () => 200, get: () => app.state.many, set: many => app.set({ many }), period: 180,
    text: () => `n = ${app.state.many}`,
  });
  foldable(app, "same-table");
  app.section($("same"), () => { draw(app); bar.show(); }, () => app.still || bar.start());
  return bar;
}

function problemOf(n) {                      // a permutation of 1/n, …, 1, the same for the same n
  const order = Array.from({ length: n }, (_, k) => k);
  let seed = n;
  for (let k = n - 1; k > 0; k--) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    const other = Math.floor(seed / 2147483648 * (k + 1));
    [order[k], order[other]] = [order[other], order[k]];
  }
  return { order, problem: makeProblem(order.map(k => [(k + 1) / n]), order.map((_, k) => [(k + 1) / n])) };
}

function digest(layers) {                    // of all weights that are not 0, W_O among them: FNV-1a over their bytes
  const r = registers(1, false), seen = new Map(), one = new Float64Array(1), bytes = new Uint8Array(one.buffer);
  let hash = 0x811c9dc5, count = 0;
  const add = value => {
    one[0] = value;
    count++;
    for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  };
  for (const layer of layers) for (const head of HEADS) {
    const key = head + layer.reg;
    if (!seen.has(key)) seen.set(key, entries(head, layer.reg, r));
    for (const e of seen.get(key)) add(e.value);
    add(-layer[head]);
  }
  return { count, text: hash.toString(16).padStart(8, "0") };
}

function draw(app) {
  const { many: n, sorter } = app.state;
  $("sorter").value = sorter;
  if (run?.n !== n || run.sorter !== sorter) {
    const { order, problem } = problemOf(n), layers = layersOf(sorter, regOf(sorter), DEPTH, n);
    run = { n, sorter, order, net: new Run(problem, layers, { broken: UNBROKEN }), ...digest(layers) };
  }
  const { net, order } = run, layer = app.reach(net, DEPTH), A = net.attention(layer);
  const right = order.filter((k, i) => argmax(A, i, n) === k).length;
  const cells = n <= 80 ? order.map((k, i) => [i, k]) : [];
  matrixWithSums($("same-matrix"), { matrix: A, n, m: n, names: null, cells, sums: sums(A, n, n) });
  const done = `n = ${n}: ${right} of ${n} numbers in their place after ${DEPTH} layers.`;
  $("same-note").textContent = layer < DEPTH ? `layer ${layer} of ${DEPTH} …` : done;
  const counted = order.map((_, k) => String(k + 1));
  $("same-matrix").setAttribute("aria-label", `attention of ${n} numbers over ${n} places. ${$("same-note").textContent}`);
  fillTables("same-table", () => [ofMatrix(`Attention of number i over place j, layer ${layer}`, A, [counted, counted])]);
  drawWeights(net.layers[DEPTH - 1].reg);
  $("same-weights-note").textContent = `${run.count.toLocaleString("en")} numbers in ${DEPTH} layers, checksum ${run.text}. Left: P of ` +
    "the head rows, right: of columns (last layer; blue: above 0, orange: below).";
  $("same-weights").setAttribute("aria-label", `${$("same-weights-note").textContent} Section 2 has them as a table.`);
}

function argmax(A, i, n) {
  let best = 0;
  for (let j = 1; j < n; j++) if (A[i * n + j] > A[i * n + best]) best = j;
  return best;
}

function drawWeights(reg) {
  const [g, w, h] = open($("same-weights")), r = registers(1, false);
  const size = Math.min((w - 70) / 2, h - 70), cell = size / r.width;
  HEADS.forEach((head, k) => {
    const x = 44 + k * (size + 14), y = 50;
    heat(g, { x, y, w: size, h: size }, new Float64Array(1), 1, 1);
    for (const e of entries(head, reg, r)) {
      g.fillStyle = css(e.value > 0 ? "--blue" : "--orange");
      g.fillRect(x + e.column * cell + 1, y + e.row * cell + 1, cell - 2, cell - 2);
    }
    g.fillStyle = css("--soft");
    g.font = Math.min(12, Math.max(8, cell - 3)) + "px system-ui, sans-serif";
    r.names.forEach((name, c) => {
      g.textAlign = "right";
      if (k === 0) g.fillText(name, x - 4, y + (c + 0.75) * cell);
      g.textAlign = "left";
      upright(g, name, x + (c + 0.7) * cell, y - 4);
    });
  });
}
