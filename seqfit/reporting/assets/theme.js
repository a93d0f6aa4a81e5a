// Light or dark, before anything is painted: what the reader chose last, else what the system says.
"use strict";

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");

function rememberedTheme() {
  try {
    return localStorage.getItem("seqfit-theme");
  } catch (error) {
    return null; // some browsers keep nothing for pages that are files
  }
}

function rememberTheme(theme) {
  try {
    if (theme === null) localStorage.removeItem("seqfit-theme");
    else localStorage.setItem("seqfit-theme", theme);
  } catch (error) {
    console.debug("the choice of colours lasts until the page is closed:", error.name);
  }
}

function systemTheme() {
  return systemIsDark.matches ? "dark" : "light";
}

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.querySelector("button.theme")?.setAttribute("aria-pressed", String(theme === "dark"));
  document.dispatchEvent(new Event("theme"));
}

// Going back to what the system says is forgotten, so that the page follows the system again.
function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  rememberTheme(theme === systemTheme() ? null : theme);
  showTheme(theme);
}

showTheme(rememberedTheme() ?? systemTheme());
systemIsDark.addEventListener("change", () => showTheme(rememberedTheme() ?? systemTheme()));
document.addEventListener("DOMContentLoaded", () => showTheme(document.documentElement.dataset.theme));
