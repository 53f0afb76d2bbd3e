// Charts over steps: the values under the pointer stand in the legend, of the same step in every chart, and of the same
// time in the time lines.

const LEAST_PLAIN = 0.001;

// The moment that is pointed at, in epoch seconds, null for none; whoever tells of it is not told again.
const moment = (() => {
  const listeners = [];
  return {
    on: (name, listener) => listeners.push([name, listener]),
    show: (name, at) => listeners.forEach(([other, listener]) => other !== name && listener(at)),
  };
})();

function showValue(value) {
  if (value === null) return "–";
  if (value !== 0 && Math.abs(value) < LEAST_PLAIN) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

function readNumbers(text) {
  return text ? text.split(" ").map((each) => (each === "-" ? null : Number(each))) : [];
}

function nearestIn(values, wanted) {
  let nearest = 0;
  values.forEach((value, i) => {
    if (Math.abs(value - wanted) < Math.abs(values[nearest] - wanted)) nearest = i;
  });
  return nearest;
}

function makeCurves(svg) {
  const figure = svg.closest("figure");
  const [left, right, from, to] = ["left", "right", "from", "to"].map((each) => Number(svg.dataset[each]));
  const curves = [...svg.querySelectorAll("g[data-x]")].map(({ dataset }) => ({
    x: readNumbers(dataset.x), y: readNumbers(dataset.y), at: readNumbers(dataset.at),
  }));
  const pointer = svg.querySelector(".pointer");
  const added = (parent) => parent.appendChild(document.createElement("b"));
  const caption = added(figure.querySelector("figcaption"));
  const cells = [...figure.querySelectorAll(".legend li")].slice(0, curves.length).map(added);

  // Shows the points nearest to a step (`by` "x") or to a time ("at"); null shows none.
  function show(by, value) {
    const there = value !== null && curves.some((each) => each[by].length);
    pointer.classList.toggle("on", there);
    caption.textContent = "";
    cells.forEach((cell, i) => {
      const places = there ? curves[i][by] : [];
      cell.textContent = places.length ? showValue(curves[i].y[nearestIn(places, value)]) : "";
    });
    if (!there) return;
    const first = curves.find((each) => each[by].length);
    const step = by === "x" ? value : first.x[nearestIn(first.at, value)];
    const x = left + ((Math.min(Math.max(step, from), to) - from) / (to - from)) * (right - left);
    pointer.setAttribute("x1", x);
    pointer.setAttribute("x2", x);
    caption.textContent = `${svg.dataset.across} ${Math.round(step).toLocaleString("en-US")}`;
  }

  // The step of a point under the pointer: one of the first curve that has any.
  function stepAt(event) {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const { x: steps, at } = curves.find((each) => each.x.length) ?? { x: [], at: [] };
    const place = nearestIn(steps, from + ((x - left) / (right - left)) * (to - from));
    return steps.length ? { step: steps[place], at: at[place] ?? null } : null;
  }
  return { svg, show, stepAt };
}

function startCurves() {
  const all = [...document.querySelectorAll("svg.chart[data-across]")].map(makeCurves);
  for (const each of all) {
    each.svg.addEventListener("pointermove", (event) => {
      const found = each.stepAt(event);
      if (!found) return;
      all.forEach((other) => other.show("x", found.step));
      moment.show("curves", found.at);
    });
    each.svg.addEventListener("pointerleave", () => {
      all.forEach((other) => other.show("x", null));
      moment.show("curves", null);
    });
  }
  moment.on("curves", (at) => all.forEach((each) => each.show("at", at)));
}

startCurves();
