// What people do: buttons, fields, keys, dropped files, and the address.
"use strict";

class Controls {
  constructor(page) {
    this.page = page;
    this.listen();
  }

  listen() {
    const { state } = this.page,
      on = (id, type, act) => byId(id).addEventListener(type, act);
    on("play", "click", () =>
      this.page.timer === null ? this.page.play() : (this.page.pause(), this.page.announce(this.page.stepSentence())),
    );
    on("back", "click", () => this.page.stepBy(-1));
    on("forward", "click", () => this.page.stepBy(1));
    on("to-start", "click", () => this.page.stepBy(-Infinity));
    on("to-end", "click", () => this.page.stepBy(Infinity));
    on("scrub", "input", (event) => {
      this.page.pause();
      this.page.goTo(Number(event.target.value));
    });
    on("speed", "change", (event) => {
      state.speed = Number(event.target.value);
      if (this.page.timer !== null) {
        this.page.pause();
        this.page.play();
      } else this.page.render();
    });
    on("undo", "click", () => this.page.pick({ by: "model" }, state.step));
    on("draw-mode", "click", () => this.page.draw());
    on("save-picture", "click", () => savePicture(this.page));
    on("remove-mode", "click", (event) =>
      set(event.currentTarget, { "aria-pressed": String(event.currentTarget.getAttribute("aria-pressed") !== "true") }),
    );
    on("preset", "change", (event) => {
      if (event.target.value !== "")
        this.page.open(state.problem, { kind: "preset", index: Number(event.target.value) });
    });
    on("random", "submit", (event) => {
      event.preventDefault();
      this.random();
    });
    on("file", "change", (event) => {
      if (event.target.files[0]) this.page.openFile(event.target.files[0]);
      event.target.value = "";
    });
    on("views", "change", (event) => {
      state.view = event.target.value;
      this.page.render();
    });
    on("table-card", "toggle", () => {
      if (byId("table-card").open) fillTable(state);
    });
    on("keys-open", "click", () => byId("keys").showModal());
    on("copy-link", "click", () => this.copyLink());
    on("theme", "click", () => {
      state.theme = this.drawTheme() ? "light" : "dark";
      document.documentElement.dataset.theme = state.theme;
      this.drawTheme();
      this.page.render();
    });
    byId("message")
      .querySelector("button")
      .addEventListener("click", () => this.page.message(null));
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", (event) => this.page.openAddress(new URL(event.newURL).hash));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.drawTheme();
      if (state.shown) this.page.render();
    });
    this.listenForFiles();
    keepFocus();
  }

  listenForFiles() {
    const board = byId("board");
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      board.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) board.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      board.classList.remove("dropping");
      const [file] = event.dataTransfer.files;
      if (file) this.page.openFile(file);
      else this.page.message("Only files can be dropped here: TSPLIB, CVRPLIB, OPLib or CSV.");
    });
    document.addEventListener("paste", (event) => {
      const text = event.clipboardData.getData("text");
      if (text && !event.target.matches("input")) this.page.openFile(new File([text], "pasted text"));
    });
  }

  random() {
    const { problem } = this.page.state,
      size = byId("random-size").value,
      seed = byId("random-seed").value,
      least = rules.PROBLEMS[problem].depot ? 1 : 2;
    if (!/^\d+$/.test(size) || size < least || size > instances.MAX_NODES)
      return this.page.message(
        `Size: found ${size || "nothing"}, expected a whole number from ${least} to ${instances.MAX_NODES}.`,
      );
    if (!/^\d{1,9}$/.test(seed))
      return this.page.message(`Seed: found ${seed || "nothing"}, expected a whole number of at most nine digits.`);
    const { source } = this.page.state,
      same = source.kind === "random" && source.size === Number(size) && source.seed === Number(seed);
    this.page.open(problem, { kind: "random", size: Number(size), seed: (Number(seed) + (same ? 1 : 0)) % 1e9 });
  }

  async copyLink() {
    history.replaceState(null, "", address.write(this.page.state));
    try {
      await navigator.clipboard.writeText(location.href);
      this.page.announce("The link is copied.");
      byId("copy-link").textContent = "Copied";
      setTimeout(() => {
        byId("copy-link").textContent = "Copy link";
      }, 1500);
    } catch {
      this.page.message(`Copy the link yourself: ${location.href}`);
    }
  }

  key(event) {
    const { target, key } = event;
    if (!this.page.state.shown || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (target.matches("input, select, textarea")) return;
    if (key === " " && target.closest("button, a, summary, .node")) return;
    const acts = {
      " ": () => byId("play").click(),
      ",": () => this.page.stepBy(-1),
      ".": () => this.page.stepBy(1),
      Home: () => this.page.stepBy(-Infinity),
      End: () => this.page.stepBy(Infinity),
      m: () => this.page.map.goTo(this.page.map.current),
      n: () => this.addAnywhere(),
    };
    const act = acts[key.length === 1 ? key.toLowerCase() : key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // For the keyboard: a new node where there is room.
  addAnywhere() {
    const { coords } = this.page.state.instance,
      random = search.randomNumbers(coords.length);
    const places = Array.from({ length: 40 }, () => [0.05 + 0.9 * random(), 0.05 + 0.9 * random()]);
    const room = ([x, y]) => {
      let least = Infinity;
      for (let i = 0; i < coords.length; i += 2) least = Math.min(least, Math.hypot(coords[i] - x, coords[i + 1] - y));
      return least;
    };
    this.page.add(...places.reduce((a, b) => (room(b) > room(a) ? b : a)), true);
  }

  refresh() {
    const { state } = this.page,
      { problem, source } = state;
    segments(
      byId("problems"),
      "problem",
      Object.keys(rules.PROBLEMS).map((value) => ({ value, text: value })),
      problem,
      (value) => this.page.open(value, { kind: "preset", index: state.source.index ?? 0 }),
    );
    byId("describe").textContent = rules.PROBLEMS[problem].describe;
    const options = PRESETS[problem].map(({ title }, index) => make("option", { value: index, text: title }));
    const other = { random: "Random", own: "Your own", file: "From a file" }[source.kind];
    if (other)
      options.push(
        make("option", { value: "", text: source.kind === "file" ? state.instance.file.name.slice(0, 24) : other }),
      );
    byId("preset").replaceChildren(...options);
    byId("preset").value = source.kind === "preset" ? source.index : "";
    if (source.kind === "random") {
      byId("random-size").value = source.size;
      byId("random-seed").value = source.seed;
    }
    for (const radio of document.querySelectorAll("[name=view]")) radio.checked = radio.value === state.view;
    byId("speed").value = String(state.speed);
    const heads = [
      { value: -1, text: "All" },
      ...Array.from({ length: HEADS }, (_, h) => ({ value: h, text: String(h + 1), colour: `var(--head-${h})` })),
    ];
    segments(byId("heads"), "head", heads, state.head, (value) => {
      state.head = Number(value);
      this.page.render();
    });
    segments(
      byId("layers"),
      "layer",
      [0, 1, 2].map((value) => ({ value, text: String(value + 1) })),
      state.layer,
      (value) => {
        state.layer = Number(value);
        this.page.render();
      },
    );
    if (state.theme) document.documentElement.dataset.theme = state.theme;
    this.drawTheme();
    this.page.search.refresh();
  }

  drawTheme() {
    const dark =
      (this.page.state.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    set(byId("theme"), { "aria-pressed": String(dark) });
    return dark;
  }
}
