// Puts the page together: data, sections, colours, links, keys.
import { $, App } from "./app.js";
import { mountBroken } from "./broken.js";
import { coloursChanged } from "./draw.js";
import { mountNumber } from "./number.js";
import { mountPlay } from "./play.js";
import { Vocabulary } from "./points.js";
import { mountSame } from "./same.js";
import { toHash } from "./state.js";
import { mountTour } from "./tour.js";
import { mountTrained } from "./trained.js";
import { mountWords } from "./words.js";

const data = JSON.parse($("data").textContent);
const app = new App(data, ["en", "fr"].map(language => new Vocabulary(data.vocabulary[language])));
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function colours() {
  const on = app.state.theme === "auto" ? dark.matches : app.state.theme === "dark";
  document.documentElement.toggleAttribute("data-dark", on);
  $("theme").value = app.state.theme;
  coloursChanged();
  app.redraw();
}
dark.addEventListener("change", colours);
$("theme").onchange = () => { app.set({ theme: $("theme").value }); colours(); };
window.addEventListener("hashchange", colours);
colours();

const mounts = { play: mountPlay, number: mountNumber, same: mountSame, break: mountBroken, learned: mountTrained, words: mountWords };
app.bars = Object.fromEntries(Object.entries(mounts).map(([name, mount]) => [name, mount(app)]));
const goTo = (section, place = section) => {
  const title = $(section + "-title");
  title.tabIndex = -1;
  $(place).scrollIntoView({ behavior: app.still ? "auto" : "smooth" });
  title.focus({ preventScroll: true });
};
for (const link of document.querySelectorAll("nav a")) {
  link.href = "#";                           // the address belongs to the state, so the way there is by script
  link.onclick = event => { event.preventDefault(); goTo(link.dataset.to); };
}
$("skip").onclick = event => { event.preventDefault(); $("play-points").focus(); };
mountTour(app, goTo);
$("reset").onclick = () => { app.reset(); colours(); app.say("Everything is as at the start."); };
$("share").onclick = async () => {
  const link = location.href.split("#")[0] + toHash(app.state);
  try {
    await navigator.clipboard.writeText(link);
    app.say("The link is copied.");
  } catch {                                  // a page from disk may not write to the clipboard: the address bar has it
    app.address();
    app.say("The link is in the address bar: copy it from there.");
  }
};

// Keys for the figure that is in view: space plays, arrows step, Home and End jump.
document.addEventListener("keydown", event => {
  const own = "input, select, textarea, button, summary, a, canvas, [role=region]";   // these have keys of their own
  if (event.target.closest(own) || event.ctrlKey || event.metaKey || event.altKey) return;
  const middle = window.innerHeight / 2, inView = Object.keys(app.bars).find(name => {
    const { top, bottom } = $(name).getBoundingClientRect();
    return top <= middle && bottom >= middle;
  });
  const bar = app.bars[inView ?? "play"];
  const keys = { " ": bar.toggle, ArrowLeft: () => bar.step(-1), ArrowRight: () => bar.step(1), Home: bar.first, End: bar.last };
  if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
});
window.explorer = app;                       // for tests, and for those who open the console
