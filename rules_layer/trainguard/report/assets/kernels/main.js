// Starts what needs a script: the table of kernels, and the timeline with the links to it.

function startPage() {
  const island = readIsland("kernels-data");
  const kernels = document.getElementById("kn");
  if (kernels) startKernels(kernels, island);
  const annotations = document.getElementById("annotations");
  if (annotations) startAnnotations(annotations);
  const root = document.getElementById("kt");
  if (!root) return;
  root.hidden = false;
  const timeline = startTimeline(root, island);
  document.querySelectorAll(".kt-show").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      const { process, from, to } = button.dataset;
      timeline.showStretch(Number(process), Number(from), Number(to));
      root.scrollIntoView({ block: "start" });
      root.querySelector("canvas").focus({ preventScroll: true });
    });
  });
}

// Opens the section that a link goes to.
function openTarget() {
  const section = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (section) section.querySelectorAll("details.fold").forEach((each) => (each.open = true));
}

addEventListener("hashchange", openTarget);
openTarget();
startPage();
