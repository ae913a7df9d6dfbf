// The attention model of Kool et al. (2019), read from our own safetensors: agents/routing_agents/policies/attention/model.py,
// for one instance and one query at a time. A = nodes, d = embedding size, H = heads.
// Everything is inside one function, so that a worker can be made of its source (see worker.js).
function attentionCore() {
  "use strict";

  const FEATURES = {
    TSP: { depot: false, perNode: [], contextNodes: 2, scalars: 0, perStep: false },
    CVRP: { depot: true, perNode: ["demand"], contextNodes: 1, scalars: 1, perStep: false },
    SDVRP: { depot: true, perNode: ["demand"], contextNodes: 1, scalars: 1, perStep: true },
    OP: { depot: true, perNode: ["prize"], contextNodes: 1, scalars: 1, perStep: false },
    PCTSP: { depot: true, perNode: ["prize", "penalty"], contextNodes: 1, scalars: 1, perStep: false },
    SPCTSP: { depot: true, perNode: ["prize", "penalty"], contextNodes: 1, scalars: 1, perStep: false },
    VRPTW: {
      depot: true,
      perNode: ["demand", "readyTime", "dueTime", "serviceTime"],
      contextNodes: 1,
      scalars: 2,
      perStep: false,
    },
  };
  const NORM_EPSILON = 1e-5;
  const SHORTEST = 1e-4; // shorter ways count as this long, for 0 has no logarithm

  // --- the file -----------------------------------------------------------------------------------------------------

  let halves = null; // float16 -> float32, by the sixteen bits
  function halfTable() {
    if (halves) return halves;
    halves = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) {
      const exponent = (bits >> 10) & 31,
        fraction = bits & 1023;
      let value = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
      if (exponent === 31) value = fraction ? NaN : Infinity;
      halves[bits] = bits & 32768 ? -value : value;
    }
    return halves;
  }

  // ArrayBuffer -> {header, tensors: {name: Float32Array}}; int8 matrices come with a scale per row.
  function readSafetensors(buffer) {
    const length = Number(new DataView(buffer).getBigUint64(0, true));
    const index = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    const bytes = (entry) => buffer.slice(8 + length + entry.data_offsets[0], 8 + length + entry.data_offsets[1]);
    const readers = {
      F32: (entry) => new Float32Array(bytes(entry)),
      F16: (entry) => Float32Array.from(new Uint16Array(bytes(entry)), (bits) => halfTable()[bits]),
      I8: (entry, name) => {
        const scale = readers.F32(index[name + ".scale"]),
          columns = entry.shape[1];
        return Float32Array.from(new Int8Array(bytes(entry)), (value, i) => value * scale[Math.floor(i / columns)]);
      },
      I64: () => null, // counters of the batch norms, which only training reads
    };
    const tensors = {};
    for (const [name, entry] of Object.entries(index)) {
      if (name === "__metadata__" || name.endsWith(".scale")) continue;
      tensors[name.replace(/^model\./, "")] = readers[entry.dtype](entry, name);
    }
    return { header: JSON.parse(index.__metadata__.header), tensors };
  }

  // --- arithmetic ---------------------------------------------------------------------------------------------------

  // x (rows, numIn) times weight (numOut, numIn) transposed, plus bias (numOut): (rows, numOut)
  function linear(x, rows, weight, numIn, numOut, bias) {
    const y = new Float32Array(rows * numOut);
    for (let row = 0; row < rows; row++) {
      const from = row * numIn,
        to = row * numOut;
      let o = 0;
      for (; o + 3 < numOut; o += 4) {
        // four at a time: each x is read once for them
        let a = 0,
          b = 0,
          c = 0,
          e = 0;
        const wa = o * numIn,
          wb = wa + numIn,
          wc = wb + numIn,
          we = wc + numIn;
        for (let i = 0; i < numIn; i++) {
          const value = x[from + i];
          a += value * weight[wa + i];
          b += value * weight[wb + i];
          c += value * weight[wc + i];
          e += value * weight[we + i];
        }
        y[to + o] = a;
        y[to + o + 1] = b;
        y[to + o + 2] = c;
        y[to + o + 3] = e;
      }
      for (; o < numOut; o++) {
        let sum = 0;
        for (let i = 0; i < numIn; i++) sum += x[from + i] * weight[o * numIn + i];
        y[to + o] = sum;
      }
      if (bias) for (let i = 0; i < numOut; i++) y[to + i] += bias[i];
    }
    return y;
  }

  // Softmax of values[from .. from + count), in place.
  function softmax(values, from, count) {
    let most = -Infinity,
      sum = 0;
    for (let i = from; i < from + count; i++) if (values[i] > most) most = values[i];
    for (let i = from; i < from + count; i++) sum += values[i] = Math.exp(values[i] - most);
    for (let i = from; i < from + count; i++) values[i] /= sum;
  }

  function addInto(target, x) {
    for (let i = 0; i < target.length; i++) target[i] += x[i];
    return target;
  }

  // --- the network --------------------------------------------------------------------------------------------------

  class AttentionModel {
    constructor(buffer) {
      const { header, tensors } = readSafetensors(buffer);
      this.header = header;
      this.problem = header.problem;
      this.features = FEATURES[header.problem];
      this.d = header.model.embed_dim;
      this.heads = header.model.num_heads;
      this.numLayers = header.model.num_layers;
      this.hidden = header.model.feed_forward_dim;
      this.clipping = header.model.tanh_clipping;
      this.weights = tensors;
      this.norms = [...Array(this.numLayers).keys()].map((layer) => ({
        attention: this.foldNorm(`layers.${layer}.attention_norm.norm.`),
        feedForward: this.foldNorm(`layers.${layer}.feed_forward_norm.norm.`),
      }));
      this.project = this.joinProjections();
      if (this.features.perStep) this.shifts = this.stepShifts();
    }

    // Batch norm in evaluation: x * scale + shift, per feature.
    foldNorm(prefix) {
      const [mean, variance, weight, bias] = ["running_mean", "running_var", "weight", "bias"].map(
        (name) => this.weights[prefix + name],
      );
      const scale = weight.map((w, i) => w / Math.sqrt(variance[i] + NORM_EPSILON));
      return { scale, shift: bias.map((b, i) => b - mean[i] * scale[i]) };
    }

    // W_o' W: the glimpse's output projection, applied to nodes instead of queries.
    throughGlimpse(matrix, columns) {
      const { d } = this,
        out = this.weights["project_glimpse.weight"],
        product = new Float32Array(d * columns);
      for (let k = 0; k < d; k++)
        for (let i = 0; i < d; i++) {
          const factor = out[k * d + i];
          for (let j = 0; j < columns; j++) product[i * columns + j] += factor * matrix[k * columns + j];
        }
      return product;
    }

    // One matrix for all that the decoder reads per node: keys, values, logit keys, and a query per context node.
    joinProjections() {
      const { d, features } = this,
        nodes = this.weights["project_nodes.weight"];
      const context = this.weights["project_context.weight"],
        width = features.contextNodes * d + features.scalars;
      const joined = new Float32Array((3 + features.contextNodes) * d * d);
      joined.set(nodes.subarray(0, 2 * d * d));
      joined.set(this.throughGlimpse(nodes.subarray(2 * d * d), d), 2 * d * d);
      for (let node = 0; node < features.contextNodes; node++)
        for (let row = 0; row < d; row++)
          joined.set(
            context.subarray(row * width + node * d, row * width + (node + 1) * d),
            (3 + node) * d * d + row * d,
          );
      this.scalarColumns = Array.from({ length: features.scalars }, (_, scalar) =>
        Float32Array.from({ length: d }, (_, row) => context[row * width + features.contextNodes * d + scalar]),
      );
      return joined;
    }

    stepShifts() {
      const { d } = this,
        step = this.weights["project_step.weight"];
      return {
        key: step.subarray(0, d),
        value: step.subarray(d, 2 * d),
        logit: this.throughGlimpse(step.subarray(2 * d), 1),
      };
    }

    embed(observation, numNodes) {
      const columns = [...this.features.perNode.map((key) => observation[key])],
        width = 2 + columns.length;
      const inputs = new Float32Array(numNodes * width);
      for (let node = 0; node < numNodes; node++) {
        inputs[node * width] = observation.coords[2 * node];
        inputs[node * width + 1] = observation.coords[2 * node + 1];
        columns.forEach((column, i) => {
          inputs[node * width + 2 + i] = column[node];
        });
      }
      const w = this.weights,
        x = linear(inputs, numNodes, w["embed_node.weight"], width, this.d, w["embed_node.bias"]);
      if (this.features.depot)
        x.set(linear(observation.coords, 1, w["embed_depot.weight"], 2, this.d, w["embed_depot.bias"]));
      return x;
    }

    normalise(x, { scale, shift }) {
      for (let i = 0; i < x.length; i++) x[i] = x[i] * scale[i % this.d] + shift[i % this.d];
      return x;
    }

    // Self-attention of one layer: its output (A, d), and the weights (H, A, A) it read the nodes with.
    selfAttention(x, numNodes, layer) {
      const { d, heads } = this,
        size = d / heads,
        w = this.weights;
      const qkv = linear(x, numNodes, w[`layers.${layer}.project_qkv.weight`], d, 3 * d);
      const attention = new Float32Array(heads * numNodes * numNodes),
        mixed = new Float32Array(numNodes * d);
      for (let head = 0; head < heads; head++)
        for (let i = 0; i < numNodes; i++) {
          const row = (head * numNodes + i) * numNodes,
            query = i * 3 * d + head * size;
          for (let j = 0; j < numNodes; j++) {
            const key = j * 3 * d + d + head * size;
            let score = 0;
            for (let c = 0; c < size; c++) score += qkv[query + c] * qkv[key + c];
            attention[row + j] = score / Math.sqrt(size);
          }
          softmax(attention, row, numNodes);
          for (let j = 0; j < numNodes; j++) {
            const weight = attention[row + j],
              value = j * 3 * d + 2 * d + head * size,
              to = i * d + head * size;
            for (let c = 0; c < size; c++) mixed[to + c] += weight * qkv[value + c];
          }
        }
      return { attention, output: linear(mixed, numNodes, w[`layers.${layer}.project_out.weight`], d, d) };
    }

    // Encode an instance from what does not change: {coords, demand | prize, penalty, readyTime, ...}.
    encode(observation) {
      const { d, weights: w } = this,
        numNodes = observation.coords.length / 2;
      let x = this.embed(observation, numNodes);
      const attention = [];
      for (let layer = 0; layer < this.numLayers; layer++) {
        const attended = this.selfAttention(x, numNodes, layer);
        attention.push(attended.attention);
        x = this.normalise(addInto(attended.output, x), this.norms[layer].attention);
        const prefix = `layers.${layer}.`;
        const wide = linear(x, numNodes, w[prefix + "expand.weight"], d, this.hidden, w[prefix + "expand.bias"]);
        for (let i = 0; i < wide.length; i++) if (wide[i] < 0) wide[i] = 0;
        const narrow = linear(
          wide,
          numNodes,
          w[prefix + "contract.weight"],
          this.hidden,
          d,
          w[prefix + "contract.bias"],
        );
        x = this.normalise(addInto(narrow, x), this.norms[layer].feedForward);
      }
      return { numNodes, attention, coords: observation.coords, ...this.decoderInputs(x, numNodes) };
    }

    decoderInputs(x, numNodes) {
      const { d, features } = this,
        parts = 3 + features.contextNodes,
        mean = new Float32Array(d);
      for (let i = 0; i < x.length; i++) mean[i % d] += x[i] / numNodes;
      const projected = linear(x, numNodes, this.project, d, parts * d);
      const fixedQuery = linear(mean, 1, this.weights["project_mean.weight"], d, d);
      let placeholder = null; // the context before the first action, when there is no first and last node (eq. 4)
      if (!features.depot) {
        placeholder = new Float32Array(d);
        for (let node = 0; node < features.contextNodes; node++)
          addInto(
            placeholder,
            linear(
              this.weights.placeholder.subarray(node * d, (node + 1) * d),
              1,
              this.project.subarray((3 + node) * d * d, (4 + node) * d * d),
              d,
              d,
            ),
          );
      }
      return { projected, parts, fixedQuery, placeholder };
    }

    query(encoding, observation) {
      const { d } = this,
        query = encoding.fixedQuery.slice();
      if (observation.contextNodes === null) addInto(query, encoding.placeholder);
      else
        observation.contextNodes.forEach((node, place) => {
          const from = (node * encoding.parts + 3 + place) * d;
          addInto(query, encoding.projected.subarray(from, from + d));
        });
      observation.scalars.forEach((scalar, place) => {
        for (let i = 0; i < d; i++) query[i] += scalar * this.scalarColumns[place][i];
      });
      return query;
    }

    // Score the actions of one step: logits (A), -Infinity where illegal, and the glimpse's weights (H, A).
    // observation: {contextNodes: [node, ...] or null before the TSP's first, scalars, mask, remaining (SDVRP)}
    logits(encoding, observation) {
      const { d, heads } = this,
        size = d / heads,
        { numNodes, projected, parts } = encoding;
      const { mask, remaining } = observation,
        query = this.query(encoding, observation);
      const glimpse = new Float32Array(heads * numNodes),
        mixed = new Float32Array(d);
      for (let head = 0; head < heads; head++) {
        const first = head * size,
          row = head * numNodes;
        let byShift = 0;
        if (this.shifts) for (let c = first; c < first + size; c++) byShift += query[c] * this.shifts.key[c];
        for (let node = 0; node < numNodes; node++) {
          if (!mask[node]) {
            glimpse[row + node] = -Infinity;
            continue;
          }
          const key = node * parts * d;
          let score = this.shifts ? remaining[node] * byShift : 0;
          for (let c = first; c < first + size; c++) score += query[c] * projected[key + c];
          glimpse[row + node] = score / Math.sqrt(size);
        }
        softmax(glimpse, row, numNodes);
        for (let node = 0; node < numNodes; node++) {
          const weight = glimpse[row + node],
            value = (node * parts + 1) * d;
          if (weight === 0) continue;
          for (let c = first; c < first + size; c++)
            mixed[c] += weight * (projected[value + c] + (this.shifts ? remaining[node] * this.shifts.value[c] : 0));
        }
      }
      const logits = this.pointer(encoding, mixed, mask, remaining);
      if (this.weights.nearness_weight && observation.contextNodes !== null)
        this.addNearness(logits, encoding.coords, observation.contextNodes.at(-1));
      return { logits, glimpse };
    }

    // Add -log of the distance from the current node, times a learned number; 0 where no vehicle drives.
    addNearness(logits, coords, here) {
      const [weight] = this.weights.nearness_weight;
      for (let node = 0; node < logits.length; node++) {
        if (this.features.depot && node === 0 && here === 0) continue;
        const distance = Math.hypot(coords[2 * node] - coords[2 * here], coords[2 * node + 1] - coords[2 * here + 1]);
        logits[node] -= weight * Math.log(Math.max(distance, SHORTEST));
      }
    }

    pointer({ numNodes, projected, parts }, glimpse, mask, remaining) {
      const { d } = this,
        logits = new Float32Array(numNodes).fill(-Infinity);
      let byShift = 0;
      if (this.shifts) for (let c = 0; c < d; c++) byShift += glimpse[c] * this.shifts.logit[c];
      for (let node = 0; node < numNodes; node++) {
        if (!mask[node]) continue;
        const key = (node * parts + 2) * d;
        let score = this.shifts ? remaining[node] * byShift : 0;
        for (let c = 0; c < d; c++) score += glimpse[c] * projected[key + c];
        logits[node] = this.clipping * Math.tanh(score / Math.sqrt(d));
      }
      return logits;
    }
  }

  // Probabilities (A) of logits (A).
  function probabilities(logits, temperature = 1) {
    const p = logits.map((logit) => logit / temperature);
    softmax(p, 0, p.length);
    return p;
  }

  return { AttentionModel, FEATURES, probabilities, readSafetensors };
}
