// The rules of the seven problems, for one instance at a time: routing_gym/problems/. Node 0 is the depot, but for TSP.
// Lengths are float32 legs added in float64, and masks compare as there, so that the same actions are legal.
function rulesCore() {
  "use strict";

  const fround = Math.fround,
    TOLERANCE = 1e-6,
    ENOUGH_PRIZE = 1 - TOLERANCE;

  // An instance: {problem, coords: Float32Array (2 A), distances?: Float32Array (A A), demand?, capacity?,
  // prize?, penalty?: Float32Array (A), realPrize?, maxLength?, readyTime?, dueTime?, serviceTime?: Float32Array (A)}
  const numNodes = (instance) => instance.coords.length / 2;

  const between = (x, xs, ys) => {
    // linear, constant outside
    for (let i = 1; i < xs.length; i++)
      if (x <= xs[i]) return ys[i - 1] + ((ys[i] - ys[i - 1]) * Math.max(0, x - xs[i - 1])) / (xs[i] - xs[i - 1]);
    return ys[ys.length - 1];
  };
  const expectedLength = (n) => (n > 100 ? 0.4 * Math.sqrt(n) : between(n, [20, 50, 100], [2, 3, 4]));

  // By how much the model's map of an instance of OP is larger, as in `OP.rescale`.
  const opScale = (instance) =>
    Math.min(1.4, Math.max(0.5, fround(expectedLength(numNodes(instance) - 1)) / Math.max(1e-9, instance.maxLength)));

  function leg(instance, from, to) {
    if (instance.distances) return instance.distances[from * numNodes(instance) + to];
    const { coords } = instance;
    const x = fround(coords[2 * from] - coords[2 * to]),
      y = fround(coords[2 * from + 1] - coords[2 * to + 1]);
    return fround(Math.sqrt(fround(fround(x * x) + fround(y * y))));
  }

  const changed = (array, index, value) => {
    const copy = array.slice();
    copy[index] = value;
    return copy;
  };
  const shares = (amounts, capacity) => Float32Array.from(amounts, (amount) => fround(amount) / fround(capacity));

  function tourLength(instance, actions) {
    const stops = PROBLEMS[instance.problem].depot ? [0, ...actions] : actions;
    return stops.reduce((sum, node, i) => sum + leg(instance, node, stops[(i + 1) % stops.length]), 0);
  }

  const TSP = {
    depot: false,
    anyFirstNode: true,
    minNodes: 2,
    describe: "Visit every city once and return to the first.",
    initial: (instance) => ({ node: 0, first: 0, steps: 0, open: new Uint8Array(numNodes(instance)).fill(1) }),
    mask: (instance, state) => state.open,
    step(instance, state, action) {
      const first = state.steps ? state.first : action;
      const closes = state.steps === numNodes(instance) - 1;
      return {
        node: action,
        first,
        steps: state.steps + 1,
        open: closes ? state.open : changed(state.open, action, 0),
      };
    },
    done: (instance, state) => state.steps === numNodes(instance),
    whyIllegal: (instance, state, action) => `city ${action} is already visited`,
    observe: (instance, state) => ({ contextNodes: state.steps ? [state.first, state.node] : null, scalars: [] }),
    cost: tourLength,
    context: (instance, state, node) => [["First city", state.steps ? node(state.first) : "not chosen yet"]],
  };

  const CVRP = {
    depot: true,
    anyFirstNode: true,
    minNodes: 2,
    describe: "Serve every customer whole; the vehicle refills at the depot.",
    initial: (instance) => ({ node: 0, load: 0, numServed: 0, served: new Uint8Array(numNodes(instance)) }),
    mask(instance, state) {
      const free = instance.capacity - state.load;
      const mask = Uint8Array.from(instance.demand, (demand, i) => demand <= free && !state.served[i]);
      mask[0] = state.node !== 0 || state.numServed === numNodes(instance) - 1;
      return mask;
    },
    step: (instance, state, action) => ({
      node: action,
      load: action ? state.load + instance.demand[action] : 0,
      numServed: state.numServed + (action ? 1 : 0),
      served: action ? changed(state.served, action, 1) : state.served,
    }),
    done: (instance, state) => state.node === 0 && state.numServed === numNodes(instance) - 1,
    whyIllegal(instance, state, action) {
      if (action === 0) return "the vehicle is already at the depot and customers remain";
      if (state.served[action]) return `customer ${action} is already served`;
      return `demand ${instance.demand[action]} exceeds the free capacity ${instance.capacity - state.load}`;
    },
    observe: (instance, state) => ({
      contextNodes: [state.node],
      scalars: [fround(fround(instance.capacity - state.load) / fround(instance.capacity))],
    }),
    cost: tourLength,
    context: (instance, state) => [
      [
        "Free capacity",
        `${instance.capacity - state.load} of ${instance.capacity}`,
        1 - state.load / instance.capacity,
      ],
    ],
  };

  const SDVRP = {
    ...CVRP,
    anyFirstNode: false,
    split: true,
    describe: "As CVRP, but a customer may be served in several visits.",
    initial: (instance) => ({
      node: 0,
      load: 0,
      undelivered: instance.demand.reduce((a, b) => a + b, 0),
      remaining: Float64Array.from(instance.demand),
    }),
    mask(instance, state) {
      const hasGoods = state.load < instance.capacity;
      const mask = Uint8Array.from(state.remaining, (demand) => hasGoods && demand > 0);
      mask[0] = state.node !== 0 || state.undelivered === 0;
      return mask;
    },
    step(instance, state, action) {
      const delivered = Math.min(state.remaining[action], instance.capacity - state.load);
      return {
        node: action,
        load: action ? state.load + delivered : 0,
        undelivered: state.undelivered - delivered,
        remaining: changed(state.remaining, action, state.remaining[action] - delivered),
      };
    },
    done: (instance, state) => state.node === 0 && state.undelivered === 0,
    whyIllegal(instance, state, action) {
      if (action === 0) return "the vehicle is already at the depot and customers remain";
      if (state.remaining[action] === 0) return `customer ${action} has no demand left`;
      return "the vehicle is empty";
    },
    observe: (instance, state) => ({
      ...CVRP.observe(instance, state),
      remaining: shares(state.remaining, instance.capacity),
    }),
  };

  const OP = {
    depot: true,
    anyFirstNode: false,
    minNodes: 2,
    maximises: true,
    describe: "Collect prizes and be back at the depot within a maximum length.",
    initial: (instance) => ({ node: 0, length: 0, returned: false, visited: new Uint8Array(numNodes(instance)) }),
    mask(instance, state) {
      const budget = instance.maxLength + TOLERANCE / 2 - state.length,
        mask = new Uint8Array(numNodes(instance));
      mask[0] = 1;
      if (!state.returned)
        for (let i = 1; i < mask.length; i++)
          mask[i] = !state.visited[i] && leg(instance, state.node, i) + leg(instance, i, 0) <= budget;
      return mask;
    },
    step: (instance, state, action) => ({
      node: action,
      length: state.length + leg(instance, state.node, action),
      returned: action === 0,
      visited: action ? changed(state.visited, action, 1) : state.visited,
    }),
    done: (instance, state) => state.returned,
    whyIllegal(instance, state, action) {
      if (state.visited[action]) return `node ${action} is already visited`;
      return `node ${action} and the way back are longer than the ${inUnits(instance, instance.maxLength - state.length)} left`;
    },
    observe: (instance, state) => ({
      contextNodes: [state.node],
      scalars: [opScale(instance) * Math.max(0, fround(instance.maxLength - state.length))],
    }),
    cost: (instance, actions) => -actions.reduce((sum, node) => sum + (node ? instance.prize[node] : 0), 0),
    context: (instance, state) => [
      [
        "Length left",
        `${inUnits(instance, Math.max(0, instance.maxLength - state.length))} of ${inUnits(instance, instance.maxLength)}`,
        Math.max(0, 1 - state.length / instance.maxLength),
      ],
    ],
  };

  const PCTSP = {
    depot: true,
    anyFirstNode: false,
    minNodes: 2,
    describe: "Collect a prize of 1; pay the penalty of every customer you skip.",
    collectable: (instance) => instance.prize,
    initial: (instance) => ({
      node: 0,
      numVisited: 0,
      collected: 0,
      returned: false,
      visited: new Uint8Array(numNodes(instance)),
    }),
    mask(instance, state) {
      const mask = state.visited.map((visited) => !visited && !state.returned);
      mask[0] = state.collected >= ENOUGH_PRIZE || state.numVisited === numNodes(instance) - 1 || state.returned;
      return mask;
    },
    step(instance, state, action) {
      const prize = PROBLEMS[instance.problem].collectable(instance);
      return {
        node: action,
        numVisited: state.numVisited + (action ? 1 : 0),
        collected: state.collected + prize[action],
        returned: action === 0,
        visited: action ? changed(state.visited, action, 1) : state.visited,
      };
    },
    done: (instance, state) => state.returned,
    whyIllegal(instance, state, action) {
      if (action === 0)
        return `the prize collected, ${state.collected.toPrecision(3)}, is below 1 and customers remain`;
      return `customer ${action} is already visited`;
    },
    observe: (instance, state) => ({ contextNodes: [state.node], scalars: [Math.max(0, fround(1 - state.collected))] }),
    cost(instance, actions) {
      const visited = new Set(actions);
      return instance.penalty.reduce(
        (sum, fine, node) => sum + (visited.has(node) ? 0 : fine),
        tourLength(instance, actions),
      );
    },
    context: (instance, state) => [
      ["Prize collected", `${state.collected.toFixed(2)} of 1`, Math.min(1, state.collected)],
    ],
  };

  const SPCTSP = {
    ...PCTSP,
    stochastic: true,
    describe: "As PCTSP, but the real prize shows only when it is collected.",
    collectable: (instance) => instance.realPrize,
  };

  // When a vehicle that serves nobody else starts the service of a customer, and is back at the depot.
  function alone({ readyTime, serviceTime, ...instance }, customer) {
    const start = Math.max(readyTime[0] + leg(instance, 0, customer), readyTime[customer]);
    return { start, back: start + serviceTime[customer] + leg(instance, customer, 0) };
  }

  const VRPTW = {
    ...CVRP,
    anyFirstNode: false,
    windows: true,
    describe: "As CVRP; service starts within the customer’s time window, drawn as an arc of the day around it.",
    initial: (instance) => ({
      ...CVRP.initial(instance),
      time: instance.readyTime[0],
      // arrival with which a customer's window and the depot's are kept
      latest: Array.from(instance.dueTime, (due, i) => {
        const home = instance.dueTime[0] - leg(instance, i, 0) - instance.serviceTime[i];
        return Math.min(due, home) + TOLERANCE / 2;
      }),
    }),
    mask(instance, state) {
      const mask = CVRP.mask(instance, state);
      for (let i = 1; i < mask.length; i++) mask[i] &&= state.time + leg(instance, state.node, i) <= state.latest[i];
      return mask;
    },
    step(instance, state, action) {
      const opens = instance.readyTime[action],
        arrival = action ? state.time + leg(instance, state.node, action) : opens;
      return {
        ...CVRP.step(instance, state, action),
        time: Math.max(arrival, opens) + instance.serviceTime[action],
        latest: state.latest,
      };
    },
    whyIllegal(instance, state, action) {
      if (action && !state.served[action] && instance.demand[action] <= instance.capacity - state.load) {
        const arrival = state.time + leg(instance, state.node, action);
        return `arrival at ${arrival.toFixed(2)} is later than ${state.latest[action].toFixed(2)}`;
      }
      return CVRP.whyIllegal(instance, state, action);
    },
    observe: (instance, state) => ({
      contextNodes: [state.node],
      scalars: [...CVRP.observe(instance, state).scalars, fround(state.time)],
    }),
    context: (instance, state) => [
      ...CVRP.context(instance, state),
      ["Time", `${state.time.toFixed(2)} of ${instance.dueTime[0].toFixed(2)}`, state.time / instance.dueTime[0]],
    ],
    // The first customer whom no vehicle can serve in time, or -1.
    unreachable(instance) {
      const late = (customer) => {
        const { start, back } = alone(instance, customer);
        return start > instance.dueTime[customer] + TOLERANCE / 2 || back > instance.dueTime[0] + TOLERANCE / 2;
      };
      return instance.demand.findIndex((_, node) => node > 0 && late(node));
    },
    // The same instance, in which windows close later where a node has moved out of reach.
    reachable(instance) {
      const dueTime = instance.dueTime.slice(),
        later = (time) => Math.ceil(time * 1e4) / 1e4; // as many digits as an address has
      for (let customer = 1; customer < dueTime.length; customer++) {
        const { start, back } = alone(instance, customer);
        if (start > dueTime[customer]) dueTime[customer] = later(start);
        if (back > dueTime[0]) dueTime[0] = later(back);
      }
      return { ...instance, dueTime };
    },
  };

  const PROBLEMS = { TSP, CVRP, SDVRP, OP, PCTSP, SPCTSP, VRPTW };

  // What the encoder sees; OP's prizes are scaled where some exceed 1, the most that is drawn, and lengths so that the
  // maximum is the one that is drawn (`OP.rescale`).
  function observeStatic(instance) {
    const { coords, problem, readyTime, dueTime, serviceTime } = instance;
    if (problem === "VRPTW")
      return { coords, demand: shares(instance.demand, instance.capacity), readyTime, dueTime, serviceTime };
    if (problem === "CVRP" || problem === "SDVRP")
      return { coords, demand: shares(instance.demand, instance.capacity) };
    if (problem === "OP") {
      const highest = Math.max(1, ...instance.prize),
        scale = opScale(instance);
      return {
        coords: coords.map((x) => scale * x + (1 - scale) / 2),
        prize: instance.prize.map((prize) => prize / highest),
      };
    }
    return { coords, prize: instance.prize, penalty: instance.penalty };
  }

  function observe(instance, state) {
    const rules = PROBLEMS[instance.problem];
    return { ...rules.observe(instance, state), mask: rules.mask(instance, state) };
  }

  // The owner's unit of length: that of the file, else the side of the square.
  function inUnits(instance, length) {
    return instance.file ? String(Math.round(length * instance.file.scale)) : length.toFixed(2);
  }

  // The cost as `routing_gym.data` scores it: whole numbers in a file's own metric. OP: the prize, as a positive number.
  function score(instance, actions) {
    const rules = PROBLEMS[instance.problem],
      { file } = instance;
    if (!file) return rules.maximises ? -rules.cost(instance, actions) : rules.cost(instance, actions);
    if (rules.maximises) return actions.reduce((sum, node) => sum + (node ? file.scores[node] : 0), file.scores[0]);
    const stops = rules.depot ? [0, ...actions] : actions,
      A = numNodes(instance);
    return stops.reduce((sum, node, i) => sum + file.distances[node * A + stops[(i + 1) % stops.length]], 0);
  }

  // Play actions; returns the states, one more than actions. Throws where one is illegal.
  function play(instance, actions) {
    const rules = PROBLEMS[instance.problem],
      states = [rules.initial(instance)];
    for (const action of actions) {
      const state = states[states.length - 1];
      if (rules.done(instance, state)) throw new Error(`the tour goes on after its end, at step ${states.length}`);
      if (!rules.mask(instance, state)[action])
        throw new Error(`step ${states.length}: ${rules.whyIllegal(instance, state, action)}`);
      states.push(rules.step(instance, state, action));
    }
    return states;
  }

  return { PROBLEMS, between, expectedLength, inUnits, leg, numNodes, observe, observeStatic, play, score, tourLength };
}
