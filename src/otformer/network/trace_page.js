const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const TOKENS = 100;                       // most rows in the table of registers
let at = 0, problem = 0, timer = null, saving = null;

// --- numbers -----------------------------------------------------------------------------------------------------------
function unpack(text, size, read) {       // little-endian numbers out of base64
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / size }, (_, k) => view[read](size * k, true));
}
const opened = new Map(), cache = new Map();
function now() {                          // the problem that is shown, its arrays opened
  if (!opened.has(problem)) {
    const p = data.problems[problem], goal = p.goal && unpack(p.goal, 4, "getFloat32");
    const [K, u, v] = ["K", "u", "v"].map(name => unpack(p[name], 8, "getFloat64"));
    opened.set(problem, { ...p, K, u, v, goal });
  }
  return opened.get(problem);
}
function attention(head, k) {             // softmax of (u_i + v_j − K_ij)/λ over j or over i, [n·m], x on the rows
  const key = [problem, head, k].join();
  if (cache.has(key)) return cache.get(key);
  const { n, m, K, u, v } = now(), reg = data.reg[k], out = new Float64Array(n * m);
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) out[i * m + j] = (u[k * n + i] + v[k * m + j] - K[i * m + j]) / reg;
  scaled(out, head, n, m, true);
  if (cache.size > 6) cache.clear();
  cache.set(key, out);
  return out;
}
function scaled(out, head, n, m, exponentials) {   // rows, or columns, made to sum to 1; of exponentials if asked
  const [lines, length, far, step] = head === "rows" ? [n, m, m, 1] : [m, n, 1, m];
  for (let line = 0; line < lines; line++) {
    let top = -Infinity, sum = 0;
    for (let t = 0; t < length; t++) top = Math.max(top, out[line * far + t * step]);
    for (let t = 0; t < length; t++) {
      const place = line * far + t * step;
      sum += out[place] = exponentials ? Math.exp(out[place] - top) : out[place];
    }
    for (let t = 0; t < length; t++) out[line * far + t * step] /= sum || 1;
  }
  return out;
}
function goalOf(head) {                   // the goal with its rows, or columns, scaled
  const { n, m, goal } = now(), key = problem + "goal" + head;
  if (!opened.has(key)) opened.set(key, scaled(goal.slice(), head, n, m, false));
  return opened.get(key);
}
const numbersOf = id => id === "goal" ? goalOf("rows") : attention(id, at);

