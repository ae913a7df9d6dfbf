// Tours: decoding with the model (agents/routing_agents/policies/attention/decoding.py), heuristics, and dynamic programming.
function searchCore(attention, rules) {
  "use strict";

  const MIN_GAIN = 1e-9; // smaller gains are rounding errors, and could go round in circles
  const LONGEST_SEGMENT = 3;
  const MOST_FOR_OPTIMUM = 12; // customers (cities of the TSP): time and memory double with each

  // Uniform numbers in [0, 1) from a 32-bit seed (mulberry32).
  function randomNumbers(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }

  function greedy(logits) {
    let best = 0;
    for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
    return best;
  }

  const sampler = (random, temperature) => (logits) => {
    const p = attention.probabilities(logits, temperature);
    let left = random(),
      last = 0;
    for (let i = 0; i < p.length; i++) {
      if (p[i] === 0) continue;
      last = i;
      if ((left -= p[i]) < 0) return i;
    }
    return last;
  };

  // Play to the end after the actions given; returns all actions.
  function decode(model, instance, encoding, choose = greedy, actions = []) {
    const { done, step } = rules.PROBLEMS[instance.problem];
    let state = rules.play(instance, actions).pop();
    const tour = [...actions];
    while (!done(instance, state)) {
      const action = choose(model.logits(encoding, rules.observe(instance, state)).logits);
      tour.push(action);
      state = step(instance, state, action);
    }
    return tour;
  }

  // One of the eight symmetries of the unit square: bit 4 swaps the axes, then bits 1 and 2 mirror them.
  function symmetry(coords, index) {
    return coords.map((_, i) => {
      const axis = i % 2,
        value = coords[index & 4 ? i ^ 1 : i];
      return index & (axis ? 2 : 1) ? 1 - value : value;
    });
  }

  // Decode many tours; `report` gets {done, total, cost, actions} whenever the best improves, and now and then, and
  // ends the search by returning false.
  // options: {method: "greedy" | "sampling" | "starts", tours, temperature, symmetries: 1 or 8, seed}
  function decodeMany(model, instance, options, report) {
    const { method, symmetries } = options,
      { depot } = rules.PROBLEMS[instance.problem];
    const customers = rules.numNodes(instance) - depot;
    const perSymmetry = method === "greedy" ? 1 : method === "starts" ? customers : options.tours;
    const choose = method === "sampling" ? sampler(randomNumbers(options.seed), options.temperature) : greedy;
    const best = { done: 0, total: perSymmetry * symmetries, cost: Infinity, actions: null };
    const observation = rules.observeStatic(instance);
    for (let index = 0; index < symmetries; index++) {
      const encoding = model.encode({ ...observation, coords: symmetry(observation.coords, index) });
      for (let tour = 0; tour < perSymmetry; tour++) {
        const actions = decode(model, instance, encoding, choose, method === "starts" ? [tour + depot] : []);
        const cost = rules.PROBLEMS[instance.problem].cost(instance, actions),
          better = cost < best.cost - MIN_GAIN;
        best.done += 1;
        if (better) Object.assign(best, { cost, actions });
        if ((better || best.done % 20 === 0 || best.done === best.total) && report({ ...best }) === false) return best;
      }
    }
    return best;
  }

  // Always go to the nearest legal node; back when none is left, in PCTSP and SPCTSP as soon as allowed.
  function nearestNeighbour(instance) {
    const { depot, done, mask, step, initial } = rules.PROBLEMS[instance.problem];
    const early = instance.problem.endsWith("PCTSP"),
      tour = depot ? [] : [0];
    let state = depot ? initial(instance) : step(instance, initial(instance), 0);
    while (!done(instance, state)) {
      const legal = mask(instance, state);
      let best = -1,
        shortest = Infinity;
      for (let node = 0; node < legal.length; node++) {
        const isDepot = depot && node === 0;
        const length = isDepot ? (early ? -1 : Number.MAX_VALUE) : rules.leg(instance, state.node, node);
        if (legal[node] && length < shortest) [best, shortest] = [node, length];
      }
      tour.push(best);
      state = step(instance, state, best);
    }
    return tour;
  }

  // TSP: take the shortest edges that leave a tour possible, until there is one.
  function greedyEdges(instance) {
    const n = rules.numNodes(instance),
      part = Array.from({ length: n }, (_, i) => i),
      links = Array.from({ length: n }, () => []);
    const root = (node) => (part[node] === node ? node : (part[node] = root(part[node])));
    const edges = [];
    for (let a = 0; a < n; a++) for (let b = a + 1; b < n; b++) edges.push([rules.leg(instance, a, b), a, b]);
    for (const [, a, b] of edges.sort((x, y) => x[0] - y[0]))
      if (links[a].length < 2 && links[b].length < 2 && root(a) !== root(b)) {
        links[a].push(b);
        links[b].push(a);
        part[root(a)] = root(b);
      }
    const tour = [];
    for (let node = links.findIndex((ends) => ends.length < 2), last = -1; node !== undefined; ) {
      tour.push(node);
      [node, last] = [links[node].find((next) => next !== last), node];
    }
    return tour;
  }

  // Shorten one closed trip by 2-opt (turn a part around) and Or-opt (move up to three nodes), the best move each
  // time; its first node stays first. Distances must be symmetric. `report` gets the trip after each move.
  function shorten(trip, distance, report = () => {}) {
    const n = trip.length,
      at = (i) => trip[(i + n) % n];
    for (;;) {
      let best = -MIN_GAIN,
        next = null;
      for (let i = 0; i < n - 1; i++)
        for (let j = i + 1; j < n; j++) {
          const change =
            distance(at(i), at(j)) +
            distance(at(i + 1), at(j + 1)) -
            distance(at(i), at(i + 1)) -
            distance(at(j), at(j + 1));
          if (change < best) [best, next] = [change, () => reversed(trip, i + 1, j)];
        }
      for (let length = 1; length <= Math.min(LONGEST_SEGMENT, n - 2); length++)
        for (let s = 1; s + length <= n; s++) {
          const first = at(s),
            last = at(s + length - 1),
            before = at(s - 1),
            after = at(s + length);
          const saved = distance(before, first) + distance(last, after) - distance(before, after);
          for (let p = 0; p < n; p++) {
            if (p >= s - 1 && p < s + length) continue;
            const gap = distance(at(p), at(p + 1));
            for (const turned of [false, true]) {
              const [head, tail] = turned ? [last, first] : [first, last];
              const change = distance(at(p), head) + distance(tail, at(p + 1)) - gap - saved;
              if (change < best) [best, next] = [change, () => moved(trip, s, length, p, turned)];
            }
          }
        }
      if (!next) return trip;
      trip = next();
      report(trip);
    }
  }

  const reversed = (trip, from, to) => [
    ...trip.slice(0, from),
    ...trip.slice(from, to + 1).reverse(),
    ...trip.slice(to + 1),
  ];

  function moved(trip, start, length, after, turned) {
    const segment = trip.slice(start, start + length),
      target = trip[after];
    const rest = [...trip.slice(0, start), ...trip.slice(start + length)];
    rest.splice(rest.indexOf(target) + 1, 0, ...(turned ? segment.reverse() : segment));
    return rest;
  }

  // Local search changes the order of a trip. With windows it may then be late, and with split deliveries, where a visit
  // delivers as much as is left on the vehicle, other customers would get the rest.
  const hasLocalSearch = (instance) => !rules.PROBLEMS[instance.problem].windows && !rules.PROBLEMS[instance.problem].split;

  // 2-opt and Or-opt from the nearest neighbour tour; with several trips, within each. OP then fits in what it can.
  // `report` gets the tour after each move.
  function localSearch(instance, report = () => {}) {
    const { depot } = rules.PROBLEMS[instance.problem],
      distance = (a, b) => rules.leg(instance, a, b);
    const start = nearestNeighbour(instance);
    if (!depot) return shorten(start, distance, report);
    const joined = (some) => [...some.flatMap((trip) => [...trip.slice(1), 0]), ...(some.length ? [] : [0])];
    const trips = [[0]];
    for (const node of start) node ? trips[trips.length - 1].push(node) : trips.push([0]);
    const full = trips.filter((trip) => trip.length > 1);
    for (const [i, trip] of full.entries())
      full[i] = shorten(trip, distance, (better) => report(joined(full.with(i, better))));
    if (instance.problem === "OP") return [...insertMore(instance, full[0] ?? [0], distance).slice(1), 0];
    return joined(full);
  }

  // OP: put in the node with the most prize per detour that still fits, and shorten, until none fits.
  function insertMore(instance, trip, distance) {
    for (;;) {
      const room = instance.maxLength - rules.tourLength(instance, trip.slice(1));
      let best = -1,
        place = 0,
        node = 0;
      for (let candidate = 1; candidate < rules.numNodes(instance); candidate++) {
        if (trip.includes(candidate)) continue;
        for (let i = 0; i < trip.length; i++) {
          const next = trip[(i + 1) % trip.length];
          const detour = distance(trip[i], candidate) + distance(candidate, next) - distance(trip[i], next);
          const worth = instance.prize[candidate] / Math.max(detour, MIN_GAIN);
          if (detour <= room && worth > best) [best, place, node] = [worth, i + 1, candidate];
        }
      }
      if (best < 0) return trip;
      trip = shorten([...trip.slice(0, place), node, ...trip.slice(place)], distance);
    }
  }

  // --- a race ------------------------------------------------------------------------------------------------------

  // Let a heuristic, local search, the greedy policy and the policy's search solve an instance one after the other,
  // each by its own clock. `report` gets {by, seconds, cost, actions} whenever one of them has a better tour.
  function race(model, instance, seconds, report) {
    const { depot, cost } = rules.PROBLEMS[instance.problem];
    const run = (by, solve) => {
      const start = performance.now(),
        clock = () => (performance.now() - start) / 1000;
      let least = Infinity;
      const tell = (actions) => {
        const now = cost(instance, actions);
        if (now < least - MIN_GAIN) report({ by, seconds: clock(), cost: (least = now), actions });
      };
      tell(solve(tell, clock));
    };
    if (depot) run("Nearest neighbour", () => nearestNeighbour(instance));
    else run("Greedy edge", () => greedyEdges(instance));
    if (hasLocalSearch(instance)) run("2-opt and Or-opt", (tell) => localSearch(instance, tell));
    run("Model, greedy", () => decode(model, instance, model.encode(rules.observeStatic(instance))));
    run("Model, search", (tell, clock) => {
      const options = { method: "sampling", tours: 2000, temperature: 1, symmetries: 8, seed: 1 };
      const goOn = ({ actions }) => {
        tell(actions);
        return clock() < seconds;
      };
      return decodeMany(model, instance, options, goOn).actions;
    });
  }

  // --- the optimum of small instances, by dynamic programming over subsets (Bellman 1962; Held and Karp 1962) -------

  const hasOptimum = (instance) => {
    const { depot, stochastic, windows, split } = rules.PROBLEMS[instance.problem];
    return !stochastic && !windows && !split && rules.numNodes(instance) - 1 <= MOST_FOR_OPTIMUM - (depot ? 0 : 1);
  };

  // best[S * m + j]: the shortest way from node 0 through the set S of the other m nodes, ending at node j + 1; of OP,
  // those ways only that keep the direct way back open at each node.
  function shortestWays(instance) {
    const m = rules.numNodes(instance) - 1,
      sets = 1 << m,
      leg = (a, b) => rules.leg(instance, a, b),
      longest = instance.problem === "OP" ? instance.maxLength + 5e-7 : Infinity;
    const best = new Float64Array(sets * m).fill(Infinity),
      from = new Int8Array(sets * m).fill(-1);
    for (let j = 0; j < m; j++) best[(1 << j) * m + j] = leg(0, j + 1);
    for (let set = 1; set < sets; set++)
      for (let j = 0; j < m; j++) {
        const length = best[set * m + j];
        if (length + leg(j + 1, 0) > longest) best[set * m + j] = Infinity;
        if (best[set * m + j] === Infinity) continue;
        for (let k = 0; k < m; k++) {
          if (set & (1 << k)) continue;
          const place = (set | (1 << k)) * m + k,
            through = length + leg(j + 1, k + 1);
          if (through < best[place]) [best[place], from[place]] = [through, j];
        }
      }
    const closed = new Float64Array(sets),
      last = new Int8Array(sets);
    for (let set = 1; set < sets; set++) {
      closed[set] = Infinity;
      for (let j = 0; j < m; j++) {
        const length = best[set * m + j] + leg(j + 1, 0);
        if (length < closed[set]) [closed[set], last[set]] = [length, j];
      }
    }
    const trip = (set) => {
      const nodes = [];
      for (let j = last[set]; set;) {
        nodes.unshift(j + 1);
        const before = from[set * m + j];
        set &= ~(1 << j);
        j = before;
      }
      return nodes;
    };
    return { m, sets, closed, trip };
  }

  const sumOver = (m, sets, values) => {
    const sums = new Float64Array(sets);
    for (let set = 1; set < sets; set++) {
      const low = 31 - Math.clz32(set & -set);
      sums[set] = sums[set & (set - 1)] + values[low + 1];
    }
    return sums;
  };

  // The optimum's actions; only for instances that `hasOptimum`.
  function optimum(instance) {
    const ways = shortestWays(instance),
      { m, sets, closed, trip } = ways,
      all = sets - 1;
    if (instance.problem === "TSP") return [0, ...trip(all)];
    if (instance.problem === "CVRP") return bestTrips(instance, ways);
    const prizes = sumOver(m, sets, instance.prize),
      isOP = instance.problem === "OP";
    const penalties = isOP ? null : sumOver(m, sets, instance.penalty);
    let best = -1,
      cost = Infinity;
    for (let set = 0; set < sets; set++) {
      const allowed = isOP ? closed[set] < Infinity : prizes[set] >= 1 - 1e-6 || set === all;
      const value = isOP ? -prizes[set] : closed[set] + penalties[all] - penalties[set];
      if (allowed && value < cost) [best, cost] = [set, value];
    }
    return [...trip(best), 0];
  }

  // CVRP: the cheapest way to part the customers into trips that the vehicle can carry.
  function bestTrips(instance, { m, sets, closed, trip }) {
    const load = sumOver(m, sets, instance.demand),
      cost = new Float64Array(sets).fill(Infinity),
      part = new Int32Array(sets);
    cost[0] = 0;
    for (let set = 1; set < sets; set++) {
      const first = set & -set; // its first customer is in one of the trips: look at that one
      for (let sub = set; sub; sub = (sub - 1) & set)
        if (sub & first && load[sub] <= instance.capacity && closed[sub] + cost[set ^ sub] < cost[set])
          [cost[set], part[set]] = [closed[sub] + cost[set ^ sub], sub];
    }
    const actions = [];
    for (let set = sets - 1; set; set ^= part[set]) actions.push(...trip(part[set]), 0);
    return actions;
  }

  return {
    MOST_FOR_OPTIMUM,
    decode,
    decodeMany,
    greedy,
    greedyEdges,
    hasOptimum,
    hasLocalSearch,
    localSearch,
    nearestNeighbour,
    optimum,
    race,
    randomNumbers,
    symmetry,
  };
}
