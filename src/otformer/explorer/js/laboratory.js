// The panel of section 4 that edits the prompt of the broken network. The whole network keeps its own.
import { $ } from "./app.js";
import { OPERATIONS, REGISTERS, readEdits, sayEdit, writeEdits } from "./edits.js";

export function mountLaboratory(app) {
  for (const id of ["edit-register", "edit-target"]) REGISTERS.forEach(name => $(id).add(new Option(name, name)));
  Object.entries(OPERATIONS).forEach(([name, text]) => $("edit-operation").add(new Option(text, name)));
  $("edit-register").value = "y";
  $("edit-register").onchange = $("edit-operation").onchange = () => showEdits(app);
  const put = (edits, said) => {
    app.bars.break.stop();
    app.set({ edits, brokenLayer: app.state.depth });
    app.say(said);
  };
  $("edit-apply").onclick = () => {
    const operation = $("edit-operation").value, given = { times: $("edit-amount"), plus: $("edit-amount"), copy: $("edit-target") }[operation];
    const edit = [$("edit-register").value, operation, ...(given ? [given.value] : [])].join(":");
    try {
      const edits = writeEdits(readEdits([app.state.edits, edit].filter(Boolean).join(",")));
      const alone = app.state.broken || app.state.step !== 1;
      if (!app.state.edits) app.set({ broken: "", step: 1 });
      put(edits, alone ? "The switches are off, so that the edit is seen alone." : "");
    } catch (expected) {
      if (typeof expected !== "string") throw expected;
      app.say(`Not used: the edit expects ${expected}.`, true);
    }
  };
  $("edit-undo").onclick = () => put(writeEdits(readEdits(app.state.edits).slice(0, -1)), "");
  $("edit-clear").onclick = () => put("", "The prompt is as it was.");
}

export function showEdits(app) {
  const operation = $("edit-operation").value, wide = ["x", "y"].includes($("edit-register").value);
  $("edit-amount-label").hidden = !["times", "plus"].includes(operation);
  $("edit-target-label").hidden = operation !== "copy";
  for (const option of $("edit-target").options) option.disabled = ["x", "y"].includes(option.value) !== wide;
  if ($("edit-target").selectedOptions[0]?.disabled) $("edit-target").value = wide ? "y" : "v";
  const edits = readEdits(app.state.edits).map(sayEdit);
  $("edit-undo").disabled = $("edit-clear").disabled = !edits.length;
  const text = edits.length ? `Edited: ${edits.join("; ")}.` : "Not edited.";
  if ($("edit-list").textContent !== text) $("edit-list").textContent = text;
}
