// The figures above the map, the transport below it, and the verdict on a tour that is not the model's.
"use strict";

class Figures {
  constructor(page) {
    this.page = page;
  }

  update() {
    this.drawFigures();
    this.drawTransport();
    this.drawVerdict();
  }

  // What the tour has cost so far; all of it once it is finished.
  soFar() {
    const { instance, shown, step, finished, problem } = this.page.state,
      { depot } = rules.PROBLEMS[problem];
    if (finished) return rules.score(instance, shown.actions);
    const stops = depot ? [0, ...shown.actions.slice(0, step)] : shown.actions.slice(0, step),
      A = rules.numNodes(instance);
    if (problem === "OP")
      return stops.reduce(
        (sum, node) => sum + (instance.file ? (node ? instance.file.scores[node] : 0) : instance.prize[node]),
        instance.file ? instance.file.scores[0] : 0,
      );
    const leg = (a, b) => (instance.file ? instance.file.distances[a * A + b] : rules.leg(instance, a, b));
    return stops.slice(1).reduce((sum, node, i) => sum + leg(stops[i], node), 0);
  }

  drawFigures() {
    const { instance, finished, step, shown, snapshot, modelName } = this.page.state;
    byId("cost-name").textContent = finished
      ? costName(instance)
      : instance.problem === "OP"
        ? "Prize so far"
        : "Length so far";
    byId("cost").textContent = show(instance, this.soFar());
    byId("step-count").textContent = `${step} / ${shown.actions.length}`;
    byId("model-name").textContent =
      snapshot === null ? modelName.toUpperCase() : `step ${SNAPSHOTS[snapshot].step.toLocaleString("en")}`;
  }

  drawPlay() {
    byId("play").classList.toggle("playing", this.page.timer !== null);
    set(byId("play"), { "aria-label": this.page.timer === null ? "Play" : "Pause" });
  }

  drawTransport() {
    const { step, shown, trace } = this.page.state,
      length = shown.actions.length;
    set(byId("scrub"), { max: length, "aria-valuetext": `step ${step} of ${length}` });
    byId("scrub").value = step;
    this.drawPlay();
    const bars = trace.steps.map(({ probabilities }, i) => {
      const height = 2 + 28 * Math.sqrt(entropyOf(probabilities) / Math.log(probabilities.length + 1));
      return draw("rect", { x: i + 0.15, y: 32 - height, width: 0.7, height, class: i < step ? "past" : null });
    });
    set(byId("certainty"), { viewBox: `0 0 ${length} 32` }).replaceChildren(...bars);
    if (this.page.state.drawing) {
      byId("hint").textContent = "Draw your own tour: choose node after node. Then you see both lengths.";
      return;
    }
    byId("hint").textContent = matchMedia("(pointer: coarse)").matches
      ? "Tap to add a node, drag to move it, tap a glowing one to overrule the model."
      : "Click to add a node, drag to move it, click a glowing one to overrule the model.";
  }

  drawVerdict() {
    const { shown, instance, model } = this.page.state,
      verdict = byId("verdict");
    verdict.hidden = shown.by === "model" || this.page.state.drawing;
    byId("hint").hidden = !verdict.hidden;
    if (verdict.hidden) return;
    const ours = rules.score(instance, shown.actions),
      theirs = rules.score(instance, model.actions),
      off = ours - theirs;
    const who = { you: "Your tour", search: "Best of the search" }[shown.by] ?? shown.by,
      sign = rules.PROBLEMS[instance.problem].maximises ? -1 : 1;
    const share = theirs ? ` (${Math.abs((100 * off) / theirs).toFixed(1)}\u00a0%)` : "";
    const word =
      Math.abs(off) < 1e-9
        ? "The same"
        : `${sign * off < 0 ? "Better" : "Worse"} by ${show(instance, Math.abs(off))}${share}`;
    verdict.firstElementChild.textContent = `${who}: ${show(instance, ours)}, the model’s: ${show(instance, theirs)}. ${word}.`;
    verdict.classList.toggle("better", sign * off < -1e-9);
  }
}
