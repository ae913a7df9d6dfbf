// The page: its state, what people do to it, and the drawing of it all.
"use strict";

const STEPS_PER_SECOND = 5,
  LONGEST_PLAY = 7; // seconds for a whole tour at speed 1

const COLUMNS = ["demand", "prize", "penalty", "realPrize", "readyTime", "dueTime", "serviceTime"]; // of nodes

const costName = (instance) =>
  instance.problem === "OP" ? "Prize" : instance.problem.endsWith("PCTSP") ? "Cost" : "Length";
const isWhole = ({ file }) => file && file.metric !== "EXACT_2D";
const show = (instance, score) => (isWhole(instance) ? Math.round(score).toLocaleString("en") : score.toFixed(3));

class Page {
  constructor() {
    this.state = {
      problem: "TSP",
      instance: null,
      source: null,
      modelName: "",
      network: null,
      encoding: null,
      model: null,
      shown: null,
      best: null,
      trace: null,
      step: 0,
      finished: false,
      lines: [],
      view: "pointer",
      layer: 2,
      head: -1,
      focus: -1,
      speed: 1,
      snapshot: null,
      theme: null,
      drawing: false, // the visitor draws a tour of their own
    };
    this.networks = new Map();
    this.ticket = 0; // of the latest instance asked for: what arrives late is dropped
    this.timer = this.addressTimer = this.dragFrame = null;
    this.tip = make("div", { class: "tip", hidden: true });
    byId("board").append(this.tip);
    this.map = new MapView(byId("map"), this.tip, {
      add: (x, y) => this.add(x, y),
      move: (...all) => this.move(...all),
      remove: (...all) => this.remove(...all),
      choose: (node) => this.choose(node),
      focus: (node) => this.focus(node),
      removing: () => byId("remove-mode").getAttribute("aria-pressed") === "true",
    });
    this.why = new WhyPanel(
      (node) => this.choose(node),
      (step) => {
        this.pause();
        this.goTo(step);
      },
    );
    this.search = new SearchPanel(this);
    this.compare = new ComparePanel(this);
    this.race = new RacePanel(this);
    this.learn = new LearnPanel(this);
    this.figures = new Figures(this);
    this.controls = new Controls(this);
  }

  // --- instances ----------------------------------------------------------------------------------------------------

  build(problem, source, given) {
    if (given) return given;
    if (source.kind === "random") return instances.randomInstance(problem, source.size, source.seed);
    const { title, solver, cost, ...fields } = PRESETS[problem][source.index],
      float = (values) => values && Float32Array.from(values);
    const values = {
      prize: float(fields.prize),
      penalty: float(fields.penalty),
      realPrize: float(fields.realPrize),
      readyTime: float(fields.readyTime),
      dueTime: float(fields.dueTime),
      serviceTime: float(fields.serviceTime),
      coords: float(fields.coords),
    };
    const given32 = Object.fromEntries(Object.entries(values).filter(([, value]) => value));
    return { problem, ...fields, ...given32, ...(fields.maxLength && { maxLength: Math.fround(fields.maxLength) }) };
  }

  // Load what an instance needs, solve it, and show it. `linked`: more of the state, where an address asks for it.
  async open(problem, source, given, linked = null) {
    const ticket = ++this.ticket,
      instance = this.build(problem, source, given),
      { state } = this,
      { tour, step, ...settings } = linked ?? {};
    const snapshot = problem === "TSP" ? ("snapshot" in settings ? settings.snapshot : state.snapshot) : null;
    const network = await this.load(problem, instance, snapshot);
    if (ticket !== this.ticket || !network) return;
    this.pause();
    Object.assign(state, settings, {
      problem,
      source,
      instance,
      network: network.network,
      modelName: network.name,
      snapshot,
      best: null,
      focus: -1,
    });
    this.solve(tour);
    state.step = Math.min(step ?? (calm() ? Infinity : 0), state.shown.actions.length);
    this.message(null);
    this.settle(!linked);
    this.controls.refresh();
    if (step == null && !calm()) this.play();
  }

