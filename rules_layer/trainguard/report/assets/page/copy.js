// Buttons that copy a text of the page; where the browser refuses the clipboard, the text is shown and selected.

function showSelected(element) {
  element.hidden = false;
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}

for (const button of document.querySelectorAll("button[data-copies]")) {
  const source = document.getElementById(button.dataset.copies);
  const label = button.textContent;
  const say = (text) => {
    button.textContent = text;
    setTimeout(() => {
      button.textContent = label;
    }, 2000);
  };
  button.addEventListener("click", () => {
    const copied = navigator.clipboard?.writeText(source.textContent) ?? Promise.reject(new Error("no clipboard"));
    copied.then(() => say("Copied"), () => {
      showSelected(source);
      say("Selected below");
    });
  });
}
