// Runs once for the attention view of the page. `element` holds the HTML that `page.py` makes; it is replaced with each
// translation, so listeners are on `element` itself. A hovered, focused or tapped word shows where its attention goes.

const all = selector => [...element.querySelectorAll(selector)];
const blue = weight => `rgba(31, 84, 160, ${0.75 * Math.sqrt(weight)})`;

let current = null;  // the word that is shown: its side and index

function drawLines() {
  const view = element.querySelector(".attention"), svg = element.querySelector(".attention svg");
  if (!svg) return;
  const origin = view.getBoundingClientRect();
  const lines = all(".target .word[data-aligned]").map(word => {
    const source = element.querySelector(`.source .word[data-source="${word.dataset.aligned}"]`);
    const [from, to] = [source.getBoundingClientRect(), word.getBoundingClientRect()];
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    line.setAttribute("x1", from.left + from.width / 2 - origin.left);
    line.setAttribute("y1", from.bottom - origin.top);
    line.setAttribute("x2", to.left + to.width / 2 - origin.left);
    line.setAttribute("y2", to.top - origin.top);
    line.dataset.target = word.dataset.target;
    line.dataset.source = word.dataset.aligned;
    line.classList.toggle("on", current !== null && line.dataset[current.side] === current.index);
    return line;
  });
  svg.replaceChildren(...lines);
}

function clear() {
  current = null;
  all(".on").forEach(item => item.classList.remove("on"));
  all(".word").forEach(word => { word.style.backgroundColor = ""; });
}

// Shows the row of a word of the translation, or the column of a word of the source.
function show(side, index) {
  clear();
  current = { side, index };
  const other = side === "target" ? "source" : "target";
  all(`[data-${side}="${index}"]`).forEach(item => item.classList.add("on"));
  let most = null;
  all(`td[data-${side}="${index}"]`).forEach(cell => {
    const weight = Number(cell.dataset.weight);
    const word = element.querySelector(`.word[data-${other}="${cell.dataset[other]}"]`);
    if (word) word.style.backgroundColor = blue(weight);
    if (word && (!most || weight > most.weight)) most = { weight, text: word.textContent };
  });
  const word = element.querySelector(`.word[data-${side}="${index}"]`);
  const report = element.querySelector(".weight");
  if (word && most && report) {
    report.textContent = side === "target"
      ? `${word.textContent} attends most to ${most.text}: ${most.weight.toFixed(2)}`
      : `${word.textContent} gets most attention from ${most.text}: ${most.weight.toFixed(2)}`;
  }
}

function follow(event) {
  const item = event.target.closest("[data-target], [data-source]");
  if (item) show("target" in item.dataset ? "target" : "source", item.dataset.target ?? item.dataset.source);
}

for (const kind of ["mouseover", "focusin", "click"]) element.addEventListener(kind, follow);
element.addEventListener("mouseleave", clear);
new ResizeObserver(drawLines).observe(element);
watch("value", () => { current = null; requestAnimationFrame(drawLines); });
requestAnimationFrame(drawLines);
