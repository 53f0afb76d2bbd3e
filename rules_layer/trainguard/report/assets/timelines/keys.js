// The keyboard on a focused chart: arrows move, plus and minus zoom, 0 and Escape show the whole job; with Shift the
// arrows move the cursor, and on the heat map up and down choose the row.

function keyActions(view) {
  const actions = actionsOf(view);
  return {
    ArrowLeft: actions.left,
    ArrowRight: actions.right,
    "+": actions.in,
    "=": actions.in,
    "-": actions.out,
    _: actions.out,
    0: actions.reset,
    Escape: actions.reset,
    "Shift+ArrowLeft": () => view.moveCursor(-1),
    "Shift+ArrowRight": () => view.moveCursor(1),
  };
}

function listenToKeys(element, actions) {
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target !== element) return;
    const name = event.shiftKey && event.key.startsWith("Arrow") ? `Shift+${event.key}` : event.key;
    const action = actions[name];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function listenToRows(element, heatmap, actions) {
  listenToKeys(element, { ...actions, ArrowUp: () => heatmap.moveRow(-1), ArrowDown: () => heatmap.moveRow(1) });
}
