// The page: a client of the server's public API. Whatever it shows, a program can get by the same requests.

import { headMaps, inWords, make, wordLinks } from "./drawing.js";

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map(element => [element.id, element]));
const PAUSE = 120;  // milliseconds without a change before a text is sent
const REMEMBERED = 10, SHOWN = 6, UNSURE = 0.5;  // texts, alternatives, confidence
let offer, languages, result, detection, current = 0, timer, saving;
const work = {};  // the request of each kind that runs; a new one of the same kind aborts it

// --- requests ---

async function ask(path, parameters, signal) {
  const key = sessionStorage.getItem("api_key");
  const body = JSON.stringify({ ...parameters, ...(key && { api_key: key }) });
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body, signal };
  const response = await fetch(path, parameters ? post : {}).catch(error => {
    throw error.name === "AbortError" ? error : new Error("The server can't be reached: try again in a moment.");
  });
  const answer = await response.json();
  if (response.status === 403) askForKey(answer.error);
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function abort(kind) {
  work[kind]?.abort();
  work[kind] = new AbortController();
  return work[kind].signal;
}

// Asks, and hands the answer on unless it is no longer wanted. An error is a sentence in `place`.
async function latest(kind, path, parameters, place, show) {
  const signal = abort(kind);
  try {
    const answer = await ask(path, parameters, signal);
    if (!signal.aborted) show(answer);
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(make("span", { className: "error" }, error.message));
  } finally {
    if (!signal.aborted) page.result.ariaBusy = "false";
  }
}

function askForKey(reason) {
  sessionStorage.removeItem("api_key");
  if (reason) page.reason.textContent = reason;
  if (!page.key.open) page.key.showModal();
}

// --- languages, model and settings ---

const AUTO = "auto";
const nameOf = code => code === AUTO ? "Detect language" : languages.find(language => language.code === code)?.name ?? code;
const targetsOf = code => [...new Set(languages.flatMap(each => [AUTO, each.code].includes(code) ? each.targets : []))];
const found = () => result?.detectedLanguage?.language;  // in the text, if its language is to be detected
const direction = () => ({ source: page.source.value, target: page.target.value,
  ...(page.model.value && { model: page.model.value }) });

function fill(select, values, chosen, name = value => value) {
  select.replaceChildren(...values.map(value => make("option", { value }, name(value))));
  select.value = values.includes(chosen) ? chosen : values[0] ?? "";
}

function choose(source, target, model) {
  const sources = languages.filter(language => language.targets.length).map(({ code }) => code);
  fill(page.source, sources.length > 1 ? [AUTO, ...sources] : sources, source, nameOf);
  fill(page.target, targetsOf(page.source.value), target, nameOf);
  const detects = page.source.value === AUTO;
  const fits = pair => (detects || pair.source === page.source.value) && pair.target === page.target.value;
  const models = offer.models.filter(each => each.directions.some(fits));
  fill(page.model, detects ? [""] : models.map(each => each.name), model, name => name || "by language");
  page.model.disabled = detects;
  const chosen = models.find(each => each.name === page.model.value) ?? models[0];
  const { name, description, examples, num_beams, length_penalty } = chosen;
  Object.assign(page.num_beams, { value: num_beams, max: offer.limits.num_beams });
  page.length_penalty.value = length_penalty;
  page.description.textContent = description || name;
  page.examples.replaceChildren(...examples.slice(0, 5).map(text =>
    make("button", { type: "button", onclick: () => write(text) }, text)));
  page.translation.lang = page.target.value;
  showFound();
}

// The source language that was found or, without a clear text, assumed.
function showFound() {
  detection = result ? result.detectedLanguage : page.text.value.trim() ? detection : undefined;
  const { language, confidence } = detection ?? {};
  const detected = language && `${nameOf(language)} (${confidence ? "detected" : "assumed"})`;
  if (page.source.value === AUTO) page.source.selectedOptions[0].textContent = detected ?? nameOf(AUTO);
  const source = page.source.value === AUTO ? language : page.source.value;
  page.text.lang = source ?? "";
  page.swap.disabled = !targetsOf(page.target.value).includes(source);
  page.swap.title = page.swap.disabled && source ? `No model translates from ${nameOf(page.target.value)}.` : "";
}

// The direction of the result, whose source is known.
const known = () => ({ ...direction(), ...(found() && { source: found() }) });

function settings() {
  const [num_beams, length_penalty] = [page.num_beams, page.length_penalty].map(input => input.valueAsNumber);
  return { ...direction(), ...(num_beams && { num_beams }), ...(!isNaN(length_penalty) && { length_penalty }) };
}

// --- text and translation ---

const best = sentence => sentence.translations[0];
const translated = () => result ? result.sentences.map(each => each.before + best(each).text).join("") + result.after : "";

