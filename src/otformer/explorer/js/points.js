// The points of a state: typed, drawn at random from a seed, dragged, or the vectors of words.
import { bytesOf } from "./learned.js";
import { readList, readPoints, wordsOf } from "./state.js";

function randomFrom(seed) {                  // mulberry32
  let a = (seed + 1) * 0x9e3779b9 >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const grid = n => Array.from({ length: n }, (_, j) => [n === 1 ? 0.5 : j / (n - 1)]);
const short = (t, digits = 4) => String(+t.toPrecision(digits));

// { x, y, names: [of x, of y], note }: what the network gets and how its points are called.
export function pointsOf(state, vocabulary) {
  if (state.mode === "words") return wordPoints(state, vocabulary);
  const dragged = readPoints(state.x);
  if (dragged) return named(dragged, readPoints(state.y), "");
  if (state.mode === "line" && state.list !== "") return typed(readList(state.list));
  const random = randomFrom(state.seed), many = make => Array.from({ length: state.n }, (_, k) => make(k));
  if (state.mode === "line") return named(many(() => [random()]), grid(state.n), "");
  if (state.shape === "random") return named(many(() => [random(), random()]), many(() => [random(), random()]), "");
  const ring = (radius, turn) => many(k => {
    const angle = 2 * Math.PI * (k + turn) / state.n;
    return [0.5 + radius * Math.cos(angle), 0.5 + radius * Math.sin(angle)];
  });
  return named(ring(0.2, 0.3 * random()), ring(0.46, 0.5), "");
}

function named(x, y, note) {
  const named = digits => (p, k) => p.length === 1 ? short(p[0], digits) : String(k + 1);   // in the plane, by number
  return { x, y, names: [x.map(named(4)), y.map(named(2))], note };
}

function typed(numbers) {
  const low = Math.min(...numbers), high = Math.max(...numbers), inside = low >= 0 && high <= 1;
  const range = high - low || 1, x = numbers.map(t => [inside ? t : (t - low) / range]);
  const made = named(x, grid(x.length), inside ? "" : "numbers are scaled to [0, 1] for the network, and λ is in those units");
  return { ...made, names: [apart(numbers), made.names[1]] };
}

// Names of numbers: whole ones in full while that is short; of the others as many digits as tell all of them apart.
function apart(numbers) {
  const count = new Set(numbers).size, whole = t => Number.isInteger(t) && Math.abs(t) < 1e9;
  for (let digits = 4; digits < 17; digits++) {
    const names = numbers.map(t => whole(t) ? String(t) : short(t, digits));
    if (new Set(names).size === count) return names;
  }
  return numbers.map(String);
}

export class Vocabulary {                    // unit vectors of words; int8 in the page
  constructor(stored) {
    this.dim = stored.dim;
    this.rows = new Map(stored.words.split(" ").map((word, k) => [word, k]));
    this.numbers = new Int8Array(bytesOf(stored.vectors).buffer);
  }

  vector(word) {                             // a known word's, else that of its known parts, else one made of its letters
    const plain = fold(word), there = part => this.rows.has(part);
    const parts = there(plain) ? [plain] : plain.split(/[-'’]/).filter(there);
    const sum = new Float64Array(this.dim);
    for (const part of parts) for (let k = 0; k < this.dim; k++) sum[k] += this.numbers[this.rows.get(part) * this.dim + k];
    if (!parts.length) letters(plain, sum);
    const length = Math.hypot(...sum);
    return { vector: Array.from(sum, t => t / length), known: parts.length > 0 };
  }
}

const ELIDED = /^(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)'$/;
function fold(word) {                        // case and apostrophes alike, elided French words in full
  const plain = word.toLowerCase().replace(/’/g, "'");
  return ELIDED.test(plain) ? plain.slice(0, -1) + "e" : plain;
}

function letters(word, sum) {                // words that are spelled alike, as names are, get similar vectors
  const marked = "<" + word + ">";
  for (let k = 0; k + 3 <= Math.max(3, marked.length); k++) {
    const random = randomFrom([...marked.slice(k, k + 3)].reduce((h, c) => (h * 31 + c.codePointAt(0)) % 1e9, 7));
    for (let c = 0; c < sum.length; c++) sum[c] += random() - 0.5;
  }
}

function wordPoints(state, vocabulary) {
  const words = [wordsOf(state.source), wordsOf(state.target)];
  const found = words.map((side, k) => side.map(word => vocabulary[k].vector(word)));
  const unknown = words.flatMap((side, k) => side.filter((_, i) => !found[k][i].known));
  const note = unknown.length ? "not known here, so made of their letters: " + [...new Set(unknown)].join(", ") : "";
  const [x, y] = found.map(side => side.map(each => each.vector));
  return { x, y, names: words, note };
}
