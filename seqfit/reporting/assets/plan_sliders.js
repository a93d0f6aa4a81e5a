// The controls of a plan's page: reads the sliders, asks plan_model.js, writes the answer and draws the chart.
// All of it happens here: nothing is loaded and nothing is sent.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const CHART = { height: 290, left: 66, right: 14, top: 14, bottom: 40 };
const CHART_BATCHES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

// ---- quantities as seqfit prints them (seqfit/units.py) ----

function threeDigits(number) {
  return Math.abs(number) >= 99.95 ? number.toFixed(0) : String(Number(number.toPrecision(3)));
}

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (Math.abs(bytes) >= (power ? 1023.95 : 1023.5) && power < units.length - 1) {
    bytes /= 1024;
    power++;
  }
  return `${bytes.toFixed(power ? 1 : 0)} ${units[power]}`;
}

function formatSeconds(seconds) {
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${two((whole % 86400) / 3600)} h`;
}

function formatCount(number) {
  return number.toLocaleString("en-US");
}

// "18.2 of 23.7 GiB"
function formatOf(bytes, capacity) {
  const [size, whole] = [formatBytes(bytes), formatBytes(capacity)];
  return `${size.split(" ")[1] === whole.split(" ")[1] ? size.split(" ")[0] : size} of ${whole}`;
}

// ---- the answer in words (seqfit/planning/report.py) ----

function describe(candidate) {
  return candidate.variant.label.replace(", ", " with ");
}

function rangeOf(plan, bytes) {
  const error = plan.device.bytes_error;
  return [bytes / (1 + error), bytes / (1 - error)];
}

function isTight(plan, bytes) {
  const [low, high] = rangeOf(plan, bytes);
  return low <= plan.device.capacity_bytes && plan.device.capacity_bytes < high;
}

function describeMemory(plan, bytes) {
  const sizes = formatOf(bytes, plan.device.capacity_bytes);
  if (!isTight(plan, bytes)) return sizes;
  const [low, high] = rangeOf(plan, bytes).map(formatBytes);
  return `${sizes} (${low.split(" ")[1] === high.split(" ")[1] ? low.split(" ")[0] : low} to ${high})`;
}

function summarise(candidate) {
  return `${describe(candidate)}, ${formatBytes(candidate.bytes)}, ${formatSeconds(candidate.seconds)} per step`;
}

function describeBasis(model, question) {
  const { steps, passes } = model.training;
  if (steps !== null) return `${formatCount(steps)} steps`;
  return `${formatCount(question.rows)} rows (${passes} epoch${passes === 1 ? "" : "s"})`;
}

function answerIn(model, question, plan) {
  const { chosen, smallest, device } = plan;
  if (chosen === null) {
    const name = `${describe(smallest)} in micro-batches of ${smallest.budget} tokens`;
    const verdict = isTight(plan, smallest.bytes) ? "Does not fit, but it is tight" : "Does not fit";
    const missing = smallest.bytes - device.capacity_bytes;
    const lacks = missing > 0 ? `, ${formatBytes(missing)} too much` : ", without the allocator's fragmentation";
    return `${verdict}: the smallest, ${name}, needs ${describeMemory(plan, smallest.bytes)}${lacks}.`;
  }
  const tight = isTight(plan, chosen.bytes);
  const times = `${formatSeconds(chosen.seconds)} per step, ${formatSeconds(plan.seconds)}`;
  const memory = describeMemory(plan, chosen.bytes);
  const sentence = `Fits${tight ? ", but tight" : ""}: ${describe(chosen)}, ${memory}, ${times} for ${describeBasis(model, question)}.`;
  if (!tight) return sentence;
  const safe = plan.each.filter((one) => rangeOf(plan, one.bytes)[1] <= device.capacity_bytes);
  if (safe.length === 0) return sentence;
  const roomier = safe.reduce((best, one) => (one.seconds < best.seconds ? one : best));
  return `${sentence} With room to spare: ${summarise(roomier)}.`;
}

// ---- the controls ----

// The smallest steps first, then about 5%, with the ends, the start and powers of two among them.
function listStops([least, most], start, step) {
  const stops = new Set([least, most, start]);
  for (let stop = least; stop < most; stop += Math.max(step, Math.round((stop * 0.05) / step) * step)) stops.add(stop);
  for (let power = step; power <= most; power *= 2) stops.add(power);
  return [...stops].filter((stop) => stop >= least && stop <= most).sort((one, other) => one - other);
}

class Sliders {
  constructor(section, model) {
    Object.assign(this, { section, model });
    this.base = section.dataset.command;
    this.stops = {};
    for (const name of ["batch", "source", "target"]) this.connect(name);
    for (const name of ["rows", "price"]) this.find(name)?.addEventListener("input", () => this.answer());
    this.fill("device", model.devices.map((device, number) => [number, device.name]));
    this.find("device").addEventListener("change", () => this.offer());
    for (const name of ["precision", "strategy"]) this.find(name).addEventListener("change", () => this.answer());
    this.offer();
    window.addEventListener("resize", () => this.answer());
  }

  find(name) {
    return this.section.querySelector(`[name="${name}"]`);
  }

  fill(name, options) {
    const select = this.find(name), before = select.value;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    if (options.some(([value]) => String(value) === before)) select.value = before;
  }

  // A slider and a field for the same number; the field also takes what the slider does not reach.
  connect(name) {
    const slider = this.find(`${name}-slider`), field = this.find(name);
    if (field === null) return;
    const step = name === "batch" ? 1 : this.model.rules.alignment;
    const stops = listStops(this.model.ranges[name], this.model.start[name], step);
    field.step = step;
    const show = (value) => {
      const place = stops.findIndex((stop) => stop >= value);
      slider.value = place < 0 ? stops.length - 1 : place;
      slider.setAttribute("aria-valuetext", formatCount(value));
    };
    slider.max = stops.length - 1;
    slider.disabled = stops.length === 1;
    field.value = this.model.start[name];
    show(this.model.start[name]);
    slider.addEventListener("input", () => {
      field.value = stops[slider.value];
      slider.setAttribute("aria-valuetext", formatCount(stops[slider.value]));
      this.answer();
    });
    field.addEventListener("input", () => {
      show(Number(field.value));
      this.answer();
    });
  }

  // What this GPU has: others may have no bf16.
  offer() {
    const device = this.model.devices[this.find("device").value];
    const variants = device.variants.map((number) => this.model.variants[number]);
    const unique = (read) => [...new Set(variants.map(read))].map((value) => [value, value]);
    this.fill("precision", [["", "fastest that fits"], ...unique((one) => one.precision)]);
    this.fill("strategy", [["", "fastest that fits"], ...unique((one) => one.strategy)]);
    this.answer();
  }

  question() {
    const whole = (name, otherwise) => (this.find(name) === null ? otherwise : Number(this.find(name).value));
    return {
      batch: whole("batch", 1),
      source: whole("source", 1),
      target: whole("target", 0),
      rows: whole("rows", 1),
      device: Number(this.find("device").value),
      precision: this.find("precision").value,
      strategy: this.find("strategy").value,
    };
  }

  // At most once for each frame, however fast a slider moves.
  answer() {
    if (this.waits) return;
    this.waits = true;
    setTimeout(() => {
      this.waits = false;
      this.show();
    }, 0);
  }

  show() {
    const { model, section } = this;
    const question = this.question();
    const asked = JSON.stringify([question, this.find("price").value]);
    const mistake = this.explainMistake(question);
    const plan = mistake === "" ? planFor(model, question) : null;
    const output = section.querySelector(".planned");
    output.dataset.asked = asked;
    output.classList.toggle("bad", plan === null || plan.chosen === null);
    section.querySelector(".tiles").hidden = plan === null;
    section.querySelector(".chart").hidden = plan === null;
    section.querySelector(".ask").textContent = this.command(question, plan);
    if (plan === null) {
      output.textContent = mistake || this.explainUnknown(question);
      delete output.dataset.bytes;
      return;
    }
    const price = Number(this.find("price").value);
    const cost = (price * plan.seconds) / 3600;
    const hasCost = price > 0 && plan.chosen !== null;
    const costText = cost.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
    output.textContent = answerIn(model, question, plan) + (hasCost ? ` Cost: ${costText}.` : "");
    Object.assign(output.dataset, {
      fits: plan.chosen !== null,
      bytes: plan.shown.bytes,
      stepSeconds: plan.shown.seconds,
      seconds: plan.seconds,
      label: plan.shown.variant.label,
    });
    const isOver = plan.chosen === null;
    const capacity = plan.device.capacity_bytes;
    const evaluation = plan.shown.evaluationBytes >= plan.shown.bytes ? ", an evaluation's" : "";
    this.tile("memory", formatBytes(plan.shown.bytes), `of ${formatBytes(capacity)} usable${evaluation}`);
    this.tile("step", formatSeconds(plan.shown.seconds), `in micro-batches of ${plan.shown.budget.toLocaleString("en-US")} tokens`);
    const evaluations = plan.evaluationSeconds ? `, ${formatSeconds(plan.evaluationSeconds)} of it evaluations` : "";
    this.tile("total", isOver ? "–" : formatSeconds(plan.seconds), `${formatCount(plan.steps.total)} steps${evaluations}`);
    this.tile("cost", hasCost ? costText : "–", price > 0 ? "at this price" : "give a price per hour");
    drawMemory(section.querySelector(".chart"), model, question, plan);
  }

  tile(name, value, note) {
    const tile = this.section.querySelector(`[data-tile="${name}"]`);
    tile.querySelector(".value").textContent = value;
    tile.querySelector(".note").textContent = note;
  }

  explainMistake(question) {
    const wrong = ["batch", "source", "target", "rows"].find((name) => {
      return this.find(name) !== null && !(Number.isInteger(question[name]) && question[name] >= 1);
    });
    if (wrong !== undefined) return `Give a whole number of 1 or more for ${this.find(wrong).dataset.what}.`;
    return question.batch > 4096 ? "Batches of more than 4,096 examples are not planned here: ask the command below." : "";
  }

  // Beyond what was traced nothing is guessed.
  explainUnknown(question) {
    const found = ["source", "target"].flatMap((name) => {
      if (this.find(name) === null) return [];
      const [least, most] = this.model.ranges[name];
      const { alignment } = this.model.rules;
      if (question[name] >= least && question[name] <= most && question[name] % alignment === 0) return [];
      const between = `multiples of ${alignment} from ${formatCount(least)} to ${formatCount(most)} are`;
      const known = least === most ? `only ${formatCount(most)} is` : between;
      return [`${formatCount(question[name])} ${name} tokens are not known to this page (${known}).`];
    });
    if (found.length === 0) return "This GPU has no such strategy. Choose another one.";
    return `${found.join(" ")} Other lengths take other paths through the model: ask the command below.`;
  }

  // What gives the same answer, and a page around these lengths.
  command(question, plan) {
    const device = this.model.devices[question.device];
    const flags = [`--gpu ${device.key}`, "--no-data", `--batch ${question.batch}`, `--source-tokens ${question.source}`];
    if (this.find("target") !== null) flags.push(`--target-tokens ${question.target}`);
    if (this.model.training.steps === null) flags.push(`--rows ${question.rows}`);
    const stated = plan !== null && (question.precision || question.strategy) ? plan.shown : null;
    const own = stated ? [...stated.variant.overrides, `strategy.micro_batch_tokens=${stated.budget}`] : [];
    return [this.base, ...flags, ...own].join(" ");
  }
}

// ---- the chart: memory of a step in one piece, against the batch ----

function make(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function drawMemory(figure, model, question, plan) {
  const { device, shown } = plan;
  const own = device.variants.map((number) => model.variants[number]);
  const variants = own.filter((one) => one.precision === shown.variant.precision).slice(0, 6);
  if (!variants.includes(shown.variant)) variants[variants.length - 1] = shown.variant;
  const most = Math.max(question.batch, 8);
  const batches = [...new Set([...CHART_BATCHES.filter((batch) => batch <= 2 * most), question.batch])];
  batches.sort((one, other) => one - other);
  const lines = variants.map((variant) => {
    const points = batches.map((batch) => {
      const found = tryBudget(model, device, variant, { ...question, batch }, Infinity);
      return found === null ? null : [batch, found.bytes];
    });
    return { variant, points: points.filter((point) => point !== null) };
  });
  const { height, left, right, top, bottom } = CHART;
  const drawing = figure.querySelector(".drawing");
  const width = Math.max(260, drawing.clientWidth);
  const highest = 1.35 * Math.max(device.capacity_bytes, shown.bytes);
  const last = Math.log2(batches[batches.length - 1]);
  const x = (batch) => left + (Math.log2(batch) / (last || 1)) * (width - left - right);
  const y = (bytes) => height - bottom - (bytes / highest) * (height - top - bottom);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  svg.append(make("title", {}, "Memory of a step in one micro-batch, against the batch"));
  const step = tickStep(highest);
  for (let bytes = 0; bytes < highest; bytes += step) {
    svg.append(make("line", { x1: left, x2: width - right, y1: y(bytes), y2: y(bytes), class: "grid" }));
    svg.append(make("text", { x: left - 8, y: y(bytes) + 4, "text-anchor": "end" }, formatBytes(bytes)));
  }
  for (let batch = 1; batch <= batches[batches.length - 1]; batch *= 2) {
    svg.append(make("text", { x: x(batch), y: height - bottom + 18, "text-anchor": "middle" }, String(batch)));
  }
  svg.append(make("text", { x: width - right, y: height - 4, "text-anchor": "end" }, "examples per step"));
  const clip = make("clipPath", { id: "memory-area" });
  clip.append(make("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom }));
  svg.append(clip);
  lines.forEach(({ variant, points }, number) => {
    const path = points.map(([batch, bytes], place) => `${place ? "L" : "M"}${x(batch)} ${y(bytes)}`).join("");
    const isShown = variant === shown.variant;
    const style = `stroke: var(--series-${number + 1}); stroke-width: ${isShown ? 3 : 1.5}`;
    svg.append(make("path", { d: path, class: "memory", style, "clip-path": "url(#memory-area)" }));
  });
  const limit = y(device.capacity_bytes);
  svg.append(make("line", { x1: left, x2: width - right, y1: limit, y2: limit, class: "limit" }));
  const name = `${device.name}: ${formatBytes(device.capacity_bytes)}`;
  svg.append(make("text", { x: left + 6, y: limit - 6, class: "limit-name" }, name));
  svg.append(make("circle", { cx: x(question.batch), cy: y(shown.bytes), r: 6, class: "here" }));
  const legend = document.createElement("ul");
  lines.forEach(({ variant }, number) => {
    const entry = document.createElement("li");
    const mark = document.createElement("i");
    mark.style.background = `var(--series-${number + 1})`;
    entry.append(mark, variant.label);
    legend.append(entry);
  });
  const here = document.createElement("li");
  const dot = document.createElement("i");
  dot.className = "dot";
  here.append(dot, "the answer above, in micro-batches");
  legend.append(here);
  drawing.replaceChildren(svg, legend);
}

function tickStep(highest) {
  let step = 2 ** Math.floor(Math.log2(highest / 4));
  while (highest / step > 6) step *= 2;
  return step;
}

// ---- start ----

async function unpack(script) {
  const bytes = Uint8Array.from(atob(script.textContent.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

async function startSliders() {
  const section = document.querySelector("#sliders");
  if (section === null) return;
  if (typeof DecompressionStream === "undefined") {
    section.querySelector(".planned").textContent = "This browser is too old for the sliders (before 2023).";
    return;
  }
  const model = await unpack(section.querySelector("script"));
  section.sliders = new Sliders(section, model);
  section.querySelector(".sliders").hidden = false;
}

startSliders();
