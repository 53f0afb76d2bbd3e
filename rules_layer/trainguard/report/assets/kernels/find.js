// Search: the rows whose names hold a text, in order of time; the others are drawn pale.

function makeFinder(root, model, { onFound, go }) {
  const input = root.querySelector("#kt-search");
  const said = root.querySelector("#kt-found");
  const lower = model.names.map((name) => name.toLowerCase());
  let names = null;
  let rows = new Int32Array(0);
  let at = -1;

  function search() {
    const wanted = input.value.trim().toLowerCase();
    names = wanted ? Uint8Array.from([0, ...lower.map((name) => (name.includes(wanted) ? 1 : 0))]) : null;
    const matching = [];
    if (names)
      for (let row = 0; row < model.table.total; row += 1) if (names[model.table.name[row]]) matching.push(row);
    rows = Int32Array.from(matching).sort((a, b) => model.table.start[a] - model.table.start[b]);
    at = -1;
    tell();
    onFound();
  }

  function tell() {
    const place = at < 0 ? "" : `${showCount(at + 1)} of `;
    said.textContent = names ? `${place}${showCount(rows.length)} ${rows.length === 1 ? "event" : "events"}` : "";
  }

  function move(by) {
    if (!rows.length) return;
    at = at < 0 ? (by > 0 ? 0 : rows.length - 1) : (at + by + rows.length) % rows.length;
    tell();
    go(rows[at]);
  }

  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") move(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      input.value = "";
      search();
    }
  });
  root.querySelector("#kt-next").addEventListener("click", () => move(1));
  root.querySelector("#kt-previous").addEventListener("click", () => move(-1));
  return { names: () => names, next: () => move(1), previous: () => move(-1) };
}
