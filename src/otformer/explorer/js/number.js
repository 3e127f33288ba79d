// Section 2: one logit as the sum of its terms, the softmax with the sink, the step, and the weights that make them.
import { $ } from "./app.js";
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
  for (const [id, name, count] of [["cell-i", "i", () => app.problem.n], ["cell-j", "j", () => app.problem.m]]) $(id).onchange = () => {
    const k = Number($(id).value);
    if (Number.isInteger(k) && k >= 1 && k <= count()) { app.say(""); app.set({ [name]: k - 1 }); }
    else app.say(`Not used: token ${name} must be a whole number from 1 to ${count()}.`, true);
    $(id).value = app.state[name] + 1;
  };
  $("head").onchange = () => app.set({ head: $("head").value });
  app.section($("number"), () => { draw(app); bar.show(); }, () => { if (!app.still) { app.bars.play.stop(); bar.first(); bar.start(); } });
  return bar;
}

const fixed = t => (t < 0 ? "−" : "") + Math.abs(t).toFixed(DIGITS);

function draw(app) {
  const { state, problem } = app, rows = state.head === "rows", run = app.run(), layer = app.reach(run, state.layer);
  const [i, j] = rows ? [state.i, state.j] : [state.j, state.i], [own, other] = rows ? ["x", "y"] : ["y", "x"];
  $("cell-i").value = state.i + 1;
  $("cell-j").value = state.j + 1;
  $("head").value = state.head;
  $("cell-i").max = problem.n;
  $("cell-j").max = problem.m;
  const total = terms(app, run, layer, i, j);
  $("terms").caption.textContent = `layer ${layer}, λ = ${run.reg(layer)}: token ${own} ${i + 1} looks at token ${other} ${j + 1}`;
  follow(app, run, layer, i, j, total);
  weights(app, run.reg(layer));
}

function terms(app, run, layer, i, j) {      // one line a term; a vector's products are added up
  const { problem, state } = app, r = problem.registers, Z = run.state(layer), reg = run.reg(layer), lines = new Map();
  for (const e of entries(state.head, reg, r)) {
    const [a, b] = [Z[i * r.width + e.row], Z[j * r.width + e.column]];
    const line = lines.get(e.term) ?? { queries: [], keys: [], value: e.value, sum: 0, names: [r.names[e.row], r.names[e.column]] };
    line.queries.push(a);
    line.keys.push(b);
    line.sum += e.value * a * b;
    lines.set(e.term, line);
  }
  const body = $("terms").tBodies[0], said = (name, list) => list.length > 3 ? `${list.length} numbers` : `${name.replace(/\d+$/, list.length > 1 ? "" : "$&")} = ${list.map(t => +t.toFixed(4)).join(", ")}`;
  body.replaceChildren();
  let total = 0;
  for (const [term, line] of lines) {
    total += line.sum;
    const row = body.insertRow(), texts = [term + (term === "−1" || term === "weight" ? "" : "/λ"), said(line.names[0], line.queries), said(line.names[1], line.keys), String(+line.value.toPrecision(4)), fixed(line.sum)];
    texts.forEach(text => { row.insertCell().textContent = text; });
  }
  const foot = $("terms").tFoot ?? $("terms").createTFoot();
  foot.replaceChildren();
  const row = foot.insertRow();
  ["logit, their sum", "", "", "", fixed(total)].forEach(text => { row.insertCell().textContent = text; });
  return total;
}

function follow(app, run, layer, i, j, total) {
  const { problem, state } = app, rows = state.head === "rows", dual = rows ? "u" : "v", [keys] = rows ? [problem.m] : [problem.n];
  const logits = run.logits(layer, state.head, i), sink = logits[problem.T], a = Math.exp(sink);
  let S = 0;
  for (let k = 0; k < keys; k++) S += Math.exp(logits[k]);
  const t = (S - a) / (S + a), step = run.layers[Math.min(layer, run.depth - 1)][state.head], before = run[dual](layer)[i];
  const k = i + 1, sum = Number.isFinite(S) ? fixed(S) : "too large for a number", last = layer >= run.depth;
  const lines = [
    `exp(logit) = ${fixed(Math.exp(total))}, one entry of the plan. The sink's logit is ${fixed(sink)}, so its exp is ${fixed(a)}.`,
    `S = sum of exp over the ${keys} tokens = ${sum}; with the sink ${fixed(S + a)}.`,
    `The softmax gives this pair ${fixed(Math.exp(total) / (S + a))}, and without the sink ${fixed(Math.exp(total) / S)}: the attention drawn above.`,
    `The head returns (S − ${+a.toPrecision(4)})/(S + ${+a.toPrecision(4)}) = tanh(½ log(S/${+a.toPrecision(4)})) = ${fixed(t)}.`,
  ];
  if (last) lines.push("This is the state after the last layer: nothing more is written.");
  else if (step === 0) lines.push(`In this layer the other head has its turn: γ = 0, and ${dual}_${k} stays ${fixed(before)}.`);
  else {
    const after = before - step * t;
    lines.push(`γ = ${+step.toPrecision(4)}. New ${dual}_${k} = ${fixed(before)} − γ · ${fixed(t)} = ${fixed(after)}.`);
    app.reach(run, layer + 1);
    if (run.done > layer) lines.push(`In the next layer's memory stands ${fixed(run[dual](layer + 1)[i])}.`);
  }
  $("follow").replaceChildren(...lines.map(text => Object.assign(document.createElement("li"), { textContent: text })));
}

let drawn = "";
function weights(app, reg) {                 // P as a table with the registers' names; what is not 0 is a button
  const { state, problem } = app, shown = problem.dim > 2 ? registers(1, problem.registers.marginals) : problem.registers;
  const key = [state.head, reg, shown.width, shown.dim].join();
  if (key === drawn) return;
  drawn = key;
  const made = document.createElement("tbody"), top = document.createElement("thead"), list = entries(state.head, reg, shown);
  const say = e => {
    $("weights-note").textContent = `Row ${shown.names[e.row]} (of token i), column ${shown.names[e.column]} (of token j): ${+e.value.toPrecision(4)} makes the term ${e.term}: ${TERMS[e.term]}.`;
    for (const button of $("weights").querySelectorAll("button")) button.classList.toggle("on", button.dataset.term === e.term);
  };
  const header = top.insertRow();
  header.insertCell();
  shown.names.forEach(name => header.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" })));
  shown.names.forEach((name, row) => {
    const line = made.insertRow();
    line.append(Object.assign(document.createElement("th"), { textContent: name, scope: "row" }));
    shown.names.forEach((_, column) => {
      const cell = line.insertCell(), e = list.find(each => each.row === row && each.column === column);
      if (!e) return;
      const text = Math.abs(e.value) >= 1000 ? e.value.toExponential(0).replace("+", "") : String(+e.value.toPrecision(2));
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text, className: e.value < 0 ? "minus" : "" });
      button.setAttribute("aria-label", `${text}: ${name} times ${shown.names[column]}, the term ${e.term}`);
      button.dataset.term = e.term;
      button.onmouseenter = button.onfocus = button.onclick = () => say(e);
      cell.append(button);
    });
  });
  $("weights").replaceChildren(top, made);
  const wide = problem.dim > 2 ? ` (x and y are ${problem.dim} columns wide here, drawn as one)` : "";
  $("weights-note").textContent = `${list.length} numbers are not 0${wide}. The value matrix reads the register sign, and the output writes −γ times it into ${state.head === "rows" ? "u" : "v"}. Point at a number, or move to it with the Tab key.`;
}
