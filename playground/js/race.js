// The race: a heuristic, local search, the greedy policy and the policy's search on one instance, cost over time.
"use strict";

const RACE_SECONDS = 4; // of the policy's search
const CONTESTANTS = {
  "Nearest neighbour": "var(--head-0)",
  "Greedy edge": "var(--head-0)",
  "2-opt and Or-opt": "var(--head-3)",
  "Model, greedy": "var(--head-5)",
  "Model, search": "var(--head-6)",
};

class RacePanel {
  // Runs in a worker, which is stopped when the instance changes.
  constructor(page) {
    Object.assign(this, { page, worker: null, times: new Map() });
    byId("race-go").addEventListener("click", () => (this.worker ? this.stop() : this.start()));
  }

  clear() {
    this.stop();
    this.times.clear();
    const { stochastic, windows, split } = rules.PROBLEMS[this.page.state.problem];
    byId("race-go").hidden = Boolean(stochastic);
    byId("race-result").hidden = true;
    byId("race-note").textContent = stochastic
      ? "No race here: the best of many tours would be chosen by prizes that are unknown beforehand."
      : `A heuristic, ${windows || split ? "" : "local search, "}the greedy policy and ${RACE_SECONDS} seconds of its search solve this map, each by its own clock.`;
  }

  stop() {
    this.worker?.terminate();
    this.worker = null;
    byId("race-go").textContent = "Start the race";
  }

  async start() {
    this.clear();
    const { modelName: name, instance } = this.page.state,
      buffer = await loadBuffer(name);
    if (instance !== this.page.state.instance || this.worker) return; // changed, or started twice, while loading
    this.worker = makeWorker();
    byId("race-go").textContent = "Stop";
    this.page.pause();
    this.worker.onmessage = ({ data }) => this.receive(data, instance);
    this.worker.onerror = (event) => {
      this.stop();
      this.page.message(`The race failed: ${event.message}`);
    };
    this.worker.postMessage({ job: "race", name, buffer, instance, options: { seconds: RACE_SECONDS } });
  }

  receive({ by, seconds, cost, actions, finished }, instance) {
    if (instance !== this.page.state.instance) return;
    if (finished) {
      this.stop();
      const [first] = this.ranking();
      return this.page.announce(`The race is over. ${first.by} is first with ${show(instance, first.score)}.`);
    }
    const best = Math.min(...[...this.times.values()].map((times) => times.at(-1).cost));
    if (!this.times.has(by)) this.times.set(by, []);
    this.times.get(by).push({ seconds, cost, score: rules.score(instance, actions) });
    if (cost < best) this.page.showTour({ by, actions });
    this.draw(instance);
  }

  // The contestants so far, the best first; of equal ones the faster.
  ranking() {
    const last = [...this.times].map(([by, times]) => ({ by, ...times.at(-1) }));
    return last.sort((a, b) => a.cost - b.cost || a.seconds - b.seconds);
  }

  draw(instance) {
    byId("race-result").hidden = false;
    const all = [...this.times.values()].flat(),
      costs = all.map(({ cost }) => cost),
      [least, most] = [Math.min(...costs), Math.max(...costs)];
    const start = Math.log(0.001),
      end = Math.log(Math.max(RACE_SECONDS, ...all.map(({ seconds }) => seconds)));
    const x = (seconds) => (300 * (Math.log(Math.max(seconds, 0.001)) - start)) / (end - start),
      y = (cost) => 6 + (78 * (most - cost)) / (most - least || 1);
    const curves = [...this.times].map(([by, times]) => {
      const corners = times.flatMap(({ seconds, cost }, i) => [
        ...(i ? [[x(seconds), y(times[i - 1].cost)]] : []),
        [x(seconds), y(cost)],
      ]);
      const path = draw("path", { d: spark([...corners, [300, corners.at(-1)[1]]]), "vector-effect": "non-scaling-stroke" });
      path.style.stroke = CONTESTANTS[by];
      return path;
    });
    set(byId("race-curve"), { viewBox: "0 0 300 90" }).replaceChildren(...curves);
    byId("race-cost").textContent = costName(instance);
    byId("race").replaceChildren(
      ...this.ranking().map(({ by, score, seconds }) => {
        const mark = make("i", { "aria-hidden": "true" });
        mark.style.background = CONTESTANTS[by];
        return make(
          "tr",
          {},
          make("th", { scope: "row" }, mark, by),
          make("td", { text: show(instance, score) }),
          make("td", { text: seconds < 0.01 ? `${(1000 * seconds).toFixed(1)}\u00a0ms` : `${seconds.toFixed(2)}\u00a0s` }),
        );
      }),
    );
  }
}
