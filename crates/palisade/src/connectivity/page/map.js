// The map: units on a circle, allowed flows as curves between them.

function paintMap() {
  const box = $("map");
  const width = Math.max(box.clientWidth, 320), height = Math.max(box.clientHeight, 320);
  box.replaceChildren();
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Map", class: chosen ? "chosen" : null });
  box.append(svg);
  const near = chosen ? units.map((unit, i) => isChosen(unit) || isTarget(unit) || units.some((other, j) => isChosen(other) && (link(i, j).state > CLOSED || link(j, i).state > CLOSED))) : [];
  let places = units.map((_, i) => i);
  if (places.length > MOST_ON_MAP) {
    places = places.filter((i) => near[i]);
    const all = units.length.toLocaleString("en");
    const note = chosen ? `${places.length} of ${all}: what it reaches, and what reaches it` : `${all} namespaces: find one, or pick it in the list`;
    svg.append(drawn("text", { class: "note", x: width / 2, y: 24 }, places.length > MOST_ON_MAP ? `${note}; the first ${MOST_ON_MAP} are drawn` : note));
    places = places.slice(0, MOST_ON_MAP);
  }
  const upright = places.length <= 28;
  const most = upright ? 34 : Math.max(8, Math.min(22, Math.floor((Math.min(width, height) / 2 - 120) / 6.6)));
  const longest = Math.min(Math.max(...places.map((i) => units[i].label.length), 4), most) * 6.6 + 24;
  // Labels that stand upright leave room for an ellipse.
  const across = Math.max(width / 2 - longest, 70), down = Math.max(height / 2 - (upright ? 48 : longest), 70);
  const [rx, ry] = upright ? [Math.min(across, down * 1.6), Math.min(down, across * 1.6)] : [Math.min(across, down), Math.min(across, down)];
  const [x0, y0] = [width / 2, height / 2];
  // Namespaces are set apart by a gap.
  const gaps = places.filter((i, n) => n > 0 && units[i].space !== units[places[n - 1]].space).length + 1;
  const step = (2 * Math.PI) / (places.length + gaps * 0.6 || 1);
  const angle = new Map();
  let turn = -Math.PI / 2;
  places.forEach((i, n) => {
    if (n > 0 && units[i].space !== units[places[n - 1]].space) turn += step * 0.6;
    angle.set(i, turn);
    turn += step;
  });
  const point = (i, out) => [x0 + (rx + out) * Math.cos(angle.get(i)), y0 + (ry + out) * Math.sin(angle.get(i))];
  for (const space of new Set(places.map((i) => units[i].space))) {
    const its = places.filter((i) => units[i].space === space);
    if (its.length < 2) continue;
    const [from, to] = [angle.get(its[0]), angle.get(its[its.length - 1])];
    const at = (turn) => `${x0 + rx * Math.cos(turn)} ${y0 + ry * Math.sin(turn)}`;
    svg.append(drawn("path", { class: "ring", d: `M ${at(from)} A ${rx} ${ry} 0 ${to - from > Math.PI ? 1 : 0} 1 ${at(to)}` }));
  }
  svg.append(drawn("defs", {}, ["some", "open", "mixed"].map((name) =>
    drawn("marker", { id: `tip-${name}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5.5, markerHeight: 5.5, orient: "auto-start-reverse", markerUnits: "strokeWidth" },
      drawn("path", { class: `tip-${name}`, d: "M 0 0.5 L 8 4 L 0 7.5 z" })))));
  paintEdges(svg, places, point, Math.max(rx, ry), [x0, y0]);
  for (const i of places) paintUnit(svg, i, point, angle.get(i), upright ? most : -most, near[i]);
}

function paintEdges(svg, places, point, radius, [x0, y0]) {
  let count = 0;
  const edges = [];
  for (const i of places) {
    for (const j of places) {
      if (i === j) continue;
      const [there, back] = [link(i, j).state, link(j, i).state];
      if (there <= CLOSED || !shown[there]) continue;
      // The same state in both directions is drawn once.
      if (there === back && j < i) continue;
      edges.push([i, j, there, there === back, link(i, j).share]);
      count += 1;
    }
  }
  const on = ([i, j]) => chosen && (chosen.to ? (isChosen(units[i]) && isTarget(units[j])) || (isChosen(units[j]) && isTarget(units[i])) : isChosen(units[i]) || isChosen(units[j]));
  edges.sort((a, b) => Number(on(a)) - Number(on(b)));
  for (const edge of edges) {
    const [i, j, state, both, share] = edge;
    // Where there are many, those between few of many endpoints are pale.
    const pale = !chosen && count > 200 ? Math.max(0.06, 0.6 * share) : null;
    const [[x1, y1], [x2, y2]] = [point(i, -9), point(j, -9)];
    const pull = 0.25 + 0.5 * Math.min(1, Math.hypot(x2 - x1, y2 - y1) / (2 * radius));
    const cx = (x1 + x2) / 2 + (x0 - (x1 + x2) / 2) * pull, cy = (y1 + y2) / 2 + (y0 - (y1 + y2) / 2) * pull;
    const tips = on(edge) || count < 160;
    svg.append(drawn("path", {
      class: `edge ${CLASS[state]}${on(edge) ? " on" : ""}`, "stroke-opacity": pale, d: `M ${x1} ${y1} Q ${cx} ${cy} ${x2} ${y2}`,
      "marker-end": tips ? `url(#tip-${CLASS[state]})` : null, "marker-start": tips && both ? `url(#tip-${CLASS[state]})` : null,
    }));
  }
}

// A label is cut at |signs| characters; if signs is negative, it lies along the radius.
function paintUnit(svg, i, point, turn, signs, near) {
  const unit = units[i], upright = signs > 0, most = Math.abs(signs);
  const [x, y] = point(i, 0);
  const right = Math.cos(turn) >= -1e-9;
  const [tx, ty] = point(i, 14);
  const text = unit.label.length > most ? unit.label.slice(0, most - 1) + "…" : unit.label;
  const degrees = (turn * 180) / Math.PI;
  const level = upright && Math.abs(Math.cos(turn)) < 0.2;
  const label = drawn("text", {
    x: tx, y: level ? ty + (Math.sin(turn) > 0 ? 10 : -2) : ty,
    "dominant-baseline": "middle", "text-anchor": level ? "middle" : right ? "start" : "end",
    transform: upright ? null : `rotate(${right ? degrees : degrees + 180} ${tx} ${ty})`,
  }, text);
  const state = isChosen(unit) ? " on" : isTarget(unit) ? " on" : chosen && !near ? " far" : "";
  svg.append(drawn("g", {
    class: `unit${state}`, tabindex: 0, role: "button", "aria-label": `${unit.label}, ${many(unit.size, "endpoint")}`,
    onclick: () => chooseUnit(unit), ondblclick: () => unfold(unit),
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        chooseUnit(unit);
        document.querySelector(`#map [data-unit="${i}"]`)?.focus();
      }
    },
    "data-unit": i,
  }, drawn("title", {}, `${unit.label} (${many(unit.size, "endpoint")})`), drawn("circle", { cx: x, cy: y, r: unit.whole ? 7 : 5 }), label));
}

function unfold(unit) {
  if (!unit.whole) return;
  opened.add(unit.space);
  drawUnits();
  paint();
}
