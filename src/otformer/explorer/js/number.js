// Section 2: one logit as the sum of its terms, the softmax with the sink, the step, and the weights that make them.
import { $, element } from "./app.js";
import { entries, registers } from "./math.js";
import { player } from "./player.js";

const DIGITS = 6;
const TERMS = {                              // what an entry of P does, by the name of its term
  "2 x·y": "the product of the points, twice: with the two squares it is −‖x − y‖²",
  "−‖y‖²": "the square of y, times a one", "−‖x‖²": "the square of x, times a one",
  u: "the dual variable u, times a one", v: "the dual variable v, times a one",
  "−1": "the constant −1 of exp((u + v − C)/λ − 1)",
  weight: "the sink's logit, the logarithm of the weight: only where there are not as many x as y", misprint: "a misprint",
};

export function mountNumber(app) {
  const bar = player($("number-player"), {
    label: "layer", most: () => app.state.depth, get: () => app.state.layer, set: layer => app.set({ layer }),
    text: () => `layer ${app.state.layer} of ${app.state.depth}`,
  });
  const counts = { i: () => app.problem.n, j: () => app.problem.m };
  for (const name of ["i", "j"]) $("cell-" + name).onchange = () => {
    const id = "cell-" + name, count = counts[name], k = Number($(id).value);
    if (Number.isInteger(k) && k >= 1 && k <= count()) { app.say(""); app.set({ [name]: k - 1 }); }
    else app.say(`Not used: token ${name} must be a whole number from 1 to ${count()}.`, true);
    $(id).value = app.state[name] + 1;
  };
  $("head").onchange = () => app.set({ head: $("head").value });
  app.section($("number"), () => { draw(app); bar.show(); }, () => {
    if (app.still) return;
    app.bars.play.stop();                    // both move the same layer
    bar.first();
    bar.start();
  });
  return bar;
}

const fixed = t => Number.isFinite(t) ? (t < 0 ? "−" : "") + Math.abs(t).toFixed(DIGITS) : "too large for a number";

function draw(app) {
  const { state, problem } = app, rows = state.head === "rows", run = app.run(), layer = app.reach(run, state.layer);
  const [i, j] = rows ? [state.i, state.j] : [state.j, state.i], [own, other] = rows ? ["x", "y"] : ["y", "x"];
  $("cell-i").value = state.i + 1;
  $("cell-j").value = state.j + 1;
  $("head").value = state.head;
  $("cell-i").max = problem.n;
  $("cell-j").max = problem.m;
  const total = terms(app, run, layer, i, j);
  const reg = +run.reg(layer).toPrecision(4);
  $("terms").caption.textContent = `layer ${layer}, λ = ${reg}: token ${own} ${i + 1} looks at token ${other} ${j + 1}`;
  follow(app, run, layer, i, total);
  weights(app, run.reg(layer));
}

function terms(app, run, layer, i, j) {      // one line a term; a vector's products are added up
  const { problem, state } = app, r = problem.registers, Z = run.state(layer), reg = run.reg(layer), lines = new Map();
  for (const e of entries(state.head, reg, r)) {
    const [a, b] = [Z[i * r.width + e.row], Z[j * r.width + e.column]];
    const line = lines.get(e.term) ?? { queries: [], keys: [], value: e.value, scaled: e.scaled, sum: 0 };
    line.names ??= [r.names[e.row], r.names[e.column]];
    line.queries.push(a);
    line.keys.push(b);
    line.sum += e.value * a * b;
    lines.set(e.term, line);
  }
  const body = $("terms").tBodies[0];
  body.replaceChildren();
  let total = 0;
  for (const [term, line] of lines) {
    total += line.sum;
    const sides = [said(line.names[0], line.queries), said(line.names[1], line.keys)];
    addRow(body, [term + (line.scaled ? "/λ" : ""), ...sides, String(+line.value.toPrecision(4)), fixed(line.sum)]);
  }
  const foot = $("terms").tFoot ?? $("terms").createTFoot();
  foot.replaceChildren();
  addRow(foot, ["logit, their sum", "", "", "", fixed(total)]);
  return total;
}

function addRow(place, texts) {
  const row = place.insertRow();
  texts.forEach(text => { row.insertCell().textContent = text; });
}

function said(name, list) {                  // a register and what it holds: x = 0.5; of vectors of the plane both numbers
  if (list.length > 2) return `${list.length} numbers`;
  return `${list.length > 1 ? name[0] : name} = ${list.map(t => +t.toFixed(4)).join(", ")}`;
}