  // The network for an instance; null if its weights do not load, which a message says.
  async load(problem, instance, snapshot) {
    const customers = rules.numNodes(instance) - (rules.PROBLEMS[problem].depot ? 1 : 0);
    const name = snapshot === null ? nearestModel(problem, customers) : SNAPSHOTS[snapshot].name;
    const buffer = await loadBuffer(name).catch(() => null);
    if (!buffer) return this.notLoaded();
    if (!this.networks.has(name)) this.networks.set(name, new attention.AttentionModel(buffer));
    return { name, network: this.networks.get(name) };
  }

  notLoaded() {
    this.message(NOT_LOADED);
    byId("loading").hidden = true;
    if (!this.state.shown) return null;
    this.learn.halt();
    this.controls.refresh(); // what is chosen there is what is still shown
    this.render();
    return null;
  }

  // Encode, and let the model play; then trace what is shown: the model's tour, or one that was given.
  solve(tour = null) {
    const { state } = this;
    state.encoding = state.network.encode(rules.observeStatic(state.instance));
    state.model = this.follow([]);
    state.shown = tour ? { ...this.follow(tour.actions), by: tour.by } : { ...state.model, by: "model" };
    state.trace = state.shown.trace;
  }

  // Play the actions given, then greedily to the end; keep states, probabilities and attention of each step.
  follow(given) {
    const { instance, encoding, network } = this.state,
      { initial, done, step, whyIllegal } = rules.PROBLEMS[instance.problem];
    const states = [initial(instance)],
      steps = [],
      actions = [];
    while (!done(instance, states[states.length - 1])) {
      const state = states[states.length - 1],
        observation = rules.observe(instance, state),
        { mask } = observation;
      const { logits, glimpse } = network.logits(encoding, observation),
        action = given[actions.length] ?? search.greedy(logits);
      if (!mask[action])
        throw new instances.InvalidInput(
          `the tour is not allowed: step ${actions.length + 1}: ${action < mask.length ? whyIllegal(instance, state, action) : `there is no node ${action}`}`,
        );
      steps.push({ mask, glimpse, probabilities: attention.probabilities(logits) });
      actions.push(action);
      states.push(step(instance, state, action));
    }
    if (given.length > actions.length) throw new instances.InvalidInput("the tour goes on after its end");
    return { actions, trace: { states, steps } };
  }

  // After a change of the instance; one that the visitor made is an entry of the history, which Back undoes.
  settle(made = true) {
    byId("loading").hidden = true;
    for (const element of document.querySelectorAll("[inert]")) element.inert = false;
    this.search.clear();
    this.race.clear();
    this.state.drawing = false;
    this.render();
    this.compare.ask();
    if (made) history.pushState(null, "", address.write(this.state));
  }

  edit(instance, then) {
    const { file, distances, ...rest } = instance,
      source = { kind: "own" },
      ticket = ++this.ticket;
    rest.coords = rest.coords.map(address.rounded);
    const edited = address.own(rest);
    return this.load(edited.problem, edited, this.state.snapshot).then((network) => {
      if (ticket !== this.ticket || !network) return;
      this.pause();
      Object.assign(this.state, {
        source,
        instance: edited,
        network: network.network,
        modelName: network.name,
        best: null,
      });
      this.solve();
      this.state.step = this.state.shown.actions.length;
      then?.();
    });
  }

  add(x, y, byKey = false) {
    const { instance, problem } = this.state,
      size = rules.numNodes(instance);
    if (size >= instances.MAX_NODES) return this.message(`This page goes up to ${instances.MAX_NODES} nodes.`);
    const coords = Float32Array.from([...instance.coords, x, y]),
      next = { ...instance, coords };
    const values = instances.drawValues(
      problem,
      rules.PROBLEMS[problem].depot ? size : size + 1,
      coords,
      search.randomNumbers(size),
    );
    for (const key of COLUMNS)
      if (instance[key]) {
        const value = key === "demand" ? Math.min(values[key][size], instance.capacity) : values[key][size];
        next[key] = key === "demand" ? [...instance[key], value] : Float32Array.from([...instance[key], value]);
      }
    this.edit(next, () => {
      this.settle();
      this.controls.refresh();
      this.announce(`Added ${nameOf(next, size)}. ${this.costSentence()}`);
      if (byKey) this.map.goTo(size);
    });
  }