// --- maps --------------------------------------------------------------------------------------------------------------
function colour(t, stops) {
  const s = Math.min(2.999, 3 * t), k = Math.floor(s), f = s - k;
  return stops[k].map((c, q) => c + f * (stops[k + 1][q] - c));
}
const stopsOf = () => css("--heat").split(" ").map(hex => [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16)));
function plot(id) {                       // a canvas at the screen's resolution, cleared
  const canvas = $(id), ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio; canvas.height = canvas.clientHeight * ratio;
  const g = canvas.getContext("2d"); g.scale(ratio, ratio);
  g.font = "11px system-ui, sans-serif";
  return [g, canvas.clientWidth, canvas.clientHeight];
}
const cut = text => text.length > 14 ? text.slice(0, 13) + "…" : text;
function layout(id) {                     // where the map lies on its canvas, and the room around it
  const p = now(), long = side => p.labels ? 8 + 6.2 * Math.max(...p.labels[side].map(text => cut(text).length)) : 0;
  const edge = { left: Math.max(50, 20 + long(0)), top: 6, right: 64, bottom: Math.max(36, 22 + long(1)) };
  const room = [$(id).clientWidth - edge.left - edge.right, Math.max(200, Math.min(520, window.innerHeight - 420))];
  const fit = [Math.min(64, room[0] / p.m), Math.min(64, room[1] / p.n)], least = Math.min(...fit);
  const cell = [p.m, p.n].map((count, k) => Math.min(fit[k], Math.max(least, 60 / count)));   // square, if 60 px suffice
  return { x: edge.left, y: edge.top, w: cell[0] * p.m, h: cell[1] * p.n, cell, edge };
}
function drawMap(id) {
  const p = now(), power = +$("scale").value, box = layout(id), shown = numbersOf(id), stops = stopsOf();
  $(id).style.height = box.h + box.edge.top + box.edge.bottom + "px";
  const [g] = plot(id), cells = document.createElement("canvas"), image = g.createImageData(p.m, p.n);
  cells.width = p.m; cells.height = p.n;
  for (let k = 0; k < p.n * p.m; k++) image.data.set([...colour(shown[k] ** power, stops), 255], 4 * k);
  cells.getContext("2d").putImageData(image, 0, 0);
  g.imageSmoothingEnabled = false;
  g.drawImage(cells, box.x, box.y, box.w, box.h);
  g.strokeStyle = css("--line"); g.strokeRect(box.x, box.y, box.w, box.h);
  if (p.goal && id !== "goal" && $("outline").checked && Math.min(...box.cell) >= 5) drawOutlines(g, id, box);
  g.fillStyle = css("--soft");
  names(0, box.cell[1] >= 11, 15, box.h, (text, t) => { g.textAlign = "right"; g.fillText(text, box.x - 5, box.y + t + 4); });
  names(1, box.cell[0] >= 11, 8 + 7 * String(p.m).length, box.w, (text, t) => upright(g, text, box.x + t, box.y + box.h));
  g.textAlign = "center"; g.fillText("y", box.x + box.w / 2, box.y + box.h + box.edge.bottom - 6);
  g.fillText("x", 7, box.y + box.h / 2 + 4);
  drawBar(g, box, power, stops);
  $(id).setAttribute("aria-label", p.n + " by " + p.m + " numbers" + (id === "goal" ? ", the goal" : ", layer " + data.layers[at]));
}
function drawOutlines(g, head, box) {     // where the goal is greatest in each row, or column
  const p = now(), goal = goalOf(head), rows = head === "rows", [lines, length] = rows ? [p.n, p.m] : [p.m, p.n];
  g.strokeStyle = css("--v"); g.lineWidth = 1.6;
  for (let line = 0; line < lines; line++) {
    let best = 0;
    const place = t => rows ? line * p.m + t : t * p.m + line;
    for (let t = 1; t < length; t++) if (goal[place(t)] > goal[place(best)]) best = t;
    const [i, j] = rows ? [line, best] : [best, line];
    g.strokeRect(box.x + j * box.cell[0] + 1, box.y + i * box.cell[1] + 1, box.cell[0] - 2, box.cell[1] - 2);
  }
  g.lineWidth = 1;
}
function names(side, room, apart, length, write) {   // labels where there is room, otherwise numbers from 1, as many as fit
  const p = now(), count = side ? p.m : p.n, texts = p.labels && room && p.labels[side];
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000];
  const step = texts ? 1 : steps.find(s => s * length / count >= apart) || count;
  for (let k = 1; k <= count; k++) if (k % step === 0) write(texts ? cut(texts[k - 1]) : k, (k - 0.5) * length / count);
}
function upright(g, text, x, y) {         // below the map; words are turned
  if (typeof text === "number") { g.textAlign = "center"; g.fillText(text, x, y + 14); return; }
  g.save(); g.translate(x + 4, y + 5); g.rotate(-Math.PI / 2); g.textAlign = "right"; g.fillText(text, 0, 0); g.restore();
}
function drawBar(g, box, power, stops) {  // colours evenly along the bar, beside them the attention they stand for
  const x = box.x + box.w + 14, h = Math.max(box.h, 60), y = box.y;
  for (let t = 0; t < h; t++) {
    g.fillStyle = "rgb(" + colour(1 - t / h, stops).map(Math.round) + ")"; g.fillRect(x, y + t, 12, 1.5);
  }
  g.strokeStyle = css("--line"); g.strokeRect(x, y, 12, h);
  g.fillStyle = css("--soft"); g.textAlign = "left";
  for (const t of h < 100 ? [0, 1] : [0, 0.25, 0.5, 0.75, 1])
    g.fillText(+(t ** (1 / power)).toPrecision(2), x + 17, y + 4 + (h - 3) * (1 - t) + (t === 1 ? 4 : 0));
}
function name(side, k) { const p = now(); return "xy"[side] + " " + (k + 1) + (p.labels ? " (" + p.labels[side][k] + ")" : ""); }
function hover(id, event) {
  const p = now(), box = layout(id);
  const i = Math.floor((event.offsetY - box.y) / box.cell[1]), j = Math.floor((event.offsetX - box.x) / box.cell[0]);
  if (i < 0 || j < 0 || i >= p.n || j >= p.m) return;
  const goal = p.goal && id !== "goal" ? ", goal " + goalOf(id)[i * p.m + j].toFixed(5) : "";
  $(id + "-note").textContent = name(0, i) + ", " + name(1, j) + ": " + numbersOf(id)[i * p.m + j].toFixed(5) + goal;
}

