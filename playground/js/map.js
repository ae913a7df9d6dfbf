// The map: nodes, tour, halos and attention lines in SVG; pointer and keyboard on it.
"use strict";

const MARGIN = 34,
  REACH = 24, // pixels: around the square, and how far from a node a click still means it
  GRIP = 20; // pixels: how far from a node a drag may begin, where nodes are few
const SAME_PLACE = 1e-12; // what separates nodes with equal coordinates for the arrow keys
const FAINTEST = 0.02; // attention below this is not drawn

class MapView {
  // actions: {add(x, y), move(node, x, y, last, made), remove(node), choose(node), focus(node), removing()}
  constructor(svg, tip, actions) {
    Object.assign(this, { svg, tip, actions, size: 600, nodes: [], current: 0, state: null });
    this.layers = {};
    const dots = draw(
      "pattern",
      { id: "dots", width: 24, height: 24, patternUnits: "userSpaceOnUse" },
      draw("circle", { cx: 12, cy: 12, r: 1, class: "dot" }),
    );
    svg.append(draw("defs", {}, dots), (this.ground = draw("rect", { class: "ground", fill: "url(#dots)" })));
    for (const name of ["ghost", "lines", "edges", "halos", "windows", "nodes", "labels"])
      svg.append((this.layers[name] = draw("g", { class: name })));
    for (const name of ["ghost", "lines", "edges", "halos", "windows", "labels"])
      this.layers[name].setAttribute("aria-hidden", "true");
    new ResizeObserver(() => {
      this.resize();
      if (this.state) this.update(this.state);
    }).observe(svg);
    this.resize();
    this.listen();
  }

  resize() {
    this.size = Math.max(200, this.svg.clientWidth);
    set(this.svg, { viewBox: `0 0 ${this.size} ${this.size}` });
    set(this.ground, { width: this.size, height: this.size });
  }

  place(node) {
    const { coords } = this.state.instance,
      side = this.size - 2 * MARGIN;
    return [MARGIN + coords[2 * node] * side, this.size - MARGIN - coords[2 * node + 1] * side];
  }

  unit(event) {
    const box = this.svg.getBoundingClientRect(),
      side = this.size - 2 * MARGIN,
      scale = this.size / box.width;
    const clip = (value) => Math.min(1, Math.max(0, value));
    return [
      clip(((event.clientX - box.left) * scale - MARGIN) / side),
      clip((this.size - MARGIN - (event.clientY - box.top) * scale) / side),
    ];
  }

  // A drag begins nearer to a node than a click, so that a finger can scroll the page between the nodes of a dense map.
  grip() {
    return Math.min(GRIP, (0.4 * (this.size - 2 * MARGIN)) / Math.sqrt(this.nodes.length));
  }