function write(text) {
  page.text.value = text;
  page.text.focus();
  translate();
}

// Nothing of the old text stays beside a new one.
function forgetResult() {
  clearTimeout(timer);
  clearTimeout(saving);
  for (const kind of ["sentences", "alternatives", "attention", "heads"]) abort(kind);
  result = undefined;
  page.result.ariaBusy = String(Boolean(page.text.value.trim()));
  page.error.replaceChildren();
  page.alternatives.hidePopover();
  render();
}

async function translate() {
  forgetResult();
  const q = page.text.value, size = [...q].length, limit = offer.limits.max_characters;
  page.count.textContent = `${size.toLocaleString("en")} / ${limit.toLocaleString("en")}`;
  page.count.classList.toggle("error", size > limit);
  if (!q.trim()) return;
  const alternatives = Math.max((settings().num_beams ?? 1) - 1, 0);
  await latest("sentences", "sentences", { ...settings(), q, alternatives, confidence: true }, page.error, answer => {
    [result, current] = [answer, 0];
    saving = setTimeout(remember, 2000);
    render();
  });
}

function render() {
  const sentences = result?.unchanged ? [] : result?.sentences ?? [];
  const words = sentences.flatMap((sentence, index) => [sentence.before, ...inWords(best(sentence).text,
    best(sentence).words, (text, number, start) => {
      const unsure = best(sentence).word_confidence?.[number] < UNSURE;
      return make("span", { className: unsure ? "word unsure" : "word", role: "button", tabIndex: -1, index, number, start },
        text);
    })]);
  page.translation.replaceChildren(...words, result?.unchanged ? translated() : result?.after ?? "");
  page.translation.querySelector(".word")?.setAttribute("tabindex", 0);
  const changed = sentences.flatMap(sentence => best(sentence).not_copied ?? []);
  page.hint.textContent = result?.unchanged ? `The text is in ${nameOf(page.target.value)} already`
    : changed.length ? `Check these, the model changed them: ${changed.join(", ")}`
    : sentences.length ? "Click a word for alternatives" : "";
  page.copy.disabled = !result;
  showFound();
  page.clear.disabled = !page.text.value;
  page.command.textContent = command();
  explain(current);
}

// Takes another translation of a sentence.
function prefer(sentence, translation) {
  sentence.translations = [translation, ...sentence.translations.filter(({ text }) => text !== translation.text)];
  current = result.sentences.indexOf(sentence);
  render();
}

function command() {
  const quoted = value => /^[\w.:/-]+$/.test(value) ? value : `'${String(value).replaceAll("'", "'\\''")}'`;
  const parameters = { ...settings(), ...(offer.key_required && { api_key: "YOUR_KEY" }) };
  const fields = Object.entries(parameters).map(([name, value]) => `-d ${name}=${quoted(value)}`);
  const address = quoted(new URL("translate", location.href).href);
  return `curl ${address} ${fields.join(" ")} --data-urlencode ${quoted(`q=${page.text.value}`)}`;
}

// --- alternatives and attention ---

// Autoregressive decoding made visible: what the model could have written at a word, and how it would have gone on.
function offerAlternatives(word) {
  const sentence = result.sentences[word.index], { index, start } = word;
  const list = make("ul"), box = word.getBoundingClientRect();
  page.alternatives.replaceChildren(make("p", {}, `Instead of “${word.textContent}”`), list);
  page.alternatives.showPopover();
  const room = document.documentElement.clientWidth - page.alternatives.offsetWidth - 8;
  page.alternatives.style.left = `${Math.max(Math.min(box.left, room), 8) + scrollX}px`;
  page.alternatives.style.top = `${box.bottom + scrollY + 6}px`;
  const prefix = best(sentence).text.slice(0, start).trim();
  const restOf = ({ text, word }) => text.slice(text.indexOf(word, prefix.length) + word.length);
  latest("alternatives", "alternatives", { ...settings(), ...known(), q: sentence.source, prefix, confidence: true }, list, ({ alternatives }) => {
    const others = alternatives.filter(each => !best(sentence).text.startsWith(each.word, start)).slice(0, SHOWN);
    list.replaceChildren(...others.map(each => make("li", {}, make("button", { type: "button", onclick: () => {
      prefer(sentence, each);
      page.alternatives.hidePopover();
      [...page.translation.querySelectorAll(".word")].find(at => at.index === index && at.start >= start)?.focus();
    } }, make("span", {}, make("b", {}, each.word), restOf(each)), make("small", {}, percent(each.probability))))));
    if (others.length) list.querySelector("button").focus();
    else list.replaceChildren(make("li", {}, "The model has no other word here."));
  });
}

const sureness = ({ confidence, calibrated }) => confidence === undefined ? "" :
  `, confidence ${percent(confidence)}${calibrated ? "" : " (uncalibrated)"}`;
