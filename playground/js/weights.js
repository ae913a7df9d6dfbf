// Weights come as scripts (see build.py), since a page opened as a file may load those and nothing else.
"use strict";

const NOT_LOADED =
  location.protocol === "file:"
    ? "The weights are not there yet. Write them with: python playground/build.py"
    : "The weights of the model did not load. Check your connection, then try again.";
const waiting = new Map(); // name -> resolve
const buffers = new Map(); // name -> promise of an ArrayBuffer

function receiveWeights(name, text) {
  const binary = atob(text),
    bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  waiting.get(name)?.(bytes.buffer);
}

function loadBuffer(name) {
  if (!buffers.has(name))
    buffers.set(
      name,
      new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = `data/${name}.js`;
        script.onerror = () => {
          buffers.delete(name);
          reject(new Error(`data/${name}.js cannot be loaded`));
        };
        waiting.set(name, resolve);
        document.head.append(script);
      }),
    );
  return buffers.get(name);
}

// The published weights of the nearest size by ratio, as `routing_agents.load` chooses them.
function nearestModel(problem, customers) {
  const sizeOf = (name) => Number(name.split("-").pop());
  const off = (name) => Math.abs(Math.log(sizeOf(name) / customers));
  return MODELS.filter((name) => name.startsWith(problem.toLowerCase() + "-")).reduce((a, b) =>
    off(b) < off(a) ? b : a,
  );
}

// A worker made of the sources of the functions it needs: from file:// it could not load a script of its own.
function makeWorker() {
  const source = `"use strict";
    const attention = (${attentionCore})(), rules = (${rulesCore})(), search = (${searchCore})(attention, rules);
    const models = new Map();
    (${answer})();`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(url);
  URL.revokeObjectURL(url);
  return worker;

  function answer() {
    // runs in the worker
    self.onmessage = ({ data: { job, name, buffer, instance, options } }) => {
      if (job === "compare") {
        const heuristics = !rules.PROBLEMS[instance.problem].stochastic && search.hasLocalSearch(instance);
        postMessage({
          job,
          rows: [
            { by: "Nearest neighbour", actions: search.nearestNeighbour(instance) },
            ...(heuristics ? [{ by: "2-opt and Or-opt", actions: search.localSearch(instance) }] : []),
            ...(search.hasOptimum(instance) ? [{ by: "Optimum", actions: search.optimum(instance) }] : []),
          ],
        });
        return;
      }
      if (!models.has(name)) models.set(name, new attention.AttentionModel(buffer));
      if (job === "race") {
        search.race(models.get(name), instance, options.seconds, (found) => postMessage({ job, ...found }));
        postMessage({ job, finished: true });
        return;
      }
      const last = search.decodeMany(models.get(name), instance, options, (best) => postMessage({ job, ...best }));
      postMessage({ job, ...last, finished: true });
    };
  }
}
