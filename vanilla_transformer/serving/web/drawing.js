// Draws attention and the iterations of mask-predict: on the server's page, and on pages that are one file.
// Texts are inserted as text, never as HTML.

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A text as nodes: `element(word, index, start)` for each of its words, and what is between them.
export function inWords(text, words, element) {
  let end = 0;
  const nodes = words.flatMap((word, index) => {
    const start = text.indexOf(word, end), between = text.slice(end, start);
    end = start + word.length;
    return [between, element(word, index, start)];
  });
  return [...nodes, text.slice(end)];
}

// The colour of a weight is its square root, so that small weights can be seen.
function shade(element, weight) {
  element.style.setProperty("--weight", Math.sqrt(Math.max(weight, 0)).toFixed(3));
}

// --- attention ---

// `data` is the answer to /attention.
export function drawAttention(view, data) {
  view.replaceChildren(wordLinks(data), ...(data.heads ? [headMaps(data.heads)] : []));
}

// Two sentences, and lines from each word of the translation to the words that it looks at.
export function wordLinks({ sentence, translation, source, target, weights }) {
  const texts = source.slice(0, -1);  // the last one is the end of the sentence
  const word = text => make("button", { type: "button", className: "word", textContent: text });
  const above = texts.map(word), below = target.map(word);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const note = make("p", { className: "note", ariaLive: "polite" }, "Point at a word, or tap it.");
  const view = make("div", { className: "links" },
    make("p", { className: "sentence" }, ...inWords(sentence, texts, (_, index) => above[index])),
    make("p", { className: "sentence" }, ...inWords(translation, target, (_, index) => below[index])), svg, note);
  const lines = weights.flatMap((row, t) => {
    const most = Math.max(...row.slice(0, -1));
    return row.slice(0, -1).flatMap((weight, s) => {
      if (weight < 0.05 && weight < most) return [];
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      line.classList.toggle("best", weight === most);
      shade(line, weight);
      return [{ line, s, t }];
    });
  });
  svg.append(...lines.map(({ line }) => line));

  function place() {
    const origin = view.getBoundingClientRect();
    for (const { line, s, t } of lines) {
      const from = above[s].getBoundingClientRect(), to = below[t].getBoundingClientRect();
      const ends = { x1: from.left + from.width / 2 - origin.left, y1: from.bottom - origin.top,
        x2: to.left + to.width / 2 - origin.left, y2: to.top - origin.top };
      for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
    }
  }

  function show(element) {
    const t = below.indexOf(element), s = above.indexOf(element), written = t >= 0;
    const weight = index => written ? weights[t][index] : weights[index][s];
    const others = written ? above : below;
    for (const word of [...above, ...below]) {
      shade(word, others.includes(word) ? weight(others.indexOf(word)) ** 2 : 0);
      word.classList.toggle("on", word === element);
    }
    view.classList.add("active");
    for (const each of lines) each.line.classList.toggle("on", written ? each.t === t : each.s === s);
    if (!others.length) return;
    const most = others.reduce((best, _, index) => weight(index) > weight(best) ? index : best, 0);
    const percent = `${Math.round(100 * weight(most))} % of its attention`;
    note.textContent = written ? `“${element.textContent}” looks most at “${texts[most]}”: ${percent}.`
      : `“${element.textContent}” is looked at most by “${target[most]}”: ${percent}.`;
  }

  function clear() {
    view.classList.remove("active");
    for (const word of [...above, ...below]) { shade(word, 0); word.classList.remove("on"); }
  }

  for (const kind of ["mouseover", "focusin", "click"])
    view.addEventListener(kind, event => event.target.matches(".word") && show(event.target));
  view.addEventListener("mouseleave", clear);
  view.addEventListener("focusout", clear);
  new ResizeObserver(place).observe(view);
  return view;
}

