// Draws the figures in the colours of the page, and filters tables by their buttons.
"use strict";

const CONFIG = { displayModeBar: false, responsive: true };

// "var(--accent)" -> the colour it stands for now; everything else as it is.
function resolved(value, style) {
  if (typeof value === "string" && value.startsWith("var(--")) {
    return style.getPropertyValue(value.slice(4, -1)).trim();
  }
  if (Array.isArray(value)) return value.map((item) => resolved(item, style));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, style)]));
  }
  return value;
}

function draw() {
  const style = getComputedStyle(document.documentElement);
  for (const plot of document.querySelectorAll("figure .plot")) {
    const given = JSON.parse(plot.parentElement.querySelector("script").textContent);
    const figure = resolved(given, style);
    Plotly.react(plot, figure.data, figure.layout, CONFIG).then(() => plot.setAttribute("data-drawn", "yes"));
  }
}

if (window.Plotly) {
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

for (const group of document.querySelectorAll(".filter")) {
  const rows = group.parentElement.querySelectorAll("tbody tr");
  for (const button of group.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      for (const other of group.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      for (const row of rows) {
        row.hidden = button.dataset.show !== "all" && row.querySelector(".badge." + button.dataset.show) === null;
      }
    });
  }
}
