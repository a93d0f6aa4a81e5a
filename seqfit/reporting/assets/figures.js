// Draws the figures in the colours of the page, on screen and on paper, and saves them as pictures.
// A figure's JSON has a chart for each x axis to choose: {"step": {data, layout}, "minutes": {...}}.
"use strict";

const CONFIG = { displayModeBar: false, responsive: true };
const PAPER_WIDTH = 640; // fits A4 and Letter upright with the margins in page.css
const PICTURE = { width: 720, height: 400, pixels: 3 }; // pixels: of a PNG, to each unit of width
let isPrinting = false;

// "var(--accent)" -> the colour it stands for; everything else as it is.
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

// Paper and pictures are light whatever the page is: an element of the class has the light values as its own.
function lightStyle() {
  let probe = document.querySelector("body > .light");
  if (probe === null) {
    probe = document.createElement("div");
    probe.className = "light";
    probe.hidden = true;
    document.body.append(probe);
  }
  return getComputedStyle(probe);
}

function chartsOf(figure) {
  return JSON.parse(figure.querySelector("script").textContent);
}

// The axis whose button is pressed; where it is gone, or there are no buttons, the first.
function chosenAxis(figure, charts) {
  const pressed = figure.querySelector('.choices [aria-pressed="true"]')?.dataset.choice;
  return pressed in charts ? pressed : Object.keys(charts)[0];
}

// Pixels that a legend takes beyond its first line: entries that do not fit into one stand in columns.
function legendRoom(chart, width) {
  if (chart.layout.showlegend === false) return 0;
  const listed = chart.data.filter((trace) => trace.showlegend !== false && trace.name);
  const widths = listed.map((trace) => 48 + 6.5 * trace.name.length);
  const sum = widths.reduce((all, one) => all + one, 0);
  if (listed.length < 2 || sum <= width) return 0;
  const columns = Math.max(1, Math.floor(width / Math.max(...widths)));
  return 19 * (Math.ceil(listed.length / columns) - 1);
}

// Does nothing where data, axis, colours and paper are those of the last time.
async function draw(figure) {
  const plot = figure.querySelector(".plot");
  const charts = chartsOf(figure);
  const axis = chosenAxis(figure, charts);
  const theme = isPrinting ? "paper" : document.documentElement.dataset.theme;
  const asked = [figure.querySelector("script").textContent, axis, theme].join("\n");
  if (plot.drawnFrom === asked) return;
  plot.drawnFrom = asked;
  const chart = resolved(charts[axis], isPrinting ? lightStyle() : getComputedStyle(document.documentElement));
  const room = legendRoom(chart, isPrinting ? PAPER_WIDTH : plot.clientWidth);
  plot.style.height = `calc(${chart.layout.height ? chart.layout.height + "px" : "var(--plot)"} + ${room}px)`;
  const size = { autosize: !isPrinting, width: isPrinting ? PAPER_WIDTH : undefined, height: plot.clientHeight };
  // What the reader has hidden by the legend stays hidden as long as the axis is the same.
  try {
    await Plotly.react(plot, chart.data, { ...chart.layout, ...size, uirevision: axis }, CONFIG);
  } catch (error) {
    plot.drawnFrom = null; // it is not: the next time tries again
    throw error;
  }
  plot.setAttribute("data-drawn", "yes");
}

function drawAll() {
  return Promise.all([...document.querySelectorAll("figure[data-name]")].map(draw));
}

// One line of text in a picture; what would run out of it is cut.
function textLine(text, most, attributes) {
  const fitting = text.length > most ? text.slice(0, most - 1) + "…" : text;
  const written = fitting.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="12" font-family="system-ui, 'Segoe UI', Roboto, sans-serif" ${attributes}>${written}</text>`;
}

// A chart as SVG text: in light colours on white, title and note above it, so that the file says what it shows.
async function picture(figure, axis) {
  const light = lightStyle();
  const chart = resolved(chartsOf(figure)[axis], light);
  const width = PICTURE.width;
  const inner = (chart.layout.height ?? PICTURE.height) + legendRoom(chart, width);
  const drawn = await Plotly.toImage(chart, { format: "svg", width, height: inner, imageDataOnly: true });
  const [title, note] = ["b", ".note"].map((part) => figure.querySelector("figcaption " + part).textContent);
  const top = note ? 52 : 34;
  const height = inner + top;
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
    '<rect width="100%" height="100%" fill="#ffffff"/>' +
    textLine(title, 85, `y="24" font-size="15" font-weight="600" fill="${light.getPropertyValue("--ink").trim()}"`) +
    textLine(note, 105, `y="43" font-size="12.5" fill="${light.getPropertyValue("--quiet").trim()}"`) +
    drawn.replace("<svg ", `<svg y="${top}" `) +
    "</svg>";
  return { svg, width, height };
}

// The SVG as a PNG's data URL, with three pixels to each of its units.
async function raster({ svg, width, height }) {
  const image = new Image();
  image.src = "data:image/svg+xml," + encodeURIComponent(svg);
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * PICTURE.pixels;
  canvas.height = height * PICTURE.pixels;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

// 'loss', or 'loss-minutes' over another axis than the first.
function pictureName(figure, axis, charts) {
  return figure.dataset.name + (axis === Object.keys(charts)[0] ? "" : "-" + axis.replace(/[^A-Za-z0-9]+/g, "-"));
}

async function save(figure, kind) {
  const charts = chartsOf(figure);
  const axis = chosenAxis(figure, charts);
  const made = await picture(figure, axis);
  const link = document.createElement("a");
  link.href = kind === "png" ? await raster(made) : URL.createObjectURL(new Blob([made.svg], { type: "image/svg+xml" }));
  link.download = pictureName(figure, axis, charts) + "." + kind;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("figure[data-name] button");
  if (button === null) return;
  const figure = button.closest("figure");
  if (button.dataset.save) save(figure, button.dataset.save);
  if (button.dataset.choice) {
    press(button);
    draw(figure);
  }
});

drawAll();
document.addEventListener("theme", drawAll);
for (const [moment, printing] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(moment, () => {
    isPrinting = printing;
    drawAll();
  });
}
