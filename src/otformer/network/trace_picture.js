// --- a picture of what is shown: the canvases of the page, each below its heading, two in a row as on a wide screen
function picture() {
  const shown = ["rows", "columns", "points", "goal", "error", "duals"].map($).filter(canvas => canvas.offsetParent);
  const ratio = window.devicePixelRatio || 1, gap = 16, head = 22, top = 34;
  const wide = Math.max(...shown.map(c => c.clientWidth)), tall = k => head + Math.max(...shown.slice(k, k + 2).map(c => c.clientHeight));
  const starts = shown.map((_, k) => k).filter(k => k % 2 === 0);
  const whole = document.createElement("canvas"), g = whole.getContext("2d");
  whole.width = ratio * (2 * wide + 3 * gap);
  whole.height = ratio * (top + starts.reduce((sum, k) => sum + tall(k) + gap, gap));
  g.scale(ratio, ratio);
  g.fillStyle = css("--page"); g.fillRect(0, 0, whole.width, whole.height);
  g.fillStyle = css("--ink");
  g.font = "13px system-ui, sans-serif"; g.fillText($("where").textContent, gap, gap + 10);
  g.font = "600 14px system-ui, sans-serif";
  let y = top + gap;
  for (const k of starts) {
    shown.slice(k, k + 2).forEach((canvas, side) => {
      const x = gap + side * (wide + gap);
      g.fillText(canvas.closest("section").querySelector("h2").textContent, x, y + 12);
      g.drawImage(canvas, x, y + head, canvas.clientWidth, canvas.clientHeight);
    });
    y += tall(k) + gap;
  }
  return whole;
}
$("save").onclick = () => picture().toBlob(blob => {
  const link = document.createElement("a"), address = URL.createObjectURL(blob);
  link.href = address; link.download = "layer-" + data.layers[at] + ".png";
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  tell("saved as " + link.download);
});
