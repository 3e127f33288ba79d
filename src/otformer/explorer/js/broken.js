// Section 4: the errata as switches; the whole network beside the broken one.
import { $ } from "./app.js";
import { css, curves, matrixWithSums, scientific } from "./draw.js";
import { UNBROKEN, makeProblem, sums } from "./math.js";
import { player } from "./player.js";
import { pointsOf } from "./points.js";
import { PRESETS, SWITCHES, defaults } from "./state.js";

const LARGEST = 60;                          // points of section 1 that are taken over
const DEAD = 1e-3;                           // the same attention up to this: half the L1 distance, mean over rows
const SAID = {
  sign: ["the sign of B (erratum 1)", "B = +γI as printed: each step goes the wrong way, and the dual climbs."],
  sink: ["the sink's row is updated (erratum 4)", "From layer 2 on the sink's v is in every logit: no longer gradient descent, and the marginals tend to 1/n. The attention arrives all the same."],
  index: ["the index of v in P⁽¹⁾ (erratum 2)", "The entry for v stands in row 3d + 5. For d = 1 it reads sign, which is 1 on every token: harmless. For d = 2 it reads u, and v_j is multiplied by u_i."],
  identity: ["I_d in the columns of P⁽²⁾ (erratum 3, d = 1)", "Each vector column of the second head gets y_j added to it: its logits are wrong."],
  head: ["one head only", "Without the head columns nobody writes v: the sums of rows become right, those of columns do not."],
  squares: ["no squares in the prompt", "x_sq and y_sq are 0. Harmless in the end: ‖x_i‖² shifts a row of the cost, which u makes good."],
};
let fallback = null;

export function mountBroken(app) {
  const place = $("switches");
  for (const name of SWITCHES) {
    const label = document.createElement("label"), box = Object.assign(document.createElement("input"), { type: "checkbox", id: "switch-" + name });
    const text = document.createElement("span");
    text.append(SAID[name][0], Object.assign(document.createElement("small"), { textContent: SAID[name][1] }));
    label.append(box, text);
    place.append(label);
    box.onchange = () => app.set({ broken: SWITCHES.filter(each => $("switch-" + each).checked).join(",") });
  }
  const label = document.createElement("label"), step = Object.assign(document.createElement("select"), { id: "switch-step" });
  [["1", "γ"], ["2", "2γ"], ["4", "4γ"]].forEach(([value, text]) => step.add(new Option(text, value)));
  step.onchange = () => app.set({ step: Number(step.value) });
  const text = document.createElement("span");
  text.append("step too long", Object.assign(document.createElement("small"), { textContent: "At twice the γ of “gradient” the attention converges, but u + v swings for ever and the sums with it; at 4γ the attention is off as well." }));
  label.append(step, text);
  place.append(label);
  const bar = player($("break-player"), {
    label: "layer", most: () => setting(app).depth, get: () => Math.min(app.state.brokenLayer, setting(app).depth), set: brokenLayer => app.set({ brokenLayer }),
    text: () => `layer ${app.state.brokenLayer} of ${setting(app).depth}, schedule ${setting(app).schedule}`,
  });
  app.section($("break"), () => { draw(app); bar.show(); }, () => app.still || bar.start());
  return bar;
}

// The problem of section 1 where it is small and not words, else twelve numbers.
function setting(app) {
  const { problem, points, state } = app;
  if (problem.dim <= 2 && problem.n <= LARGEST) return { problem, points, depth: state.depth, schedule: state.schedule, change: {} };
  if (!fallback) {
    const preset = { ...defaults(), ...PRESETS["12 numbers"] }, made = pointsOf(preset, null);
    fallback = { points: made, problem: Object.assign(makeProblem(made.x, made.y), { key: "twelve" }), depth: preset.depth, schedule: preset.schedule };
    fallback.change = { reg: preset.reg, schedule: preset.schedule, depth: preset.depth };
  }
  return fallback;
}

function draw(app) {
  const { state } = app, { problem, points, depth, change } = setting(app), { n, m, dim } = problem, on = state.broken ? state.broken.split(",") : [];
  const broken = { ...UNBROKEN, step: state.step, ...Object.fromEntries(on.map(name => [name, true])) };
  for (const name of SWITCHES) $("switch-" + name).checked = on.includes(name);
  $("switch-identity").disabled = dim !== 1;
  $("switch-step").value = String(state.step);
  if (dim !== 1) broken.identity = false;
  const runs = [app.run({ ...change, sink: "frozen" }, problem), app.run({ ...change, sink: "frozen", broken }, problem)];
  const layers = runs.map(run => app.reach(run, Math.min(state.brokenLayer, depth))), maps = runs.map((run, k) => run.attention(layers[k]));
  ["whole-matrix", "broken-matrix"].forEach((id, k) => matrixWithSums($(id), {
    matrix: maps[k], n, m, names: points.names, cells: problem === app.problem ? app.matched : [], sums: sums(maps[k], n, m),
  }));
  const far = maps[0].reduce((sum, t, k) => sum + Math.abs(t - maps[1][k]), 0) / (2 * n);
  $("broken-note").textContent = `broken, layer ${layers[1]}: ${scientific(100 * far)} % of a row's attention is elsewhere than in the whole network`;
  const series = runs.map((run, k) => ({ colour: css(k ? "--orange" : "--blue"), wide: k === 1, points: app.errors(run) }));
  curves($("break-curves"), series, { depth, at: layers[1], label: "marginal error" });
  legend();
  verdict(app, runs, depth, n);
}

function legend() {
  if ($("break-legend").childElementCount) return;
  for (const [name, colour] of [["whole", "--blue"], ["broken", "--orange"]]) {
    const mark = Object.assign(document.createElement("span"), { textContent: name });
    mark.style.setProperty("--c", `var(${colour})`);
    $("break-legend").append(mark);
  }
}

function verdict(app, runs, depth, n) {      // what the last layer says, in a sentence
  if (runs.some(run => app.reach(run, depth) < depth)) return;
  const [whole, broken] = runs.map(run => run.attention(depth)), far = whole.reduce((sum, t, k) => sum + Math.abs(t - broken[k]), 0) / (2 * n);
  const [fine, error] = runs.map(run => run.error(depth)), same = far < DEAD;
  const attention = same ? "the attention arrives all the same" : `${scientific(100 * far)} % of the attention is in the wrong place`;
  const plan = Number.isFinite(error) ? `the plan's marginal error is ${scientific(error)} (whole: ${scientific(fine)})` : "the plan has left the range of numbers";
  $("break-verdict").textContent = app.state.broken || app.state.step > 1 ? `After ${depth} layers ${attention}; ${plan}.` : "Nothing is broken: turn a switch.";
}
