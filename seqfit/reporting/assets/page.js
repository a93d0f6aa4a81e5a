// What the buttons of a page do, but for those of figures; and what a printed page shows.
// One listener serves them all, so parts that are exchanged while the page is watched need nothing.
"use strict";

// The rows that the pressed button of a table asks for: "all", or those with a badge of its kind.
function filterRows(group) {
  const kind = group.querySelector('[aria-pressed="true"]').dataset.show;
  for (const row of group.parentElement.querySelectorAll("tbody tr")) {
    row.hidden = kind !== "all" && row.querySelector(".badge." + kind) === null;
  }
}

function press(button) {
  for (const other of button.parentElement.querySelectorAll("button")) {
    other.setAttribute("aria-pressed", String(other === button));
  }
}

// Where the browser refuses the clipboard, the text is selected: the reader's own keys copy it.
async function copy(button) {
  const text = button.parentElement.querySelector(".copy");
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch (error) {
    window.getSelection().selectAllChildren(text);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button === null) return;
  if (button.matches(".theme")) switchTheme();
  if (button.matches(".copy-button")) copy(button);
  if (button.matches(".filter button")) {
    press(button);
    filterRows(button.parentElement);
  }
});

// On paper nobody can unfold anything.
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details:not([open])")) {
    folded.open = true;
    folded.dataset.unfolded = "for print";
  }
});
window.addEventListener("afterprint", () => {
  for (const unfolded of document.querySelectorAll("details[data-unfolded]")) {
    unfolded.open = false;
    delete unfolded.dataset.unfolded;
  }
});
