// Where instances come from: random draws, the page's own presets, files (routing_gym/data/), and the URL.
function instancesCore(rules, randomNumbers) {
  "use strict";

  const MAX_NODES = 200; // what the page draws and solves without making anyone wait
  const MAX_BYTES = 1 << 20;

  class InvalidInput extends Error {} // its message is for the reader, in plain words

  // --- random instances, drawn as `generate` does (with other random numbers) ---------------------------------------

  const { between, expectedLength } = rules;
  const defaultCapacity = (n) =>
    n > 100 ? 50 + Math.floor((n - 100) / 5) : Math.floor(between(n, [10, 20, 50, 100], [20, 30, 40, 50]));

  function distancePrizes(coords) {
    const far = [];
    for (let i = 1; i < coords.length / 2; i++)
      far.push(Math.hypot(coords[0] - coords[2 * i], coords[1] - coords[2 * i + 1]));
    const most = Math.max(...far) || 1;
    return [0, ...far.map((d) => (1 + Math.floor((d / most) * 99)) / 100)];
  }

  // Windows in which a vehicle can serve each customer: as `TimeWindows.draw` of routing_gym/problems/vrp/limits.py.
  function drawWindows(coords, random) {
    const closing = 3,
      size = coords.length / 2,
      windows = { readyTime: new Float32Array(size), dueTime: new Float32Array(size), serviceTime: new Float32Array(size) };
    windows.dueTime[0] = closing;
    for (let i = 1; i < size; i++) {
      const away = Math.hypot(coords[0] - coords[2 * i], coords[1] - coords[2 * i + 1]),
        service = Math.min(0.2, closing - 2 * away),
        centre = away + (closing - service - 2 * away) * random(),
        half = 0.1 + 0.9 * random();
      windows.serviceTime[i] = service;
      windows.readyTime[i] = Math.max(0, centre - half);
      windows.dueTime[i] = Math.min(closing, centre + half);
    }
    return windows;
  }

  // The numbers that a node has beside its place, for `customers` of them.
  function drawValues(problem, customers, coords, random) {
    const draw = (f) => Float32Array.from({ length: customers + 1 }, (_, i) => (i ? f() : 0));
    if (problem === "CVRP" || problem === "SDVRP")
      return {
        demand: [0, ...Array.from({ length: customers }, () => 1 + Math.floor(random() * 9))],
        capacity: defaultCapacity(customers),
      };
    if (problem === "VRPTW") return { ...drawValues("CVRP", customers, coords, random), ...drawWindows(coords, random) };
    if (problem === "OP")
      return { prize: Float32Array.from(distancePrizes(coords)), maxLength: Math.fround(expectedLength(customers)) };
    if (problem === "TSP") return {};
    const penalty = draw(() => (random() * 3 * expectedLength(customers)) / customers),
      prize = draw(() => (random() * 4) / customers);
    return { prize, penalty, ...(problem === "SPCTSP" && { realPrize: prize.map((p) => random() * 2 * p) }) };
  }

  function randomInstance(problem, customers, seed) {
    const random = randomNumbers(seed),
      numNodes = customers + (rules.PROBLEMS[problem].depot ? 1 : 0);
    const coords = Float32Array.from({ length: 2 * numNodes }, random);
    return { problem, coords, ...drawValues(problem, customers, coords, random) };
  }

  // --- files of the TSPLIB family ------------------------------------------------------------------------------------

  const quote = (text) => JSON.stringify(text.length > 40 ? text.slice(0, 37) + "..." : text);
  const KINDS = {
    TSP: { values: [], sections: [] },
    CVRP: { values: ["CAPACITY"], sections: ["DEMAND_SECTION", "DEPOT_SECTION"] },
    OP: { values: ["COST_LIMIT"], sections: ["NODE_SCORE_SECTION", "DEPOT_SECTION"] },
  };
  const VALUES = [
    "NAME",
    "TYPE",
    "DIMENSION",
    "EDGE_WEIGHT_TYPE",
    "EDGE_WEIGHT_FORMAT",
    "NODE_COORD_TYPE",
    "DISPLAY_DATA_TYPE",
  ];
  const SECTIONS = ["NODE_COORD_SECTION", "DISPLAY_DATA_SECTION"];

  const PI = 3.141592,
    EARTH = 6378.388; // TSPLIB's
  const squared = ([ax, ay], [bx, by]) => (ax - bx) ** 2 + (ay - by) ** 2;
  const radians = (value) => {
    const degrees = Math.trunc(value);
    return (PI * (degrees + (5 * (value - degrees)) / 3)) / 180;
  };
  const METRICS = {
    EUC_2D: (a, b) => Math.floor(Math.sqrt(squared(a, b)) + 0.5),
    EXACT_2D: (a, b) => Math.sqrt(squared(a, b)), // of CSV files
    CEIL_2D: (a, b) => Math.ceil(Math.sqrt(squared(a, b))),
    ATT: (a, b) => {
      const exact = Math.sqrt(squared(a, b) / 10),
        near = Math.floor(exact + 0.5);
      return near < exact ? near + 1 : near;
    },
    GEO: (a, b) => {
      const [[ax, ay], [bx, by]] = [a.map(radians), b.map(radians)];
      const q1 = Math.cos(ay - by),
        q2 = Math.cos(ax - bx),
        q3 = Math.cos(ax + bx);
      return Math.floor(EARTH * Math.acos(Math.min(1, Math.max(-1, 0.5 * ((1 + q1) * q2 - (1 - q1) * q3)))) + 1);
    },
  };

  // Coordinates whose Euclidean lengths resemble the metric's: as routing_gym.data.tsplib.metrics.planar.
  function planar(points, metric) {
    if (metric !== "GEO") return points;
    const { sin, cos, atan2, hypot } = Math;
    const places = points.map((point) => point.map(radians));
    const mean = (part) => places.reduce((sum, [latitude, longitude]) => sum + part(latitude, longitude), 0);
    const centre = [(a, b) => cos(a) * cos(b), (a, b) => cos(a) * sin(b), (a) => sin(a)].map(mean);
    const north = atan2(centre[2], hypot(centre[0], centre[1])),
      east = atan2(centre[1], centre[0]);
    return places.map(([latitude, longitude]) => {
      const around = longitude - east;
      const x = cos(latitude) * sin(around),
        y = cos(north) * sin(latitude) - sin(north) * cos(latitude) * cos(around),
        cosine = sin(north) * sin(latitude) + cos(north) * cos(latitude) * cos(around);
      const sine = hypot(x, y),
        stretch = EARTH * (sine ? atan2(sine, cosine) / sine : 1);
      return [x * stretch, y * stretch];
    });
  }

  function parse(text) {
    const values = {},
      sections = {},
      fail = (line, message) => {
        throw new InvalidInput(`line ${line}: ${message}`);
      };
    let section = null,
      ended = false;
    text.split(/\r\n|\r|\n/).forEach((raw, i) => {
      const line = raw.trim(),
        number = i + 1,
        match = /^([A-Za-z]\w*)\s*(:)?(.*)$/.exec(line);
      if (!line) return;
      if (ended) fail(number, `found ${quote(line)} after EOF`);
      if (!match) {
        if (!section) fail(number, `found ${quote(line)}, expected a line "KEYWORD : value"`);
        section.rows.push({ text: line, line: number });
        return;
      }
      const [, keyword, colon, rest] = match,
        value = rest.trim();
      if (keyword === "EOF") {
        ended = true;
        return;
      }
      section = null;
      if (keyword === "COMMENT" && colon) return;
      if (values[keyword] || sections[keyword]) fail(number, `${keyword} is given again`);
      const kinds = Object.values(KINDS);
      if ((VALUES.includes(keyword) || kinds.some((kind) => kind.values.includes(keyword))) && colon)
        values[keyword] = { text: value, line: number };
      else if ((SECTIONS.includes(keyword) || kinds.some((kind) => kind.sections.includes(keyword))) && !value)
        section = sections[keyword] = { rows: [], line: number };
      else
        fail(
          number,
          `${quote(keyword)} is not supported; the page reads TSPLIB, CVRPLIB and OPLib files with coordinates`,
        );
    });
    return { values, sections };
  }

  function integer(text, line, low, what) {
    if (!/^[+-]?\d{1,12}$/.test(text) || Number(text) < low)
      throw new InvalidInput(`line ${line}: ${what}: found ${quote(text)}, expected a whole number of at least ${low}`);
    return Number(text);
  }

  function number(text, line) {
    if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || !(Math.abs(Number(text)) <= 1e9))
      throw new InvalidInput(`line ${line}: coordinate: found ${quote(text)}, expected a number of at most 1e9`);
    return Number(text);
  }

  function needed(from, keyword) {
    if (!from[keyword]) throw new InvalidInput(`the file ends without ${keyword}`);
    return from[keyword];
  }

  // The cells after the node number, for nodes 1 to dimension in this order.
  function byNode(document, keyword, dimension, columns) {
    const { rows } = needed(document.sections, keyword),
      found = [];
    for (const { text, line } of rows) {
      const cells = text.split(/\s+/),
        node = integer(cells[0], line, 1, "node");
      if (cells.length !== 1 + columns)
        throw new InvalidInput(`line ${line}: ${keyword}: found ${quote(text)}, expected ${1 + columns} numbers`);
      if (node > dimension)
        throw new InvalidInput(`line ${line}: ${keyword}: found node ${node}, expected 1 to DIMENSION ${dimension}`);
      if (found[node - 1]) throw new InvalidInput(`line ${line}: ${keyword}: node ${node} is given again`);
      found[node - 1] = { cells: cells.slice(1), line };
    }
    for (let i = 0; i < dimension; i++)
      if (!found[i]) throw new InvalidInput(`${keyword}: node ${i + 1} of ${dimension} is missing`);
    return found;
  }

  function checkHeader({ values, sections }) {
    const type = needed(values, "TYPE"),
      kind = type.text.split(/\s+/)[0],
      metric = needed(values, "EDGE_WEIGHT_TYPE");
    if (!Object.hasOwn(KINDS, kind))
      throw new InvalidInput(`line ${type.line}: TYPE ${quote(type.text)} is not supported; TSP, CVRP and OP are`);
    for (const [keyword, { line }] of Object.entries({ ...values, ...sections }))
      if (![...VALUES, ...SECTIONS, ...KINDS[kind].values, ...KINDS[kind].sections].includes(keyword))
        throw new InvalidInput(`line ${line}: ${keyword} has no place in a file of TYPE ${kind}`);
    if (!Object.hasOwn(METRICS, metric.text))
      throw new InvalidInput(
        `line ${metric.line}: EDGE_WEIGHT_TYPE ${quote(metric.text)} is not supported; ${Object.keys(METRICS).join(", ")} are`,
      );
    for (const [keyword, expected] of [
      ["EDGE_WEIGHT_FORMAT", "FUNCTION"],
      ["NODE_COORD_TYPE", "TWOD_COORDS"],
    ])
      if (values[keyword] && values[keyword].text !== expected)
        throw new InvalidInput(
          `line ${values[keyword].line}: ${keyword} ${quote(values[keyword].text)} is not supported; expected ${expected}`,
        );
    const { text, line } = needed(values, "DIMENSION"),
      dimension = integer(text, line, kind === "TSP" ? 2 : 3, "DIMENSION");
    if (dimension > MAX_NODES)
      throw new InvalidInput(
        `the file has ${dimension.toLocaleString("en")} nodes; this page goes up to ${MAX_NODES}. agents/solve.py takes larger ones`,
      );
    return { kind, metric: metric.text, dimension };
  }

  function readDepot(document, dimension) {
    const { rows, line } = needed(document.sections, "DEPOT_SECTION");
    const numbers = rows.flatMap((row) =>
      row.text.split(/\s+/).map((text) => integer(text, row.line, -1, "DEPOT_SECTION")),
    );
    const end = numbers.indexOf(-1);
    if (end !== 1 || numbers[0] < 1 || numbers[0] > dimension)
      throw new InvalidInput(`line ${line}: DEPOT_SECTION: expected one depot from 1 to ${dimension}, then -1`);
    return numbers[0];
  }

  function readIntegers(document, keyword, ids, what, most) {
    const rows = byNode(document, keyword, ids.length, 1);
    return ids.map((id) => {
      const { cells, line } = rows[id - 1],
        value = integer(cells[0], line, 0, what);
      if (value > most)
        throw new InvalidInput(`line ${line}: ${what} ${value} exceeds the CAPACITY ${most}: no vehicle can serve it`);
      return value;
    });
  }

  // Read the text of a file into an instance, scaled and scored as routing_gym.data does.
  function readFile(text, fileName) {
    if (text.length > MAX_BYTES)
      throw new InvalidInput(`the file is larger than 1 MB; this page goes up to ${MAX_NODES} nodes`);
    const document = parse(text),
      { kind, metric, dimension } = checkHeader(document);
    const rows = byNode(document, "NODE_COORD_SECTION", dimension, 2);
    let ids = rows.map((_, i) => i + 1);
    if (kind !== "TSP") {
      const depot = readDepot(document, dimension);
      ids = [depot, ...ids.filter((id) => id !== depot)];
    }
    const points = ids.map((id) => rows[id - 1].cells.map((cell) => number(cell, rows[id - 1].line)));
    const instance = scaled(kind, metric, points, document.values.NAME?.text || fileName, ids);
    if (kind === "CVRP") {
      const { text: capacity, line } = needed(document.values, "CAPACITY");
      instance.capacity = integer(capacity, line, 1, "CAPACITY");
      instance.demand = readIntegers(document, "DEMAND_SECTION", ids, "demand", instance.capacity);
      if (instance.demand[0])
        throw new InvalidInput(`the depot, node ${ids[0]}, has demand ${instance.demand[0]}; expected 0`);
    } else if (kind === "OP") {
      const { text: limit, line } = needed(document.values, "COST_LIMIT");
      setScores(
        instance,
        readIntegers(document, "NODE_SCORE_SECTION", ids, "score", Infinity),
        integer(limit, line, 0, "COST_LIMIT"),
      );
    }
    return instance;
  }

  function setScores(instance, scores, limit) {
    const slack = Math.max(0.5, 3 * 2 ** -24 * (limit + 1));
    instance.file.scores = scores;
    instance.file.limit = limit;
    instance.prize = Float32Array.from(scores, (score, i) => (i ? score : 0));
    instance.maxLength = Math.fround(Math.max(0, (limit + 1 - slack) / instance.file.scale - 5e-7));
  }

  // Move and scale points into the unit square; distances in the file's metric over the scale.
  function scaled(problem, metric, points, name, ids) {
    const places = planar(points, metric);
    const least = [0, 1].map((axis) => Math.min(...places.map((place) => place[axis])));
    const scale = Math.max(...[0, 1].map((axis) => Math.max(...places.map((place) => place[axis])) - least[axis])) || 1;
    const coords = Float32Array.from(places.flatMap(([x, y]) => [(x - least[0]) / scale, (y - least[1]) / scale]));
    const distances = points.flatMap((a, i) => points.map((b, j) => (i === j ? 0 : METRICS[metric](a, b))));
    return {
      problem,
      coords,
      distances: Float32Array.from(distances, (d) => d / scale),
      file: { name, metric, scale, points, ids, distances },
    };
  }

  return {
    InvalidInput,
    KINDS,
    MAX_BYTES,
    MAX_NODES,
    METRICS,
    drawValues,
    defaultCapacity,
    expectedLength,
    integer,
    number,
    quote,
    randomInstance,
    readFile,
    scaled,
    setScores,
  };
}
