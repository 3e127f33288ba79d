// The optimal matching itself (λ = 0), which the page outlines: row i ↦ its column. As many rows as columns.

// Shortest augmenting paths with potentials (Jonker and Volgenant), O(n³).
export function matching(cost, n) {
  const u = new Float64Array(n + 1), v = new Float64Array(n + 1), row = new Int32Array(n + 1), way = new Int32Array(n + 1);
  for (let i = 1; i <= n; i++) {
    const least = new Float64Array(n + 1).fill(Infinity), used = new Uint8Array(n + 1);
    let j = 0;
    row[0] = i;
    do {
      used[j] = 1;
      let delta = Infinity, next = 0;
      for (let k = 1; k <= n; k++) if (!used[k]) {
        const reduced = cost[(row[j] - 1) * n + k - 1] - u[row[j]] - v[k];
        if (reduced < least[k]) { least[k] = reduced; way[k] = j; }
        if (least[k] < delta) { delta = least[k]; next = k; }
      }
      for (let k = 0; k <= n; k++) {
        if (used[k]) { u[row[k]] += delta; v[k] -= delta; } else least[k] -= delta;
      }
      j = next;
    } while (row[j] !== 0);
    for (; j; j = way[j]) row[j] = row[way[j]];
  }
  const found = new Int32Array(n);
  for (let k = 1; k <= n; k++) found[row[k] - 1] = k - 1;
  return found;
}

export function costs({ x, y, n, m }) {      // ‖x_i − y_j‖², [n × m]
  const out = new Float64Array(n * m);
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++)
    out[i * m + j] = x[i].reduce((sum, t, k) => sum + (t - y[j][k]) ** 2, 0);
  return out;
}
