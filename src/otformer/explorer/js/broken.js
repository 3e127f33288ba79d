// Section 4: the errata as switches; the whole network beside the broken one.
import { $, element, legend } from "./app.js";
import { css, curves, matrixWithSums, scientific } from "./draw.js";
import { mountLaboratory, showEdits } from "./laboratory.js";
import { UNBROKEN, apart, makeProblem, sums } from "./math.js";
import { player } from "./player.js";
import { pointsOf } from "./points.js";
import { PRESETS, SWITCHES, defaults } from "./state.js";
import { fillTables, foldable, ofCurves, ofMatrix } from "./tables.js";

const LARGEST = 60;                          // points of section 1 that are taken over
const SAME = 1e-3;                           // attention that is apart by less is called the same
const SAID = {
  sign: ["the sign of B (erratum 1)", "B = +γI as printed: each step goes the wrong way, and the dual climbs."],
  sink: ["the sink's row is updated (erratum 4)",
    "From layer 2 on the sink's v is in every logit: no longer gradient descent, and the marginals tend to 1/n. The attention " +
    "converges all the same."],
  index: ["the index of v in P⁽¹⁾ (erratum 2)",
    "The entry for v stands in row 3d + 5. For d = 1 it reads sign, which is 1 on every token: harmless. For d = 2 it reads u, " +
    "and v_j is multiplied by u_i."],
  identity: ["I_d in the columns of P⁽²⁾ (erratum 3, d = 1)",
    "Each vector column of the second head gets y_j added to it: its logits are wrong."],
  head: ["one head only", "Without the head columns nobody writes v: the sums of rows become right, those of columns do not."],
  squares: ["no squares in the prompt",
    "x_sq and y_sq are 0. Harmless in the end: ‖x_i‖² shifts a row of the cost, which u makes good."],
  step: ["step too long",
    "At twice the γ of “gradient” the attention converges, but u + v swings, and the sums with it: they settle only as 1/√layers. " +
    "At 4γ the attention is off as well."],
};
let fallback = null;

export function mountBroken(app) {
  for (const name of SWITCHES) {
    const box = addSwitch(name, element("input", { type: "checkbox" }));
    box.onchange = () => app.set({ broken: SWITCHES.filter(each => $("switch-" + each).checked).join(",") });
  }
  const step = addSwitch("step", element("select"));
  [["1", "γ"], ["2", "2γ"], ["4", "4γ"]].forEach(([value, text]) => step.add(new Option(text, value)));
  step.onchange = () => app.set({ step: Number(step.value) });
  mountLaboratory(app);
  const bar = player($("break-player"), {
    label: "layer", most: () => setting(app).depth, get: () => layerOf(app),
    set: brokenLayer => app.set({ brokenLayer }),
    text: () => `layer ${layerOf(app)} of ${setting(app).depth}, schedule ${setting(app).schedule}`,
  });
  foldable(app, "break-table");
  app.section($("break"), () => { draw(app); bar.show(); }, () => app.still || bar.start());
  return bar;
}

function addSwitch(name, control) {          // a control with its name and what it does
  const label = element("label"), text = element("span");
  control.id = "switch-" + name;
  text.append(SAID[name][0], element("small", { textContent: SAID[name][1] }));
  label.append(control, text);
  $("switches").append(label);
  return control;
}

// The problem of section 1 where it is small and not words, else twelve numbers.
function setting(app) {
  const { problem, points, state } = app;
  if (problem.dim <= 2 && problem.n <= LARGEST) return { problem, points, depth: state.depth, schedule: state.schedule, change: {} };
  if (!fallback) {
    const { reg, schedule, depth, ...rest } = { ...defaults(), ...PRESETS["12 numbers"] }, made = pointsOf(rest, null);
    const twelve = Object.assign(makeProblem(made.x, made.y), { key: "twelve" });
    fallback = { points: made, problem: twelve, depth, schedule, change: { reg, schedule, depth } };
  }
  return fallback;
}

const layerOf = app => Math.min(app.state.brokenLayer, setting(app).depth);   // twelve numbers may have fewer layers

function draw(app) {
  const { state } = app, { problem, points, depth, change } = setting(app), { n, m, dim } = problem;
  const on = state.broken ? state.broken.split(",") : [], broken = { ...UNBROKEN, step: state.step, edits: state.edits };
  showEdits(app);
  for (const name of SWITCHES) $("switch-" + name).checked = broken[name] = on.includes(name);
  $("switch-identity").disabled = dim !== 1;
  $("switch-step").value = String(state.step);
  broken.identity &&= dim === 1;
  const runs = [UNBROKEN, broken].map(each => app.run({ ...change, sink: "frozen", broken: each }, problem));
  const layers = runs.map(run => app.reach(run, layerOf(app)));
  const maps = runs.map((run, k) => run.attention(layers[k]));
  ["whole-matrix", "broken-matrix"].forEach((id, k) => matrixWithSums($(id), {
    matrix: maps[k], n, m, names: points.names, cells: problem === app.problem ? app.matched : [], sums: sums(maps[k], n, m),
  }));
  const far = scientific(100 * apart(maps[0], maps[1], n));
  $("broken-note").textContent = `broken, layer ${layers[1]}: ${far} % of a row's attention is elsewhere than in the whole network`;
  $("whole-matrix").setAttribute("aria-label", `attention of the whole network, ${n} by ${m}, layer ${layers[0]}`);
  $("broken-matrix").setAttribute("aria-label", $("broken-note").textContent);
  const series = runs.map((run, k) => ({ colour: css(k ? "--orange" : "--blue"), wide: k === 1, points: app.errors(run) }));
  curves($("break-curves"), series, { depth, at: layers[1], label: "marginal error" });
  legend($("break-legend"), [["whole", "--blue"], ["broken", "--orange"]]);
  verdict(app, runs, depth, n);
  $("break-curves").setAttribute("aria-label", `marginal error of both networks by layer. ${$("break-verdict").textContent}`);
  fillTables("break-table", () => [
    ofMatrix(`The whole network, layer ${layers[0]}`, maps[0], points.names),
    ofMatrix(`The broken network, layer ${layers[1]}`, maps[1], points.names),
    ofCurves("Marginal error by layer", ["whole", "broken"], series.map(each => each.points), scientific),
  ]);
}

function verdict(app, runs, depth, n) {      // what the last layer says, in a sentence
  if (runs.some(run => app.reach(run, depth) < depth)) return;
  const far = apart(...runs.map(run => run.attention(depth)), n), [fine, error] = runs.map(run => run.error(depth));
  const attention = far < SAME ? "the attention converges all the same"
    : `${scientific(100 * far)} % of the attention is in the wrong place, and ${scientific(100 * (1 - far))} % is as in the whole network`;
  const plan = Number.isFinite(error) ? `the plan's marginal error is ${scientific(error)} (whole: ${scientific(fine)})`
    : "entries of the plan are too large for a number";
  const whole = !app.state.broken && !app.state.edits && app.state.step === 1;
  $("break-verdict").textContent = whole ? "Nothing is broken: turn a switch, or edit the prompt." : `After ${depth} layers ${attention}; ${plan}.`;
}