// One heat map, and menus for the kind of attention, the layer and the head.
export function headMaps(kinds) {
  const menu = () => make("select", { onchange: draw });
  const kind = menu(), layer = menu(), head = menu(), explanation = make("p"), table = make("table");
  const note = make("p", { className: "note", ariaLive: "polite" });
  const labelled = (name, select) => make("label", {}, name, select);
  const numbered = count => Array.from({ length: count }, (_, index) => String(index + 1));

  function fill(select, names, first) {  // keeps the choice if it still exists
    const chosen = select.selectedIndex >= 0 ? select.selectedIndex : first;
    select.replaceChildren(...names.map(name => make("option", {}, name)));
    select.selectedIndex = Math.min(chosen, names.length - 1);
  }

  function draw() {
    const { rows, columns, weights, explanation: sentence } = kinds[kind.selectedIndex];
    fill(layer, numbered(weights.length), Math.max(weights.length - 2, 0));  // the one that aligns best
    fill(head, [...numbered(weights[0].length), "mean of all"], weights[0].length);
    const heads = weights[layer.selectedIndex];
    const weight = heads[head.selectedIndex] ??
      heads[0].map((row, r) => row.map((_, c) => heads.reduce((sum, map) => sum + map[r][c], 0) / heads.length));
    explanation.textContent = `${sentence} A row shows where one token looks; the stronger the colour, the more. It sums to 1.`;
    note.textContent = "";
    const column = token => make("th", { scope: "col" }, make("span", {}, token));
    table.replaceChildren(make("tr", {}, make("td"), ...columns.map(column)), ...rows.map((token, r) =>
      make("tr", {}, make("th", { scope: "row" }, token), ...columns.map((other, c) => {
        const cell = make("td", { title: `${token} → ${other}: ${weight[r][c].toFixed(4)}` });
        shade(cell, weight[r][c]);
        return cell;
      }))));
  }

  table.addEventListener("mouseover", event => { note.textContent = event.target.title || note.textContent; });
  fill(kind, kinds.map(each => each.kind), kinds.length - 1);
  draw();
  return make("div", { className: "maps" }, make("p", { className: "menus" }, labelled("Attention", kind),
    labelled("Layer", layer), labelled("Head", head)), explanation, note,
    make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Heat map" }, table));
}

// --- mask-predict ---

// A frame for each half of an iteration: what is masked, and what is filled in.
export function drawIterations(view, { frames }) {
  let timer = null;
  const last = 2 * frames.length - 1;
  const slider = make("input", { type: "range", min: 0, max: last, value: 0, ariaLabel: "Frame", oninput: show });
  const button = (text, onclick) => make("button", { type: "button", onclick }, text);
  const caption = make("p", { ariaLive: "polite" }), tokens = make("p", { className: "tokens" });
  const play = button("Play", () => {
    if (timer) return stop();
    if (Number(slider.value) === last) slider.value = 0;
    show();
    play.textContent = "Stop";
    timer = setInterval(() => Number(slider.value) === last ? stop() : move(1), 900);
  });

  function show() {
    const number = slider.value >> 1, filled = slider.value % 2 === 1, now = frames[number];
    const shown = filled || !number ? now : frames[number - 1];
    const count = now.masked.filter(Boolean).length;
    caption.textContent = `Iteration ${number + 1} of ${frames.length}: ` +
      (filled ? `${count} tokens filled in.` : `${count} of ${now.masked.length} tokens masked.`);
    tokens.replaceChildren(...now.masked.map((masked, i) => {
      if (masked && !filled) return make("span", { className: "token masked" }, "mask", make("small", {}, "\u00a0"));
      const probability = shown.probabilities[i];
      const token = make("span", { className: "token" }, shown.tokens[i], make("small", {}, probability.toFixed(2)));
      token.classList.toggle("on", masked);
      token.classList.toggle("repeated", i > 0 && shown.tokens[i] === shown.tokens[i - 1]);
      shade(token, probability ** 2);
      return token;
    }));
  }

  function move(step) { slider.value = Number(slider.value) + step; show(); }
  function stop() { clearInterval(timer); timer = null; play.textContent = "Play"; }

  view.replaceChildren(make("p", { className: "menus" }, button("Back", () => move(-1)), slider,
    button("Next", () => move(1)), play), caption, tokens, make("p", { className: "note" },
    "Grey: masked. Outlined: just filled in. The number is the probability of the token when it was predicted; the " +
    "stronger the colour, the higher. Wavy line: the token repeats the one before."));
  show();
}
