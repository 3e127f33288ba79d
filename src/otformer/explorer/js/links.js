// Points with lines between them, as dark as the attention: on two lines (numbers, words) or in the plane.
import { css, open } from "./draw.js";

const FAINT = 0.02;                          // attention below this gets no line

function line(g, from, to, weight) {
  g.globalAlpha = Math.min(1, 0.1 + 0.9 * weight);
  g.lineWidth = 0.5 + 2.5 * weight;
  g.beginPath(); g.moveTo(...from); g.lineTo(...to); g.stroke();
}

function dot(g, [x, y], colour, size, name) {
  g.globalAlpha = 1;
  g.fillStyle = colour;
  g.beginPath(); g.arc(x, y, size, 0, 7); g.fill();
  if (name) { g.strokeStyle = css("--ink"); g.lineWidth = 2; g.stroke(); }
}

// Where points lie on the canvas, and back: {x: [[px, py]], y: […], toPoint(px, py)}.
function places(points, dim, w, h) {
  const every = [...points.x, ...points.y], pad = 18;
  const ends = k => {
    const t = every.map(p => p[k]), low = Math.min(0, ...t), high = Math.max(1, ...t);
    return [low, high - low];
  };
  if (dim === 1) {
    const [low, range] = ends(0), X = t => pad + (w - 2 * pad) * (t - low) / range;
    return { x: points.x.map(p => [X(p[0]), h * 0.2]), y: points.y.map(p => [X(p[0]), h * 0.8]),
      toPoint: px => [low + range * (px - pad) / (w - 2 * pad)] };
  }
  const [[lowX, rangeX], [lowY, rangeY]] = [ends(0), ends(1)], range = Math.max(rangeX, rangeY);
  const size = Math.min(w, h) - 2 * pad, left = (w - size) / 2, top = (h - size) / 2;
  const place = p => [left + size * (p[0] - lowX) / range, top + size * (1 - (p[1] - lowY) / range)];
  return { x: points.x.map(place), y: points.y.map(place),
    toPoint: (px, py) => [lowX + range * (px - left) / size, lowY + range * (1 - (py - top) / size)] };
}

export function drawPoints(canvas, points, A, chosen) {
  const [g, w, h] = open(canvas), dim = points.x[0].length, n = points.x.length, m = points.y.length;
  const at = places(points, dim, w, h), size = n > 60 ? 3 : n > 20 ? 5 : 7;
  g.strokeStyle = css("--blue");
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) if (A[i * m + j] > FAINT) line(g, at.x[i], at.y[j], A[i * m + j]);
  at.x.forEach((p, i) => dot(g, p, css("--orange"), size, chosen?.side === "x" && chosen.k === i));
  at.y.forEach((p, j) => dot(g, p, css("--green"), size, chosen?.side === "y" && chosen.k === j));
  g.globalAlpha = 1;
  g.fillStyle = css("--soft");
  if (dim === 1) {
    g.textAlign = "center";
    if (n <= 40) inRows(g, at.x, points.names[0]);
    g.textAlign = "left";
    g.fillText("x", 3, h * 0.2 + 22);          // under the dots, the first of which may stand at the edge
    g.fillText("y", 3, h * 0.8 + 22);
  }
  return at;
}

function inRows(g, places, names) {           // names above their points, in up to three rows; what has no room is left out
  const ends = [-Infinity, -Infinity, -Infinity];
  for (const [[px, py], name] of places.map((p, i) => [p, names[i]]).sort((a, b) => a[0][0] - b[0][0])) {
    const wide = g.measureText(name).width / 2 + 3, row = ends.findIndex(end => px - wide > end);
    if (row < 0) continue;
    ends[row] = px + wide;
    g.fillText(name, px, py - 12 - 13 * row);
  }
}

// Words of two sentences, one line each; lines break where there is no room, and the links go with them.
export function drawWords(canvas, names, A, { chosen = null, gold = [] } = {}) {
  const [g, w, h] = open(canvas), [n, m] = names.map(side => side.length);
  const fits = size => {
    g.font = size + "px system-ui, sans-serif";
    return names.every(side => side.reduce((sum, word) => sum + g.measureText(word).width + 10, 0) < w);
  };
  [14, 13, 12, 11, 10, 9].find(fits);        // the largest that needs one line, else 9
  const rows = names.map(side => spread(g, side, w)), tall = 22;
  const lines = rows.map(row => 1 + Math.max(...row.map(p => p.line)));
  const top = row => 18 + row.line * tall, bottom = row => h - 10 - (lines[1] - 1 - row.line) * tall;
  const from = rows[0].map(p => [p.x, top(p) + 6]), to = rows[1].map(p => [p.x, bottom(p) - 14]);
  g.strokeStyle = css("--orange");
  g.setLineDash([3, 3]);
  for (const [i, j] of gold) line(g, from[i], to[j], 0.25);
  g.setLineDash([]);
  g.strokeStyle = css("--blue");
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) {
    const weight = A[i * m + j];
    if (weight > 0.05 && (chosen === null || chosen === i)) line(g, from[i], to[j], weight);
  }
  g.globalAlpha = 1;
  g.textAlign = "center";
  g.fillStyle = css("--ink");
  rows[0].forEach((p, i) => g.fillText(names[0][i], p.x, top(p)));
  rows[1].forEach((p, j) => g.fillText(names[1][j], p.x, bottom(p)));
  return { x: rows[0].map(p => [p.x, top(p) - 4]), y: rows[1].map(p => [p.x, bottom(p) - 4]), toPoint: null };
}

function spread(g, words, w) {               // the middle of each word, line by line, lines centred
  const own = words.map(word => g.measureText(word).width + 4), spare = w - own.reduce((sum, t) => sum + t, 0);
  const gap = Math.max(4, Math.min(40, spare / words.length)), wide = own.map(t => t + gap), found = [];
  let line = 0, x = 0, first = 0;
  const close = end => { for (let k = first; k < end; k++) found[k].x += (w - x) / 2; first = end; };
  words.forEach((_, k) => {
    if (x + wide[k] > w && x > 0) { close(k); x = 0; line++; }
    found.push({ x: x + wide[k] / 2, line });
    x += wide[k];
  });
  close(words.length);
  return found;
}

export function nearest(at, px, py, reach = 24) {   // the point of {x, y} under the pointer
  let best = null, least = reach;
  for (const side of ["x", "y"]) at[side].forEach((p, k) => {
    const far = Math.hypot(p[0] - px, p[1] - py);
    if (far < least) { least = far; best = { side, k }; }
  });
  return best;
}
