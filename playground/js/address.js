// The whole state of the page in the URL's hash, and back. What does not parse is refused with a reason.
function addressCore(rules, instances) {
  "use strict";

  const { InvalidInput } = instances;
  const VIEWS = ["pointer", "glimpse", "encoder"],
    SPEEDS = ["0.5", "1", "2", "4"],
    DIGITS = 4;
  const KEYS = [
    "problem",
    "preset",
    "random",
    "nodes",
    "file",
    "metric",
    "limit",
    "tour",
    "by",
    "step",
    "view",
    "layer",
    "head",
    "speed",
    "snapshot",
    "theme",
  ];
  const BY = {
    you: "you",
    search: "search",
    "nearest-neighbour": "Nearest neighbour",
    "greedy-edge": "Greedy edge",
    "local-search": "2-opt and Or-opt",
    optimum: "Optimum",
  };
  const MAX_LENGTH = 20000;

  const shortened = (name) => [...name].slice(0, 200).join(""); // whole characters
  const rounded = (value) => Number(value.toFixed(DIGITS));
  const columnsOf = {
    TSP: [],
    CVRP: ["demand"],
    SDVRP: ["demand"],
    OP: ["prize"],
    PCTSP: ["prize", "penalty"],
    SPCTSP: ["prize", "penalty", "realPrize"],
    VRPTW: ["demand", "readyTime", "dueTime", "serviceTime"],
  };
  const limitOf = { CVRP: "capacity", SDVRP: "capacity", VRPTW: "capacity", OP: "maxLength" };
  const AT_DEPOT = ["readyTime", "dueTime"]; // the depot has these, too

  // An instance of one's own is kept to four digits, so that the address gives exactly the same one again.
  function own(instance) {
    const round = (values) => Float32Array.from(values, rounded),
      { problem } = instance;
    const columns = Object.fromEntries(
      columnsOf[problem].map((key) => [key, key === "demand" ? [...instance[key]] : round(instance[key])]),
    );
    const limit = limitOf[problem],
      { windows, reachable } = rules.PROBLEMS[problem];
    const kept = {
      problem,
      coords: round(instance.coords),
      ...columns,
      ...(limit && { [limit]: Math.fround(rounded(instance[limit])) }),
    };
    return windows ? reachable(kept) : kept;
  }

  function writeNodes(instance) {
    const { file } = instance,
      A = rules.numNodes(instance),
      keys = columnsOf[instance.problem];
    return Array.from({ length: A }, (_, i) => {
      const place = file ? file.points[i] : [rounded(instance.coords[2 * i]), rounded(instance.coords[2 * i + 1])];
      const values = keys.map((key) => (file && key === "prize" ? file.scores[i] : rounded(instance[key][i])));
      return [...place, ...values].join("_");
    }).join("~");
  }

  function write(state) {
    const { instance, source, problem } = state,
      fields = { problem };
    if (source.kind === "preset") fields.preset = source.index;
    else if (source.kind === "random") fields.random = `${source.size}.${source.seed}`;
    else {
      fields.nodes = writeNodes(instance);
      const limit = limitOf[problem];
      if (source.kind === "file") Object.assign(fields, { file: shortened(instance.file.name), metric: instance.file.metric });
      if (limit) fields.limit = instance.file && problem === "OP" ? instance.file.limit : rounded(instance[limit]);
    }
    if (state.shown && state.shown.by !== "model") {
      fields.tour = state.shown.actions.join(".");
      fields.by = Object.keys(BY).find((key) => BY[key] === state.shown.by);
    }
    if (state.snapshot !== null) fields.snapshot = state.snapshot;
    Object.assign(fields, {
      step: state.step,
      view: state.view,
      layer: state.layer + 1,
      head: state.head + 1,
      speed: state.speed,
    });
    if (state.theme) fields.theme = state.theme;
    return (
      "#" +
      Object.entries(fields)
        .map(([key, value]) => `${key}=${encodeURIComponent(value)}`)
        .join("&")
    );
  }

  function split(hash) {
    if (hash.length > MAX_LENGTH) throw new InvalidInput("the address is longer than any that this page writes");
    const fields = {};
    for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
      const place = part.indexOf("="),
        key = part.slice(0, place);
      if (place < 1 || !KEYS.includes(key))
        throw new InvalidInput(`the address holds ${JSON.stringify(part.slice(0, 40))}, which this page does not know`);
      if (key in fields) throw new InvalidInput(`the address gives ${key} twice`);
      try {
        fields[key] = decodeURIComponent(part.slice(place + 1));
      } catch {
        throw new InvalidInput(`the address gives a ${key} that is not readable`);
      }
    }
    return fields;
  }

  function whole(fields, key, low, high, otherwise) {
    if (!(key in fields)) return otherwise;
    if (!/^\d{1,9}$/.test(fields[key]) || fields[key] < low || fields[key] > high)
      throw new InvalidInput(
        `the address gives ${key}=${JSON.stringify(fields[key].slice(0, 40))}; expected a whole number from ${low} to ${high}`,
      );
    return Number(fields[key]);
  }

  function oneOf(fields, key, choices, otherwise) {
    if (!(key in fields)) return otherwise;
    if (!choices.includes(fields[key]))
      throw new InvalidInput(
        `the address gives ${key}=${JSON.stringify(fields[key].slice(0, 40))}; expected one of ${choices.join(", ")}`,
      );
    return fields[key];
  }

  function readNodes(fields, problem) {
    const keys = columnsOf[problem],
      least = rules.PROBLEMS[problem].minNodes;
    const rows = fields.nodes
      .split("~")
      .map((row) => row.split("_").map((text) => instances.number(text, "the address")));
    if (rows.length > instances.MAX_NODES || rows.length < least)
      throw new InvalidInput(
        `the address gives ${rows.length} nodes; this page takes ${least} to ${instances.MAX_NODES}`,
      );
    const wrong = rows.findIndex((row) => row.length !== 2 + keys.length);
    if (wrong >= 0)
      throw new InvalidInput(
        `the address gives ${rows[wrong].length} numbers for node ${wrong}; ${problem} has ${2 + keys.length}`,
      );
    const depot = rules.PROBLEMS[problem].depot;
    keys.forEach((key, place) =>
      rows.forEach((row, node) => {
        const value = row[2 + place],
          bad =
            value < 0 ||
            (key === "demand" && !Number.isInteger(value)) ||
            (depot &&
              node === 0 &&
              value !== 0 &&
              !AT_DEPOT.includes(key) &&
              !("file" in fields && problem === "OP")); // a file scores its depot
        if (bad) throw new InvalidInput(`the address gives node ${node} a ${key} of ${value}`);
      }),
    );
    return rows;
  }

  function readInstance(fields, problem) {
    const rows = readNodes(fields, problem),
      limitKey = limitOf[problem];
    if ("file" in fields && !(problem in instances.KINDS))
      throw new InvalidInput(
        `the address gives a file of ${problem}; this page reads files of ${Object.keys(instances.KINDS).join(", ")}`,
      );
    const limit = limitKey ? instances.number(fields.limit ?? "", "the address") : null;
    if (limitKey === "capacity" && !(Number.isInteger(limit) && limit >= 1))
      throw new InvalidInput(`the address gives a limit of ${limit}; expected a whole number of at least 1`);
    if (limit < 0) throw new InvalidInput(`the address gives a limit of ${limit}; expected at least 0`);
    const column = (place) => rows.map((row) => row[place]);
    let instance;
    if ("file" in fields) {
      const metric = oneOf(fields, "metric", Object.keys(instances.METRICS)) ?? "EUC_2D";
      instance = instances.scaled(
        problem,
        metric,
        rows.map(([x, y]) => [x, y]),
        shortened(fields.file),
        rows.map((_, i) => i + 1),
      );
      if (problem === "OP") instances.setScores(instance, column(2), limit);
    } else {
      const coords = Float32Array.from(rows.flatMap(([x, y]) => [x, y]));
      if (coords.some((value) => value < 0 || value > 1))
        throw new InvalidInput("the address gives a node outside the square");
      instance = { problem, coords };
      columnsOf[problem].forEach((key, place) => {
        instance[key] = key === "demand" ? column(2 + place) : Float32Array.from(column(2 + place));
      });
      if (problem === "OP") instance.maxLength = Math.fround(limit);
    }
    if (limitKey === "capacity") {
      Object.assign(instance, { demand: column(2), capacity: limit });
      const heavy = instance.demand.findIndex((demand) => demand > limit);
      if (heavy >= 0)
        throw new InvalidInput(
          `the address gives node ${heavy} a demand of ${instance.demand[heavy]}, which exceeds the capacity ${limit}`,
        );
    }
    const late = rules.PROBLEMS[problem].windows ? rules.PROBLEMS[problem].unreachable(instance) : -1;
    if (late >= 0) throw new InvalidInput(`the address gives node ${late} a time window that no vehicle can keep`);
    return instance;
  }

  function readSource(fields, problem, presets) {
    if ("nodes" in fields)
      return { instance: readInstance(fields, problem), source: { kind: "file" in fields ? "file" : "own" } };
    if ("random" in fields) {
      const match = /^(\d{1,3})\.(\d{1,9})$/.exec(fields.random),
        size = match && Number(match[1]);
      const least = rules.PROBLEMS[problem].depot ? 1 : 2;
      if (!match || size < least || size > instances.MAX_NODES)
        throw new InvalidInput(
          `the address gives random=${JSON.stringify(fields.random.slice(0, 40))}; expected nodes.seed, with ${least} to ${instances.MAX_NODES} nodes`,
        );
      return { source: { kind: "random", size, seed: Number(match[2]) } };
    }
    return { source: { kind: "preset", index: whole(fields, "preset", 0, presets[problem].length - 1, 0) } };
  }

  // The parts of the state that an address gives; `tour` is checked against the rules by the caller.
  function read(hash, presets, numSnapshots) {
    const fields = split(hash),
      problem = oneOf(fields, "problem", Object.keys(rules.PROBLEMS), "TSP");
    const tour = fields.tour === undefined ? null : fields.tour.split(".");
    if (tour && (tour.length > 2000 || tour.some((text) => !/^\d{1,3}$/.test(text))))
      throw new InvalidInput("the address gives a tour that is no list of nodes");
    return {
      problem,
      ...readSource(fields, problem, presets),
      tour: tour && { actions: tour.map(Number), by: BY[oneOf(fields, "by", Object.keys(BY), "you")] },
      step: whole(fields, "step", 0, 2000, null),
      view: oneOf(fields, "view", VIEWS, "pointer"),
      layer: whole(fields, "layer", 1, 9, 3) - 1,
      head: whole(fields, "head", 0, 8, 0) - 1, // -1: all
      speed: Number(oneOf(fields, "speed", SPEEDS, "1")),
      snapshot: "snapshot" in fields ? whole(fields, "snapshot", 0, numSnapshots - 1) : null,
      theme: oneOf(fields, "theme", ["light", "dark"], null),
    };
  }

  return { own, read, rounded, write };
}
