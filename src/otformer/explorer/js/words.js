// Section 6: the attention of a translator between the words of a pair, and the transport plan of static vectors beside it.
import { $ } from "./app.js";
import { matrixWithSums } from "./draw.js";
import { bytesOf } from "./learned.js";
import { drawWords } from "./links.js";
import { Run, apart, makeProblem, sums } from "./math.js";
import { player } from "./player.js";
import { layersOf } from "./schedules.js";
import { fillTables, foldable, ofMatrix } from "./tables.js";

const REG = 0.05, DEPTH = 300, TOP = 255;
const plans = new Map(), unpacked = new Map();

export function mountWords(app) {
  const { sentences, translator } = app.data;
  sentences.forEach((pair, k) => $("pair").add(new Option(pair.source.join(" "), k)));
  $("attention-head").add(new Option("mean of all", "mean"));
  for (let head = 1; head <= translator.heads; head++) $("attention-head").add(new Option(String(head), String(head)));
  $("pair").onchange = () => app.set({ pair: Number($("pair").value) });
  $("reading").onchange = () => app.set({ reading: $("reading").value });
  $("attention-head").onchange = () => app.set({ attentionHead: $("attention-head").value });
  foldable(app, "words-table");
  const bar = player($("words-player"), {
    label: "layer of the translator", least: 1, most: () => translator.layers, get: () => app.state.attentionLayer,
    set: attentionLayer => app.set({ attentionLayer }), faster: false, period: 900,
    text: () => `decoder layer ${app.state.attentionLayer} of ${translator.layers}`,
  });
  app.section($("words"), () => { draw(app); bar.show(); }, () => app.still || bar.start());
  return bar;
}

function bytes(app, pair, reading) {
  const key = pair + reading;
  if (!unpacked.has(key)) unpacked.set(key, bytesOf(app.data.sentences[pair].attention[reading]));
  return unpacked.get(key);
}

// Attention [target × source] of a layer (from 1) and a head (from 1, or the mean).
function attentionOf(app, { pair, reading, attentionLayer, attentionHead }) {
  const { source, target } = app.data.sentences[pair], { heads } = app.data.translator, size = source.length * target.length;
  const every = bytes(app, pair, reading), out = new Float64Array(size);
  const chosen = attentionHead === "mean" ? Array.from({ length: heads }, (_, k) => k) : [Number(attentionHead) - 1];
  for (const head of chosen) {
    const first = ((attentionLayer - 1) * heads + head) * size;
    for (let k = 0; k < size; k++) out[k] += every[first + k] / TOP / chosen.length;
  }
  return out;
}

function planOf(app, pair) {                 // by the aligning transformer, rows target words; mass = number of target words
  if (!plans.has(pair)) {
    const { source, target } = app.data.sentences[pair], [english, french] = app.vocabulary;
    const vectors = (words, vocabulary) => words.map(word => vocabulary.vector(word).vector);
    const problem = makeProblem(vectors(target, french), vectors(source, english));
    const run = new Run(problem, layersOf("annealed", REG, DEPTH, problem.n));
    run.advance(DEPTH);
    plans.set(pair, run.plan(DEPTH));
  }
  return plans.get(pair);
}

function found(matrix, links, n) {           // of the words that are linked, how many have a linked word as their largest entry
  const rows = [...new Set(links.map(([, j]) => j))];
  const right = rows.filter(j => {
    const most = Math.max(...matrix.subarray(j * n, (j + 1) * n));
    return links.some(([i, row]) => row === j && matrix[j * n + i] >= most * (1 - 1e-6));   // a tie counts
  });
  return `${right.length} of ${rows.length} French words have a linked word as their largest entry`;
}

function draw(app) {
  const { state } = app, { source, target, links } = app.data.sentences[state.pair], n = source.length, m = target.length;
  $("pair").value = state.pair;
  $("reading").value = state.reading;
  $("attention-head").value = state.attentionHead;
  const A = attentionOf(app, state), plan = planOf(app, state.pair), cells = links.map(([i, j]) => [j, i]), names = [target, source];
  const far = apart(A, plan, m).toFixed(2), uniform = apart(plan.map(() => 1 / n), plan, m).toFixed(2);
  drawWords($("words-links"), names, A, { gold: cells });
  matrixWithSums($("words-matrix"), { matrix: A, n: m, m: n, names, cells, sums: sums(A, m, n), goals: [1, m / n] });
  matrixWithSums($("words-plan"), { matrix: plan, n: m, m: n, names, cells, sums: sums(plan, m, n), goals: [1, m / n] });
  const head = state.attentionHead === "mean" ? "mean of the heads" : "head " + state.attentionHead;
  $("words-note").textContent = `Attention, layer ${state.attentionLayer}, ${head}: ${found(A, links, n)}. Distance to the plan ` +
    `${far} (0: the plan; a uniform matrix: ${uniform}).`;
  $("words-plan-note").textContent = `Transport plan of static vectors, λ = ${REG}: ${found(plan, links, n)}.`;
  $("words-matrix").setAttribute("aria-label", $("words-note").textContent);
  $("words-plan").setAttribute("aria-label", $("words-plan-note").textContent);
  fillTables("words-table", () => [ofMatrix("Attention, French words on the rows", A, names), ofMatrix("Transport plan", plan, names)]);
}
