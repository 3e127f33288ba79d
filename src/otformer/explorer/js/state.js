// The state of the page: everything a link must restore, checked field by field, and written after the # of the address.
import { readEdits, writeEdits } from "./edits.js";
import { SCHEDULES } from "./schedules.js";

export const MOST = 200;                     // points, because the page draws n² cells
const LONGEST = 40;                          // words of a typed sentence
export const SWITCHES = ["sign", "sink", "index", "identity", "head", "squares"];

// A decimal number, or NaN: of nothing, of 0x1 and of Infinity JavaScript would make one.
const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;
const decimal = text => DECIMAL.test(text.trim()) ? Number(text) : NaN;

// Each field: its default, and how to read it; a reader throws what is wrong in words.
const whole = (least, most) => text => {
  const t = decimal(text);
  if (!Number.isInteger(t) || t < least || t > most) throw `a whole number from ${least} to ${most}`;
  return t;
};
const between = (least, most) => text => {
  const t = decimal(text);
  if (!(t >= least && t <= most)) throw `a number from ${least} to ${most}`;
  return t;
};
const among = names => text => {
  if (!names.includes(text)) throw "one of " + names.join(", ");
  return text;
};
const some = names => text => {
  const given = text === "" ? [] : text.split(",");
  if (given.some(name => !names.includes(name))) throw "some of " + names.join(", ");
  return names.filter(name => given.includes(name)).join(",");
};
const sentence = text => { wordsOf(text); return text; };
const points = text => {
  if (text === "") return "";
  const read = readPoints(text), dim = read[0].length;
  const fine = read.every(p => p.length === dim && p.every(t => Number.isFinite(t) && Math.abs(t) <= 10)) && dim <= 2;
  if (!fine || read.length > MOST) throw `at most ${MOST} points, each a number or two with : between`;
  return text;
};

export const FIELDS = {
  mode: ["line", among(["line", "plane", "words"])],
  list: ["31 4 15 92 65 35 89 79 50 44 71 23", text => { if (text !== "") readList(text); return text; }],
  n: [12, whole(2, MOST)],
  seed: [1, whole(0, 9999)],
  shape: ["random", among(["random", "rings"])],
  x: ["", points],
  y: ["", points],
  source: ["The quick brown fox jumps over the lazy dog", sentence],
  target: ["Le renard brun rapide saute par-dessus le chien paresseux", sentence],
  reg: [0.004, between(1e-4, 1)],
  schedule: ["relaxed", among(SCHEDULES)],
  sink: ["frozen", among(["frozen", "token"])],
  depth: [300, whole(1, 2000)],
  layer: [0, whole(0, 2000)],
  show: ["attention", among(["attention", "plan"])],
  head: ["rows", among(["rows", "columns"])],
  i: [3, whole(0, MOST - 1)],
  j: [11, whole(0, MOST - 1)],
  broken: ["sign", some(SWITCHES)],
  edits: ["", text => writeEdits(readEdits(text))],
  step: [1, text => Number(among(["1", "2", "4"])(text))],
  brokenLayer: [0, whole(0, 2000)],
  many: [5, whole(5, MOST)],
  sorter: ["annealed", among(SCHEDULES)],
  learned: [0, whole(0, 20)],
  pair: [0, whole(0, 7)],
  reading: ["cross-output", among(["cross-input", "cross-output"])],
  attentionLayer: [1, whole(1, 6)],
  attentionHead: ["mean", among(["mean", "1", "2", "3", "4", "5", "6", "7", "8"])],
  theme: ["auto", among(["auto", "light", "dark"])],
};

export function defaults() { return Object.fromEntries(Object.entries(FIELDS).map(([name, [value]]) => [name, value])); }

// Half of a surrogate pair, which a field may hold and an address may not, is written as U+FFFD.
export function toHash(state) {
  const coded = name => encodeURIComponent(String(state[name]).replace(/\p{Surrogate}/gu, "\ufffd"));
  const said = Object.keys(FIELDS).filter(name => state[name] !== FIELDS[name][0]);
  return said.length ? "#" + said.map(name => name + "=" + coded(name)).join("&") : "";
}

