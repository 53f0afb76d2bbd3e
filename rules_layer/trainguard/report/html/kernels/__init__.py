"""``kernels.html``: the page of kernel profiles."""