// --- points, curves, bars, registers -----------------------------------------------------------------------------------
function drawPoints() {
  const p = now(), A = attention("rows", at), flat = p.points[0][0].length === 1;
  const wide = $("points").clientWidth, side = flat ? 190 : Math.min(wide, 420, Math.max(240, window.innerHeight - 420));
  $("points").style.height = side + "px";
  const [g] = plot("points"), all = p.points.flat(), pad = 16;
  const low = [0, 1].map(k => Math.min(...all.map(c => c[k] ?? 0))), high = [0, 1].map(k => Math.max(...all.map(c => c[k] ?? 0)));
  const span = Math.max(high[0] - low[0], flat ? 0 : high[1] - low[1]) || 1, room = side - 2 * pad;
  const place = which => p.points[which].map(c => flat
    ? [pad + (wide - 2 * pad) * (c[0] - low[0]) / span, which ? side - 40 : 40]
    : [wide / 2 + room * (c[0] - (low[0] + high[0]) / 2) / span, side / 2 - room * (c[1] - (low[1] + high[1]) / 2) / span]);
  const [x, y] = [place(0), place(1)];
  g.strokeStyle = css("--ink");
  for (let i = 0; i < p.n; i++) for (let j = 0; j < p.m; j++) {
    if (A[i * p.m + j] < 0.02) continue;
    g.globalAlpha = A[i * p.m + j]; g.beginPath(); g.moveTo(...x[i]); g.lineTo(...y[j]); g.stroke();
  }
  g.globalAlpha = 1; g.fillStyle = css("--u"); g.strokeStyle = css("--v"); g.lineWidth = 2;
  for (const c of x) { g.beginPath(); g.arc(...c, 4, 0, 7); g.fill(); }
  for (const c of y) { g.beginPath(); g.arc(...c, 5, 0, 7); g.stroke(); }
  if (!p.labels || p.n + p.m > 40) return;
  g.fillStyle = css("--soft"); g.textAlign = "center";
  [x, y].forEach((places, k) => places.forEach((c, i) => g.fillText(cut(p.labels[k][i]), c[0], c[1] + (flat && k ? 18 : -8))));
}
function drawError() {
  const p = now(), [g, w, h] = plot("error"), left = 46, bottom = 18;
  const curves = [[p.error, "--u"], [p.distance, "--v"]].filter(([values]) => values)
    .map(([values, name]) => [values.map(x => x === null ? NaN : Math.log10(Math.max(x, 1e-16))), name]);
  const real = curves.flatMap(([logs]) => logs).filter(x => !isNaN(x));
  if (!real.length) return;
  const top = Math.ceil(Math.max(...real) + 0.1), low = Math.floor(Math.min(...real) - 0.1), last = data.layers.at(-1) || 1;
  const X = k => left + (w - left - 10) * data.layers[k] / last, Y = t => 6 + (h - bottom - 6) * (top - t) / (top - low);
  g.fillStyle = css("--soft"); g.strokeStyle = css("--line");
  for (let t = low, step = Math.max(1, Math.ceil((top - low) / 5)); t <= top; t += step) {
    g.beginPath(); g.moveTo(left, Y(t)); g.lineTo(w - 10, Y(t)); g.stroke(); g.fillText("1e" + t, 4, Y(t) + 4);
  }
  g.fillText("layer 0", left, h - 3); g.textAlign = "right"; g.fillText("layer " + last, w - 10, h - 3);
  g.lineWidth = 1.8;
  for (const [logs, name] of curves) {
    g.strokeStyle = g.fillStyle = css(name); g.beginPath();
    logs.forEach((t, k) => { if (!isNaN(t)) g.lineTo(X(k), Y(t)); });
    g.stroke();
    if (!isNaN(logs[at])) { g.beginPath(); g.arc(X(at), Y(logs[at]), 4.5, 0, 7); g.fill(); }
  }
  $("error").setAttribute("aria-label", $("where").textContent);
}
function drawDuals() {
  const p = now(), [g, w, h] = plot("duals"), largest = t => t.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-12);
  const size = Math.max(largest(p.u), largest(p.v)), middle = h / 2, width = (w - 24) / (p.n + p.m);
  for (const [values, count, start, name] of [[p.u, p.n, 0, "--u"], [p.v, p.m, p.n * width + 24, "--v"]]) {
    g.fillStyle = css(name);
    for (let k = 0; k < count; k++) {
      const tall = (middle - 8) * values[at * count + k] / size;
      g.fillRect(start + k * width, Math.min(middle, middle - tall), Math.max(0.5, width * 0.8), Math.abs(tall));
    }
  }
  g.strokeStyle = css("--soft"); g.beginPath(); g.moveTo(0, middle); g.lineTo(w, middle); g.stroke();
  $("duals-note").textContent = "one bar a point, from −" + size.toPrecision(3) + " to " + size.toPrecision(3);
}
const short = x => x === null ? "–" : Math.abs(x) >= 1e15 ? "1e18 (absent)" : String(+x.toPrecision(4)).replace("-", "−");
function makeTable() {                    // every number of the prompt; draw() then writes u and v of the layer
  const p = now(), row = (tag, texts) => {
    const tr = document.createElement("tr");
    texts.forEach((text, k) => {
      const cell = document.createElement(k && tag === "td" ? "td" : "th");
      cell.scope = tag === "th" ? "col" : "row"; cell.textContent = text;
      if (k && "uv".includes(data.registers[k - 1])) cell.className = "moves " + data.registers[k - 1];
      tr.append(cell);
    });
    return tr;
  };
  const called = k => k === p.tokens.length ? "sink" : "token " + (p.tokens[k] + 1);
  const rows = p.Z.map((z, k) => row("td", [called(k), ...z.map(c => c.map(short).join(", "))]));
  $("names").replaceChildren(row("th", ["", ...data.registers]));
  $("registers").replaceChildren(...rows.slice(0, TOKENS), ...(rows.length > TOKENS ? [rows.at(-1)] : []));
  const left = rows.length > TOKENS + 1 ? "the first " + TOKENS + " of " + p.tokens.length + " tokens and the sink; " : "";
  $("registers-note").textContent = left + "only u and v change from layer to layer" +
    (data.registers.includes("x") ? "" : "; x and y, longer than 4 numbers, are left out");
}
function writeDuals() {
  const p = now();
  ["u", "v"].forEach((letter, side) => {
    const column = data.registers.indexOf(letter) + 1, place = new Map(p.at[side].map((token, k) => [token, k])), count = side ? p.m : p.n;
    [...$("registers").rows].forEach((tr, k, all) => {
      const own = k === all.length - 1 ? p.sink[at][side] : place.has(p.tokens[k]) ? p[letter][at * count + place.get(p.tokens[k])] : null;
      tr.cells[column].textContent = short(own);
    });
  });
}

