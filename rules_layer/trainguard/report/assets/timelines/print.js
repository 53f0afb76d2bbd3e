// On paper: every chart, drawn in the light colours at a width that fits on a page.

const PRINT_WIDTH = 690;

function listenToPrint(root, world, drawAll, resizeAll) {
  let printing = false;

  function start() {
    if (printing) return;
    printing = true;
    root.classList.add("tl-printing");
    world.theme = readTheme(root);
    drawAll();
    resizeAll(PRINT_WIDTH);
  }

  function stop() {
    if (!printing) return;
    printing = false;
    root.classList.remove("tl-printing");
    world.theme = readTheme(root);
    resizeAll();
  }

  addEventListener("beforeprint", start);
  addEventListener("afterprint", stop);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? start() : stop()));
}
