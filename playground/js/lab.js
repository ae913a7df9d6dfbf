// The experiments: searching for better tours, comparing with heuristics, and looking at a training.
"use strict";

const spark = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

class SearchPanel {
  // show(actions): put a tour on the map. Runs in a worker, which is stopped when the instance changes.
  constructor(page) {
    Object.assign(this, { page, worker: null, history: [], form: byId("search") });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.worker ? this.stop("Stopped") : this.start();
    });
    this.form.addEventListener("input", () => this.refresh());
    this.refresh();
  }

  get method() {
    return this.form.elements.method.value;
  }

  refresh() {
    const { problem } = this.page.state,
      { anyFirstNode, stochastic } = rules.PROBLEMS[problem],
      starts = this.form.querySelector("[value=starts]");
    starts.disabled = !anyFirstNode;
    if (starts.checked && !anyFirstNode) this.form.querySelector("[value=sampling]").checked = true;
    byId("sampling-options").hidden = this.method !== "sampling";
    byId("temperature-value").textContent = Number(byId("temperature").value).toFixed(1);
    this.form.hidden = Boolean(stochastic);
    set(byId("search-note"), {
      text: stochastic
        ? "No search here: in SPCTSP the real prizes show only on the way, so the best of many tours would be chosen with knowledge that nobody has beforehand."
        : !anyFirstNode
          ? `Every start is for problems in which any node may come first; in ${problem} the first one matters.`
          : "",
    });
    byId("search-note").hidden = Boolean(anyFirstNode);
  }

  clear() {
    this.stop();
    byId("best").hidden = true;
    this.refresh();
  }

  stop(word) {
    if (word && this.worker && this.last) this.say(this.last, `${word} after`);
    this.worker?.terminate();
    this.worker = null;
    byId("search-go").textContent = "Search";
  }

  async start() {
    const tours = Number(byId("tours").value),
      { state } = this.page;
    if (!Number.isInteger(tours) || tours < 1 || tours > 2000)
      return this.page.message(
        `Tours: found ${byId("tours").value || "nothing"}, expected a whole number from 1 to 2000.`,
      );
    const options = {
      method: this.method,
      tours,
      temperature: Number(byId("temperature").value),
      symmetries: byId("symmetries").checked ? 8 : 1,
      seed: 1,
    };
    const { modelName: name, instance } = state,
      buffer = await loadBuffer(name);
    if (instance !== state.instance || this.worker) return; // changed, or started twice, while loading
    Object.assign(this, { history: [], last: null, worker: makeWorker() });
    byId("search-go").textContent = "Stop";
    byId("best").hidden = false;
    this.page.pause();
    this.worker.onmessage = ({ data }) => this.receive(data, instance);
    this.worker.onerror = (event) => {
      this.stop();
      this.page.message(`The search failed: ${event.message}`);
    };
    this.worker.postMessage({ job: "decode", name, buffer, instance, options });
  }

  receive(found, instance) {
    if (instance !== this.page.state.instance) return;
    const better = !this.last || found.cost < this.last.cost;
    this.last = found;
    this.history.push([found.done, found.cost]);
    this.drawCurve(found.total);
    this.say(found, found.finished ? "Best of" : "So far, after");
    if (better) this.page.found(found.actions);
    if (found.finished) {
      this.stop();
      this.page.announce(byId("best-text").textContent);
    }
  }

  say({ done, actions }, words) {
    const { state } = this.page,
      now = rules.score(state.instance, actions),
      model = rules.score(state.instance, state.model.actions);
    byId("best-text").textContent =
      `${words} ${done.toLocaleString("en")} ${done === 1 ? "tour" : "tours"}: ${show(state.instance, now)}. The greedy tour: ${show(state.instance, model)}.`;
  }

  drawCurve(total) {
    const costs = this.history.map(([, cost]) => cost),
      most = Math.max(...costs),
      least = Math.min(...costs),
      span = most - least || 1;
    const at = ([done, cost]) => [(300 * done) / total, 6 + (36 * (most - cost)) / span];
    const points = this.history.flatMap((entry, i) =>
      i ? [[at(entry)[0], at(this.history[i - 1])[1]], at(entry)] : [at(entry)],
    );
    set(byId("best-curve"), { viewBox: "0 0 300 48" }).replaceChildren(
      draw("path", { d: spark(points), "vector-effect": "non-scaling-stroke" }),
    );
  }
}

class ComparePanel {
  constructor(page) {
    Object.assign(this, { page, rows: [], worker: null });
  }

  // Ask the worker for the tours of the heuristics; the page goes on meanwhile.
  ask() {
    const { instance } = this.page.state;
    this.worker?.terminate();
    this.worker = makeWorker();
    this.rows = [];
    this.update();
    this.worker.onmessage = ({ data }) => {
      if (instance === this.page.state.instance) {
        this.rows = data.rows;
        this.update();
      }
      this.worker.terminate();
      this.worker = null;
    };
    this.worker.postMessage({ job: "compare", instance });
  }

  entries() {
    const { state } = this.page,
      { instance, source, shown, best } = state;
    const entries = [{ by: "Model, greedy", actions: state.model.actions }, ...this.rows];
    if (best) entries.splice(1, 0, { by: "Model, search", actions: best });
    if (shown.by === "you") entries.splice(1, 0, { by: "You", actions: shown.actions });
    for (const entry of entries) entry.score = rules.score(instance, entry.actions);
    if (source.kind === "preset") {
      const { solver, cost } = PRESETS[state.problem][source.index];
      entries.push({
        by: solver === "milp-offline" ? "Solver that knows the prizes" : `Solver ${solver}`,
        score: cost,
        stored: true,
      });
    }
    return entries;
  }

