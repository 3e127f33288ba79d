// Drawing on canvas: matrices, links, curves. Colours come from the style sheet, so that light and dark are said once.

export const COLOURS = {
  paper: "--grey", gradient: "--blue", alternating: "--green", relaxed: "--purple", annealed: "--orange", sinkhorn: "--ink",
  "off the matching": "--wrong",
};

const known = new Map();
export function css(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}
export function coloursChanged() { known.clear(); }

// A canvas at the screen's resolution, cleared: its context, width and height in CSS pixels.
export function open(canvas) {
  const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  g.font = "12px system-ui, sans-serif";
  g.lineWidth = 1;
  return [g, w, h];
}

function table() {                           // 256 colours from "nothing" to "all", as 4 bytes each
  const key = "heat" + css("--page");
  if (!known.has(key)) {
    const stops = css("--heat").split(" ").map(hex => [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16)));
    const colours = new Uint8ClampedArray(1024);
    for (let k = 0; k < 256; k++) {
      const t = Math.min(stops.length - 1.001, (stops.length - 1) * k / 255), s = Math.floor(t);
      for (let c = 0; c < 3; c++) colours[4 * k + c] = stops[s][c] + (t - s) * (stops[s + 1][c] - stops[s][c]);
      colours[4 * k + 3] = 255;
    }
    known.set(key, new Uint32Array(colours.buffer));
  }
  return known.get(key);
}

const scratch = typeof document === "undefined" ? null : document.createElement("canvas");
export function heat(g, box, matrix, n, m) { // entries from 0 to 1; colours by square root, so that small ones show
  const colours = table(), image = g.createImageData(m, n), cells = new Uint32Array(image.data.buffer);
  for (let k = 0; k < n * m; k++) cells[k] = colours[Math.round(255 * Math.sqrt(Math.max(0, Math.min(1, matrix[k] || 0))))];
  scratch.width = m;
  scratch.height = n;
  scratch.getContext("2d").putImageData(image, 0, 0);
  g.imageSmoothingEnabled = false;
  g.drawImage(scratch, box.x, box.y, box.w, box.h);
  g.strokeStyle = css("--line");
  g.strokeRect(box.x, box.y, box.w, box.h);
}

export function outline(g, box, cells, n, m, colour = css("--orange")) {
  const w = box.w / m, h = box.h / n, thin = Math.min(w, h) < 5;
  g.strokeStyle = g.fillStyle = colour;
  g.lineWidth = Math.min(w, h) > 14 ? 2 : 1;
  for (const [i, j] of cells) {
    if (thin) g.fillRect(box.x + (j + 0.5) * w - 0.75, box.y + (i + 0.5) * h - 0.75, 1.5, 1.5);
    else g.strokeRect(box.x + j * w + 1, box.y + i * h + 1, w - 2, h - 2);
  }
  g.lineWidth = 1;
}

// A matrix with the sums of its rows on the right and of its columns below, as bars with a mark at `goal`.
export function matrixWithSums(canvas, { matrix, n, m, names, cells = [], focus = null, sums = null, goals = [1, 1] }) {
  const [g, w, h] = open(canvas), words = names && Math.max(...names.flat().map(t => t.length)) <= 18;
  g.font = "11px system-ui, sans-serif";
  const longest = side => Math.min(96, 8 + Math.max(...names[side].map(t => g.measureText(t).width)));
  const room = Math.min(w - 140, h - 90), left = words && room / n >= 11 ? longest(0) : 14, bars = sums ? 44 : 4;
  const below = words && room / m >= 11 ? longest(1) : 12;
  const size = Math.max(40, Math.min(w - left - bars - 4, h - below - bars - 6));
  const box = { x: left, y: 6, w: size, h: size };
  if (n !== m) { if (n > m) box.w = Math.max(40, size * m / n); else box.h = Math.max(40, size * n / m); }
  box.x += Math.max(0, (w - left - bars - box.w) / 2);
  heat(g, box, matrix, n, m);
  outline(g, box, cells, n, m);
  if (focus) outline(g, box, [focus], n, m, css("--green"));
  if (sums) edges(g, box, sums, n, m, goals);
  g.fillStyle = css("--soft");
  labels(g, box, words ? names : null, n, m, bars);
  return box;
}