  nearest(event, reach = REACH) {
    const box = this.svg.getBoundingClientRect(),
      scale = this.size / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = -1,
      least = reach;
    for (let node = 0; node < this.nodes.length; node++) {
      const [nx, ny] = this.place(node),
        distance = Math.hypot(nx - x, ny - y);
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  // --- drawing ------------------------------------------------------------------------------------------------------

  // state: see app.js. `fresh`: the last edge was just added, and may grow.
  update(state, fresh = false) {
    this.state = state;
    const numNodes = rules.numNodes(state.instance);
    const { depot } = rules.PROBLEMS[state.instance.problem];
    if (this.nodes.length !== numNodes || this.depot !== depot) this.makeNodes(numNodes, depot);
    this.drawTour(state, fresh);
    this.drawLines(state);
    this.drawNodes(state);
  }

  makeNodes(count, depot) {
    this.depot = depot;
    this.nodes = Array.from({ length: count }, (_, node) => {
      const hit = draw("circle", { class: "hit", r: 14 }),
        shape = draw(depot && node === 0 ? "rect" : "circle", { class: "shape" }),
        ring = draw("circle", { class: "ring" });
      const group = draw("g", { class: "node", role: "button" }, hit, ring, shape);
      group.style.setProperty("--delay", `${Math.min(500, node * 9)}ms`);
      return { group, shape, ring, halo: draw("circle", { class: "halo" }), node };
    });
    this.layers.nodes.replaceChildren(...this.nodes.map(({ group }) => group));
    this.layers.halos.replaceChildren(...this.nodes.map(({ halo }) => halo));
    this.current = Math.min(this.current, count - 1);
  }

  drawTour({ instance, shown, step, model, finished, drawing }, fresh) {
    const { depot } = rules.PROBLEMS[instance.problem],
      edges = finished ? this.floors(depot ? [0, ...shown.actions] : shown.actions) : [];
    const stops = depot ? [0, ...shown.actions.slice(0, step)] : shown.actions.slice(0, step);
    let trip = 0;
    for (let i = 1; i < stops.length; i++) {
      edges.push(this.edge(stops[i - 1], stops[i], trip, fresh && i === stops.length - 1));
      if (depot && stops[i] === 0) trip += 1;
    }
    if (finished && !depot && stops.length > 2) edges.push(this.edge(stops[stops.length - 1], stops[0], trip, fresh));
    this.layers.edges.replaceChildren(...edges);
    this.layers.ghost.replaceChildren();
    if (shown.by !== "model" && model && !drawing) {
      const ghost = depot ? [0, ...model.actions] : [...model.actions, model.actions[0]];
      this.layers.ghost.append(draw("polyline", { points: ghost.map((node) => this.place(node).join()).join(" ") }));
    }
  }

  // The area of each trip of a complete tour.
  floors(stops) {
    const trips = [[]];
    for (const node of stops) {
      if (node === 0 && stops[0] === 0 && trips[trips.length - 1].length > 1) trips.push([]);
      trips[trips.length - 1].push(node);
    }
    return trips
      .filter((trip) => trip.length > 2)
      .map((trip, i) => {
        const floor = draw("polygon", {
          class: "floor-fill",
          points: trip.map((node) => this.place(node).join()).join(" "),
        });
        floor.style.fill = `var(--trip-${i % 6})`;
        return floor;
      });
  }

  edge(from, to, trip, fresh) {
    const [x1, y1] = this.place(from),
      [x2, y2] = this.place(to);
    const line = draw("line", { x1, y1, x2, y2, class: fresh ? "fresh" : null, pathLength: fresh ? 1 : null });
    line.style.stroke = `var(--trip-${trip % 6})`;
    return line;
  }

  drawLines({ lines, view }) {
    const elements = [];
    for (const { from, weights, head } of lines) {
      const [x1, y1] = this.place(from);
      for (let node = 0; node < weights.length; node++) {
        if (weights[node] < FAINTEST || node === from) continue;
        const [x2, y2] = this.place(node),
          length = Math.hypot(x2 - x1, y2 - y1) || 1;
        const offset = head < 0 ? 0 : (head - 3.5) * 1.4; // heads side by side
        const [dx, dy] = [(-(y2 - y1) / length) * offset, ((x2 - x1) / length) * offset];
        const line = draw("line", { x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy, class: view });
        line.style.strokeWidth = 0.8 + 5 * Math.sqrt(weights[node]);
        line.style.strokeOpacity = Math.min(0.95, 0.12 + weights[node]);
        if (head >= 0) line.style.stroke = `var(--head-${head})`;
        elements.push(line);
      }
    }
    this.layers.lines.replaceChildren(...elements);
  }

  drawNodes(state) {
    const { instance, trace, step, finished } = state,
      { depot } = rules.PROBLEMS[instance.problem];
    const now = trace.states[step],
      choice = finished ? null : trace.steps[step],
      radii = nodeRadii(instance, now, this.size);
    const labels = [],
      at = finished || (!depot && step === 0) ? -1 : now.node;
    const visited = new Set(state.shown.actions.slice(0, step));
    for (const { group, shape, ring, halo, node } of this.nodes) {
      const [x, y] = this.place(node),
        p = choice && !state.drawing ? choice.probabilities[node] : 0,
        legal = choice ? choice.mask[node] : false;
      const kind = finished ? "settled" : legal ? "legal" : visited.has(node) ? "visited" : "forbidden";
      set(group, {
        class: `node ${kind}${node === at ? " current" : ""}${depot && node === 0 ? " depot" : ""}${node === state.focus ? " focus" : ""}`,
        transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})`,
        tabindex: node === this.current ? 0 : -1,
        "aria-label": describeNode(state, node),
        "aria-disabled": choice && !legal ? "true" : null,
      });
      const r = radii[node];
      set(shape, shape.tagName === "rect" ? { x: -r, y: -r, width: 2 * r, height: 2 * r, rx: 2 } : { r });
      set(ring, { r: radii[node] + 5 });
      set(halo, { cx: x, cy: y, r: p > 0.002 ? radii[node] + 3 + 20 * Math.sqrt(p) : 0 });
      halo.style.fillOpacity = p > 0.002 ? 0.2 + 0.5 * p : 0;
      if (choice && p > 0.08 && state.view === "pointer")
        labels.push(draw("text", { x, y: y - radii[node] - 8, text: percent(p) }));
      if (node === state.focus)
        labels.push(draw("text", { class: "name", x, y: y + radii[node] + 16, text: String(node) }));
    }
    this.layers.labels.replaceChildren(...labels);
    const { readyTime, dueTime } = instance,
      arc = ({ node }) => this.arc(node, radii[node] + 4, readyTime[node] / dueTime[0], dueTime[node] / dueTime[0]);
    this.layers.windows.replaceChildren(...(readyTime ? this.nodes.slice(1).map(arc) : []));
  }

  // A time window as an arc around its node: the day is a full turn that begins on top.
  arc(node, r, from, to) {
    const [x, y] = this.place(node),
      at = (share) => `${x + r * Math.sin(2 * Math.PI * share)} ${y - r * Math.cos(2 * Math.PI * share)}`;
    const end = Math.min(to, from + 0.999); // a full turn would be drawn as nothing
    return draw("path", { d: `M${at(from)}A${r} ${r} 0 ${end - from > 0.5 ? 1 : 0} 1 ${at(end)}` });
  }

  // --- pointer and keys ---------------------------------------------------------------------------------------------

  listen() {
    const { svg, actions } = this;
    let held = null; // {node, grabbed, x, y, moved, at}
    svg.addEventListener(
      "touchstart",
      (event) => {
        const [finger, second] = event.touches;
        if (this.state && !second && this.nearest(finger, this.grip()) >= 0) event.preventDefault();
      },
      { passive: false }, // a finger on a node drags it; elsewhere it scrolls. SVG groups ignore touch-action
    );
    svg.addEventListener("pointerdown", (event) => {
      if (!this.state || event.button !== 0 || !event.isPrimary) return;
      held = {
        node: this.nearest(event),
        grabbed: this.nearest(event, this.grip()) >= 0,
        x: event.clientX,
        y: event.clientY,
        moved: false,
        touch: event.pointerType === "touch",
      };
      if (held.grabbed) svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (!this.state || !event.isPrimary) return;
      if (!held) return this.hover(event);
      if (Math.hypot(event.clientX - held.x, event.clientY - held.y) > (held.touch ? 10 : 4)) held.moved = true;
      if (held.moved && held.grabbed) {
        this.tip.hidden = true;
        held.at = this.unit(event);
        actions.move(held.node, ...held.at, false);
      }
    });
    const drop = () => {
      if (held?.at) actions.move(held.node, ...held.at, true);
      held = null;
    };
    svg.addEventListener("pointercancel", drop);
    svg.addEventListener("pointerup", (event) => {
      if (!held || !event.isPrimary) return;
      const { node, moved } = held;
      if (moved) return drop();
      held = null;
      if (node < 0) actions.add(...this.unit(event));
      else if (actions.removing()) actions.remove(node);
      else {
        this.current = node;
        actions.choose(node);
      }
    });
    svg.addEventListener("pointerleave", () => {
      if (!held) {
        this.tip.hidden = true;
        actions.focus(-1);
      }
    });
    svg.addEventListener("focusin", (event) => {
      const node = this.nodes.findIndex(({ group }) => group === event.target);
      if (node >= 0 && event.target.matches(":focus-visible")) {
        actions.focus(node);
        this.explain(node);
      }
    });
    svg.addEventListener("focusout", () => {
      this.tip.hidden = true;
      actions.focus(-1);
    });
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  hover(event) {
    const node = event.pointerType === "touch" ? -1 : this.nearest(event, 16);
    this.svg.classList.toggle("over", node >= 0);
    this.actions.focus(node);
    if (node < 0) this.tip.hidden = true;
    else this.explain(node);
  }

  explain(node) {
    const [x, y] = this.place(node),
      scale = this.svg.clientWidth / this.size;
    this.tip.textContent = describeNode(this.state, node);
    this.tip.hidden = false;
    const half = this.tip.offsetWidth / 2,
      left = Math.min(this.svg.clientWidth - half - 4, Math.max(half + 4, x * scale));
    Object.assign(this.tip.style, { left: `${left}px`, top: `${y * scale}px` });
    this.tip.classList.toggle("below", y * scale < 70);
  }

  key(event) {
    const node = this.nodes.findIndex(({ group }) => group === event.target),
      { actions } = this;
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (node < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = ways[event.key];
    if (way && event.shiftKey) {
      const { coords } = this.state.instance,
        clip = (value) => Math.min(1, Math.max(0, value));
      const [x, y] = way.map((by, axis) => clip(coords[2 * node + axis] + 0.02 * by));
      actions.move(node, x, y, true, !event.repeat); // a key that is held is one change
    } else if (way) this.goTo(this.neighbour(node, way));
    else if (event.key === "Enter" || event.key === " ") actions.choose(node);
    else if (event.key === "Delete" || event.key === "Backspace") actions.remove(node, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  goTo(node) {
    if (node < 0) return;
    this.nodes[this.current]?.group.setAttribute("tabindex", -1);
    this.current = node;
    this.nodes[node].group.setAttribute("tabindex", 0);
    this.nodes[node].group.focus({ focusVisible: true });
  }

  // The nearest node in the quarter that way, by the sum of both differences: so the arrows reach every node.
  neighbour(node, [dx, dy]) {
    const { coords } = this.state.instance;
    let best = -1,
      least = Infinity;
    for (let other = 0; other < this.nodes.length; other++) {
      const apart = SAME_PLACE * (other - node),
        x = coords[2 * other] - coords[2 * node] + apart,
        y = coords[2 * other + 1] - coords[2 * node + 1] + apart;
      const along = x * dx + y * dy,
        aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (other !== node && along >= aside && along + aside < least) [best, least] = [other, along + aside];
    }
    return best;
  }
}

// Radius of each node in pixels: its area shows the demand (SDVRP: what is left of it) or the prize.
function nodeRadii(instance, state, size) {
  const numNodes = rules.numNodes(instance),
    scale = Math.min(1, size / 560) * (numNodes > 100 ? 0.75 : 1);
  const values = instance.demand ?? instance.prize,
    largest = values ? Math.max(...values, 1e-9) : 1;
  const shown = state?.remaining ?? values;
  return Array.from({ length: numNodes }, (_, node) => {
    if (!values) return 7 * scale;
    return node === 0 ? 9 * scale : (4 + 9 * Math.sqrt(shown[node] / largest)) * scale;
  });
}

function nameOf(instance, node) {
  const { depot } = rules.PROBLEMS[instance.problem];
  return depot && node === 0 ? "the depot" : `${depot ? "customer" : "city"} ${node}`;
}

function describeNode({ instance, trace, step, finished, drawing }, node) {
  const name = nameOf(instance, node),
    values = valuesOf(instance, node),
    start = name[0].toUpperCase() + name.slice(1);
  if (finished) return start + values;
  const { mask, probabilities } = trace.steps[step];
  if (mask[node] && drawing) return start + values;
  if (mask[node]) return `${start}${values}: ${percent(probabilities[node])} likely next`;
  return `${start}${values}: not allowed, ${rules.PROBLEMS[instance.problem].whyIllegal(instance, trace.states[step], node)}`;
}

function valuesOf(instance, node) {
  const window = instance.readyTime
    ? `, from ${instance.readyTime[node].toFixed(2)} to ${instance.dueTime[node].toFixed(2)}`
    : "";
  if (instance.demand) return node ? `, demand ${instance.demand[node]}${window}` : window;
  if (!instance.prize || !node) return "";
  const prize = `, prize ${Number(instance.prize[node].toPrecision(2))}`;
  return instance.penalty ? `${prize}, penalty ${Number(instance.penalty[node].toPrecision(2))}` : prize;
}