// --- moving about ------------------------------------------------------------------------------------------------------
function draw() {
  const p = now(), e = p.error[at], d = p.distance && p.distance[at];
  $("slider").value = at;
  $("where").textContent = "layer " + data.layers[at] + " of " + data.depth + ", λ = " + data.reg[at].toPrecision(3) + ", marginal error " +
    (e === null ? "–" : e.toExponential(1)) + (d === null ? "" : ", " + d.toExponential(1) + " from the goal");
  $("goal-card").hidden = !p.goal; $("points-card").hidden = !p.points;
  for (const id of p.goal ? ["rows", "columns", "goal"] : ["rows", "columns"]) drawMap(id);
  if (p.points) drawPoints();
  drawError(); drawDuals(); writeDuals();
  clearTimeout(saving); saving = setTimeout(remember, 250);
}
function remember() {                     // the address says what is shown; not at every step, for browsers allow few changes
  const parts = ["layer=" + data.layers[at], ...(data.batch > 1 ? ["problem=" + (problem + 1)] : [])];
  history.replaceState(null, "", "#" + parts.join("&"));
}
function choose(k) {
  problem = k; $("problem").value = k;
  const p = now();
  $("error-note").textContent = "blue: marginal error, Σ|row sum − a| + Σ|column sum − b|; " +
    (p.goal ? "orange: the mean over x of ½ Σ|attention − goal|" : "the goal was not found, for the trace is far from it");
  $("outlines").hidden = !p.goal;
  makeTable();
}
function go(k) { at = Math.max(0, Math.min(data.layers.length - 1, k)); draw(); }
function stop() { clearInterval(timer); timer = null; $("play").textContent = "Play"; }
function play() {                         // about 60 steps, closer together at the start
  if (timer) return stop();
  const last = data.layers.length - 1, count = Math.min(last, 60);
  const steps = [...new Set(Array.from({ length: count + 1 }, (_, k) => Math.round(last * (k / count) ** (last > 60 ? 2 : 1))))];
  if (at === last) go(0);
  $("play").textContent = "Pause";
  timer = setInterval(() => { go(steps.find(k => k > at) ?? last); if (at === last) stop(); }, 120);
}
function tell(text) { $("told").textContent = text; }
function restore() {                      // #layer=40&problem=2: the last shown layer up to 40; false if no layer is named
  const asked = new URLSearchParams(location.hash.slice(1)), whole = /^\d+$/;
  tell("");
  const [layer, which] = [asked.get("layer"), asked.get("problem") ?? "1"];
  if (!whole.test(which) || which < 1 || which > data.problems.length) {
    tell("the link names problem " + which + ", of which this page has 1 to " + data.problems.length);
    choose(0);
  } else choose(which - 1);
  if (layer === null) return false;
  if (!whole.test(layer) || +layer > data.depth) {
    tell("the link names layer " + layer + "; layers are 0 to " + data.depth);
    return false;
  }
  go(data.layers.filter(each => each <= +layer).length - 1);
  return true;
}

