// Colours and fonts of what is drawn on canvases: those that the style sheet gives the section at the moment.

const SERIES_COLOURS = 8;
const SEVERITIES = ["low", "medium", "high", "critical"];
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

function readTheme(root) {
  const style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(`--tl-${name}`).trim();
  return {
    text: colour("text"),
    muted: colour("muted"),
    grid: colour("grid"),
    shade: colour("shade"),
    surface: colour("surface"),
    hatch: colour("hatch"),
    series: Array.from({ length: SERIES_COLOURS }, (_, i) => colour(`series-${i + 1}`)),
    severity: Object.fromEntries(SEVERITIES.map((each) => [each, colour(`severity-${each}`)])),
  };
}

function severityColour(theme, severity) {
  return theme.severity[severity] ?? theme.muted;
}
