// "Why this node?": the most probable nodes, the context, and the attention behind them.
"use strict";

const NOTES = {
  pointer:
    "Halos and lines show the probability of being next: the pointer’s scores, clipped to ±10 and put through a softmax.",
  glimpse:
    "Attention is not the probability: the eight heads of the glimpse look at the legal nodes to build the query that then scores them.",
  encoder:
    "Attention is not the probability: in each of three layers, eight heads mix the nodes’ embeddings before the first choice is made. Point at a node to see what it reads.",
};
const HEADS = 8;

const entropyOf = (p) => p.reduce((sum, x) => (x > 0 ? sum - x * Math.log(x) : sum), 0);

// What the map draws: [{from, weights (A), head}], head -1 being the pointer.
function attentionLines({ instance, trace, step, finished, view, layer, head, focus, encoding }) {
  const numNodes = rules.numNodes(instance),
    started = rules.PROBLEMS[instance.problem].depot || step > 0;
  const heads = head < 0 ? [...Array(HEADS).keys()] : [head];
  if (view === "encoder") {
    const from = focus >= 0 ? focus : trace.states[step].node;
    return heads.map((h) => ({
      from,
      head: h,
      weights: encoding.attention[layer].subarray(
        (h * numNodes + from) * numNodes,
        (h * numNodes + from + 1) * numNodes,
      ),
    }));
  }
  if (finished || !started) return [];
  const { probabilities, glimpse } = trace.steps[step],
    from = trace.states[step].node;
  if (view === "pointer") return [{ from, head: -1, weights: probabilities }];
  return heads.map((h) => ({ from, head: h, weights: glimpse.subarray(h * numNodes, (h + 1) * numNodes) }));
}

class WhyPanel {
  constructor(onChoose, onJump) {
    Object.assign(this, { onChoose, onJump, bars: byId("top"), canvas: byId("matrix") });
  }

  update(state) {
    if (state.finished) this.summary(state);
    else this.choice(state);
    byId("view-note").textContent = NOTES[state.view];
    byId("heads").hidden = byId("matrix").hidden = state.view === "pointer";
    byId("layers-row").hidden = state.view !== "encoder";
    if (state.view !== "pointer") this.drawMatrix(state);
  }

  choice({ instance, trace, step, shown }) {
    const { probabilities, mask } = trace.steps[step],
      now = trace.states[step],
      taken = shown.actions[step];
    const order = [...probabilities.keys()]
      .filter((node) => mask[node])
      .sort((a, b) => probabilities[b] - probabilities[a]);
    const started = rules.PROBLEMS[instance.problem].depot || step > 0,
      where = started ? `From ${nameOf(instance, now.node)}` : "To begin with";
    const model = `the model takes ${nameOf(instance, order[0])} with ${percent(probabilities[order[0]]).replace(">", "more than ")}`;
    const other = taken === order[0] ? "" : `; this tour goes to ${nameOf(instance, taken)}`;
    byId("say").textContent =
      order.length === 1
        ? `${where} there is one legal choice: ${nameOf(instance, order[0])}.`
        : `${where}, ${model}${other}.`;
    this.bars.replaceChildren(
      ...order.slice(0, 5).map((node) => this.bar(instance, node, probabilities[node], node === taken)),
    );
    const entropy = entropyOf(probabilities),
      legal = order.length;
    this.facts([
      ["Uncertainty", `${entropy.toFixed(2)} nats`, legal > 1 ? entropy / Math.log(legal) : 0],
      ["Legal nodes", `${legal} of ${probabilities.length}`, legal / probabilities.length],
      ...(rules.PROBLEMS[instance.problem].context?.(instance, now, (node) => nameOf(instance, node)) ?? []),
    ]);
  }

  bar(instance, node, p, taken) {
    const fill = make("i", { "aria-hidden": "true" }),
      button = make(
        "button",
        { type: "button", class: taken ? "taken" : null, title: taken ? "this tour goes here" : "go here instead" },
        fill,
        make("span", { text: nameOf(instance, node) }),
        make("b", { text: percent(p) }),
      );
    fill.style.width = `${100 * p}%`;
    button.addEventListener("click", () => this.onChoose(node));
    return make("li", {}, button);
  }

  // At the end: where the model was least sure.
  summary({ instance, trace, shown }) {
    const steps = trace.steps.map(({ probabilities }, step) => ({
      step,
      entropy: entropyOf(probabilities),
      p: probabilities[shown.actions[step]],
    }));
    const likely = steps.reduce((sum, { p }) => sum + Math.log(p), 0);
    byId("say").textContent = `The tour is complete: ${steps.length} choices. The model was least sure of these:`;
    const hardest = steps
      .filter(({ step }) => step > 0)
      .sort((a, b) => b.entropy - a.entropy)
      .slice(0, 5);
    this.bars.replaceChildren(
      ...hardest.map(({ step, p }) => {
        const fill = make("i", { "aria-hidden": "true" });
        fill.style.width = `${100 * p}%`;
        const button = make(
          "button",
          { type: "button" },
          fill,
          make("span", { text: `Step ${step + 1}: ${nameOf(instance, shown.actions[step])}` }),
          make("b", { text: percent(p) }),
        );
        button.addEventListener("click", () => this.onJump(step));
        return make("li", {}, button);
      }),
    );
    const sure = steps.filter(({ p }) => p > 0.9).length;
    this.facts([
      ["Choices above 90 %", `${sure} of ${steps.length}`, sure / steps.length],
      ["The whole tour’s probability", likely > -0.1 ? percent(Math.exp(likely)) : Math.exp(likely).toPrecision(2)],
    ]);
  }

