// What figures show, as HTML tables: for a screen reader, and for who wants the numbers. Names are text, never markup.
import { $, element } from "./app.js";

const SHOWN = 30;                            // rows and columns at most

// The tables of a section are made when they are unfolded, and again whenever it is drawn.
export function foldable(app, id) { $(id).ontoggle = () => app.redraw(); }

// Each table: caption, names of its rows and columns, and the text of cell (i, j).
export function fillTables(id, tables) {
  if ($(id).open) $(id).querySelector("div").replaceChildren(...tables().map(made));
}

const written = (value, form) => Number.isFinite(value) ? form(value) : "too large";

export const ofMatrix = (caption, matrix, [rows, columns]) =>
  ({ caption, rows, columns, text: (i, j) => written(matrix[i * columns.length + j], t => t.toFixed(3)) });

// Curves on the same layers, [layer, value] of each, as far as they are computed; about twelve layers of them and the last.
export function ofCurves(caption, names, series, form) {
  const longest = series.reduce((a, b) => b.length > a.length ? b : a), step = Math.ceil(longest.length / 12);
  const kept = longest.map((_, k) => k).filter(k => k % step === 0 || k === longest.length - 1);
  return {
    caption, rows: kept.map(k => `layer ${longest[k][0]}`), columns: names,
    text: (i, j) => series[j][kept[i]] === undefined ? "" : written(series[j][kept[i]][1], form),
  };
}

function made({ caption, rows, columns, text }) {
  const all = element("table"), cut = Math.max(rows.length, columns.length) > SHOWN ? `, the first ${SHOWN} rows and columns` : "";
  all.createCaption().textContent = caption + cut;
  const cell = (row, tag, content, scope = "") => row.appendChild(Object.assign(element(tag, { textContent: content }), scope && { scope }));
  const head = all.createTHead().insertRow(), body = all.createTBody();
  cell(head, "td", "");
  columns.slice(0, SHOWN).forEach(name => cell(head, "th", name, "col"));
  rows.slice(0, SHOWN).forEach((name, i) => {
    const row = body.insertRow();
    cell(row, "th", name, "row");
    columns.slice(0, SHOWN).forEach((_, j) => cell(row, "td", text(i, j)));
  });
  return all;
}
