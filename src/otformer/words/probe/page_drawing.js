"use strict";
const FORMAT = 1;                          // of the data this script reads
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let data = null, at = null, timer = null;  // at: what is chosen {pair, reading, layer, head, plan}; head 0 is the mean

function summed(text) {                    // Adler-32
  let a = 1, b = 0;
  for (let k = 0; k < text.length; k++) { a = (a + text.charCodeAt(k)) % 65521; b = (b + a) % 65521; }
  return b * 65536 + a;
}
function read(text, sum) {                 // data, if they are what their sum says
  if (sum !== undefined && summed(text) !== +sum) throw Error("its data are damaged: copy or make the file again");
  let found = null;
  try { found = JSON.parse(text); } catch { /* no JSON: check says so */ }
  return check(found);
}
function check(d) {                        // an error that says what is wrong with data from outside
  if (!d || typeof d !== "object" || !("format" in d)) throw Error("this is no page of attention that otformer wrote");
  if (d.format !== FORMAT) throw Error(`it has format ${d.format} (made by ${d.by}), and this page reads format ${FORMAT}: ` +
    "make it again with otformer probe MODEL --html FILE");
  let fine = false;
  try { fine = sound(d); } catch { /* a field is missing or of another kind */ }
  if (!fine) throw Error("its data are damaged");
  return d;
}
function sound(d) {                        // whether every field is there, of the right kind and size
  const texts = list => list.every(word => typeof word === "string");
  const within = (k, low, high) => Number.isInteger(k) && k >= low && k <= high;
  const size = packed => /^[A-Za-z0-9+/]*={0,2}$/.test(packed) ? packed.length / 4 * 3 - (packed.match(/=*$/)[0].length) : -1;
  const each = d.layers * (d.heads + 1), count = d.readings.length;
  const numbers = ["distance", "distance_states", "marginal_error", "row_entropy", "share"];
  const fine = p => {
    const n = p.source.length, m = p.target.length;
    return n && m && texts([...p.source, ...p.target, p.verdict, p.kind]) && within(p.lost, 0, 1e9) && within(p.uniform, 0, 1e9) &&
      p.attention.length === count && p.attention.every(packed => size(packed) === each * n * m) &&
      size(p.plans) === (1 + d.layers) * n * m && within(p.nearest[0], 0, count - 1) && within(p.nearest[1], 1, d.layers) &&
      p.gold.every(([i, j]) => within(i, 0, n - 1) && within(j, 0, m - 1)) && numbers.every(name =>
        p[name].length === count && p[name].every(list => list.length === each && list.every(k => within(k, 0, 1e9))));
  };
  return within(d.layers, 1, 1e4) && within(d.heads, 1, 1e4) && d.top === 255 && d.unit > 0 && Number.isFinite(d.reg) && count > 0 &&
    texts([d.model, d.kind, d.by, ...Object.values(d.says)]) && d.readings.every(r => texts(r) && r.length === 3) &&
    d.pairs.length > 0 && d.pairs.every(fine);
}
const bytes = packed => Uint8Array.from(atob(packed), c => c.charCodeAt(0));
const unpacked = new Map();
function matrix(p, what, k) {              // matrix k, of a reading's attention or of the plans (what = -1)
  const key = what + " " + at.pair;
  if (!unpacked.has(key)) {
    if (unpacked.size > 24) unpacked.clear();
    unpacked.set(key, bytes(what < 0 ? p.plans : p.attention[what]));
  }
  const size = p.source.length * p.target.length;
  return unpacked.get(key).subarray(k * size, (k + 1) * size);
}
const place = (layer, head) => (layer - 1) * (data.heads + 1) + (head || data.heads + 1) - 1;
const attention = (p, layer = at.layer, head = at.head) => matrix(p, at.reading, place(layer, head));
const plan = p => matrix(p, -1, at.plan === "states" ? at.layer : 0);
const distances = (p, reading = at.reading) => (at.plan === "states" ? p.distance_states : p.distance)[reading];
const per = (list, layer = at.layer, head = at.head) => (100 * data.unit * list[place(layer, head)]).toFixed(1) + " %";
const headName = head => head ? "head " + head : "mean over heads";

function make(tag, attributes = {}, text = "") {    // an SVG element if the tag is one; text is never read as markup
  const drawn = ["line", "text", "circle", "polyline", "title"].includes(tag);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}
