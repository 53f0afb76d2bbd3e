// The legend of a chart: a button a line that shows and hides it, with its value under the cursor, or its mean over
// what is shown.

function makeElement(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

function makeItem(line, colour, actions) {
  const item = makeElement("button", "tl-item");
  item.type = "button";
  item.setAttribute("aria-pressed", String(!line.hidden));
  const swatch = makeElement("i", "tl-line");
  swatch.style.setProperty("--tl-colour", colour);
  const value = makeElement("span", "tl-value", NOTHING);
  item.append(swatch, makeElement("span", "tl-label", line.label), value);
  item.addEventListener("click", () => {
    const shown = item.getAttribute("aria-pressed") !== "true";
    item.setAttribute("aria-pressed", String(shown));
    actions.toggle(shown);
  });
  item.addEventListener("pointerenter", () => actions.focus(true));
  item.addEventListener("pointerleave", () => actions.focus(false));
  return { item, value };
}

// A swatch names a custom property, so that it follows the theme by itself.
function makeLegend(holder, lines, actions) {
  const items = lines.map((line, i) =>
    makeItem(line, `var(--tl-series-${(i % SERIES_COLOURS) + 1})`, {
      toggle: (shown) => actions.toggle(i, shown),
      focus: (on) => actions.focus(i, on),
    }),
  );
  const what = makeElement("span", "tl-what", "mean");
  holder.replaceChildren(what, ...items.map((each) => each.item));
  items.forEach((each, i) => each.item.classList.toggle("tl-dashed", i >= SERIES_COLOURS));
  return {
    show(heading, values, format) {
      what.textContent = heading;
      items.forEach((each, i) => {
        each.value.textContent = values[i] === null ? NOTHING : format(values[i]);
      });
    },
  };
}
