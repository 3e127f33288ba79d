// A tour of seven steps: each sets the state, goes to its section and says what to look at.
import { $ } from "./app.js";
import { PRESETS } from "./state.js";

const TWELVE = PRESETS["12 numbers"], ANNEALED = PRESETS["12 numbers, annealed"], TWO = PRESETS["two points, slow but for annealed"];
// The section, the state, what is said, and the place above which it is said if that is not the section's start.
const STEPS = [
  ["play", { ...TWELVE, layer: 0 },
    "Twelve numbers look at twelve places. In layer 0 each looks at the places that are near. Press Play: u and v move until every " +
    "place is looked at once. Then the largest weight of each row sorts the list."],
  ["play", { ...ANNEALED, layer: 75 },
    "The same list with λ falling from 1 to 0.002 over the layers; the layer's λ stands beside its number. Where λ is large, " +
    "attention is nearly uniform. In the last layers it is sharper than at the λ of step 1."],
  ["play", { ...TWO, layer: 600 },
    "Two points on which every schedule with one λ is slow: the error falls as 1/layer, Sinkhorn's too. The orange curve, annealed, " +
    "is not slow: it settles the slow direction while λ is large.", "play-player"],
  ["number", { ...TWELVE, layer: 20, i: 3, j: 11, head: "rows" },
    "One entry of the matrix, term by term. The products add up to the logit, the sink turns the softmax into a tanh, and the tanh " +
    "is the step of u."],
  ["same", { many: 200, sorter: "annealed" },
    "200 numbers, and the weights are those that sort 5: compare the checksum. With the paper's own step it would change."],
  ["break", { ...TWELVE, broken: "sign", step: 1, brokenLayer: 150 },
    "The sign of B as the paper prints it: the dual climbs, and the plan becomes too large for a number. Try the other switches: some " +
    "of them are harmless."],
  ["words", { pair: 0, reading: "cross-input", attentionLayer: 6, attentionHead: "mean" },
    "A translator's attention is not this network's. Where a French word is read at the decoder's input, the last layer looks " +
    "elsewhere; choose output and look again."],
];

export function mountTour(app, goTo) {
  let at = -1;
  const show = k => {
    at = k;
    $("tour").hidden = k < 0;
    if (k < 0) return $("tour-start").focus();
    const [section, patch, text, place] = STEPS[k];
    app.linked = true;                       // no figure starts by itself while the tour speaks
    for (const bar of Object.values(app.bars)) bar.stop();
    app.set(patch);
    $("tour-text").textContent = `${k + 1} of ${STEPS.length}. ${text}`;
    $("tour-back").disabled = k === 0;
    $("tour-next").textContent = k === STEPS.length - 1 ? "Done" : "Next";
    if (place) $(place).before($("tour"));
    else $(section).prepend($("tour"));      // in the page, so that it covers nothing
    goTo(section, "tour");
    $("tour").focus({ preventScroll: true });
  };
  $("tour-start").onclick = () => show(0);
  $("tour-next").onclick = () => show(at + 1 < STEPS.length ? at + 1 : -1);
  $("tour-back").onclick = () => show(at - 1);
  $("tour-end").onclick = () => show(-1);
  $("tour").onkeydown = event => { if (event.key === "Escape") show(-1); };
}
