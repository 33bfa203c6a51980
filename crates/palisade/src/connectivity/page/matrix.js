// The matrix: only the visible part is drawn. Thousands of rows cost no more than a few.

const matrix = { cell: 22, left: 190, top: 150, at: [0, 0], over: null, rows: [], columns: [] };

// Units that are sources of evaluated flows are rows, destinations are columns.
function linesOfMatrix() {
  const all = units.map((_, i) => i);
  matrix.rows = all.filter((i) => all.some((j) => link(i, j).state !== NOT_EVALUATED));
  matrix.columns = all.filter((j) => all.some((i) => link(i, j).state !== NOT_EVALUATED));
}

function measureMatrix() {
  const box = $("matrix");
  linesOfMatrix();
  const longest = (lines) => Math.min(Math.max(...lines.map((i) => units[i].label.length), 6), 26);
  matrix.left = longest(matrix.rows) * 6.6 + 22;
  matrix.top = longest(matrix.columns) * 6 + 34;
  const [high, wide] = [matrix.rows.length || 1, matrix.columns.length || 1];
  const room = Math.min((box.clientWidth - matrix.left) / wide, (box.clientHeight - matrix.top) / high);
  matrix.cell = Math.max(14, Math.min(30, Math.floor(room)));
  $("extent").style.width = `${matrix.left + wide * matrix.cell + matrix.top * 0.6}px`;
  $("extent").style.height = `${matrix.top + high * matrix.cell + 10}px`;
}

function paintMatrix() {
  const box = $("matrix"), canvas = box.querySelector("canvas"), scale = window.devicePixelRatio || 1;
  const [width, height] = [box.clientWidth, box.clientHeight];
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  pen.scale(scale, scale);
  pen.fillStyle = color("card");
  pen.fillRect(0, 0, width, height);
  const { cell, left, top } = matrix;
  const [dx, dy] = [box.scrollLeft, box.scrollTop];
  const firstColumn = Math.floor(dx / cell), firstRow = Math.floor(dy / cell);
  const lastColumn = Math.min(matrix.columns.length - 1, Math.ceil((dx + width - left) / cell));
  const lastRow = Math.min(matrix.rows.length - 1, Math.ceil((dy + height - top) / cell));
  const [row, column] = matrix.over ?? (document.activeElement === box ? matrix.at : [-1, -1]);
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width - left, height - top);
  pen.clip();
  for (let i = firstRow; i <= lastRow; i++) {
    for (let j = firstColumn; j <= lastColumn; j++) {
      const [x, y] = [left + j * cell - dx, top + i * cell - dy];
      if (i === row || j === column) {
        pen.fillStyle = color("soft");
        pen.fillRect(x, y, cell, cell);
      }
      paintCell(pen, color, x, y, cell, link(matrix.rows[i], matrix.columns[j]));
    }
  }
  outline(pen, color, row, column, dx, dy);
  pen.restore();
  paintHeads(pen, color, { firstRow, lastRow, firstColumn, lastColumn, dx, dy, width, height, row, column });
}

// The size of the square is the share of pairs, and its colour is the state of their ports.
function paintCell(pen, color, x, y, cell, { state, share }) {
  const middle = cell / 2;
  pen.fillStyle = color(CLASS[state]);
  if (state === NOT_EVALUATED) {
    pen.fillRect(x + 1, y + 1, cell - 2, cell - 2);
  } else if (state === CLOSED) {
    pen.beginPath();
    pen.arc(x + middle, y + middle, Math.max(1, cell / 14), 0, 7);
    pen.fill();
  } else {
    const full = cell - 3, side = full * Math.max(0.35, Math.sqrt(share)) * (state === SOME ? 0.72 : 1);
    if (state === MIXED) {
      pen.beginPath();
      pen.moveTo(x + middle - side / 2, y + middle + side / 2);
      pen.lineTo(x + middle + side / 2, y + middle + side / 2);
      pen.lineTo(x + middle + side / 2, y + middle - side / 2);
      pen.fill();
    } else {
      pen.fillRect(x + middle - side / 2, y + middle - side / 2, side, side);
    }
  }
}

function outline(pen, color, row, column, dx, dy) {
  const { cell, left, top } = matrix;
  pen.strokeStyle = color("accent");
  pen.lineWidth = 2;
  const mark = (i, j) => pen.strokeRect(left + j * cell - dx + 1, top + i * cell - dy + 1, cell - 2, cell - 2);
  if (row >= 0 && column >= 0) mark(row, column);
  if (chosen?.to) {
    const [i, j] = [matrix.rows.findIndex((it) => isChosen(units[it])), matrix.columns.findIndex((it) => isTarget(units[it]))];
    if (i >= 0 && j >= 0) mark(i, j);
  }
}

