// The histogram of the annotation that is selected; the page has those of all.

function startAnnotations(section) {
  const chooser = section.querySelector("#an-name");
  const histograms = [...section.querySelectorAll(".an-histograms")];
  chooser.closest(".an-controls").hidden = false;
  chooser.addEventListener("change", () => {
    histograms.forEach((each, i) => {
      each.hidden = String(i) !== chooser.value;
    });
  });
}
