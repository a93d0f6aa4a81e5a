// Plans for one GPU in the browser, by the same steps as `seqfit plan`: sizes and seconds are polynomials of the
// micro-batch's shape (seqfit/planning/template.py), every size of micro-batch is tried (placement.py, search.py), and
// the memory of what is chosen is that of a replay on torch's caching allocator (allocator.py, memory.py).
// In: what planning/page_model.py exports. Out: `planFor(model, question)`, plain numbers. tests/reporting/
// test_plan_sliders.py holds both to the same answers.
"use strict";

const MIB = 2 ** 20;
const OWN_SEGMENT = 10 * MIB;
const REPLAYED_STEPS = 4; // all alike: a first one, in which the optimizer's state is made, and three more
const REPLAYED_ALIKE = 8; // micro-batches of a step that are alike; more of them find the same memory

// ---- shapes ----

function makeShape(variant, examples, source, target) {
  return { examples, source, target, packed: variant.rule.batching === "packed" };
}

// The examples of each micro-batch (seqfit/data/batching.py).
function splitBatch(rule, batch, source, target, budget) {
  const most = rule.examples ?? Infinity;
  const pieces = [];
  if (rule.batching !== "packed") {
    const up = (length) => Math.ceil(length / rule.pad_multiple) * rule.pad_multiple;
    const toLongest = rule.batching === "max_length";
    const each =
      up(Math.max(source, toLongest ? rule.pad_source_tokens ?? 0 : 0)) +
      up(Math.max(target, toLongest ? rule.pad_target_tokens ?? 0 : 0));
    const size = Math.max(1, Math.min(most, Math.floor(budget / each)));
    for (let left = batch; left > 0; left -= size) pieces.push(Math.min(left, size));
    return pieces;
  }
  const length = source + target;
  const share = (batch * length) / Math.max(1, Math.ceil((batch * length) / budget));
  let start = 0, used = 0, before = 0, number = 1;
  for (let position = 0; position < batch; position++) {
    const isFull = used + length > budget || position - start >= most;
    if (position > start && (isFull || before + used + length / 2 > number * share)) {
      pieces.push(position - start);
      [start, before, used, number] = [position, before + used, 0, number + 1];
    }
    used += length;
  }
  pieces.push(batch - start);
  return pieces;
}

// Which path attention takes, as seqfit/planning/shape.py names it.
function nameRegime(variant, rules, shape) {
  if (!shape.packed) return "padded|||";
  const path = (queries, keys) => {
    if (Math.max(queries, keys) <= (variant.blockwise_above ?? Infinity)) return "torch's kernel";
    return queries <= rules.whole_segment_tokens ? "whole segments" : "blocks of queries";
  };
  const { source, target } = shape;
  const decoder = target ? [path(target, target), path(target, source)] : ["", ""];
  return ["packed", path(source, source), ...decoder].join("|");
}

function band(longest, rules) {
  const rows = longest <= rules.whole_segment_tokens ? longest : rules.block_rows;
  return rows * (2 * Math.ceil(longest / rows) * rows - rows);
}

function chunkRows(variant, rules, rows) {
  if (!variant.chunked_vocabulary || rows === 0) return 0;
  const withinBytes = Math.ceil((rows * variant.chunked_vocabulary * 4) / rules.chunk_bytes);
  const ofLeastRows = Math.floor(rows / rules.least_chunk_rows);
  return Math.max(1, Math.ceil(rows / Math.max(1, Math.min(withinBytes, ofLeastRows))));
}

// What sizes are sums of, in the order of `terms` in seqfit/planning/template.py.
function listTerms(variant, rules, { examples: n, source: s, target: t }) {
  const sums = [n * s, n * t, n, n * s * s, n * s * t, n * t * t];
  const longest = [s, t, s * s, s * t, t * t, band(Math.max(s, 1), rules), band(Math.max(t, 1), rules)];
  const padded = [n * s, n * t, n * s * s, n * s * t, n * t * t];
  return [1, sums[0] + sums[1], ...sums, ...longest, ...padded, chunkRows(variant, rules, n * t)];
}

