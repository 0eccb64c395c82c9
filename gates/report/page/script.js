"use strict";
// Shows the evidence of a cell, filters the table, moves by arrow keys. Text is set as text content only.
const data = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("evidence");
const broken = new Set(data.broken);

function made(tag, text = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = name;
  return element;
}

function evidenceTable(items) {
  const table = made("table");
  const head = table.createTHead().insertRow();
  for (const title of ["quantity", "role", "observed", "limit", "where", "because"]) {
    const cell = made("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const [claim, observed, where] of items) {
    const [quantity, limit, role, holds, because] = data.claims[claim];
    const row = body.insertRow();
    row.className = holds ? "" : "broken";
    const name = made("th", (holds ? "✓ " : "✗ ") + data.strings[quantity]);
    name.scope = "row";
    row.append(name);
    for (const text of [role, observed, limit, where, data.strings[because]]) row.append(made("td", text));
  }
  return table;
}

// smallest inputs by number; place, run, case and seed identify the verdict
const smallest = data.smallest.map(([number, place, run, seed, name, words, size, file, command]) => (
  { number, place, run, seed, name, words, size, file, command }));

function copying(command, label) {
  const line = made("span", "", "copies");
  const button = made("button", "Copy", "copy");
  button.type = "button";
  button.setAttribute("aria-label", label);
  line.append(made("code", command), " ", button);
  button.addEventListener("click", copy);
  return line;
}

async function copy(event) {
  const button = event.currentTarget;
  const code = button.parentElement.querySelector("code");
  let done = true;
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code); // no access to the clipboard: select the text for the reader to copy
    done = false;
  }
  const words = done ? "Copied" : "Selected: copy it with the keyboard";
  const said = button.closest("dialog") ? document.getElementById("said-here") : document.getElementById("said");
  said.textContent = words;
  button.textContent = done ? "Copied" : "Selected";
  setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 2000);
}

function smallestOf(found) {
  const part = made("section", "", "small");
  if (!found.file) {
    part.append(made("p", `Not shrunk: ${found.words}`));
    return part;
  }
  part.append(made("h3", `Smallest input that still fails: ${found.size}`), made("p", found.words));
  const line = made("p");
  line.append(copying(found.command, `Copy the command for ${found.name}`));
  part.append(line);
  const file = made("p", `${found.file}, from the folder of the results`, "file");
  const item = document.getElementById(`smallest-${found.number}`);
  if (item) {
    const link = made("a", "All smallest inputs");
    link.href = `#${item.id}`;
    link.addEventListener("click", () => {
      dialog.close();
      item.focus();
    });
    file.append(" · ", link);
  }
  part.append(file);
  return part;
}

function caseOf([name, status, reason, seed, seconds, run, evidence, waived], place) {
  const word = data.statuses[status];
  const details = made("details", "", word);
  const summary = made("summary");
  summary.append(made("span", `${data.symbols[word]} ${word}`, "label"), ` ${data.strings[name]}`);
  details.append(summary);
  const fill = () => {
    if (details.childElementCount > 1) return;
    if (data.strings[reason]) details.append(made("p", data.strings[reason], "reason"));
    if (waived !== undefined) details.append(made("p", data.strings[waived]));
    for (const found of smallest) {
      const same = found.place === place && found.run === run && found.seed === seed;
      if (same && found.name === data.strings[name]) details.append(smallestOf(found));
    }
    if (evidence.length) {
      const scroll = made("div", "", "scroll");
      scroll.append(evidenceTable(evidence));
      details.append(scroll);
    } else {
      details.append(made("p", "No evidence was recorded."));
    }
    details.append(made("p", `seed ${seed}, ${seconds} s, ${data.runs[run]}`, "file"));
  };
  details.addEventListener("toggle", fill);
  if (broken.has(word)) {
    details.open = true;
    fill();
  }
  return details;
}