  move(node, x, y, last, made = true) {
    const coords = this.state.instance.coords.slice(),
      { instance } = this.state;
    coords.set([x, y], 2 * node);
    cancelAnimationFrame(this.dragFrame);
    const act = () =>
      this.edit({ ...instance, coords }, () => {
        if (!last) {
          this.render();
          return clearTimeout(this.addressTimer); // the address is that of the map before, until the node is dropped
        }
        this.settle(made);
        this.controls.refresh();
        this.announce(`Moved ${nameOf(instance, node)}. ${this.costSentence()}`);
      });
    if (last) act();
    else this.dragFrame = requestAnimationFrame(act);
  }

  remove(node, byKey = false) {
    const { instance, problem } = this.state,
      { depot, minNodes } = rules.PROBLEMS[problem];
    if (depot && node === 0) return this.message("The depot cannot be removed: every tour starts and ends there.");
    if (rules.numNodes(instance) <= minNodes)
      return this.message(`${problem} needs at least ${depot ? "the depot and one customer" : "two cities"}.`);
    const next = { ...instance, coords: instance.coords.filter((_, i) => i >> 1 !== node) };
    for (const key of COLUMNS)
      if (instance[key]) next[key] = instance[key].filter((_, i) => i !== node);
    this.edit(next, () => {
      this.settle();
      this.controls.refresh();
      this.announce(`Removed ${nameOf(instance, node)}. ${this.costSentence()}`);
      if (byKey) this.map.goTo(Math.min(node, this.map.nodes.length - 1));
    });
  }

  async openFile(file) {
    try {
      if (file.size > instances.MAX_BYTES)
        throw new instances.InvalidInput(
          `the file has ${(file.size / 1e6).toFixed(1)} MB; this page reads up to 1 MB and ${instances.MAX_NODES} nodes`,
        );
      const text = await file.text(),
        instance = (isCsv(text) ? readCsv : instances.readFile)(text, file.name);
      await this.open(instance.problem, { kind: "file" }, instance);
    } catch (error) {
      this.message(`${file.name}: ${error.message}.`);
      if (!(error instanceof instances.InvalidInput)) throw error;
    }
  }

  async useSnapshot(index) {
    const ticket = ++this.ticket,
      { state } = this,
      network = await this.load("TSP", state.instance, index);
    if (ticket !== this.ticket || !network) return;
    this.pause();
    Object.assign(state, { snapshot: index, network: network.network, modelName: network.name, best: null });
    this.solve();
    state.step = state.shown.actions.length;
    this.search.clear();
    this.race.clear();
    this.render();
    this.compare.update();
    this.announce(`${byId("learn-text").textContent} ${this.costSentence()}`);
  }

  // --- steps and tours ----------------------------------------------------------------------------------------------

  goTo(step, fresh = false) {
    this.state.step = Math.max(0, Math.min(step, this.state.shown.actions.length));
    this.render(fresh);
  }

  stepBy(by) {
    this.pause();
    this.goTo(this.state.step + by, by === 1 && !calm());
    this.announce(this.stepSentence());
  }

  play() {
    const { state } = this,
      length = state.shown.actions.length;
    if (state.step >= length) state.step = 0;
    const pace = 1000 / (state.speed * Math.max(STEPS_PER_SECOND, length / LONGEST_PLAY));
    const tick = () => {
      this.goTo(state.step + 1, pace > 60 && !calm());
      if (state.step < state.shown.actions.length) this.timer = setTimeout(tick, pace);
      else {
        this.pause();
        this.announce(`The tour is complete. ${this.costSentence()}`);
      }
    };
    this.timer = setTimeout(tick, pace);
    this.render();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.figures.drawPlay();
  }

  // Go to this node instead of the model's choice, which then finishes the tour.
  choose(node) {
    const { state } = this,
      { instance, shown, step } = state;
    if (state.finished) return this.announce("The tour is complete. Step back to choose another node.");
    const { mask } = state.trace.steps[step];
    if (!mask[node]) {
      this.map.explain(node);
      return this.announce(describeNode(state, node));
    }
    if (shown.actions[step] === node && !state.drawing) return this.stepBy(1);
    const followed = this.follow([...shown.actions.slice(0, step), node]);
    this.pick({ ...followed, by: "you" }, step + 1);
    this.announce(`You chose ${nameOf(instance, node)}. ${state.drawing ? "" : byId("verdict").textContent}`);
  }