function short(word, room) { return word.length > room ? [...word].slice(0, room - 1).join("") + "…" : word; }

function drawLinks(id, A, colour, said) {
  const svg = $(id), p = data.pairs[at.pair], n = p.source.length, m = p.target.length, wide = svg.clientWidth || 300;
  const step = 25, tall = Math.max(n, m) * step + 8, room = Math.floor(wide * 0.3 / 7.6);
  const left = 7.6 * Math.min(room, Math.max(...p.source.map(w => w.length))) + 8;
  const right = wide - 7.6 * Math.min(room, Math.max(...p.target.map(w => w.length))) - 8;
  const y = (k, count) => 4 + (k + 0.5) * step * Math.max(n, m) / count;
  svg.replaceChildren(make("title", {}, said));
  svg.setAttribute("viewBox", `0 0 ${wide} ${tall}`); svg.style.height = tall + "px";
  for (const [i, j] of p.gold) svg.append(make("line", { x1: left, y1: y(i, n), x2: right, y2: y(j, m), stroke: css("--gold"),
    "stroke-dasharray": "2 5", "stroke-width": 1.2, "data-i": i, "data-j": j }));
  for (let j = 0; j < m; j++) for (let i = 0; i < n; i++) {
    const a = A[j * n + i] / data.top;
    if (a >= 0.05) svg.append(make("line", { x1: left, y1: y(i, n), x2: right, y2: y(j, m), "data-i": i, "data-j": j,
      stroke: colour, "stroke-width": (0.5 + 5.5 * a).toFixed(2), "stroke-opacity": Math.min(1, 0.05 + 1.1 * a).toFixed(2),
      "stroke-linecap": "round" }));
  }
  p.source.forEach((w, i) => svg.append(label(w, room, { x: left - 6, y: y(i, n) + 4.5, "text-anchor": "end", "data-i": i })));
  p.target.forEach((w, j) => svg.append(label(w, room, { x: right + 6, y: y(j, m) + 4.5, "data-j": j })));
}
function label(word, room, attributes) {
  const made = make("text", { class: "word", ...attributes }, short(word, room));
  made.append(make("title", {}, word));
  return made;
}
function point(event) {                    // the links of the word under the pointer, in both drawings
  const word = event && event.target.closest("text.word"), side = word && ("i" in word.dataset ? "i" : "j");
  for (const svg of [$("attention-links"), $("plan-links")]) {
    svg.classList.toggle("pointed", !!word);
    const met = new Set([...svg.querySelectorAll("line")].filter(line => {
      const on = !!word && line.dataset[side] === word.dataset[side];
      line.classList.toggle("on", on);
      return on;
    }).flatMap(line => ["i" + line.dataset.i, "j" + line.dataset.j]));
    for (const text of svg.querySelectorAll("text.word")) {
      const own = "i" in text.dataset ? "i" + text.dataset.i : "j" + text.dataset.j;
      text.classList.toggle("on", met.has(own) || (!!word && own === side + word.dataset[side]));
    }
  }
}
function ramp() {                          // the colours of 0 to 255, from --low to --top, as whole numbers of 4 bytes
  const stops = ["--low", "--mid", "--high", "--top"].map(name => [1, 3, 5].map(k => parseInt(css(name).slice(k, k + 2), 16)));
  const rgba = Uint8Array.from({ length: 1024 }, (_, at) => {
    const t = at >> 2, q = at & 3, s = Math.min(2.9999, 3 * (t / 255) ** +$("scale").value), k = Math.floor(s);
    return q === 3 ? 255 : stops[k][q] + (s - k) * (stops[k + 1][q] - stops[k][q]);
  });
  return new Uint32Array(rgba.buffer);
}
function picture(A, n, m, colours) {       // a matrix, one pixel an entry
  const cells = document.createElement("canvas"), g = cells.getContext("2d"), image = g.createImageData(n, m);
  cells.width = n; cells.height = m;
  const pixels = new Uint32Array(image.data.buffer);
  for (let k = 0; k < n * m; k++) pixels[k] = colours[A[k]];
  g.putImageData(image, 0, 0);
  return cells;
}
function canvas(id, wide, tall) {          // a cleared canvas at the screen's resolution
  const made = $(id), ratio = window.devicePixelRatio || 1, g = made.getContext("2d");
  made.style.width = wide + "px"; made.style.height = tall + "px";
  made.width = wide * ratio; made.height = tall * ratio;
  g.scale(ratio, ratio); g.imageSmoothingEnabled = false; g.font = "12px system-ui, sans-serif";
  return g;
}
const boxes = {};                          // where matrices lie on their canvases
function drawMap(id, A, colours, said) {
  const p = data.pairs[at.pair], n = p.source.length, m = p.target.length, wide = $(id).parentElement.clientWidth - 26;
  const letters = words => 7 * Math.min(14, Math.max(...words.map(w => w.length))) + 8;
  const left = Math.min(letters(p.target), wide * 0.3), top = letters(p.source);
  const cell = Math.min(34, (wide - left - 2) / n), w = cell * n, h = cell * m, bars = 30;
  const g = canvas(id, wide, top + h + bars + 6);
  boxes[id] = { left, top, cell };
  g.drawImage(picture(A, n, m, colours), left, top, w, h);
  g.strokeStyle = css("--line"); g.strokeRect(left, top, w, h);
  g.strokeStyle = css("--gold"); g.lineWidth = Math.min(2, cell / 6);
  for (const [i, j] of p.gold) g.strokeRect(left + i * cell + 1, top + j * cell + 1, cell - 2, cell - 2);
  g.fillStyle = css("--ink"); g.font = Math.max(7, Math.min(12, cell * 0.95)) + "px system-ui, sans-serif";
  g.textAlign = "right";
  p.target.forEach((word, j) => g.fillText(short(word, 14), left - 6, top + (j + 0.5) * cell + 4, left - 8));
  p.source.forEach((word, i) => {
    g.save(); g.translate(left + (i + 0.5) * cell + 4, top - 5); g.rotate(-Math.PI / 2); g.textAlign = "left";
    g.fillText(short(word, 14), 0, 0); g.restore();
  });
  const sums = p.source.map((_, i) => { let s = 0; for (let j = 0; j < m; j++) s += A[j * n + i] / data.top; return s; });
  const unit = (bars - 6) / Math.max(2 * m / n, ...sums);
  g.fillStyle = css("--soft");
  sums.forEach((s, i) => g.fillRect(left + (i + 0.2) * cell, top + h + 4, 0.6 * cell, Math.max(0.5, s * unit)));
  g.strokeStyle = css("--plan"); g.lineWidth = 1.5; g.beginPath();
  g.moveTo(left, top + h + 4 + m / n * unit); g.lineTo(left + w, top + h + 4 + m / n * unit); g.stroke();
  $(id).setAttribute("aria-label", said);
}
function tell(event, id, note) {           // the entry under the pointer, in words
  const p = data.pairs[at.pair], box = boxes[id], n = p.source.length;
  const i = Math.floor((event.offsetX - box.left) / box.cell), j = Math.floor((event.offsetY - box.top) / box.cell);
  if (i < 0 || j < 0 || i >= n || j >= p.target.length) return;
  const gold = p.gold.some(link => link[0] === i && link[1] === j) ? ", linked by hand" : "";
  const [a, b] = [attention(p), plan(p)].map(A => (A[j * n + i] / data.top).toFixed(2));
  $(note).textContent = `${p.target[j]} – ${p.source[i]}: attention ${a}, plan ${b}${gold}`;
}
const tiles = {};
function drawEvery(colours) {
  const p = data.pairs[at.pair], n = p.source.length, m = p.target.length, room = $("every").parentElement.clientWidth;
  const across = data.heads + 1, left = 22, top = 20, w = Math.max(28, Math.min(112, (room - left) / across - 7));
  const h = Math.max(18, Math.min(112, w * m / n)), dx = w + 7, dy = h + 19;
  Object.assign(tiles, { left, top, dx, dy, w, h });
  const g = canvas("every", Math.max(left + across * dx, 60), top + data.layers * dy), list = distances(p);
  g.font = "11px system-ui, sans-serif"; g.textAlign = "center"; g.fillStyle = css("--soft");
  for (let k = 1; k <= across; k++) g.fillText(k === across ? "mean" : k, left + (k - 1) * dx + w / 2, 13);
  for (let layer = 1; layer <= data.layers; layer++) for (let k = 1; k <= across; k++) {
    const head = k === across ? 0 : k, on = layer === at.layer && head === at.head;
    const x = left + (k - 1) * dx, y = top + (layer - 1) * dy;
    g.drawImage(picture(attention(p, layer, head), n, m, colours), x, y, w, h);
    g.strokeStyle = css(on ? "--gold" : "--line"); g.lineWidth = on ? 3 : 1; g.strokeRect(x, y, w, h);
    g.fillStyle = css("--soft"); g.fillText(Math.round(100 * data.unit * list[place(layer, head)]), x + w / 2, y + h + 12);
    if (k === 1) g.fillText(layer, 9, y + h / 2 + 4);
  }
  $("every").setAttribute("aria-label", `${data.layers} layers of ${data.heads} heads and their means, as small matrices`);
}
function tile(event) {                     // {layer, head} under the pointer, or null
  const layer = 1 + Math.floor((event.offsetY - tiles.top) / tiles.dy);
  const k = 1 + Math.floor((event.offsetX - tiles.left) / tiles.dx);
  return layer >= 1 && layer <= data.layers && k >= 1 && k <= data.heads + 1 ? { layer, head: k > data.heads ? 0 : k } : null;
}
function drawCurve() {
  const svg = $("curve"), p = data.pairs[at.pair], wide = svg.clientWidth || 300, tall = 220, L = data.layers;
  const x = layer => 40 + (wide - 56) * (L === 1 ? 0.5 : (layer - 1) / (L - 1)), y = t => 8 + (tall - 34) * (1 - data.unit * t);
  const line = (list, look) => svg.append(make("polyline", { fill: "none", ...look,
    points: Array.from({ length: L }, (_, k) => `${x(k + 1).toFixed(1)},${y(list[place(k + 1, 0)]).toFixed(1)}`).join(" ") }));
  svg.replaceChildren(make("title", {}, "distance to the plan by layer; the table of every layer and head has the numbers"));
  svg.setAttribute("viewBox", `0 0 ${wide} ${tall}`); svg.style.height = tall + "px";
  for (const t of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(make("line", { x1: 40, x2: wide - 16, y1: y(t / data.unit), y2: y(t / data.unit), stroke: css("--line") }));
    svg.append(make("text", { class: "soft", x: 34, y: y(t / data.unit) + 4, "text-anchor": "end" }, 100 * t + " %"));
  }
  const every = Math.ceil(28 * L / (wide - 56));
  for (let k = 1; k <= L; k += every) svg.append(make("text", { class: "soft", x: x(k), y: tall - 6, "text-anchor": "middle" }, k));
  if (at.plan === "embeddings") svg.append(make("line", { x1: 40, x2: wide - 16, y1: y(p.uniform), y2: y(p.uniform),
    stroke: css("--soft"), "stroke-dasharray": "6 4" }));
  data.readings.forEach((_, r) => { if (r !== at.reading) line(distances(p, r), { stroke: css("--soft"), "stroke-opacity": 0.6 }); });
  if (data.pairs.length > 1) {
    const mean = distances(p).map((_, k) => data.pairs.reduce((sum, q) => sum + distances(q)[k], 0) / data.pairs.length);
    line(mean, { stroke: css("--plan"), "stroke-width": 2, "stroke-dasharray": "2 4" });
  }
  const dot = (layer, head, r, look) =>
    svg.append(make("circle", { cx: x(layer), cy: y(distances(p)[place(layer, head)]), r, ...look }));
  const faint = { fill: css("--attention"), "fill-opacity": 0.45 };
  for (let k = 1; k <= L; k++) for (let h = 1; h <= data.heads; h++) dot(k, h, 2.2, faint);
  line(distances(p), { stroke: css("--attention"), "stroke-width": 2.2 });
  dot(at.layer, at.head, 6, { fill: "none", stroke: css("--gold"), "stroke-width": 2.5 });
  const others = data.readings.filter((_, r) => r !== at.reading).map(r => r[0]).join(", ");
  $("curve-note").textContent = `Blue: ${data.readings[at.reading][0]}, mean over heads of this pair; dots: single heads` +
    (others ? `; grey: ${others}` : "") + (data.pairs.length > 1 ? `; dotted green: mean over ${data.pairs.length} pairs` : "") +
    (at.plan === "embeddings" ? "; dashed: uniform attention." : ".");
}
