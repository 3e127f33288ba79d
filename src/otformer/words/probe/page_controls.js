// What is chosen: from the address, by controls, clicks and keys.
const PLANS = ["embeddings", "states"];
function say(text) { $("message").textContent = text; }

function start(d) {                        // show these data: what the address says, or else where the plan is nearest
  data = d; unpacked.clear(); stop();
  $("model").textContent = d.model;
  $("about").textContent = `${d.kind} model, ${d.layers} layers, ${d.heads} heads; ${d.pairs.length} sentence ` +
    `pair${d.pairs.length > 1 ? "s" : ""}; transport with λ = ${d.reg}; made by ${d.by}`;
  fill("pair", d.pairs.map((p, k) => [k + 1, `${k + 1}: ${p.source.join(" ")}`]));
  fill("reading", d.readings.map(r => [r[0], `${r[0]}: ${r[1]}`]));
  fill("head", [[0, headName(0)], ...Array.from({ length: d.heads }, (_, k) => [k + 1, headName(k + 1)])]);
  $("pairs").hidden = d.pairs.length === 1;
  $("layer").max = d.layers;
  fromAddress();
}
function fill(id, options) {
  $(id).replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
}
function nearest(pair) {
  const [reading, layer] = data.pairs[pair].nearest;
  return { pair, reading, layer, head: 0, plan: "embeddings" };
}
function fromAddress() {
  const asked = new URLSearchParams(location.hash.slice(1)), wrong = [];
  const whole = (name, least, most) => {   // a number of the address, or undefined
    if (!asked.has(name)) return undefined;
    const k = /^\d{1,9}$/.test(asked.get(name)) ? +asked.get(name) : NaN;
    if (k >= least && k <= most) return k;
    wrong.push(`${name} ${asked.get(name).slice(0, 40)}`);
    return undefined;
  };
  const one = (name, known) => {           // which of the known words
    const k = known.indexOf(asked.get(name));
    if (asked.has(name) && k < 0) wrong.push(`${name} ${asked.get(name).slice(0, 40)}`);
    return k < 0 ? undefined : k;
  };
  at = nearest((whole("pair", 1, data.pairs.length) || 1) - 1);
  const found = { layer: whole("layer", 1, data.layers), head: whole("head", 0, data.heads),
    reading: one("reading", data.readings.map(r => r[0])), plan: PLANS[one("plan", PLANS)] };
  for (const [name, value] of Object.entries(found)) if (value !== undefined) at[name] = value;
  say(wrong.length ? `The address asks for ${wrong.join(", ")}, which is not here.` : "");
  draw();
}
function address() {
  const { pair, reading, layer, head, plan } = at;
  return "#" + new URLSearchParams({ pair: pair + 1, reading: data.readings[reading][0], layer, head, plan });
}
function choose(change) {
  Object.assign(at, change); say(""); draw();
  try { history.replaceState(null, "", address()); } catch { /* in a frame that has no address */ }
}