function paintHeads(pen, color, at) {
  const { cell, left, top } = matrix;
  pen.fillStyle = color("card");
  pen.fillRect(0, 0, left, at.height);
  pen.fillRect(0, 0, at.width, top);
  pen.textBaseline = "middle";
  const font = Math.max(9, Math.min(12, cell - 2));
  const label = (unit) => (unit.label.length > 26 ? unit.label.slice(0, 25) + "…" : unit.label);
  const look = (strong) => {
    pen.fillStyle = strong ? color("accent") : color("text");
    pen.font = `${strong ? "600 " : ""}${font}px system-ui, sans-serif`;
  };
  const clip = (x, y, w, h, draw) => {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, w, h);
    pen.clip();
    draw();
    pen.restore();
  };
  clip(0, top, left, at.height - top, () => {
    pen.textAlign = "right";
    for (let i = at.firstRow; i <= at.lastRow; i++) {
      const unit = units[matrix.rows[i]];
      look(i === at.row || isChosen(unit));
      pen.fillText(label(unit), left - 8, top + (i + 0.5) * cell - at.dy);
    }
  });
  clip(left - 12, 0, at.width - left + 12, top, () => {
    pen.textAlign = "left";
    for (let j = at.firstColumn; j <= at.lastColumn; j++) {
      const x = left + (j + 0.5) * cell - at.dx;
      if (x < left) continue;
      pen.save();
      pen.translate(x, top - 6);
      pen.rotate(-Math.PI / 3);
      const unit = units[matrix.columns[j]];
      look(j === at.column || (chosen?.to ? isTarget(unit) : isChosen(unit)));
      pen.fillText(label(unit), 0, 0);
      pen.restore();
    }
  });
  pen.fillStyle = color("faint");
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.fillText("from ↓  to →", 10, top - 12);
}

function under(event) {
  const box = $("matrix").getBoundingClientRect(), { cell, left, top } = matrix;
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const column = x < left ? -1 : Math.floor((x - left + $("matrix").scrollLeft) / cell);
  const row = y < top ? -1 : Math.floor((y - top + $("matrix").scrollTop) / cell);
  return row >= matrix.rows.length || column >= matrix.columns.length ? [-1, -1] : [row, column];
}

const unitsAt = ([row, column]) => [units[matrix.rows[row]], units[matrix.columns[column]]];

function useMatrix() {
  const box = $("matrix");
  box.addEventListener("scroll", () => requestAnimationFrame(paintMatrix));
  box.addEventListener("pointermove", (event) => {
    const over = under(event);
    if (String(over) === String(matrix.over)) return;
    matrix.over = over;
    const [i, j] = unitsAt(over);
    box.title = i && j ? `${i.label} → ${j.label}: ${cellWords(...over)}` : (i ?? j)?.label ?? "";
    paintMatrix();
  });
  box.addEventListener("pointerleave", () => {
    matrix.over = null;
    paintMatrix();
  });
  box.addEventListener("click", (event) => {
    const at = under(event), [from, to] = unitsAt(at);
    if (from && to) {
      matrix.at = at;
      choosePair(from, to);
    } else if (from || to) chooseUnit(from ?? to);
  });
  box.addEventListener("dblclick", (event) => {
    for (const unit of unitsAt(under(event))) if (unit?.whole) opened.add(unit.space);
    drawUnits();
    paint();
  });
  box.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const last = [matrix.rows.length - 1, matrix.columns.length - 1];
    if (moves[event.key]) {
      matrix.at = matrix.at.map((it, n) => Math.max(0, Math.min(last[n], it + moves[event.key][n])));
    } else if (event.key === "Home") matrix.at = [matrix.at[0], 0];
    else if (event.key === "End") matrix.at = [matrix.at[0], last[1]];
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choosePair(...unitsAt(matrix.at));
      return;
    } else return;
    event.preventDefault();
    matrix.over = null;
    const { cell, left, top } = matrix, [i, j] = matrix.at;
    const keep = (at, size, room, scroll) => Math.min(Math.max(scroll, (at + 1) * size - room), at * size);
    box.scrollTop = keep(i, cell, box.clientHeight - top, box.scrollTop);
    box.scrollLeft = keep(j, cell, box.clientWidth - left, box.scrollLeft);
    const [from, to] = unitsAt(matrix.at);
    $("status").textContent = `${from.label} to ${to.label}: ${cellWords(i, j)}`;
    paintMatrix();
  });
  for (const event of ["focus", "blur"]) box.addEventListener(event, paintMatrix);
}

function cellWords(row, column) {
  const { state, share } = link(matrix.rows[row], matrix.columns[column]);
  const port = wanted ? $("port").value.trim() : null;
  const part = share < 1 ? `, ${Math.max(1, Math.round(share * 100))}% of the pairs` : "";
  if (state === NOT_EVALUATED) return "not evaluated";
  if (state === CLOSED) return port ? `${port} denied` : "denied";
  if (state === OPEN) return "every port" + part;
  if (state === SOME) return (port ? `${port} allowed` : "some ports") + part;
  return "mixed, or unknown" + part;
}
