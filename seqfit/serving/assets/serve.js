// The page to try models with: builds the form from what the server says of its models, asks them, shows answers.
"use strict";

const SHOWN_EXAMPLES = 6;
const CANDIDATES = 4;
const LONG = 90; // characters of an answer or a column from which on it is shown as running text
const WORDS = {
  // task: what the button says, what comes out
  qa: ["Ask", "Answer"],
  summarize: ["Summarize", "Summary"],
  translate: ["Translate", "Translation"],
  classify: ["Classify", "Class"],
  multilabel: ["Classify", "Labels"],
  math: ["Solve", "Result"],
  regression: ["Score", "Score"],
  "multiple-choice": ["Choose", "Choice"],
  generate: ["Generate", "Text"],
};
const LONG_NAMES = /context|text|document|dialog|article|passage|paragraph|story|body|content|review/i;
const THUMB = "M5 8h-2.5v7h2.5zM5 8l3.5-6c1.4 0 2 1 1.7 2.3l-.6 2.7h4.2c1.2 0 1.9 1 1.6 2.1l-1.3 4.6c-.2.8-.9 1.3-1.7 1.3H5";

let models = [];
let examples = { rows: [] };
let firstExample = 0;
let reference = null; // of the example that fills the form
let asked = 0; // answers to an earlier question are dropped

const find = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// --- talking to the server

function token() {
  try {
    return sessionStorage.getItem("seqfit-token");
  } catch (error) {
    return null;
  }
}