function evaluate(packed, terms) {
  let sum = 0;
  for (let place = 0; place < packed.length; place += 2) sum += packed[place + 1] * terms[packed[place]];
  return Math.max(sum, 0);
}

// ---- one micro-batch ----

function prepare(template) {
  if (template.ready) return;
  template.events = Int32Array.from(template.events);
  // The row of each block, and the block that each event is about; a step of one micro-batch leaves out the second.
  const rows = [];
  const blocks = new Int32Array(template.events.length);
  template.events.forEach((event, place) => {
    if (event >= 0) {
      blocks[place] = rows.length;
      rows.push(event);
    } else blocks[place] = rows.length + event;
  });
  template.rows = Int32Array.from(rows);
  template.eventBlocks = blocks;
  const places = [...template.events.keys()];
  if (template.parts.length === 1) template.single = Int32Array.from(places);
  else {
    const left = new Set();
    for (let place = template.parts[1]; place < template.update_from; place++) {
      if (template.events[place] >= 0) left.add(blocks[place]);
    }
    const isKept = (place) =>
      (place < template.parts[1] || place >= template.update_from) &&
      (template.events[place] >= 0 || !left.has(blocks[place]));
    template.single = Int32Array.from(places.filter(isKept));
  }
  template.all = Int32Array.from(places);
  template.ready = true;
}

function sizeRows(template, terms) {
  return Float64Array.from(template.blocks, (row) => Math.round(evaluate(row.bytes, terms)));
}

function peakBytes(template, sizes, isSingle) {
  const { events, rows, eventBlocks } = template;
  let live = 0, peak = 0;
  for (const place of isSingle ? template.single : template.all) {
    const size = sizes[rows[eventBlocks[place]]];
    live += events[place] >= 0 ? size : -size;
    if (live > peak) peak = live;
  }
  return peak;
}

// Seconds of a first micro-batch, of a later one, of the update.
function partSeconds(template, terms, rates, rules) {
  const kinds = rules.kinds;
  const totals = [0, 0, 0], issued = [0, 0, 0];
  for (const kernel of template.kernels) {
    const flops = evaluate(kernel.flops, terms);
    const moved = evaluate(kernel.bytes, terms);
    const calls = evaluate(kernel.calls, terms);
    const kind = kinds[kernel.kind];
    const isProduct = kind === "product" || kind === "half product";
    const rate = rates.flops_per_second[kernel.kind];
    const idle = isProduct ? rates.last_wave * Math.sqrt(flops * calls) : 0;
    const arithmetic = rate === null ? 0 : (flops + idle) / rate;
    let traffic = moved / (kind === "update" ? rates.update_bytes_per_second : rates.bytes_per_second);
    const isThin = isProduct && flops < rules.dense * moved;
    if (!rates.products_wait_for_memory && kind !== "other" && kind !== "update" && !isThin) traffic = 0;
    const seconds = Math.max(arithmetic, traffic) + calls * rates.call_seconds;
    kernel.counts.forEach((count, part) => {
      totals[part] += count * seconds;
      issued[part] += count * calls;
    });
  }
  return totals.map((seconds, part) => Math.max(seconds, issued[part] * rates.host_call_seconds));
}

// ---- one strategy ----

// Micro-batches of this many tokens: null where a path through the model was not traced.
function tryBudget(model, device, variant, question, budget) {
  const { rules } = model;
  const { batch, source, target } = question;
  const pieces = splitBatch(variant.rule, batch, source, target, budget);
  const rates = (variant.compiles ? device.compiled : device.rates)[variant.precision];
  const known = new Map();
  for (const examples of new Set(pieces)) {
    const shape = makeShape(variant, examples, source, target);
    if (nameRegime(variant, rules, shape) !== variant.regime) return null;
    const { template } = variant;
    prepare(template);
    const terms = listTerms(variant, rules, shape);
    const sizes = sizeRows(template, terms);
    const seconds = partSeconds(template, terms, rates, rules);
    known.set(examples, { sizes, seconds, peak: peakBytes(template, sizes, pieces.length === 1) });
  }
  const last = known.get(pieces[0]).seconds;
  let seconds = rates.step_seconds + last[0] + last[2];
  for (const examples of pieces.slice(1)) seconds += known.get(examples).seconds[1];
  const peak = Math.max(...[...known.values()].map((one) => one.peak));
  const evaluation = evaluateRun(model, device, variant, question);
  const evaluationBytes = evaluation === null ? 0 : addOverhead(model, device, variant.lasting_bytes + evaluation.bytes);
  const bytes = Math.max(addOverhead(model, device, peak), evaluationBytes);
  return { variant, template: variant.template, budget, pieces, known, seconds, bytes, evaluation, evaluationBytes };
}

