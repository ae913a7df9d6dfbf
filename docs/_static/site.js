/* A button above the first animation of a page stops and restarts all of them. They begin stopped where the system
   asks for reduced motion. A canvas shows the first frame of a stopped animation. */
addEventListener("load", () => {
  const animations = [...document.querySelectorAll('article img[src$=".gif"]')];
  if (!animations.length) return;
  const stills = animations.map((image) => {
    const still = document.createElement("canvas");
    still.width = image.naturalWidth;
    still.height = image.naturalHeight;
    still.className = "still";
    still.setAttribute("role", "img");
    still.setAttribute("aria-label", image.alt);
    still.getContext("2d").drawImage(image, 0, 0);
    image.after(still);
    return still;
  });
  const button = document.createElement("button");
  button.className = "motion";
  const show = (moves) => {
    for (const image of animations) image.hidden = !moves;
    for (const still of stills) still.hidden = moves;
    button.textContent = moves ? "Stop the animations" : "Play the animations";
  };
  button.addEventListener("click", () => show(animations[0].hidden));
  animations[0].closest("p").before(button);
  show(!matchMedia("(prefers-reduced-motion: reduce)").matches);
});
