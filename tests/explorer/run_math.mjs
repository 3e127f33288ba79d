// Reads problems as JSON from standard input, runs the explorer's own modules on them, and writes what they give.
// node run_math.mjs FOLDER < problems.json, where FOLDER holds the modules.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const from = name => import(pathToFileURL(`${process.argv[2]}/${name}`));
const { Run, makeProblem, UNBROKEN } = await from("math.js");
const { layersOf } = await from("schedules.js");
const { matching, costs } = await from("matching.js");
const { Learned } = await from("learned.js");
const { Vocabulary, pointsOf } = await from("points.js");
const { PRESETS, defaults, fromHash, toHash, wordsOf } = await from("state.js");

const given = JSON.parse(readFileSync(0, "utf8"));
const networks = given.networks.map(({ x, y, reg, depth, schedule, sink, broken, layers }) => {
  const problem = makeProblem(x, y), options = { sink, broken: { ...UNBROKEN, ...broken } };
  const run = new Run(problem, layersOf(schedule, reg, depth, x.length), options);
  run.advance(depth);
  return layers.map(layer => ({
    u: [...run.u(layer)], v: [...run.v(layer)], error: run.error(layer),
    rows: [...run.attention(layer)], columns: [...run.attention(layer, "columns")], sink: [...run.attention(layer, "rows", true)],
  }));
});
const matchings = given.matchings.map(({ x, y }) => [...matching(costs(makeProblem(x, y)), x.length)]);
const learned = given.learned.map(({ stored, x, y }) => new Learned(stored).attentions(x, y).map(each => [...each]));
const sentences = given.sentences.map(wordsOf);
const vectors = given.vectors.map(({ stored, words }) => words.map(word => new Vocabulary(stored).vector(word)));
const states = Object.values(PRESETS).map(preset => ({ ...defaults(), ...preset }));
const links = states.map(state => [state, toHash(state), fromHash(toHash(state))]);
const hashes = given.hashes.map(fromHash);
const written = given.written.map(source => toHash({ ...defaults(), source }));
const names = given.names.map(list => pointsOf({ ...defaults(), list }, null).names[0]);
process.stdout.write(JSON.stringify({ networks, matchings, learned, sentences, vectors, links, hashes, written, names }));