function addOverhead(model, device, bytes) {
  if (device.kind === "cpu") return Math.trunc(bytes) + model.rules.host_bytes;
  return Math.trunc(bytes * model.rules.margin) + 2 * device.workspace_bytes + device.context_bytes;
}

function listBudgets(rules, { batch, source, target }) {
  const longest = source + target;
  const budgets = [rules.smallest_budget];
  while (budgets[0] < longest) budgets[0] *= 2;
  for (;;) {
    const last = budgets[budgets.length - 1];
    if (last >= Math.min(batch * longest, rules.largest_budget)) return budgets;
    budgets.push(Number.isInteger(Math.log2(last)) ? Math.floor((last * 3) / 2) : Math.floor((last * 4) / 3));
  }
}

// ---- evaluations during training ----

// The parabola through three points, the line through two.
function interpolate(xs, ys, x) {
  return ys.reduce((sum, y, own) => {
    const weight = xs.reduce((product, other, place) => {
      return place === own ? product : (product * (x - other)) / (xs[own] - other);
    }, 1);
    return sum + weight * y;
  }, 0);
}

function evaluateRun(model, device, variant, { source, target, rows, batch }) {
  const found = model.evaluations[variant.evaluation];
  if (!found) return null;
  const own = found.devices.indexOf(model.devices.indexOf(device));
  const at = (read) => {
    const lines = found.sources.map((_, place) => {
      const points = found.points.slice(place * found.targets.length, (place + 1) * found.targets.length);
      return interpolate(found.targets, points.map(read), target);
    });
    return interpolate(found.sources, lines, source);
  };
  const rule = model.training.evaluated;
  const all = Math.max(1, Math.min(rule.most, roundEven(rule.share * (rows / batch) * batch)));
  const piece = Math.max(1, Math.min(all, Math.floor(found.piece_tokens / (source + target))));
  const pieces = [];
  for (let left = all; left > 0; left -= piece) pieces.push(Math.min(left, piece));
  const reading = at((point) => point.read_bytes / point.rows) * piece;
  let seconds = at((point) => (point.read_seconds[own] * point.source) / point.positions) * all;
  let bytes = reading;
  if (found.points[0].search_bytes !== undefined) {
    const cache = at((point) => point.cache_bytes);
    const layers = found.points[0].layers;
    const each = at((point) => point.search_bytes / point.longest_rows);
    const slopeOf = (point) =>
      (point.many_seconds[own] - point.few_seconds[own]) / Math.max(1, point.many_rows - point.few_rows);
    const slope = at(slopeOf);
    const base = at((point) => point.many_seconds[own] - slopeOf(point) * point.many_rows);
    const longest = Math.min(target, rule.max_new_tokens ?? Infinity);
    let queued = [], held = 0;
    pieces.forEach((size, place) => {
      bytes = Math.max(bytes, held + reading * Math.min(1, size / piece));
      queued.push(size);
      held += size * source * cache;
      const count = queued.reduce((sum, one) => sum + one, 0);
      const isFull = !found.points[0].is_own || count * rule.beams >= found.queued_rows || held >= found.queued_bytes;
      if (!isFull && place < pieces.length - 1) return;
      bytes = Math.max(bytes, count * each);
      if (queued.length > 1) bytes = Math.max(bytes, held + held / layers);
      seconds += longest * Math.max(0, base + slope * count);
      [queued, held] = [[], 0];
    });
  }
  return { bytes: Math.trunc(bytes), seconds };
}