  facts(rows) {
    byId("facts").replaceChildren(
      ...rows.flatMap(([name, value, share]) => {
        const term = make("dt", { text: name }),
          data = make("dd", {}, make("span", { text: value }));
        if (share !== undefined) {
          const meter = make("i", { "aria-hidden": "true" });
          meter.style.setProperty("--share", `${100 * share}%`);
          data.append(meter);
        }
        return [term, data];
      }),
    );
  }

  // Glimpse: heads by nodes. Encoder: nodes by nodes, of one head or the mean of all.
  drawMatrix({ instance, trace, step, finished, view, layer, head, focus, encoding }) {
    const numNodes = rules.numNodes(instance),
      glimpse = view === "glimpse",
      { canvas } = this;
    const rows = glimpse ? HEADS : numNodes,
      ratio = devicePixelRatio || 1,
      width = canvas.parentElement.clientWidth - 40;
    const cell = width / numNodes,
      height = glimpse ? HEADS * 14 : Math.min(width, 210);
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const all = glimpse ? (finished ? null : trace.steps[step].glimpse) : encoding.attention[layer];
    set(canvas, {
      "aria-label": glimpse
        ? "Glimpse: a row for each of the eight heads, a column for each node"
        : "Encoder attention: a row for each node, a column for each node it reads",
    });
    if (!all) {
      canvas.hidden = true;
      return;
    }
    const colours = Array.from({ length: HEADS }, (_, h) => colourOf(`--head-${h}`, canvas)),
      ink = colourOf("--ink", canvas);
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < numNodes; column++) {
        const weight = glimpse ? all[row * numNodes + column] : encoderWeight(all, numNodes, head, row, column);
        context.globalAlpha = Math.min(1, Math.sqrt(weight)) * (glimpse && head >= 0 && head !== row ? 0.25 : 1);
        context.fillStyle = glimpse ? colours[row] : head < 0 ? ink : colours[head];
        context.fillRect(
          column * cell,
          (row * height) / rows,
          Math.max(cell - 0.5, 0.5),
          Math.max(height / rows - (glimpse ? 2 : 0.5), 0.5),
        );
      }
    const marked = focus >= 0 ? focus : glimpse ? -1 : trace.states[step].node;
    if (marked < 0) return;
    context.globalAlpha = 1;
    context.strokeStyle = colourOf("--halo", canvas);
    context.lineWidth = 1.5;
    if (glimpse) context.strokeRect(marked * cell, 0, cell, height);
    else context.strokeRect(0, (marked * height) / rows, width, height / rows);
  }
}

function encoderWeight(all, numNodes, head, row, column) {
  if (head >= 0) return all[(head * numNodes + row) * numNodes + column];
  let sum = 0;
  for (let h = 0; h < HEADS; h++) sum += all[(h * numNodes + row) * numNodes + column];
  return sum / HEADS;
}

// The table that says what the map shows.
function fillTable({ instance, trace, step, finished, shown }) {
  const choice = finished ? null : trace.steps[step],
    keys = COLUMNS.filter((key) => key !== "realPrize" && instance[key]);
  const position = new Map(shown.actions.slice(0, step).map((node, i) => [node, i + 1]));
  const heading = ["Node", "x", "y", ...keys, "Visited", "Probability of being next"].map((text) =>
    make("th", { scope: "col", text: text[0].toUpperCase() + text.slice(1).replace("Time", " time") }),
  );
  byId("table").tHead.replaceChildren(make("tr", {}, ...heading));
  const rows = Array.from({ length: rules.numNodes(instance) }, (_, node) => {
    const cells = [
      instance.coords[2 * node].toFixed(3),
      instance.coords[2 * node + 1].toFixed(3),
      ...keys.map((key) => Number(instance[key][node].toPrecision(3))),
    ];
    cells.push(position.has(node) ? `step ${position.get(node)}` : "no");
    cells.push(
      !choice
        ? "the tour is complete"
        : choice.mask[node]
          ? percent(choice.probabilities[node])
          : `none: ${rules.PROBLEMS[instance.problem].whyIllegal(instance, trace.states[step], node)}`,
    );
    return make(
      "tr",
      { "aria-current": !finished && trace.states[step].node === node && step > 0 ? "true" : null },
      make("th", { scope: "row", text: nameOf(instance, node) }),
      ...cells.map((text) => make("td", { text })),
    );
  });
  byId("table").tBodies[0].replaceChildren(...rows);
}
