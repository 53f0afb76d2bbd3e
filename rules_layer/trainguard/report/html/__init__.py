"""``report.html``: a report as one page that opens offline."""