  // Begin a tour of the visitor's own: nothing shows what the model would do, until the tour is complete.
  draw() {
    const { state } = this;
    state.drawing = !state.drawing;
    state.view = "pointer";
    set(byId("remove-mode"), { "aria-pressed": "false" });
    this.controls.refresh();
    if (state.drawing) this.pick({ by: "model" }, 0);
    else this.render();
  }

  // The steps that are left to somebody who draws, where there is one legal node at each.
  withForced(step) {
    const { shown, trace } = this.state,
      forced = (i) => trace.steps[i].mask.reduce((sum, legal) => sum + legal, 0) === 1;
    while (step > 0 && step < shown.actions.length && forced(step)) step += 1;
    return step;
  }

  // Show a tour that the visitor asks for. A search or race stops: its next tour would replace this one.
  pick(tour, step) {
    this.search.stop("Stopped");
    this.race.stop();
    this.learn.halt();
    this.showTour(tour, step);
  }

  showTour({ actions, by, trace }, step = Infinity) {
    const { state } = this,
      model = by === "model" || by === "Model, greedy";
    this.pause();
    state.shown = model
      ? { ...state.model, by: "model" }
      : {
          actions,
          by: { "Model, search": "search", You: "you" }[by] ?? by,
          trace: trace ?? this.follow(actions).trace,
        };
    state.trace = state.shown.trace;
    this.goTo(state.drawing ? this.withForced(step) : step);
    this.compare.update();
  }

  found(actions) {
    const { state } = this,
      same = actions.every((node, i) => node === state.model.actions[i]);
    state.best = actions;
    this.showTour(same ? { by: "model" } : { actions, by: "Model, search" });
  }

  focus(node) {
    if (node === this.state.focus) return;
    this.state.focus = node;
    if (this.state.instance) this.render();
  }

  // --- drawing ------------------------------------------------------------------------------------------------------

  render(fresh = false) {
    const { state } = this;
    state.finished = state.step >= state.shown.actions.length;
    if (state.finished) state.drawing = false;
    state.lines = state.drawing ? [] : attentionLines(state);
    document.body.classList.toggle("drawing", state.drawing);
    set(byId("draw-mode"), { "aria-pressed": String(state.drawing) });
    this.map.update(state, fresh);
    this.why.update(state);
    this.learn.update(state);
    this.figures.update();
    if (byId("table-card").open) fillTable(state);
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => history.replaceState(null, "", address.write(state)), 300);
  }

  // --- words --------------------------------------------------------------------------------------------------------

  message(text) {
    byId("message").hidden = !text;
    byId("message").firstElementChild.textContent = text ?? "";
  }

  announce(text) {
    byId("status").textContent = text;
  }

  costSentence() {
    const { instance, shown } = this.state;
    return `${costName(instance)} ${show(instance, rules.score(instance, shown.actions))}.`;
  }

  stepSentence() {
    const { finished, step, shown } = this.state;
    return finished
      ? `The tour is complete. ${this.costSentence()}`
      : `Step ${step} of ${shown.actions.length}. ${byId("say").textContent}`;
  }

  // What the address asks for; where it asks for nonsense, say so and leave the page as it is.
  async openAddress(hash = location.hash) {
    const before = { ...this.state };
    try {
      const { problem, source, instance, ...linked } = address.read(hash, PRESETS, SNAPSHOTS.length);
      await this.open(problem, source, instance, { ...linked, layer: Math.min(linked.layer, 2) });
    } catch (error) {
      Object.assign(this.state, before);
      if (!this.state.shown) await this.open("TSP", { kind: "preset", index: 0 }, null, {});
      else this.render();
      if (this.state.shown) this.message(`This link cannot be opened: ${error.message}.`);
      if (!(error instanceof instances.InvalidInput)) throw error;
    }
  }
}

if (typeof MODELS === "undefined" || !MODELS.length) {
  byId("loading").hidden = true;
  Page.prototype.message(NOT_LOADED);
} else {
  window.page = new Page();
  page.openAddress();
}
