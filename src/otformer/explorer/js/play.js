// Section 1: the points, the attention at a layer, and the errors of all schedules.
import { $, legend } from "./app.js";
import { COLOURS, css, curves, matrixWithSums, scientific } from "./draw.js";
import { drawPoints, drawWords, nearest } from "./links.js";
import { marginalError, sums } from "./math.js";
import { player } from "./player.js";
import { ABOUT_SCHEDULES, SCHEDULES } from "./schedules.js";
import { PRESETS, readList, wordsOf, writePoints } from "./state.js";
import { fillTables, foldable, ofCurves, ofMatrix } from "./tables.js";

const CURVES = [...SCHEDULES, "sinkhorn"], MATCHING = "off the matching";
const STEP = 0.02;                           // of a point that is moved by an arrow key
let chosen = null, at = null, box = null;    // the point that is held, where points are drawn, where the matrix is

export function mountPlay(app) {
  controls(app);
  const bar = player($("play-player"), {
    label: "layer", most: () => app.state.depth, get: () => app.state.layer, set: layer => app.set({ layer }),
    text: () => `layer ${app.shown ?? 0} of ${app.state.depth}, λ ${scientific(app.run().reg(app.shown ?? 0))}, ` +
      `error ${scientific(app.error ?? NaN)}${app.off === null ? "" : `, ${Math.round(100 * app.off)} % off the matching`}`,
  });
  pointer(app);
  $("play-matrix").onclick = event => {
    const { n, m } = app.problem, cell = cellAt(event, n, m);
    if (cell) app.set({ i: cell[0], j: cell[1] });
  };
  $("play-matrix").onmousemove = event => {
    const { n, m } = app.problem, cell = cellAt(event, n, m);
    if (cell) note(app, cell);
  };
  foldable(app, "play-table");
  app.section($("play"), () => { draw(app); bar.show(); }, () => app.still || bar.start());
  return bar;
}

function cellAt(event, n, m) {
  if (!box) return null;
  const i = Math.floor((event.offsetY - box.y) / box.h * n), j = Math.floor((event.offsetX - box.x) / box.w * m);
  return i >= 0 && j >= 0 && i < n && j < m ? [i, j] : null;
}

function note(app, [i, j]) {
  const { names } = app.points, value = app.matrix[i * app.problem.m + j].toFixed(5);
  const named = (side, k) => `${"xy"[side]} ${k + 1}` + (app.state.mode === "plane" ? "" : ` (${names[side][k]})`);
  $("play-matrix-note").textContent = `${named(0, i)}, ${named(1, j)}: ${value}. Click to follow this number.`;
}

// A text field whose content is checked: what is wrong is said, and the last good state stays.
function checked(app, id, name, read) {
  const field = $(id);
  field.onchange = () => {
    const text = field.value.trim();
    try {
      read(text);
      field.removeAttribute("aria-invalid");
      app.say("");
      app.set({ [name]: text, x: "", y: "", layer: 0 });
    } catch (expected) {
      if (typeof expected !== "string") throw expected;
      field.setAttribute("aria-invalid", "true");
      app.say(`Not used: expected ${expected}. What is shown is as before.`, true);
    }
  };
}

function controls(app) {
  const { state } = app, options = (id, names) => names.forEach(name => $(id).add(new Option(name, name)));
  options("schedule", SCHEDULES);
  options("preset", ["–", ...Object.keys(PRESETS)]);
  const other = patch => {                   // points from elsewhere: what was wrong in a field is forgotten
    for (const id of ["list", "source", "target"]) $(id).removeAttribute("aria-invalid");
    app.say("");
    app.set(patch);
  };
  $("preset").onchange = () => { if (PRESETS[$("preset").value]) other(PRESETS[$("preset").value]); };
  $("mode").onchange = () => {
    const mode = $("mode").value, reg = mode === "words" ? 0.05 : app.state.reg;
    other({ mode, reg, x: "", y: "", list: "", layer: 0 });
  };
  checked(app, "list", "list", readList);
  checked(app, "source", "source", wordsOf);
  checked(app, "target", "target", wordsOf);
  $("n").oninput = () => other({ n: Number($("n").value), list: "", x: "", y: "" });
  $("another").onclick = () => other({ seed: (app.state.seed + 1) % 10000, shape: "random", list: "", x: "", y: "" });
  $("reg").oninput = () => app.set({ reg: +(10 ** Number($("reg").value)).toPrecision(3) });
  for (const name of ["schedule", "sink", "show"]) $(name).onchange = () => app.set({ [name]: $(name).value });
  $("depth").oninput = () => app.set({ depth: Number($("depth").value) });
  $("n").value = state.n;
}