  update() {
    const { state } = this.page,
      { instance, shown } = state,
      sign = rules.PROBLEMS[instance.problem].maximises ? -1 : 1;
    const entries = this.entries().sort((a, b) => sign * (a.score - b.score));
    const best = entries[0].score,
      proven = entries.some(({ by }) => by === "Optimum");
    byId("compare-cost").textContent = costName(instance);
    byId("compare").replaceChildren(
      ...entries.map((entry) => {
        const name = make("th", { scope: "row" });
        if (entry.stored) name.append(make("span", { text: entry.by }));
        else {
          const button = make("button", { type: "button", class: "link", text: entry.by, title: "show this tour" });
          button.addEventListener("click", () => this.page.pick(entry));
          name.append(button);
        }
        const off = best ? (entry.score - best) / Math.abs(best) : 0,
          close = Math.abs(off) < 5e-7;
        const against = make(
          "td",
          {},
          make("span", {
            class: close ? "chip" : null,
            text: close
              ? proven
                ? "optimum"
                : "best found"
              : `${off < 0 ? "−" : "+"}${(100 * Math.abs(off)).toFixed(1)}\u00a0%`,
          }),
        );
        const same =
          entry.actions &&
          entry.actions.length === shown.actions.length &&
          entry.actions.every((node, i) => node === shown.actions[i]);
        return make(
          "tr",
          { "aria-current": same ? "true" : null },
          name,
          make("td", { text: show(instance, entry.score) }),
          against,
        );
      }),
    );
    const { stochastic, windows, split } = rules.PROBLEMS[instance.problem];
    byId("compare-note").textContent = windows || split
      ? `2-opt and the optimum are left out: they know no ${windows ? "time windows" : "split deliveries"} here.`
      : stochastic
      ? "Heuristics that look at the real prizes beforehand are left out."
      : proven
        ? "The optimum is by dynamic programming over subsets."
        : `The optimum is computed for up to ${search.MOST_FOR_OPTIMUM} ${instance.problem === "TSP" ? "cities" : "customers"}.`;
  }
}

class LearnPanel {
  constructor(page) {
    Object.assign(this, { page, timer: null, slider: byId("snapshot") });
    set(this.slider, { max: SNAPSHOTS.length - 1, value: SNAPSHOTS.length - 1 });
    this.slider.addEventListener("input", () => {
      this.halt();
      page.useSnapshot(Number(this.slider.value));
    });
    byId("learn-play").addEventListener("click", () => (this.timer ? this.halt() : this.run()));
    byId("learn-off").addEventListener("click", () => {
      this.halt();
      page.useSnapshot(null);
    });
    byId("learn-go").addEventListener("click", () => page.open("TSP", { kind: "preset", index: 1 }));
  }

  halt() {
    clearTimeout(this.timer);
    this.timer = null;
    byId("learn-play").textContent = "Play training";
  }

  async run() {
    byId("learn-play").textContent = "Pause";
    this.timer = -1;
    await Promise.allSettled(SNAPSHOTS.map(({ name }) => loadBuffer(name)));
    const next = async (index) => {
      if (!this.timer) return;
      await this.page.useSnapshot(index);
      this.timer = index + 1 < SNAPSHOTS.length && this.timer ? setTimeout(() => next(index + 1), 900) : null;
      if (!this.timer) this.halt();
    };
    next(0);
  }

  update({ problem, snapshot }) {
    const here = problem === "TSP";
    if (!here) this.halt();
    byId("learn").hidden = !here;
    byId("learn-elsewhere").hidden = here;
    byId("learn-off").hidden = snapshot === null;
    const index = snapshot ?? SNAPSHOTS.length - 1,
      { step, instances: seen, greedy, reference } = SNAPSHOTS[index];
    this.slider.value = index;
    const after = step
      ? `after ${step.toLocaleString("en")} ${step === 1 ? "step" : "steps"} (${seen.toLocaleString("en")} instances)`
      : "before training, with random weights";
    set(this.slider, { "aria-valuetext": after });
    const text = `average length ${greedy.toFixed(2)} on 1,000 instances of 20 cities, ${(100 * (greedy / reference - 1)).toFixed(1)} % above the best known`;
    byId("learn-text").textContent =
      snapshot === null
        ? "Move the slider: a small model’s weights from random to trained."
        : `${after[0].toUpperCase() + after.slice(1)}: ${text}.`;
    this.drawCurve(snapshot);
  }

  drawCurve(snapshot) {
    const most = SNAPSHOTS[0].greedy,
      { reference } = SNAPSHOTS[0],
      last = SNAPSHOTS.length - 1;
    const at = (value, i) => [8 + (284 * i) / last, 8 + (56 * Math.log(most / value)) / Math.log(most / reference)];
    const points = SNAPSHOTS.map(({ greedy }, i) => at(greedy, i)),
      floor = at(reference, 0)[1];
    const marks = points.map(([cx, cy], i) =>
      draw("circle", { cx, cy, r: i === snapshot ? 5 : 2.5, class: i === snapshot ? "here" : null }),
    );
    set(byId("curve"), { viewBox: "0 0 300 72", preserveAspectRatio: "xMidYMid meet" }).replaceChildren(
      draw("path", {
        class: "floor",
        d: spark([
          [8, floor],
          [292, floor],
        ]),
      }),
      draw("path", { d: spark(points) }),
      ...marks,
    );
  }
}