async function send(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (token() !== null) headers.Authorization = `Bearer ${token()}`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw new Error("The server does not answer: it may have ended.");
  }
  if (response.ok) return response;
  let message = `status ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch (error) {
    console.debug("an error without JSON:", response.status);
  }
  throw Object.assign(new Error(message), { status: response.status });
}

// The events of a stream, one object each.
async function* readEvents(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) yield JSON.parse(part.slice("data: ".length));
  }
}

// --- the form

function chosen() {
  const names = [find("model-1").value, find("model-2").value];
  return [...new Set(names)].map((name) => models.find((model) => model.name === name)).filter(Boolean);
}

function label(path) {
  const words = path.replaceAll(/[._]/g, " ");
  return words[0].toUpperCase() + words.slice(1);
}

function typicalLength(path) {
  const lengths = examples.rows.map((example) => String(example.row[path] ?? "").length).sort((a, b) => a - b);
  return lengths.length ? lengths[Math.floor(lengths.length * 0.8)] : null;
}

function isLong(path) {
  return (typicalLength(path) ?? (LONG_NAMES.test(path) ? LONG : 0)) >= LONG;
}

function buildFields() {
  const before = Object.fromEntries([...find("fields").querySelectorAll("[name]")].map((field) => [field.name, field.value]));
  const columns = new Map();
  for (const model of chosen()) {
    for (const column of model.columns) {
      const known = columns.get(column.path);
      columns.set(column.path, { ...column, required: column.required || Boolean(known?.required) });
    }
  }
  const only = columns.size === 1;
  find("fields").replaceChildren(
    ...[...columns.values()].map((column) => {
      const id = `field-${column.path}`;
      const long = only || column.is_list || isLong(column.path);
      const settings = { id, name: column.path, required: column.required, dir: "auto", autocomplete: "off" };
      const field = long ? make("textarea", { ...settings, rows: 3 }) : make("input", { ...settings, type: "text" });
      field.value = before[column.path] ?? "";
      field.addEventListener("input", () => (reference = null));
      const hint = column.is_list ? ", one per line" : column.required ? "" : ", optional";
      return make("div", { class: "field" }, make("label", { for: id }, label(column.path) + hint), field);
    }),
  );
  const [action] = WORDS[chosen()[0].task] ?? WORDS.generate;
  find("submit").textContent = action;
}

function readRow(model) {
  const row = {};
  for (const column of model.columns) {
    const value = find(`field-${column.path}`).value;
    if (column.is_list) row[column.path] = value.split("\n").filter((line) => line.trim());
    else if (value.trim() || column.required) row[column.path] = value;
  }
  return row;
}

// --- answers

function percent(share) {
  return share === null || share === undefined ? "" : `${(100 * share).toFixed(share > 0.995 || share < 0.1 ? 1 : 0)}%`;
}

function showConfidence(confidence) {
  if (confidence === null || confidence === undefined) return null;
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i", { style: `width:${100 * confidence}%` }));
  return make("div", { class: "confidence" }, bar, `confidence ${percent(confidence)}`);
}

function highlight(text, spans) {
  const characters = Array.from(text); // the server counts characters, not UTF-16 units
  const parts = [];
  let at = 0;
  for (const [start, end] of spans) {
    parts.push(characters.slice(at, start).join(""), make("mark", {}, characters.slice(start, end).join("")));
    at = end;
  }
  return [...parts, characters.slice(at).join("")];
}

function showReference(prediction) {
  if (reference === null) return null;
  const fold = (text) => text.trim().toLowerCase();
  const same = fold(reference) === fold(prediction);
  const badge = make("span", { class: `badge ${same ? "good" : "bad"}` }, same ? "same" : "different");
  return make("p", { class: "reference" }, `Reference: ${reference === "" ? "no answer" : reference} `, badge);
}

function showCandidates(candidates) {
  if (candidates.length < 2) return null;
  const lines = candidates.map((one) =>
    make("li", {}, make("span", { dir: "auto" }, one.text || "no answer"), make("span", { class: "note" }, percent(one.confidence))),
  );
  const list = make("ol", { class: "candidates", "aria-label": "Candidates" }, ...lines);
  return make("div", {}, make("p", { class: "note searched" }, `Candidates of a search with ${CANDIDATES} beams`), list);
}

function thumb(name, pressed, turned) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 18 17");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", THUMB);
  if (turned) path.setAttribute("transform", "rotate(180 9 8.5)");
  svg.append(path);
  return make("button", { type: "button", "aria-label": name, title: name, "aria-pressed": String(pressed) }, svg);
}

function showRating(model, row, answer) {
  const up = thumb("Right answer", false, false);
  const down = thumb("Wrong answer", false, true);
  const note = make("span", { class: "note", role: "status" });
  const line = make("div", { class: "rate" }, up, down, note);
  const place = make("div", {}, line);

  async function keep(rating, correct) {
    const { prediction, text } = answer;
    const body = { model: model.name, row, prediction, text, rating, ...(correct ? { correct } : {}) };
    try {
      const kept = await (await send("/feedback", body)).json();
      for (const button of [up, down]) button.disabled = true;
      place.querySelector(".correct")?.remove();
      note.textContent = `Kept in ${kept.path}` + (kept.trains ? "" : ` (not a row to train on: ${kept.why_not})`);
    } catch (error) {
      note.textContent = error.message;
    }
  }

  up.addEventListener("click", () => {
    up.setAttribute("aria-pressed", "true");
    keep("up");
  });
  down.addEventListener("click", () => {
    if (place.querySelector(".correct")) return;
    down.setAttribute("aria-pressed", "true");
    place.append(askForCorrection(model, answer, keep));
    place.querySelector(".correct input, .correct textarea, .correct select")?.focus();
  });
  return place;
}

function askForCorrection(model, answer, keep) {
  const single = model.target_columns.length === 1;
  const long = (answer.prediction ?? "").length >= LONG;
  const fields = model.target_columns.map((column, number) => {
    const id = `correct-${model.name}-${column}`;
    let field = make(long ? "textarea" : "input", { id, name: column, dir: "auto", autocomplete: "off", ...(long ? { rows: 4 } : {}) });
    if (model.labels.length && single) {
      field = make("select", { id, name: column }, ...model.labels.map((name) => make("option", {}, name)));
    }
    const words = single ? "What is right?" : `What is right? ${label(column)}`;
    return make("div", {}, make("label", { for: id }, number ? label(column) : words), field);
  });
  const save = make("button", { type: "submit", class: "primary" }, "Save");
  const unsure = make("button", { type: "button", class: "plain" }, "I don't know");
  const form = make("form", { class: "correct" }, ...fields, make("div", { class: "actions" }, save, unsure));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = [...form.querySelectorAll("[name]")].map((field) => [field.name, field.value]);
    keep("down", Object.fromEntries(values));
  });
  unsure.addEventListener("click", () => keep("down"));
  return form;
}

function showAnswer(card, model, row, result, milliseconds) {
  const [answer] = result.answers;
  const shown = make("div", { class: "answer", dir: "auto" }, answer.prediction || "no answer");
  shown.classList.toggle("none", !answer.prediction);
  shown.classList.toggle("long", answer.prediction.length >= LONG);
  const contexts = Object.entries(answer.spans).map(([column, spans]) =>
    make("div", { class: "context", dir: "auto", tabindex: "0", "aria-label": label(column) }, ...highlight(String(row[column]), spans)),
  );
  const candidates = make("div", {}, showCandidates(answer.candidates));
  card.querySelector(".head .time").textContent = `${Math.round(milliseconds)} ms`;
  card.querySelector(".body").replaceChildren(
    ...[shown, showConfidence(answer.confidence), showReference(answer.prediction), ...contexts, candidates, showRating(model, row, answer)].filter(Boolean),
  );
  for (const context of contexts) {
    const mark = context.querySelector("mark");
    context.scrollTop = Math.max(0, mark.offsetTop - context.offsetTop - 60);
  }
  return candidates;
}

async function ask(model, card, number) {
  const row = readRow(model);
  const body = card.querySelector(".body");
  const started = performance.now();
  try {
    const query = new URLSearchParams({ model: model.name, stream: "true" });
    let text = "";
    for await (const event of readEvents(await send(`/predict?${query}`, row))) {
      if (number !== asked) return;
      if (event.error) throw new Error(event.error.message);
      if (event.text !== undefined) {
        text += event.text;
        body.replaceChildren(make("div", { class: "answer coming", dir: "auto" }, text));
      } else {
        const place = showAnswer(card, model, row, event, performance.now() - started);
        showMore(model, row, place, number);
      }
    }
  } catch (error) {
    if (number === asked) body.replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
  }
}

// What else the model would have answered; an answer is there already, so a failure here is no error.
async function showMore(model, row, place, number) {
  try {
    const query = new URLSearchParams({ model: model.name, n: String(CANDIDATES) });
    const result = await (await send(`/predict?${query}`, row)).json();
    if (number === asked) place.replaceChildren(...[showCandidates(result.answers[0].candidates)].filter(Boolean));
  } catch (error) {
    console.debug("no other candidates:", error.message);
  }
}

async function askAll() {
  asked += 1;
  const number = asked;
  const cards = chosen().map((model) => {
    const head = make("div", { class: "head" }, make("span", {}, model.name), make("span", { class: "time" }));
    const waiting = make("div", { class: "body" }, make("div", { class: "answer coming" }));
    const [, what] = WORDS[model.task] ?? WORDS.generate;
    return make("article", { class: "card", "aria-label": `${what} of ${model.name}` }, head, waiting);
  });
  find("results").replaceChildren(...cards);
  find("results").scrollIntoView({ block: "nearest" });
  find("submit").disabled = true;
  await Promise.all(chosen().map((model, place) => ask(model, cards[place], number)));
  if (number !== asked) return;
  find("submit").disabled = false;
  const answers = cards.map((card) => card.querySelector(".answer, .error")?.textContent ?? "");
  find("status").textContent = `Answered: ${answers.join("; ")}`.slice(0, 300);
}

// --- examples

function summary(example) {
  const column = chosen()[0].columns.map(({ path }) => path).find((path) => !isLong(path) && example.row[path]);
  const text = String(example.row[column] ?? Object.values(example.row)[0] ?? "");
  return text.length > 110 ? `${text.slice(0, 110)} …` : text;
}

function showExamples() {
  const rows = examples.rows.slice(firstExample, firstExample + SHOWN_EXAMPLES);
  find("examples-note").textContent = examples.absent
    ? `None: ${examples.absent}`
    : `From the ${examples.split} set: a click fills the form and asks.`;
  find("examples-more").hidden = examples.rows.length <= SHOWN_EXAMPLES;
  find("examples-list").replaceChildren(
    ...rows.map((example) => {
      const button = make("button", { type: "button", dir: "auto" }, summary(example));
      button.addEventListener("click", () => useExample(example));
      return make("li", {}, button);
    }),
  );
}

function useExample(example) {
  for (const [path, value] of Object.entries(example.row)) {
    const field = find(`field-${path}`);
    if (field) field.value = Array.isArray(value) ? value.join("\n") : value;
  }
  reference = example.reference;
  askAll();
}

async function loadExamples() {
  find("examples-note").textContent = "Loading";
  try {
    examples = await (await send(`/examples?${new URLSearchParams({ model: chosen()[0].name })}`)).json();
  } catch (error) {
    examples = { split: "validation", rows: [], absent: error.message };
  }
  firstExample = 0;
  buildFields();
  showExamples();
}

// --- start

function fillChoices() {
  const option = (model) => make("option", { value: model.name }, model.name);
  find("model-1").replaceChildren(...models.map(option));
  find("model-2").replaceChildren(make("option", { value: "" }, "nothing"), ...models.map(option));
  find("model-2").value = models[1]?.name ?? "";
  find("models").hidden = models.length < 2;
}

async function start() {
  try {
    ({ models } = await (await send("/models")).json());
  } catch (error) {
    find("title").textContent = error.status === 401 ? "Token needed" : "Not available";
    find("lead").textContent = error.message;
    find("token").hidden = error.status !== 401;
    return;
  }
  find("token").hidden = true;
  const tasks = [...new Set(models.map((model) => model.task))];
  find("title").textContent = models.length === 1 ? models[0].name : `${models.length} runs`;
  document.title = `${find("title").textContent} · seqfit serve`;
  find("lead").textContent = `Task: ${tasks.join(", ")}`;
  fillChoices();
  buildFields();
  find("workplace").hidden = false;
  await loadExamples();
}

find("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("seqfit-token", find("token-text").value);
  start();
});
find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  askAll();
});
find("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    find("ask").requestSubmit();
  }
});
find("model-1").addEventListener("change", loadExamples);
find("model-2").addEventListener("change", buildFields);
find("examples-more").addEventListener("click", () => {
  firstExample += SHOWN_EXAMPLES;
  if (firstExample >= examples.rows.length) firstExample = 0;
  showExamples();
});
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given !== null) {
  sessionStorage.setItem("seqfit-token", given);
  history.replaceState(null, "", location.pathname); // not kept in the address
}
start();
