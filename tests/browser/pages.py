"""A report opened in the browser without a network, watched for everything that it must not do."""

from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Locator, Page, Request, Route

IS_DRAWN = "i => 'tlDrawn' in document.querySelectorAll('[data-tl-chart]')[i].dataset"
PICTURES = """() => Object.fromEntries([...document.querySelectorAll("[data-tl-drawn]")]
    .map((figure) => [figure.dataset.tlChart, [...figure.querySelectorAll("canvas")].at(-1)])
    .filter(([, canvas]) => canvas)
    .map(([kind, canvas]) => [kind, canvas.toDataURL()]))"""
WATCH = """
window.__shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.__shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
window.__refused = [];
addEventListener("securitypolicyviolation", (event) => window.__refused.push(event.violatedDirective));
"""
DRAWN = "[data-tl-drawn]"


@dataclass
class Opened:
    """A page and what was seen of it: ``faults`` names requests, errors, warnings, dialogs and refusals."""

    page: Page
    context: BrowserContext
    faults: list[str] = field(default_factory=list)

    def draw_all(self) -> None:
        """Unfold and scroll through the page until every chart is drawn, and back to the time lines."""
        for folded in self.page.locator("details:has([data-tl-chart]):not([open]) > summary").all():
            folded.click()
        figures = self.page.locator("[data-tl-chart]")
        for index in range(figures.count()):
            figures.nth(index).scroll_into_view_if_needed()
            self.page.wait_for_function(
                "i => 'tlDrawn' in document.querySelectorAll('[data-tl-chart]')[i].dataset", arg=index
            )
        self.page.locator("#tl").scroll_into_view_if_needed()
        self.settle()

    def settle(self) -> None:
        """Wait until what is drawn is on the screen."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def chart(self, kind: str) -> Locator:
        """Return the figure of that kind, scrolled into view below the toolbar, and drawn."""
        figure = self.page.locator(f"[data-tl-chart={kind}]")
        figure.evaluate("each => each.scrollIntoView({ block: 'center', behavior: 'instant' })")
        self.page.wait_for_selector(f"[data-tl-chart={kind}]{DRAWN}")
        self.settle()
        return figure

    def pictures(self) -> dict[str, str]:
        """Return every drawn canvas as a data URL, by the kind of its chart."""
        shown: dict[str, str] = self.page.evaluate(PICTURES)
        return shown

    def range_shown(self) -> str:
        return self.page.locator("#tl-range").inner_text().replace("\N{EN DASH}", "to")

    def close(self) -> None:
        self.faults += [f"refused by the policy: {each}" for each in self.page.evaluate("window.__refused")]
        self.context.close()


def open_page(
    browser: Browser,
    path: Path,
    *,
    dark: bool = False,
    width: int = 1280,
    height: int = 900,
    at: str = "",
    sharpness: float = 1.0,
    scripts: bool = True,
    locale: str | None = None,
) -> Opened:
    """Open ``path`` from the disk, at the element with the id ``at``; without ``locale`` in that of the machine."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        device_scale_factor=sharpness,
        reduced_motion="reduce",
        locale=locale,
        timezone_id="America/New_York",
        offline=True,
    )
    opened = Opened(context.new_page(), context)
    _watch(opened, path)
    opened.page.goto(f"{path.as_uri()}{f'#{at}' if at else ''}")
    return opened


def _watch(opened: Opened, path: Path) -> None:
    def saw_request(request: Request) -> None:
        if not request.url.startswith((path.as_uri(), "data:")):
            opened.faults.append(f"request: {request.url}")

    def stop(route: Route) -> None:
        opened.faults.append(f"request: {route.request.url}")
        route.abort()

    def saw_message(message: ConsoleMessage) -> None:
        opened.faults.append(f"console {message.type}: {message.text}")

    def saw_error(error: Error) -> None:
        opened.faults.append(f"error: {error}")

    def saw_dialog(dialog: Dialog) -> None:
        opened.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    opened.page.on("request", saw_request)
    opened.page.on("console", saw_message)
    opened.page.on("pageerror", saw_error)
    opened.page.on("dialog", saw_dialog)
    opened.context.route("http*://**", stop)
    opened.page.add_init_script(WATCH)