function open(place, wanted) {
  const [row, column] = place.split("/").map(Number);
  document.getElementById("evidence-of").textContent = `${data.subjects[column]} · ${data.gates[row]}`;
  const rank = (one) => data.worst_first.indexOf(data.statuses[one[1]]);
  const sorted = [...data.cells[place]].sort((a, b) => rank(a) - rank(b));
  const cases = sorted.map((one) => caseOf(one, place));
  document.getElementById("cases").replaceChildren(...cases);
  dialog.showModal();
  const at = wanted ? sorted.findIndex((one) => one[5] === wanted.run && one[3] === wanted.seed && data.strings[one[0]] === wanted.name) : -1;
  if (at < 0) {
    document.getElementById("evidence-of").focus();
    return;
  }
  cases[at].open = true;
  cases[at].querySelector("summary").focus({ preventScroll: true });
  cases[at].scrollIntoView(); // its margin keeps it below the bar
}

for (const button of document.querySelectorAll("button.goes")) {
  const wanted = () => {
    if (button.dataset.smallest) return smallest[button.dataset.smallest];
    const [run, name, seed] = JSON.parse(button.dataset.row);
    return { run, name, seed };
  };
  button.hidden = false;
  button.addEventListener("click", () => open(button.dataset.goes, wanted()));
}
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", copy);
}

const buttons = [...document.querySelectorAll("button[data-cell]")];
for (const button of buttons) button.addEventListener("click", () => open(button.dataset.cell));
document.getElementById("close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

const visible = (button) => !button.closest("td").hidden && !button.closest("tr").hidden && !button.closest("tbody").hidden;

function enter(button) {
  for (const other of buttons) other.tabIndex = -1;
  if (button) button.tabIndex = 0;
}

function neighbour(button, key) {
  const cells = buttons.filter(visible);
  const [row, column] = button.dataset.cell.split("/").map(Number);
  const places = cells.map((cell) => [cell, ...cell.dataset.cell.split("/").map(Number)]);
  const pick = {
    ArrowRight: () => places.find(([, r, c]) => r === row && c > column),
    ArrowLeft: () => places.filter(([, r, c]) => r === row && c < column).at(-1),
    ArrowDown: () => places.find(([, r, c]) => r > row && c === column),
    ArrowUp: () => places.filter(([, r, c]) => r < row && c === column).at(-1),
    Home: () => places.find(([, r]) => r === row),
    End: () => places.filter(([, r]) => r === row).at(-1),
  }[key];
  return pick ? pick() : undefined;
}

const matrix = document.getElementById("matrix");
if (matrix) {
  matrix.addEventListener("keydown", (event) => {
    const found = event.target.dataset.cell && neighbour(event.target, event.key);
    if (!found) return;
    event.preventDefault();
    enter(found[0]);
    found[0].focus();
  });
  matrix.addEventListener("focusin", (event) => event.target.dataset.cell && enter(event.target));
  document.getElementById("keys").hidden = false;
  const filters = document.getElementById("filters");
  filters.hidden = false;
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("input", filter);
  filter();
}

function filter() {
  const family = document.getElementById("family").value;
  const failing = document.getElementById("failing").checked;
  const busy = document.getElementById("judged")?.checked ?? false;
  const chosen = new Set([...document.querySelectorAll("input[name=subject]:checked")].map((box) => box.value));
  for (const cell of document.querySelectorAll("#matrix [data-column]")) cell.hidden = !chosen.has(cell.dataset.column);
  let count = 0;
  let of = 0;
  for (const body of document.querySelectorAll("#matrix tbody")) {
    let kept = 0;
    for (const row of body.querySelectorAll("tr:not(.family)")) {
      const fails = [...row.cells].some((cell) => !cell.hidden && broken.has(cell.className));
      row.hidden = (failing && !fails) || (busy && row.classList.contains("idle"));
      kept += row.hidden ? 0 : 1;
      of += 1;
    }
    body.hidden = kept === 0 || (family !== "" && body.dataset.family !== family);
    count += body.hidden ? 0 : kept;
  }
  document.getElementById("shown").textContent = `${count} of ${of} gates, ${chosen.size} ${chosen.size === 1 ? "subject" : "subjects"}`;
  enter(buttons.find(visible));
}

// what a link leads to is unfolded, in browsers that do not do it themselves
function unfold() {
  const found = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!found) return;
  const folds = [found.nextElementSibling, found.closest("details")];
  for (const fold of folds) if (fold?.tagName === "DETAILS") fold.open = true;
  if (folds[1]) found.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
