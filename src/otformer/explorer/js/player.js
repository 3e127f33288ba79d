// A bar with Play, steps, a slider and a line of text. Keys on the slider are the browser's own; the page adds space and arrows.

const PERIOD = 60;                           // milliseconds between two steps of Play

export function player(root, { label, least = 0, most, get, set, text, faster = true, period = PERIOD }) {
  root.classList.add("player");
  root.innerHTML = `<button type="button" class="play">Play</button>
    <button type="button" class="back" aria-label="${label}: one step back">‹</button>
    <input type="range" aria-label="${label}">
    <button type="button" class="on" aria-label="${label}: one step on">›</button><output></output>`;
  const [play, back, slider, on, said] = [".play", ".back", "input", ".on", "output"].map(css => root.querySelector(css));
  let timer = null;
  const bound = k => Math.max(least, Math.min(most(), k));
  const stop = () => { clearInterval(timer); timer = null; show(); };
  const start = () => {
    if (timer) return;
    if (get() >= most()) set(least);
    timer = setInterval(() => {
      if (document.hidden) return;
      const now = get();
      set(bound(now + (faster ? Math.max(1, Math.round(now / 25)) : 1)));
      if (get() >= most()) stop();
    }, period);
    show();
  };
  const show = () => {
    play.textContent = timer ? "Pause" : "Play";
    play.setAttribute("aria-label", `${timer ? "Pause" : "Play"}: ${label}`);
    slider.min = least;
    slider.max = most();
    slider.value = get();
    said.textContent = text();
    slider.setAttribute("aria-valuetext", text());
  };
  const go = k => { stop(); set(bound(k)); };
  play.onclick = () => timer ? stop() : start();
  back.onclick = () => go(get() - 1);
  on.onclick = () => go(get() + 1);
  slider.oninput = () => go(Number(slider.value));
  const toggle = () => play.click();
  return { show, start, stop, toggle, go, step: by => go(get() + by), first: () => go(least), last: () => go(most()) };
}
