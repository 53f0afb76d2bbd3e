// The filter of kernel profiles: rows stay that hold all the words that were typed.

function startFilter() {
  const form = document.getElementById("kernel-filter");
  if (!form) return;
  const [box, found] = ["input", "output"].map((each) => form.querySelector(each));
  const section = form.closest("section");
  const rows = [...section.querySelectorAll("tbody tr")];
  const folded = section.querySelector("details");
  form.hidden = false;
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    if (folded && words.length) folded.open = true;
    found.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  });
}

startFilter();