function edges(g, box, { rows, columns }, n, m, goals) {
  const room = 30, scale = t => Math.min(2, Number.isFinite(t) ? t : 2) / 2 * room;
  for (let i = 0; i < n; i++) {
    g.fillStyle = css(Math.abs(rows[i] / goals[0] - 1) < 0.02 ? "--green" : "--sky");
    g.fillRect(box.x + box.w + 4, box.y + i * box.h / n + 0.5, scale(rows[i] / goals[0]), Math.max(0.6, box.h / n - 1));
  }
  for (let j = 0; j < m; j++) {
    g.fillStyle = css(Math.abs(columns[j] / goals[1] - 1) < 0.02 ? "--green" : "--sky");
    g.fillRect(box.x + j * box.w / m + 0.5, box.y + box.h + 4, Math.max(0.6, box.w / m - 1), scale(columns[j] / goals[1]));
  }
  g.strokeStyle = css("--ink");
  g.setLineDash([3, 2]);
  g.beginPath();
  g.moveTo(box.x + box.w + 4 + room / 2, box.y); g.lineTo(box.x + box.w + 4 + room / 2, box.y + box.h);
  g.moveTo(box.x, box.y + box.h + 4 + room / 2); g.lineTo(box.x + box.w, box.y + box.h + 4 + room / 2);
  g.stroke();
  g.setLineDash([]);
}

function labels(g, box, names, n, m, bars) {
  g.textAlign = "right";
  if (names && box.h / n >= 11) names[0].forEach((name, i) => g.fillText(name, box.x - 4, box.y + (i + 0.5) * box.h / n + 4, 96));
  else upright(g, "x", box.x - 4, box.y + box.h / 2);
  const y = box.y + box.h + bars;
  if (names && box.w / m >= 11) names[1].forEach((name, j) => upright(g, name, box.x + (j + 0.5) * box.w / m + 4, y));
  else { g.textAlign = "center"; g.fillText("y", box.x + box.w / 2, y + 8); }
  g.textAlign = "left";
}

export function upright(g, text, x, y) {      // text that runs upwards
  g.save();
  g.translate(x, y);
  g.rotate(-Math.PI / 2);
  g.fillText(text, 0, 0);
  g.restore();
}

// Curves over layers with a logarithmic height. series: [{name, colour, points: [[layer, value]], dash, wide}]
export function curves(canvas, series, { depth, at, lowest = 1e-12, label, linear = false, top = null, ticks = null }) {
  const [g, w, h] = open(canvas), box = { x: 46, y: 10, w: w - 58, h: h - 40 };
  const real = series.flatMap(s => s.points.map(p => p[1])).filter(t => Number.isFinite(t) && (linear || t > 0));
  const f = linear ? t => t : t => Math.log10(Math.max(t, lowest));
  const high = top ?? Math.ceil(Math.max(-1, ...real.map(f).map(t => Math.min(t, 4))) + 0.05);
  const low = linear ? 0 : Math.min(high - 2, Math.floor(Math.min(0, ...real.map(f))));
  const X = k => box.x + box.w * k / (depth || 1), within = t => Math.max(low, Math.min(high, t));
  const Y = t => box.y + box.h * (high - within(t)) / (high - low);
  g.fillStyle = css("--soft");
  g.strokeStyle = css("--line");
  g.textAlign = "right";
  const every = linear ? (high - low) / 4 : Math.max(1, Math.ceil((high - low) / 6));
  for (let t = low; t <= high + 1e-9; t += every) {
    g.beginPath(); g.moveTo(box.x, Y(t)); g.lineTo(box.x + box.w, Y(t)); g.stroke();
    g.fillText(linear ? (ticks ? ticks(t) : String(+t.toFixed(2))) : "1e" + t, box.x - 6, Y(t) + 4);
  }
  g.textAlign = "left"; g.fillText("layer 0", box.x, h - 14);
  g.textAlign = "right"; g.fillText("layer " + depth, box.x + box.w, h - 14);
  g.textAlign = "center"; g.fillText(label, box.x + box.w / 2, h - 14);
  for (const s of series) {
    g.strokeStyle = s.colour;
    g.lineWidth = s.wide ? 3 : 1.6;
    g.setLineDash(s.dash ?? []);
    g.beginPath();
    for (const [k, t] of s.points) g.lineTo(X(k), Y(f(Number.isFinite(t) ? t : 1e300)));
    g.stroke();
  }
  g.setLineDash([]);
  g.strokeStyle = css("--ink");
  g.lineWidth = 1;
  g.beginPath(); g.moveTo(X(at), box.y); g.lineTo(X(at), box.y + box.h); g.stroke();
}

export function scientific(t) {
  if (!Number.isFinite(t)) return "too large for a number";
  const plain = t === 0 || (Math.abs(t) >= 1e-3 && Math.abs(t) < 1e5);
  return plain ? String(+t.toPrecision(3)) : t.toExponential(1).replace("+", "");
}
