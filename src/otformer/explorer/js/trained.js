// Section 5: two trained networks and the construction, on the same list, layer by layer.
import { $, legend } from "./app.js";
import { css, curves, matrixWithSums, scientific } from "./draw.js";
import { Learned } from "./learned.js";
import { Run, makeProblem } from "./math.js";
import { player } from "./player.js";
import { layersOf } from "./schedules.js";
import { fillTables, foldable, ofCurves, ofMatrix } from "./tables.js";

const LONGEST = 30, REG = 1e-3, DEPTH = 20;
const NAMES = ["constructed", "sort-beyond", "paper-attention"], COLOURS = ["--blue", "--orange", "--purple"];
const DEFAULT = [0.62, 0.11, 0.93, 0.34, 0.78, 0.05, 0.47, 0.21, 0.86];
let networks = null, seen = null;

export function mountTrained(app) {
  const bar = player($("learned-player"), {
    label: "layer", most: () => DEPTH, get: () => app.state.learned, set: learned => app.set({ learned }),
    faster: false, period: 300,
    text: () => `layer ${app.state.learned} of ${DEPTH}`,
  });
  foldable(app, "learned-table");
  app.section($("learned"), () => { draw(app); bar.show(); }, () => app.still || bar.start());
  return bar;
}

function numbersOf(app) {                    // the list of section 1 where it is one and not too long
  const { points, problem } = app;
  return problem.dim === 1 && problem.n <= LONGEST ? points.x.map(p => p[0]) : DEFAULT;
}

function look(app) {
  const x = numbersOf(app), key = x.join();
  if (seen?.key === key) return seen;
  networks ??= NAMES.slice(1).map(name => new Learned(app.data.networks[name]));
  const n = x.length, y = x.map((_, j) => (j + 1) / n);
  const run = new Run(makeProblem(x.map(t => [t]), y.map(t => [t])), layersOf("annealed", REG, DEPTH, n));
  run.advance(DEPTH);
  const constructed = Array.from({ length: DEPTH + 1 }, (_, layer) => run.attention(layer, "columns"));
  const maps = [constructed, ...networks.map(net => net.attentions(x, y))];
  const order = x.map((_, i) => i).sort((a, b) => x[a] - x[b]);   // y_j ↦ its x
  const right = maps.map(each => each.map(A => order.filter((_, j) => isRight(A, j, n, x, x[order[j]])).length / n));
  seen = { key, x, y, n, maps, order, right };
  return seen;
}

function isRight(A, j, n, x, value) {        // equal numbers are each other's equals
  let best = 0;
  for (let i = 1; i < n; i++) if (A[j * n + i] > A[j * n + best]) best = i;
  return x[best] === value;
}

function draw(app) {
  const { x, y, n, maps, order, right } = look(app), layer = app.state.learned, short = t => String(+t.toPrecision(3));
  const cells = order.map((i, j) => [j, i]), names = [y.map(short), x.map(short)];
  NAMES.forEach((name, k) => {
    matrixWithSums($("learned-" + k), { matrix: maps[k][layer], n, m: n, names, cells });
    const share = `${Math.round(right[k][layer] * n)} of ${n} rows right`;
    $(`learned-${k}-note`).textContent = `${k ? name : `constructed: annealed, λ = ${REG}`}, layer ${layer}: ${share}`;
    $("learned-" + k).setAttribute("aria-label", `${name}, layer ${layer}: ${share}`);
  });
  const series = right.map((values, k) => ({
    colour: css(COLOURS[k]), points: values.map((t, l) => [l, t]), dash: k === 2 ? [6, 3] : [],
  }));
  const ends = NAMES.map((name, k) => `${name} ${Math.round(right[k][DEPTH] * n)} of ${n}`).join(", ");
  $("learned-curves").setAttribute("aria-label", `rows right, by layer; after layer ${DEPTH}: ${ends}`);
  const percent = t => scientific(100 * t) + " %";
  curves($("learned-curves"), series, { depth: DEPTH, at: layer, label: "rows right", linear: true, top: 1, ticks: percent });
  legend($("learned-legend"), NAMES.map((name, k) => [name, COLOURS[k], k === 2]));
  fillTables("learned-table", () => [
    ...NAMES.map((name, k) => ofMatrix(`${name}, layer ${layer}: places on the rows, numbers on the columns`, maps[k][layer], names)),
    ofCurves("Rows right, by layer", NAMES, series.map(each => each.points), percent),
  ]);
}
