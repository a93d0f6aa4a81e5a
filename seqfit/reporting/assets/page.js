// What the buttons of a page do, but for those of figures; and what a printed page shows.
// One listener serves them all, so parts that are exchanged while the page is watched need nothing.
"use strict";

const SHOWN_ROWS = 10, MORE_ROWS = 20;
const ORDERS = {
  worst: (row) => Number(row.dataset.goodness),
  best: (row) => -Number(row.dataset.goodness),
  order: (row) => Number(row.dataset.order),
  long: (row) => -Number(row.dataset.length),
  short: (row) => Number(row.dataset.length),
  sure: (row) => -Number(row.dataset.confidence),
  unsure: (row) => Number(row.dataset.confidence),
};

// The rows of an error analysis that its controls ask for, in their order, as many as were asked for.
function arrange(analysis, isNew) {
  const chosen = (name) => analysis.querySelector(name);
  const kind = chosen('.filter [aria-pressed="true"]')?.dataset.show ?? "all";
  const words = chosen(".search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const group = chosen(".group")?.value ?? "";
  const list = chosen(".answers");
  const key = ORDERS[chosen(".sort").value];
  const rows = [...list.children].sort((a, b) => key(a) - key(b) || a.dataset.order - b.dataset.order);
  list.append(...rows);
  const found = rows.filter(
    (row) =>
      (kind === "all" || row.dataset.kind === kind) &&
      (group === "" || (row.dataset.groups ?? "").split("|").includes(group)) &&
      words.every((word) => row.textContent.toLowerCase().includes(word)),
  );
  if (isNew) analysis.dataset.shown = SHOWN_ROWS;
  const count = Math.min(found.length, Number(analysis.dataset.shown ?? SHOWN_ROWS));
  const shown = new Set(found.slice(0, count));
  for (const row of rows) row.hidden = !shown.has(row);
  chosen(".status").textContent = count + " of " + found.length.toLocaleString("en");
  chosen(".more-answers").hidden = count === found.length;
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
    arrange(button.closest(".analysis"), true);
  }
  if (button.matches(".more-answers")) {
    const analysis = button.closest(".analysis"), before = analysis.querySelectorAll(".answer:not([hidden])").length;
    analysis.dataset.shown = before + MORE_ROWS;
    arrange(analysis, false);
    const next = analysis.querySelectorAll(".answer:not([hidden])")[before]; // the keyboard goes on there
    next.tabIndex = -1;
    next.focus();
  }
});

for (const kind of ["input", "change"]) {
  document.addEventListener(kind, (event) => {
    const analysis = event.target.closest(".analysis");
    if (analysis !== null) arrange(analysis, true);
  });
}

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