function roundEven(value) {
  const down = Math.floor(value);
  if (value - down !== 0.5) return Math.round(value);
  return down % 2 === 0 ? down : down + 1;
}

function countSteps(model, { rows, batch }) {
  const { training } = model;
  const total = training.steps ?? Math.max(1, roundEven(training.passes * Math.max(1, rows / batch)));
  const every = training.evaluated.every_steps ?? Math.max(1, rows / batch);
  const times = Math.floor(total / every + 1e-6);
  return { total, evaluations: times + (total - times * every >= 1 ? 1 : 0) + (training.evaluated.at_start ? 1 : 0) };
}

// ---- the caching allocator ----

function segmentBytes(size) {
  if (size <= MIB) return 2 * MIB;
  return size < OWN_SEGMENT ? 20 * MIB : Math.ceil(size / (2 * MIB)) * 2 * MIB;
}

class Allocator {
  constructor(capacity) {
    this.capacity = capacity;
    this.reserved = this.peak = this.address = 0;
    this.overflowed = false;
    this.small = { least: 512, free: [] };
    this.large = { least: MIB + 512, free: [] };
  }

  allocate(bytes) {
    const size = Math.ceil(bytes / 512) * 512;
    const pool = size <= MIB ? this.small : this.large;
    const place = findPlace(pool.free, size, -1);
    const block = place < pool.free.length ? pool.free.splice(place, 1)[0] : this.reserve(pool, size);
    block.isFree = false;
    if (block.size - size >= pool.least) {
      const rest = { pool, address: block.address + size, size: block.size - size, previous: block, next: block.next };
      if (rest.next) rest.next.previous = rest;
      block.next = rest;
      block.size = size;
      this.add(rest);
    }
    return block;
  }

  add(block) {
    const { pool, next, previous } = block;
    if (next?.isFree) {
      remove(pool.free, next);
      absorbNext(block);
    }
    if (previous?.isFree) {
      remove(pool.free, previous);
      absorbNext(previous);
      block = previous;
    }
    block.isFree = true;
    pool.free.splice(findPlace(pool.free, block.size, block.address), 0, block);
  }

  reserve(pool, size) {
    const segment = segmentBytes(size);
    if (this.reserved + segment > this.capacity) {
      for (const one of [this.small, this.large]) {
        const isWhole = (block) => !block.previous && !block.next;
        for (const block of one.free.filter(isWhole)) this.reserved -= block.size;
        one.free = one.free.filter((block) => !isWhole(block));
      }
      if (this.reserved + segment > this.capacity) {
        this.overflowed = true;
        this.capacity = this.reserved + segment; // how much it would need, not where it stopped
      }
    }
    this.reserved += segment;
    this.peak = Math.max(this.peak, this.reserved);
    const block = { pool, address: this.address, size: segment, isFree: true, previous: null, next: null };
    this.address += segment;
    return block;
  }
}

