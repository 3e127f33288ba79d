// What each layer's frozen weights are (network/schedule.py): its λ and the step γ of each head; 0: the head does not write.

export const SCHEDULES = ["paper", "gradient", "alternating", "relaxed", "annealed"];
export const ABOUT_SCHEDULES = {
  paper: "both heads, the γ of the paper's lemma: it shrinks as e^{−2r/λ} (r = 1)",
  gradient: "both heads in every layer, γ = λ",
  alternating: "alternating heads, γ = 2λ: Sinkhorn's rate",
  relaxed: "alternating heads, γ = 2λω, ω climbing from 1 to 1.8",
  annealed: "alternating heads, ω = 1.5, λ falling from 1 to its value over the layers",
  sinkhorn: "not attention: u ← u − λ log S, then v, for comparison",
};

const STAGES = 36, START = 1, OMEGA = 1.5, LARGEST_OMEGA = 1.8;

export function layersOf(name, reg, depth, n) {
  const each = make => Array.from({ length: depth }, (_, k) => make(k));
  if (name === "paper") {
    const step = Math.exp(-2 / reg) / (n + 2);
    return each(() => ({ reg, rows: step, columns: step }));
  }
  if (name === "gradient") return each(() => ({ reg, rows: reg, columns: reg }));
  if (name === "alternating") return turns(reg, 1, depth);
  if (name === "sinkhorn") return turns(reg, 1, depth).map(layer => ({ ...layer, exact: true }));
  if (name === "relaxed") return each(k => {
    const pair = Math.floor(k / 2), omega = Math.min(LARGEST_OMEGA, 1 + pair / (pair + 12));
    return turns(reg, omega, 2)[k % 2];
  });
  return annealed(reg, depth);
}

function annealed(reg, depth) {
  if (START <= reg) return turns(reg, OMEGA, depth);
  const pairs = Math.max(1, Math.floor(depth / (2 * STAGES)));
  const stages = Math.max(1, Math.min(STAGES, Math.floor(depth / (2 * pairs)))), layers = [];
  for (let k = 0; k < stages - 1; k++) layers.push(...turns(START * (reg / START) ** (k / (stages - 1)), OMEGA, 2 * pairs));
  return [...layers, ...turns(reg, OMEGA, depth - layers.length)];
}

function turns(reg, omega, depth) {          // rows, columns, rows, … with step 2λω
  const step = 2 * reg * omega;
  return Array.from({ length: depth }, (_, k) => ({ reg, rows: k % 2 ? 0 : step, columns: k % 2 ? step : 0 }));
}