function draw() {
  const p = data.pairs[at.pair], colours = ramp(), [name, , note] = data.readings[at.reading];
  const A = attention(p), P = plan(p), chosen = `${name}, layer ${at.layer}, ${headName(at.head)}`;
  const kind = at.plan === "states" ? `the states of layer ${at.layer}` : "the embeddings";
  $("pair").value = at.pair + 1; $("reading").value = name; $("layer").value = at.layer; $("head").value = at.head;
  $("plan").value = at.plan; $("where").textContent = `${at.layer} of ${data.layers}`;
  $("reading-note").textContent = `${name}: ${note}.` +
    (p.lost ? ` ${p.lost} words of this pair have no tokens (cut off or dropped) and are left out.` : "");
  drawVerdict(p);
  $("attention-title").textContent = "Attention: " + chosen;
  $("plan-title").textContent = "Transport plan of " + kind;
  $("numbers").textContent = `${per(distances(p))} of its mass lies elsewhere than in the plan; column sums are off by ` +
    `${per(p.marginal_error[at.reading])} (0 to 200); rows spread by ${per(p.row_entropy[at.reading])} (0: one word each, ` +
    `100: all alike). ${per(p.share[at.reading])} of this attention falls on words of the other sentence at all.`;
  $("links-note").textContent = "Source words on the left, target words on the right; weights from 0.05 on. Point at a " +
    "word to see its links alone." + (p.gold.length ? " Dotted, and outlined below: links made by hand." : "");
  drawLinks("attention-links", A, css("--attention"), `links by attention, ${chosen}`);
  drawLinks("plan-links", P, css("--plan"), `links by the transport plan of ${kind}`);
  drawMap("attention-map", A, colours, `attention as a matrix, ${chosen}; a table below has its numbers`);
  drawMap("plan-map", P, colours, `transport plan of ${kind} as a matrix`);
  drawEvery(colours);
  drawCurve();
  drawTable(p, A, P);
}
function drawVerdict(p) {                  // the finding in bold, its numbers after it
  const [said, ...rest] = p.verdict.split(":"), count = {};
  data.pairs.forEach(q => count[q.kind] = (count[q.kind] || 0) + 1);
  const all = Object.entries(data.says).filter(([kind]) => count[kind])
    .map(([kind, text]) => `${count[kind]} × “${text[0].toLowerCase()}${text.slice(1)}”`).join(", ");
  $("verdict").replaceChildren(make("b", {}, said + ":"), rest.join(":") + (data.pairs.length > 1 ? ` All pairs: ${all}.` : ""));
}
function drawTable(p, A, P) {
  const n = p.source.length, head = make("tr"), number = k => (k / data.top).toFixed(2);
  head.append(make("td", {}, "attention (plan)"), ...p.source.map(word => make("th", { scope: "col" }, word)));
  const rows = p.target.map((word, j) => {
    const row = make("tr");
    row.append(make("th", { scope: "row" }, word), ...p.source.map((_, i) =>
      make("td", {}, `${number(A[j * n + i])} (${number(P[j * n + i])})`)));
    return row;
  });
  $("table").replaceChildren(head, ...rows);
}

function stop() { clearInterval(timer); timer = null; $("play").textContent = "Play"; }
function play() {                          // once through the layers
  if (timer) return stop();
  if (at.layer === data.layers) choose({ layer: 1 });
  $("play").textContent = "Pause";
  timer = setInterval(() => { choose({ layer: at.layer + 1 }); if (at.layer >= data.layers) stop(); }, 600);
}
$("pair").onchange = event => { stop(); choose({ pair: event.target.value - 1 }); };
$("reading").onchange = event => choose({ reading: event.target.selectedIndex });
$("layer").oninput = event => { stop(); choose({ layer: +event.target.value }); };
$("head").onchange = event => choose({ head: +event.target.value });
$("plan").onchange = event => choose({ plan: event.target.value });
$("scale").onchange = draw;
$("play").onclick = play;
for (const id of ["attention-links", "plan-links"]) { $(id).onpointerover = point; $(id).onpointerleave = () => point(null); }
for (const id of ["attention", "plan"]) $(id + "-map").onpointermove = event => tell(event, id + "-map", id + "-cell");
$("every").onclick = event => { const found = tile(event); if (found) { stop(); choose(found); } };
$("every").onpointermove = event => {
  const found = tile(event), p = data.pairs[at.pair];
  if (!found) return;
  const [away, share] = [distances(p), p.share[at.reading]].map(list => per(list, found.layer, found.head));
  $("every-note").textContent = `layer ${found.layer}, ${headName(found.head)}: ${away} from the plan, ${share} of it on words`;
};
$("file").onchange = async event => {
  const file = event.target.files[0];
  if (!file) return;
  try {
    if (file.size > 25e6) throw Error("it is over 25 MB");
    const text = await file.text();
    const inside = /<script type="application\/json" (?:data-sum="(\d+)" )?id="data">([^<]*)<\/script>/.exec(text);
    start(inside ? read(inside[2], inside[1]) : read(text));
  } catch (error) { say(`${file.name} cannot be shown: ${error.message}.`); }
};
document.onkeydown = event => {
  if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|BUTTON)$/.test(event.target.tagName)) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) { stop(); choose({ layer: Math.max(1, Math.min(data.layers, at.layer + by)) }); }
  if (event.key === "h") choose({ head: (at.head + 1) % (data.heads + 1) });
};
window.onhashchange = () => { if (data) fromAddress(); };
window.onresize = () => { if (data) draw(); };
matchMedia("(prefers-color-scheme: dark)").onchange = () => { if (data) draw(); };
try { start(read($("data").textContent, $("data").dataset.sum)); } catch (error) { say(`This page cannot be shown: ${error.message}.`); }