function showControls(app) {
  const { state, points } = app, words = state.mode === "words";
  for (const each of document.querySelectorAll("#play .line")) each.hidden = state.mode !== "line";
  for (const each of document.querySelectorAll("#play .words")) each.hidden = !words;
  for (const each of document.querySelectorAll("#play .many")) each.hidden = words;
  for (const name of ["mode", "schedule", "sink", "show"]) $(name).value = state[name];
  const list = state.x === "" && state.list !== "" ? state.list : points.names[0].join(" ");   // points that were moved are not the list
  for (const [name, text] of [["list", list], ["source", state.source], ["target", state.target]])
    if (document.activeElement !== $(name) && !$(name).hasAttribute("aria-invalid")) $(name).value = text;
  $("n").value = points.x.length;
  $("n-out").textContent = points.x.length;
  $("reg").value = Math.log10(state.reg);
  $("reg-out").textContent = state.reg;
  $("depth").value = state.depth;
  $("depth-out").textContent = state.depth;
  const free = ["layer", "i", "j", "show"], fits = set => Object.keys(set).every(k => free.includes(k) || set[k] === state[k]);
  $("preset").value = Object.keys(PRESETS).find(name => fits(PRESETS[name])) ?? "–";
  const about = `${state.schedule}: ${ABOUT_SCHEDULES[state.schedule]}`;
  $("schedule-note").textContent = (points.note ? `${about}; ${points.note}` : about) + ".";
}

function draw(app) {
  showControls(app);
  const { state, problem, points } = app, { n, m } = problem, run = app.run();
  const layer = app.reach(run, state.layer), A = run.attention(layer), plan = run.plan(layer);
  const shown = state.show === "plan" ? plan : A, added = sums(shown, n, m);
  const goals = [1, n / m], off = added.columns.reduce((most, t) => Math.max(most, Math.abs(t / goals[1] - 1)), 0);
  const away = app.matched.length ? run.off(layer, app.matched) : null;
  Object.assign(app, { shown: layer, matrix: shown, error: marginalError(plan, problem), off: away });
  if (state.mode === "words") at = drawWords($("play-points"), points.names, A);
  else at = drawPoints($("play-points"), points, A, chosen);
  $("play-points").classList.toggle("free", state.mode === "plane");   // on a line, a finger may still scroll the page
  box = matrixWithSums($("play-matrix"), {
    matrix: shown, n, m, names: points.names, cells: app.matched, focus: [state.i, state.j], sums: added, goals,
  });
  const what = state.show === "plan" ? "The plan" : "Attention", only = n === m ? "" : " (only for as many x as y)";
  const far = Number.isFinite(off) ? `off by up to ${scientific(100 * off)} %` : "too large for a number";
  $("play-matrix-note").textContent = `${what} at layer ${layer}; outlined: the optimal matching${only}. Bars: row and column ` +
    `sums, dashed where they should end; columns are ${far}.`;
  $("play-matrix").setAttribute("aria-label", `${what}, ${n} by ${m}, at layer ${layer}; column sums are ${far}`);
  caption(app);
  if (!app.dragging) errors(app);
  fillTables("play-table", () => [
    ofMatrix(`${what} at layer ${layer}`, shown, points.names),
    ofCurves("Marginal error by layer", CURVES, CURVES.map(name => app.errors(app.run({ schedule: name }))), scientific),
  ]);
}

