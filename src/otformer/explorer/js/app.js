// What the sections share: the state and its address, the problem and its runs, frames, and messages.
import { coloursChanged } from "./draw.js";
import { Run, UNBROKEN, makeProblem } from "./math.js";
import { costs, matching } from "./matching.js";
import { pointsOf } from "./points.js";
import { layersOf } from "./schedules.js";
import { SWITCHES, defaults, fromHash, toHash } from "./state.js";

export const $ = id => document.getElementById(id);
export const element = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);
const FRAME = 10;                            // milliseconds of layers in a frame; the rest of 33 is for drawing
const KEPT = 24;                             // runs that are kept
const PROBLEM = ["mode", "list", "n", "seed", "shape", "x", "y", "source", "target"];

export class App {
  constructor(data, vocabulary) {
    Object.assign(this, { data, vocabulary, sections: [], runs: new Map(), frame: null, dragging: false, times: [] });
    const { state, wrong } = fromHash(location.hash);
    this.linked = location.hash.length > 1;
    this.state = state;
    this._problem();
    if (wrong.length) this.say("This link is damaged; left out: " + wrong.join("; "), true);
    window.addEventListener("hashchange", () => {
      if (location.hash === toHash(this.state)) return;
      const read = fromHash(location.hash);
      this.set(read.state);
      this.say(read.wrong.length ? "This link is damaged; left out: " + read.wrong.join("; ") : "", read.wrong.length > 0);
    });
    window.addEventListener("resize", () => this.redraw());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { coloursChanged(); this.redraw(); });
  }

  set(patch) {
    const before = this.state;
    this.state = { ...before, ...patch };
    if (PROBLEM.some(name => this.state[name] !== before[name])) this._problem();
    const { depth } = this.state;
    this.state.layer = Math.min(this.state.layer, depth);
    this.state.brokenLayer = Math.min(this.state.brokenLayer, depth);
    clearTimeout(this._later);
    this._later = setTimeout(() => this.address(), 150);
    this.redraw();
  }

  address() { history.replaceState(null, "", toHash(this.state) || location.pathname + location.search); }

  reset() { this.set(defaults()); }

  say(text, wrong = false) {
    $("message").textContent = text;
    $("message").classList.toggle("wrong", wrong);
  }

  _problem() {
    this.points = pointsOf(this.state, this.vocabulary);
    this.problem = makeProblem(this.points.x, this.points.y);
    this.runs.clear();
    this._matched = null;
    const { n, m } = this.problem;
    Object.assign(this.state, { i: Math.min(this.state.i, n - 1), j: Math.min(this.state.j, m - 1) });
  }

  get matched() {                            // cells of the optimal matching, none while dragging many points or for n ≠ m
    const { n, m } = this.problem;
    if (n !== m || (this.dragging && n > 100)) return [];
    this._matched ??= Array.from(matching(costs(this.problem), n), (j, i) => [i, j]);
    return this._matched;
  }

  run(change = {}, problem = this.problem) { // the run of the state's network, or of one that differs in `change`
    const { reg, schedule, sink, depth } = { ...this.state, ...change }, broken = change.broken ?? UNBROKEN;
    const which = problem === this.problem ? "" : problem.key;
    const key = [reg, schedule, sink, depth, SWITCHES.map(name => broken[name]), broken.step, broken.edits, which].join();
    if (!this.runs.has(key)) {
      if (this.runs.size >= KEPT) this.runs.delete(this.runs.keys().next().value);
      this.runs.set(key, new Run(problem, layersOf(schedule, reg, depth, problem.n), { sink, broken }));
    }
    return this.runs.get(key);
  }

  // A run computed towards a layer within this frame's time: the last layer that is there.
  reach(run, layer) {
    if (run.done < layer && !run.advance(layer, this._deadline)) this._more = true;
    return Math.min(layer, run.done);
  }

  // Errors of a run's layers, as far as time allows: some of all parts first, the rest with the next
  // frames, since an annealed network's error leaps every few layers.
  errors(run) {
    run.samples ??= { layers: spread(run.depth), points: [], sorted: [] };
    const { layers, points } = run.samples, before = points.length;
    while (points.length < layers.length) {
      if (performance.now() > this._deadline) { this._more = true; break; }
      const layer = layers[points.length];
      if (!run.advance(layer, this._deadline)) { this._more = true; break; }
      points.push([layer, run.error(layer)]);
    }
    if (points.length > before) run.samples.sorted = [...points].sort((one, other) => one[0] - other[0]);
    return run.samples.sorted;
  }

  redraw() { this.frame ??= requestAnimationFrame(() => this._draw()); }

  _draw() {
    this.frame = null;
    this._more = false;
    const start = performance.now();
    this._deadline = start + FRAME;
    for (const section of this.sections) if (section.visible) section.draw();
    this.times.push(performance.now() - start);
    if (this.times.length > 200) this.times.shift();
    if (this._more) this.redraw();
  }

  // A part of the page that draws itself when it is in view; `first` runs once, when it comes
  // to the middle of the window.
  section(element, draw, first = () => {}) {
    const section = { visible: true, draw };   // everything is drawn once, so that nothing moves later
    this.sections.push(section);
    new IntersectionObserver(([entry]) => {
      section.visible = entry.isIntersecting;
      if (section.visible) this.redraw();
    }, { rootMargin: "100px" }).observe(element);
    const middle = new IntersectionObserver(([entry]) => {
      if (entry.isIntersecting) { middle.disconnect(); first(); }
    }, { rootMargin: "-45% 0px" });
    middle.observe(element);
  }

  get still() { return this.linked || window.matchMedia("(prefers-reduced-motion: reduce)").matches; }
}

// The names of curves under a figure, written once: [name, colour, whether dashed].
export function legend(place, marks) {
  if (place.childElementCount) return;
  for (const [name, colour, dashed] of marks) {
    const mark = element("span", { textContent: name, className: dashed ? "dashed" : "" });
    mark.style.setProperty("--c", `var(${colour})`);
    place.append(mark);
  }
}

function spread(depth) {                     // 60 layers, closer together at the start, then the others
  const count = Math.min(depth, 60);
  const first = Array.from({ length: count + 1 }, (_, k) => Math.round(depth * (k / count) ** 1.7));
  return [...new Set([...first, ...Array.from({ length: depth + 1 }, (_, k) => k)])];
}
