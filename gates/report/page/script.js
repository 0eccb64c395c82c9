"use strict";
// Shows the evidence of a cell, filters the table, moves by arrow keys. Text is set as text content only.
const data = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("evidence");
const broken = /^(error|fail|departs|waived)$/;
const symbols = { pass: "✓", fail: "✗", departs: "≠", error: "!", skipped: "–", unsupported: "·", waived: "⚑" };

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
  for (const [quantity, observed, relation, limit, where, role, holds, because] of items) {
    const row = body.insertRow();
    row.className = holds ? "" : "broken";
    const name = made("th", (holds ? "✓ " : "✗ ") + data.strings[quantity]);
    name.scope = "row";
    row.append(name);
    for (const text of [role, observed, `${relation} ${limit}`, where, data.strings[because]]) row.append(made("td", text));
  }
  return table;
}

function caseOf([name, status, reason, seed, seconds, run, evidence, waived]) {
  const word = data.statuses[status];
  const details = made("details", "", word);
  const summary = made("summary");
  summary.append(made("span", `${symbols[word]} ${word}`, "label"), ` ${data.strings[name]}`);
  details.append(summary);
  const fill = () => {
    if (details.childElementCount > 1) return;
    if (data.strings[reason]) details.append(made("p", data.strings[reason], "reason"));
    if (waived !== undefined) details.append(made("p", data.strings[waived]));
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
  if (broken.test(word)) {
    details.open = true;
    fill();
  }
  return details;
}

function open(button) {
  const rows = data.cells[button.dataset.cell];
  const gate = button.closest("tr").querySelector("th").textContent;
  const column = button.closest("td").dataset.column;
  const subject = document.querySelector(`thead th[data-column="${column}"]`).textContent;
  document.getElementById("evidence-of").textContent = `${subject} · ${gate}`;
  const order = ["error", "fail", "departs", "waived", "pass", "skipped", "unsupported"];
  const rank = (row) => order.indexOf(data.statuses[row[1]]);
  const cases = [...rows].sort((a, b) => rank(a) - rank(b)).map(caseOf);
  document.getElementById("cases").replaceChildren(...cases);
  dialog.showModal();
  document.getElementById("evidence-of").focus();
}

const buttons = [...document.querySelectorAll("button[data-cell]")];
for (const button of buttons) button.addEventListener("click", () => open(button));
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
  const chosen = new Set([...document.querySelectorAll("input[name=subject]:checked")].map((box) => box.value));
  for (const cell of document.querySelectorAll("#matrix [data-column]")) cell.hidden = !chosen.has(cell.dataset.column);
  let count = 0;
  let of = 0;
  for (const body of document.querySelectorAll("#matrix tbody")) {
    let kept = 0;
    for (const row of body.querySelectorAll("tr:not(.family)")) {
      const fails = [...row.cells].some((cell) => !cell.hidden && broken.test(cell.className));
      row.hidden = failing && !fails;
      kept += row.hidden ? 0 : 1;
      of += 1;
    }
    body.hidden = kept === 0 || (family !== "" && body.dataset.family !== family);
    count += body.hidden ? 0 : kept;
  }
  document.getElementById("shown").textContent = `${count} of ${of} gates, ${chosen.size} subjects`;
  enter(buttons.find(visible));
}