function caption(app) {
  const { state } = app, moved = { line: "along its line", plane: "anywhere" }[state.mode];
  $("play-points-note").textContent = moved
    ? `Drag a point ${moved}, or press N or P to choose one and arrows to move it; a click follows it below. ` +
      "Orange: x, green: y; lines: attention of x."
    : "Top: English, below: French; lines: attention of the English words.";
  $("play-points").setAttribute("aria-label", `${app.problem.n} points x and ${app.problem.m} points y, linked by attention`);
}

function awayAt(run, layer, cells) {         // computed once per layer and matching
  if (run.away?.cells !== cells) run.away = { cells, at: new Map() };
  if (!run.away.at.has(layer)) run.away.at.set(layer, run.off(layer, cells));
  return run.away.at.get(layer);
}

function errors(app) {
  const { state } = app;
  const series = [state.schedule, ...CURVES.filter(name => name !== state.schedule)].map(name => ({
    name, colour: css(COLOURS[name]), dash: name === "sinkhorn" ? [5, 4] : [], wide: name === state.schedule,
    points: app.errors(app.run({ schedule: name })),
  })).reverse();
  const run = app.run(), away = app.matched.length ? series.at(-1).points.map(([layer]) => [layer, awayAt(run, layer, app.matched)]) : [];
  series.push({ name: MATCHING, colour: css(COLOURS[MATCHING]), dash: [2, 3], wide: true, points: away });
  curves($("play-curves"), series, { depth: state.depth, at: app.shown, label: "marginal error" });
  legend($("play-legend"), [...CURVES.map(name => [name, COLOURS[name], name === "sinkhorn"]), [MATCHING, COLOURS[MATCHING], true]]);
}

// Dragging by pointer, and by keys: N and P choose a point, arrows move it.
function pointer(app) {
  const canvas = $("play-points");
  const move = (side, k, point) => {
    const both = { x: app.points.x.map(p => [...p]), y: app.points.y.map(p => [...p]) };
    both[side][k] = point.map(t => Math.max(-1, Math.min(2, t)));
    app.set({ x: writePoints(both.x), y: writePoints(both.y) });
  };
  canvas.onpointerdown = event => {
    chosen = at && nearest(at, event.offsetX, event.offsetY);
    if (!chosen) return app.redraw();
    app.set({ [chosen.side === "x" ? "i" : "j"]: chosen.k });
    if (!at.toPoint) return;
    app.dragging = true;
    canvas.setPointerCapture(event.pointerId);
    app.redraw();
  };
  canvas.onpointermove = event => {
    if (app.dragging && chosen) move(chosen.side, chosen.k, at.toPoint(event.offsetX, event.offsetY));
  };
  canvas.onpointerup = canvas.onpointercancel = () => { app.dragging = false; app.redraw(); };
  canvas.onkeydown = event => {
    if (!at?.toPoint) return;
    const every = [...app.points.x.map((_, k) => ({ side: "x", k })), ...app.points.y.map((_, k) => ({ side: "y", k }))];
    const now = every.findIndex(each => each.side === chosen?.side && each.k === chosen?.k), key = event.key.toLowerCase();
    const by = { arrowleft: [-STEP, 0], arrowright: [STEP, 0], arrowup: [0, STEP], arrowdown: [0, -STEP] }[key];
    if (key === "n" || key === "p") chosen = every[(now + (key === "n" ? 1 : -1) + every.length) % every.length];
    else if (by && chosen) move(chosen.side, chosen.k, app.points[chosen.side][chosen.k].map((t, k) => t + by[k]));
    else return;
    event.preventDefault();
    event.stopPropagation();
    app.say(`${chosen.side} ${chosen.k + 1} at ${app.points[chosen.side][chosen.k].map(t => t.toFixed(2)).join(", ")}`);
    app.redraw();
  };
}
