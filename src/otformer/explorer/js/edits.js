// Edits of the prompt, register by register, as in network/edits.py: a text such as y:times:2,u:plus:0.5,x_sq:blank,x:copy:y.

export const REGISTERS = ["x", "y", "x_sq", "y_sq", "one1", "one2", "one3", "sign", "u", "v", "spare"];
export const OPERATIONS = { blank: "set to 0", times: "multiply by", plus: "add", copy: "copy into" };
export const LARGEST = 100;                  // of a factor or a summand
const MOST = 6;                              // edits
const AMOUNT = /^-?(?:\d+\.?\d*|\.\d+)$/;

const wide = name => name === "x" || name === "y";

// The edits of a text; throws what is wrong in words.
export function readEdits(text) {
  const parts = text.split(",").filter(Boolean);
  if (parts.length > MOST) throw `at most ${MOST} edits`;
  return parts.map(part => {
    const [name, operation, given = ""] = part.split(":");
    if (!REGISTERS.includes(name)) throw "a register, one of " + REGISTERS.join(", ");
    if (!Object.hasOwn(OPERATIONS, operation)) throw "an operation, one of " + Object.keys(OPERATIONS).join(", ");
    if (operation === "blank") return { name, operation };
    if (operation === "copy") {
      if (!REGISTERS.includes(given) || wide(given) !== wide(name)) throw `a register as wide as ${name} to copy it into`;
      return { name, operation, target: given };
    }
    const amount = AMOUNT.test(given) ? Number(given) : NaN;
    if (!(Math.abs(amount) <= LARGEST)) throw `a number from −${LARGEST} to ${LARGEST}`;
    return { name, operation, amount };
  });
}

export const writeEdits = edits => edits.map(e => [e.name, e.operation, e.target ?? e.amount ?? []].flat().join(":")).join(",");

export function sayEdit({ name, operation, target, amount }) {
  return { blank: `${name} blanked`, times: `${name} times ${amount}`, plus: `${name} plus ${amount}`, copy: `${name} copied to ${target}` }[operation];
}

// Z, row by row, of so many tokens and the sink: a register is a column, the sink's row of it too.
export function applyEdits(Z, edits, r) {
  for (const { name, operation, target, amount } of edits) {
    const change = { blank: () => 0, times: t => t * amount, plus: t => t + amount, copy: t => t }[operation];
    for (let k = 0; k < (wide(name) ? r.dim : 1); k++)
      for (let row = 0; row < Z.length; row += r.width) Z[row + r.at[target ?? name] + k] = change(Z[row + r.at[name] + k]);
  }
}