$("slider").max = data.layers.length - 1;
$("slider").oninput = event => { stop(); go(+event.target.value); };
$("play").onclick = play;
$("scale").onchange = $("outline").onchange = draw;
data.problems.forEach((p, k) => $("problem").add(new Option((k + 1) + " of " + data.batch + " (" + p.n + " × " + p.m + ")", k)));
$("problems").hidden = data.batch === 1;
$("problem").onchange = event => { choose(+event.target.value); draw(); };
for (const id of ["rows", "columns", "goal"]) $(id).onmousemove = event => hover(id, event);
window.onresize = draw;
window.onhashchange = () => { stop(); if (!restore()) draw(); };
matchMedia("(prefers-color-scheme: dark)").onchange = draw;
document.onkeydown = event => {
  if (["SELECT", "BUTTON"].includes(event.target.tagName) || event.target.type === "checkbox") return;
  const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: data.layers.length - 1 };
  if (event.key in moves) { event.preventDefault(); stop(); go(moves[event.key]); }
  if (event.key === " ") { event.preventDefault(); play(); }
};
const restored = restore();
if (!restored) go(0);
if (data.layers.length === 1) {           // keep="last"
  $("play").disabled = $("slider").disabled = true;
  tell('only the last layer was kept: run the network with keep="all" for all of them');
} else if (data.layers.length < data.kept) tell(data.layers.length + " of " + data.kept + " layers are on this page");
else if (!restored && !$("told").textContent && !matchMedia("(prefers-reduced-motion: reduce)").matches) play();
