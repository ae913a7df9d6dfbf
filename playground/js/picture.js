// The map as a PNG file: a copy of the SVG with its colours written into it, drawn on a canvas.
"use strict";

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap"];
DRAWN.push("opacity", "font-family", "font-size", "font-weight", "text-anchor", "paint-order", "display", "visibility");
const PICTURE_SIZE = 1200; // pixels

// Copy an element with what style sheets make of it.
function withStyles(element) {
  const copy = element.cloneNode(false),
    style = getComputedStyle(element);
  if (copy.nodeType === Node.ELEMENT_NODE) {
    copy.removeAttribute("class");
    copy.setAttribute("style", DRAWN.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  }
  for (const child of element.childNodes)
    copy.append(child.nodeType === Node.ELEMENT_NODE ? withStyles(child) : child.cloneNode());
  return copy;
}

// Draw the map, and below it the tour's cost; return a PNG as a Blob.
async function pictureOf(svg, caption) {
  const copy = withStyles(svg),
    picture = new Image();
  set(copy, { xmlns: SVG, width: PICTURE_SIZE, height: PICTURE_SIZE });
  const source = new XMLSerializer().serializeToString(copy);
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await picture.decode();
  const canvas = make("canvas", { width: PICTURE_SIZE, height: PICTURE_SIZE + 60 }),
    context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0);
  context.fillStyle = getComputedStyle(document.body).color;
  context.font = "28px system-ui, sans-serif";
  context.fillText(caption, 30, PICTURE_SIZE + 36);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

async function savePicture(page) {
  const { instance, shown, problem } = page.state,
    by = shown.by === "model" ? "the model" : shown.by;
  const caption = `${problem}, ${rules.numNodes(instance)} nodes. Tour of ${by}: ${show(instance, rules.score(instance, shown.actions))}`;
  const link = make("a", { download: `${problem.toLowerCase()}-tour.png` });
  link.href = URL.createObjectURL(await pictureOf(byId("map"), caption));
  link.click();
  URL.revokeObjectURL(link.href);
}