function findPlace(free, size, address) {
  let low = 0, high = free.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const block = free[middle];
    if (block.size < size || (block.size === size && block.address < address)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function remove(free, block) {
  free.splice(findPlace(free, block.size, block.address), 1);
}

function absorbNext(block) {
  block.size += block.next.size;
  block.next = block.next.next;
  if (block.next) block.next.previous = block;
}

const [WEIGHTS, GRADIENTS, STATE] = [0, 1, 2];

// Bytes that the process holds after some steps, as `list_requests` in seqfit/planning/memory.py plays them.
function replay(device, candidate) {
  const { pieces, known, template } = candidate;
  const allocator = new Allocator(Math.max(device.capacity_bytes - device.context_bytes, 0));
  const first = known.get(pieces[0]);
  const live = new Map();
  const free = (keep) => {
    for (const [block, held] of live) {
      if (keep && template.blocks[template.rows[block]].is_gradient) continue;
      live.delete(block);
      if (held) allocator.add(held);
    }
  };
  const keep = (category) => {
    for (const row of template.rows) {
      if (template.blocks[row].lasts === category && first.sizes[row]) allocator.allocate(first.sizes[row]);
    }
  };
  const play = (own, from, to) => {
    const { events, rows, eventBlocks, blocks } = template;
    for (let place = from; place < to; place++) {
      const block = eventBlocks[place], row = rows[block];
      if (blocks[row].lasts >= 0 || own.sizes[row] === 0) continue;
      if (events[place] >= 0) live.set(block, allocator.allocate(own.sizes[row]));
      else if (live.has(block)) {
        allocator.add(live.get(block));
        live.delete(block);
      }
    }
  };
  keep(WEIGHTS);
  for (let space = 0; space < 2; space++) if (device.workspace_bytes) allocator.allocate(device.workspace_bytes);
  const played = shorten(pieces);
  for (let step = 0; step < REPLAYED_STEPS; step++) {
    played.forEach((examples, place) => {
      const own = known.get(examples), { parts, update_from } = template;
      const part = Math.min(place, parts.length - 1);
      play(own, parts[part], parts[part + 1] ?? update_from);
      free(true);
    });
    if (step === 0) {
      keep(GRADIENTS);
      keep(STATE);
    }
    const last = known.get(played[played.length - 1]);
    play(last, template.update_from, template.events.length);
    free(false);
  }
  return allocator.peak + device.context_bytes;
}

// Fewer of those that are alike and follow each other.
function shorten(pieces) {
  let alike = 0;
  return pieces.filter((size, place) => {
    alike = place && pieces[place - 1] === size ? alike + 1 : 0;
    return alike < REPLAYED_ALIKE;
  });
}

// ---- the search ----

class Search {
  constructor(model, device, question) {
    Object.assign(this, { model, device, question, candidates: [], tried: new Set(), isUnknown: false });
    this.budgets = listBudgets(model.rules, question);
  }

  fits(one) {
    return one.bytes <= this.device.capacity_bytes;
  }

  fastest(among) {
    return among.reduce((best, one) => (best === null || one.seconds < best.seconds ? one : best), null);
  }

  best() {
    return this.fastest(this.candidates.filter((one) => this.fits(one)));
  }

  lookAt(variants) {
    for (const variant of variants) {
      if (this.tried.has(variant)) continue;
      this.tried.add(variant);
      for (const budget of this.budgets) {
        const candidate = tryBudget(this.model, this.device, variant, this.question, budget);
        if (candidate === null) this.isUnknown = true;
        else this.candidates.push(candidate);
      }
    }
  }

  isMemoryShort() {
    const best = this.best();
    return best === null || best.seconds > this.fastest(this.candidates).seconds * (1 + this.model.rules.worth_more);
  }

  explore(variants) {
    const slower = [];
    let searched = false;
    for (const precision of new Set(variants.map((one) => one.precision))) {
      const own = variants.filter((one) => one.precision === precision);
      const best = this.best();
      if (searched && best !== null && best.variant.precision !== "fp32") {
        slower.push(precision);
        continue;
      }
      searched = true;
      this.lookAt(own.filter((one) => !one.refines));
      if (this.isMemoryShort()) this.lookAt(own);
    }
    this.compareAlternatives(variants, slower);
  }

  // Full precision and blockwise attention of short texts: only where they may be faster.
  compareAlternatives(variants, slower) {
    const best = this.best();
    if (best === null) return;
    const alike = (precision, fields) => variants.find((one) => one.precision === precision && isEqual(one.fields, fields));
    const found = slower.map((precision) => alike(precision, best.variant.fields));
    if (!("attention" in best.variant.fields)) {
      found.push(alike(best.variant.precision, { ...best.variant.fields, attention: "blockwise" }));
    }
    for (const variant of found) {
      if (variant === undefined || this.tried.has(variant)) continue;
      const other = tryBudget(this.model, this.device, variant, this.question, best.budget);
      if (other !== null && other.seconds < best.seconds * (1 + this.model.rules.equally_fast)) this.lookAt([variant]);
    }
  }

  // The fastest first; of equally fast ones the largest micro-batches that need at most half of the memory.
  inOrder(usable) {
    const limit = this.fastest(usable).seconds * (1 + this.model.rules.equally_fast);
    const rank = (one) => {
      if (one.seconds > limit) return [2, one.seconds, one.bytes];
      if (one.bytes > this.device.capacity_bytes / 2) return [1, one.bytes, 0];
      return [0, -one.budget, one.seconds];
    };
    return [...usable].sort((one, other) => compare(rank(one), rank(other)));
  }

  // Replays a candidate; others of its strategy need more by about as much.
  check(candidate) {
    if (this.device.kind === "cpu") return candidate;
    const bytes = Math.max(replay(this.device, candidate), candidate.evaluationBytes);
    const found = { ...candidate, bytes, isReplayed: true };
    const factor = Math.max(1, bytes / candidate.bytes);
    this.candidates = this.candidates.map((one) => {
      if (one === candidate) return found;
      return one.variant === candidate.variant ? { ...one, bytes: Math.trunc(one.bytes * factor) } : one;
    });
    return found;
  }

  verify() {
    const isBetter = (one, other) => one.seconds < other.seconds && one.bytes < other.bytes;
    for (let round = 0; round < this.model.rules.most_verified; round++) {
      const usable = this.candidates.filter((one) => this.fits(one));
      if (usable.length === 0) break;
      const found = this.check(this.inOrder(usable)[0]);
      if (!this.fits(found)) continue;
      const better = usable.filter((one) => isBetter(one, found));
      if (better.length) {
        const other = this.check(this.fastest(better));
        if (this.fits(other) && isBetter(other, found)) return other;
      }
      return found;
    }
    const smallest = this.candidates.reduce((best, one) => (one.bytes < best.bytes ? one : best));
    const found = this.check(smallest);
    return this.fits(found) ? found : null;
  }

  // Of each strategy the fastest that fits, or the smallest.
  bestOfEach() {
    return [...this.tried].flatMap((variant) => {
      const own = this.candidates.filter((one) => one.variant === variant);
      const fitting = own.filter((one) => this.fits(one));
      if (fitting.length) return [this.fastest(fitting)];
      return own.length ? [own.reduce((best, one) => (one.bytes < best.bytes ? one : best))] : [];
    });
  }
}

function compare(one, other) {
  const place = one.findIndex((value, number) => value !== other[number]);
  return place < 0 ? 0 : one[place] - other[place];
}

function isEqual(one, other) {
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => one[name] === other[name]);
}

// `question`: batch, source, target, rows, device (its number), precision and strategy ("" is free to choose).
// null: a text of this length takes a path that was not traced.
function planFor(model, question) {
  const device = model.devices[question.device];
  const { source, target } = model.ranges;
  const { alignment } = model.rules;
  const isInside = (length, [least, most]) => length >= least && length <= most && length % alignment === 0;
  if (!isInside(question.source, source) || !isInside(question.target, target)) return null;
  const variants = device.variants
    .map((number) => model.variants[number])
    .filter((one) => !question.precision || one.precision === question.precision)
    .filter((one) => !question.strategy || one.strategy === question.strategy);
  if (variants.length === 0) return null;
  const search = new Search(model, device, question);
  if (variants.length === 1) search.lookAt(variants);
  else search.explore(variants);
  if (search.candidates.length === 0) return null;
  const chosen = search.verify();
  const each = search.bestOfEach().map((one) => (one.variant === chosen?.variant ? chosen : one));
  const smallest = each.reduce((best, one) => (one.bytes < best.bytes ? one : best));
  const steps = countSteps(model, question);
  const shown = chosen ?? smallest;
  const evaluationSeconds = shown.evaluation === null ? 0 : steps.evaluations * shown.evaluation.seconds;
  return { device, chosen, smallest, shown, each, steps, evaluationSeconds, seconds: shown.seconds * steps.total + evaluationSeconds };
}