const percent = probability => probability < 0.01 ? "< 1 %" : `${Math.round(100 * probability)} %`;

function explain(index) {
  current = index;
  const sentence = result?.unchanged ? undefined : result?.sentences[index];
  const isOne = text => text.match(/\p{Script=Han}|[\p{L}\p{N}]+/gu)?.length < 2;
  page.attention.hidden = !sentence || isOne(sentence.source) || isOne(best(sentence).text);  // nowhere else to look
  page.links.replaceChildren();
  page.maps.replaceChildren();
  page.ranked.replaceChildren(...(sentence?.translations ?? []).map(each => make("li", {}, make("button",
    { type: "button", ariaPressed: String(each === best(sentence)), onclick: () => prefer(sentence, each) },
    each.text, make("small", {}, ` score ${each.score.toFixed(2)}${sureness(each)}`)))));
  if (!sentence) return;
  page.sureness.textContent = `The confidence is the ${best(sentence).calibrated ? "share of words that is expected to be " +
    "right" : "mean probability of the words, not calibrated"}; words below one half are underlined.`;
  if (page.attention.hidden) return;
  const query = { ...known(), q: sentence.source, translation: best(sentence).text };
  latest("attention", "attention", query, page.links, answer => page.links.replaceChildren(wordLinks(answer)));
  if (page.heads.open)
    latest("heads", "attention", { ...query, heads: true }, page.maps, ({ heads }) =>
      page.maps.replaceChildren(headMaps(heads)));
}

// A word of the translation is shown in the attention below it.
function follow({ target: word }) {
  if (!word.matches(".word")) return;
  if (word.index !== current) return explain(word.index);
  page.links.querySelectorAll(".sentence")[1]?.querySelectorAll(".word")[word.number]
    ?.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
}

// --- history ---

const remembered = () => JSON.parse(localStorage.getItem("history") ?? "[]");

function remember() {
  const { source, target } = direction(), q = page.text.value;
  const others = remembered().filter(entry => entry.q !== q && !q.startsWith(entry.q));
  if (q.trim()) localStorage.setItem("history", JSON.stringify([{ q, source, target }, ...others].slice(0, REMEMBERED)));
  showHistory();
}

function showHistory() {
  page.entries.replaceChildren(...remembered().map(({ q, source, target }) => make("li", {}, make("button",
    { type: "button", onclick: () => { choose(source, target); write(q); } }, q))));
  page.past.hidden = !remembered().length;
}

// --- start: a text that was typed before is translated at once ---

try {
  [offer, languages] = await Promise.all([ask("models"), ask("languages")]);
} catch (error) {
  page.error.replaceChildren(error.message);
  throw error;
}
choose();
showHistory();
translate();
if (offer.key_required && !sessionStorage.getItem("api_key")) askForKey();

// --- events ---

page.text.addEventListener("input", () => {  // typing, pasting, deleting, dropping, composing
  forgetResult();
  page.count.textContent = "";
  timer = setTimeout(translate, PAUSE);
});
page.text.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate().then(remember);
  if (event.key === "Escape" && !event.isComposing) page.clear.click();
});
page.clear.onclick = () => {
  page.text.focus();
  page.text.select();
  document.execCommand("delete");  // unlike a new value, it can be undone
};
page.source.onchange = page.target.onchange = () => { choose(page.source.value, page.target.value); translate(); };
page.model.onchange = () => { choose(page.source.value, page.target.value, page.model.value); translate(); };
page.num_beams.onchange = page.length_penalty.onchange = translate;
page.swap.onclick = () => {
  const text = translated();
  choose(page.target.value, known().source);
  write(text);
};
const copy = (button, text) => navigator.clipboard?.writeText(text).then(() => {
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1200);
});
page.copy.onclick = () => copy(page.copy, translated());
page.share.onclick = () => copy(page.share, page.command.textContent);
page.heads.ontoggle = () => page.heads.open && explain(current);
page.forget.onclick = () => { localStorage.removeItem("history"); showHistory(); };
page.translation.addEventListener("mouseover", follow);
page.translation.addEventListener("focusin", follow);
page.translation.addEventListener("click", event => {
  if (event.target.matches(".word") && getSelection().isCollapsed) offerAlternatives(event.target);
});
page.translation.addEventListener("keydown", event => {
  const words = [...page.translation.querySelectorAll(".word")], at = words.indexOf(event.target);
  const next = words[at + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0)];
  if (at < 0 || !next) return;
  [words[at].tabIndex, next.tabIndex] = [-1, 0];
  next.focus();
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); offerAlternatives(next); }
});
page.key.addEventListener("close", () => {
  if (page.secret.value) sessionStorage.setItem("api_key", page.secret.value);
  page.secret.value = "";
  translate();
});
