// The few helpers that the page is drawn with. Text is only ever set as text, never as HTML.
"use strict";

const attention = attentionCore(),
  rules = rulesCore(),
  search = searchCore(attention, rules);
const instances = instancesCore(rules, search.randomNumbers),
  address = addressCore(rules, instances);

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") element.textContent = value;
    else if (value === null || value === false) element.removeAttribute(key);
    else element.setAttribute(key, value === true ? "" : value);
  }
  return element;
}

const make = (tag, attributes = {}, ...children) => {
  const e = set(document.createElement(tag), attributes);
  e.append(...children);
  return e;
};
const draw = (tag, attributes = {}, ...children) => {
  const e = set(document.createElementNS(SVG, tag), attributes);
  e.append(...children);
  return e;
};

// Radio buttons that look like one row of segments.
function segments(container, name, choices, chosen, onChange) {
  container.querySelectorAll("label").forEach((label) => label.remove());
  for (const { value, text, colour } of choices) {
    const input = make("input", { type: "radio", name, value });
    input.checked = String(value) === String(chosen);
    input.addEventListener("change", () => onChange(input.value));
    const label = make("label", {}, input, make("span", { text }));
    if (colour) label.style.setProperty("--head", colour);
    container.append(label);
  }
}

const FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']";

// What has the focus is at times built again, or hidden. The focus then goes to what is in its place in the smallest
// box that is left, rather than to the top of the page.
function keepFocus() {
  const seen = (element) => element.checkVisibility({ visibilityProperty: true });
  const stops = (box) => [...box.querySelectorAll(FOCUSABLE)].filter(seen);
  let held = null; // {target, places: [[box, index]]}
  document.addEventListener("focusin", ({ target }) => {
    const places = [];
    for (let box = target.parentElement; box; box = box.parentElement) places.push([box, stops(box).indexOf(target)]);
    held = { target, places };
  });
  document.addEventListener("pointerdown", () => {
    held = null; // a click elsewhere takes the focus away on purpose
  });
  new MutationObserver(() => {
    if (!held || seen(held.target)) return;
    for (const [box, index] of held.places) {
      const next = stops(box).slice(0, index + 1).pop();
      if (next) return next.focus();
    }
  }).observe(document.body, { childList: true, subtree: true, attributeFilter: ["hidden"] });
}

const percent = (p) =>
  p > 0.995 && p < 1 ? ">99\u00a0%" : p > 0 && p < 0.005 ? "<1\u00a0%" : `${Math.round(100 * p)}\u00a0%`;
// A colour of the style sheet as a canvas takes it, which does not know light-dark().
function colourOf(name, canvas) {
  canvas.style.color = `var(${name})`;
  return getComputedStyle(canvas).color;
}
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
