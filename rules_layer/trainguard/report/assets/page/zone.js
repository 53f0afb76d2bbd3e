// Times of day: in the reader's own zone, or in UTC. Without this script the page says UTC.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function partsReader(timeZone) {
  const format = new Intl.DateTimeFormat("en-US-u-nu-latn", {
    timeZone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
    second: "2-digit", timeZoneName: "short",
  });
  return (at) => Object.fromEntries(format.formatToParts(at * 1000).map(({ type, value }) => [type, value]));
}

function makeZone() {
  // The reader's zone is taken as it is, not by its name: not every name that a browser gives is one that it takes.
  const place = Intl.DateTimeFormat("en-US").resolvedOptions().timeZone ?? "local time";
  const readers = { local: partsReader(undefined), utc: partsReader("UTC") };
  const listeners = [];
  let chosen = "local";
  const parts = (at) => readers[chosen](Math.floor(at));
  return {
    parts,
    chosen: () => chosen,
    // Without daylight saving in the way, two zones differ by the same amount all over the job.
    isUtc: () => [1, 2, 3, 4].every((quarter) => offsetOf(readers.local, quarter * 7889238) === 0),
    offset: (at) => offsetOf(readers[chosen], Math.floor(at)),
    longName: (at) => (chosen === "utc" ? "UTC" : `${place} (${parts(at).timeZoneName})`),
    choose: (name) => {
      chosen = name;
      listeners.forEach((listener) => listener());
    },
    onChange: (listener) => listeners.push(listener),
  };
}

// Seconds that clocks of a zone are ahead of UTC.
function offsetOf(read, at) {
  const { year, month, day, hour, minute, second } = read(at);
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000 - at;
}

const zone = makeZone();

function showDate(at) {
  const { year, month, day } = zone.parts(at);
  return `${year}-${month}-${day}`;
}

function showDay(at) {
  const { month, day } = zone.parts(at);
  return `${MONTHS[month - 1]} ${Number(day)}`;
}

function showClock(at) {
  const { hour, minute, second } = zone.parts(at);
  return `${hour}:${minute}:${second}`;
}

function zoneName(at) {
  return zone.parts(at).timeZoneName;
}

const TIME_FORMS = {
  clock: showClock,
  minute: (at) => `${showDate(at)} ${showClock(at).slice(0, 5)}`,
  "hour-minute": (at) => showClock(at).slice(0, 5),
  moment: (at) => `${showDate(at)} ${showClock(at)}`,
  full: (at) => `${showDate(at)} ${showClock(at)} ${zoneName(at)}`,
};

// Writes every time of the page anew; ticks keep their places, and whether they tell seconds.
function writeTimes(now) {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const at = Date.parse(each.dateTime) / 1000;
    if (Number.isFinite(at)) each.textContent = TIME_FORMS[each.dataset.form ?? "full"](at);
  }
  for (const each of document.querySelectorAll("text[data-at]")) {
    each.textContent = showClock(Number(each.dataset.at)).slice(0, each.textContent.length);
  }
  for (const each of document.querySelectorAll("[data-zone-name]")) {
    each.textContent = each.dataset.zoneName === "short" ? zoneName(now) : zone.longName(now);
  }
}

function startZone() {
  const first = document.querySelector("time[datetime]");
  const now = first ? Date.parse(first.dateTime) / 1000 : 0;
  const buttons = [...document.querySelectorAll("button[data-zone]")];
  const show = () => {
    writeTimes(now);
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.zone === zone.chosen())));
  };
  buttons.forEach((each) => each.addEventListener("click", () => zone.choose(each.dataset.zone)));
  document.querySelectorAll(".zones").forEach((each) => {
    each.hidden = zone.isUtc();
  });
  zone.onChange(show);
  show();
}

startZone();