function follow(app, run, layer, i, total) {
  const { problem, state } = app, rows = state.head === "rows", dual = rows ? "u" : "v", keys = rows ? problem.m : problem.n;
  const logits = run.logits(layer, state.head, i), sink = logits[problem.T], a = Math.exp(sink), real = logits.subarray(0, keys);
  const top = Math.max(...real), logS = top + Math.log(real.reduce((sum, t) => sum + Math.exp(t - top), 0)), S = Math.exp(logS);
  const t = Math.tanh((logS - sink) / 2), share = Math.exp(total - logS);   // by logarithms: S itself may be too large
  const step = run.layers[Math.min(layer, run.depth - 1)][state.head], before = run[dual](layer)[i];
  const k = i + 1, short = +a.toPrecision(4);
  const lines = [
    `exp(logit) = ${fixed(Math.exp(total))}, one entry of the plan. The sink's logit is ${fixed(sink)}, so its exp is ${fixed(a)}.`,
    `S = sum of exp over the ${keys} tokens = ${fixed(S)}; with the sink ${fixed(S + a)}.`,
    `The softmax gives this pair ${fixed(share / (1 + Math.exp(sink - logS)))}, without the sink ${fixed(share)}: the attention of this head.`,
    `The head returns (S − ${short})/(S + ${short}) = tanh(½ log(S/${short})) = ${fixed(t)}.`,
  ];
  if (layer >= run.depth) lines.push("This is the state after the last layer: nothing more is written.");
  else if (step === 0) lines.push(`In this layer the other head has its turn: γ = 0, and ${dual}_${k} stays ${fixed(before)}.`);
  else {
    const after = before - step * t;
    lines.push(`γ = ${+step.toPrecision(4)}. New ${dual}_${k} = ${fixed(before)} − γ · ${fixed(t)} = ${fixed(after)}.`);
    app.reach(run, layer + 1);
    if (run.done > layer) lines.push(`In the next layer's memory stands ${fixed(run[dual](layer + 1)[i])}.`);
  }
  $("follow").replaceChildren(...lines.map(text => element("li", { textContent: text })));
}

let drawn = "";
function weights(app, reg) {                 // P as a table with the registers' names; what is not 0 is a button
  const { state, problem } = app, shown = problem.dim > 2 ? registers(1, problem.registers.marginals) : problem.registers;
  const key = [state.head, reg, shown.width, shown.dim].join();
  if (key === drawn) return;
  drawn = key;
  const made = element("tbody"), top = element("thead"), list = entries(state.head, reg, shown);
  const say = e => {
    const [row, column] = [shown.names[e.row], shown.names[e.column]];
    $("weights-note").textContent = `Row ${row} (of token i), column ${column} (of token j): ${+e.value.toPrecision(4)} makes ` +
      `the term ${e.term}: ${TERMS[e.term]}.`;
    for (const button of $("weights").querySelectorAll("button")) button.classList.toggle("on", button.dataset.term === e.term);
  };
  const header = top.insertRow();
  header.insertCell();
  shown.names.forEach(name => header.append(element("th", { textContent: name, scope: "col" })));
  shown.names.forEach((name, row) => {
    const line = made.insertRow();
    line.append(element("th", { textContent: name, scope: "row" }));
    shown.names.forEach((_, column) => {
      const cell = line.insertCell(), e = list.find(each => each.row === row && each.column === column);
      if (!e) return;
      const text = Math.abs(e.value) >= 1000 ? e.value.toExponential(0).replace("+", "") : String(+e.value.toPrecision(2));
      const button = element("button", { type: "button", textContent: text, className: e.value < 0 ? "minus" : "" });
      button.setAttribute("aria-label", `${text}: ${name} times ${shown.names[column]}, the term ${e.term}`);
      button.dataset.term = e.term;
      button.onmouseenter = button.onfocus = button.onclick = () => say(e);
      cell.append(button);
    });
  });
  $("weights").replaceChildren(top, made);
  const wide = problem.dim > 2 ? ` (x and y are ${problem.dim} columns wide here, drawn as one)` : "";
  $("weights-note").textContent = `${list.length} numbers are not 0${wide}. The value matrix reads the register sign, and the ` +
    `output writes −γ times it into ${state.head === "rows" ? "u" : "v"}. Point at a number, or move to it with the Tab key.`;
}