// The state of an address, and what in it could not be read: a damaged part is left out, the rest is used.
export function fromHash(hash) {
  const state = defaults(), wrong = [];
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const [name, ...rest] = part.split("=");
    try {
      const text = decodeURIComponent(rest.join("="));
      if (!Object.hasOwn(FIELDS, name)) throw "a name that this page knows";
      state[name] = FIELDS[name][1](text);
    } catch (expected) {
      const why = typeof expected === "string" ? expected : expected.message;
      wrong.push(`${part.slice(0, 40)}${part.length > 40 ? "…" : ""} (expected ${why})`);
    }
  }
  const [x, y] = [readPoints(state.x), readPoints(state.y)];
  if ((x || y) && !(x && y && x.length === y.length && x[0].length === y[0].length && x.length > 1)) {
    wrong.push("x and y (expected as many points in both, two at least)");
    state.x = state.y = "";
  } else if (x && x[0].length !== (state.mode === "plane" ? 2 : 1)) {
    wrong.push("x and y (expected points of the line or the plane, as mode says)");
    state.x = state.y = "";
  }
  state.layer = Math.min(state.layer, state.depth);
  state.brokenLayer = Math.min(state.brokenLayer, state.depth);
  return { state, wrong };
}

export function readPoints(text) { return text === "" ? null : text.split(",").map(point => point.split(":").map(decimal)); }

export function writePoints(list) {
  return list.map(point => point.map(t => String(+t.toFixed(4))).join(":")).join(",");
}

// Numbers of a typed list; commas, semicolons, spaces and lines between them.
export function readList(text) {
  const parts = text.split(/[\s,;]+/).filter(Boolean);
  const count = parts.length.toLocaleString("en");
  if (parts.length > MOST) throw `at most ${MOST} numbers, not ${count}: otformer sort takes longer lists`;
  const numbers = parts.map(decimal), bad = numbers.findIndex(t => !Number.isFinite(t));
  if (bad >= 0) throw `numbers with spaces or commas between them, not “${parts[bad].slice(0, 20)}”`;
  if (parts.length < 2) throw `at least 2 numbers, not ${parts.length}`;
  if (numbers.some(t => Math.abs(t) > 1e100)) throw "numbers up to 1e100 in size";
  return numbers;
}

// Words of a sentence, as words/text/text.py has them: punctuation, elided words (l' homme) and clitics (it 's) apart.
const LETTER = "[\\p{L}\\p{N}_]", CLITIC = `(?<=${LETTER})['’](?:s|re|ve|ll|d|m)(?!${LETTER})`;
const WORD = new RegExp([
  `(?<!${LETTER})(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)['’](?=${LETTER})`, CLITIC, `\\p{Nd}+(?:[.,]\\p{Nd}+)+(?!${LETTER})`,
  `${LETTER}+(?:(?!${CLITIC})['’‐‑-]${LETTER}+)*`, `([^\\p{L}\\p{N}_\\s])\\1*`,
].join("|"), "giu");

export function wordsOf(text) {
  const words = text.match(WORD) ?? [];
  if (words.length === 0) throw "a sentence of at least one word";
  if (words.length > LONGEST) throw `at most ${LONGEST} words, not ${words.length.toLocaleString("en")}`;
  return words;
}

const SMALL = { n: 12, seed: 1, shape: "random", x: "", y: "", list: "", sink: "frozen", layer: 0, show: "attention", i: 0, j: 0 };
const ANNEALED = { ...SMALL, schedule: "annealed" }, NUMBERS = { ...SMALL, mode: "line", list: FIELDS.list[0], i: 3, j: 11 };
const FIGURE4 = { ...SMALL, mode: "plane", reg: 0.05, schedule: "gradient", depth: 600 };
export const PRESETS = {
  "12 numbers": { ...NUMBERS, schedule: "relaxed", reg: 0.004, depth: 300 },
  "12 numbers, annealed": { ...NUMBERS, schedule: "annealed", reg: 0.002, depth: 150 },
  "the paper's figure 4, n = 4": { ...FIGURE4, n: 4, seed: 4 },
  "the paper's figure 4, n = 8": { ...FIGURE4, n: 8, seed: 8 },
  "two rings": { ...ANNEALED, mode: "plane", n: 24, shape: "rings", reg: 0.01, depth: 200 },
  "two points, slow but for annealed": { ...FIGURE4, mode: "line", x: "0,1", y: "0.5,1.5", n: 2, schedule: "alternating" },
  "the fox sentence": { ...ANNEALED, mode: "words", source: FIELDS.source[0], target: FIELDS.target[0], reg: 0.05, depth: 300 },
  "200 points": { ...ANNEALED, mode: "plane", n: 200, reg: 0.005, depth: 200 },
};
