// The selection: what it reaches, what reaches it, and on which ports.

function chips(cell) {
  const [allowed, mixed, unknown, open] = data.cells[cell];
  const chip = (text, style) => element("span", { class: `chip ${style}` }, text);
  const made = open ? [chip("every port and protocol", "open")] : allowed.map((it) => chip(it, "some"));
  made.push(...mixed.map((it) => chip(`${it} mixed`, "mixed")), ...unknown.map((it) => chip(`${it} unknown`, "mixed")));
  return element("div", { class: "chips" }, made.length ? made : chip("denied", "none"));
}

function paintDetail() {
  const box = $("detail"), had = box.contains(document.activeElement);
  box.replaceChildren();
  fillDetail(box);
  const head = box.querySelector("h2");
  head.tabIndex = -1;
  if (had) head.focus();
}

function fillDetail(box) {
  if (!chosen) {
    box.append(element("h2", {}, "Pick an endpoint"),
      element("p", { class: "faint" }, "Click on the map, on a cell of the matrix or in the list to see what an endpoint reaches, what reaches it, and on which ports."),
      element("p", { class: "faint" }, "Endpoints that no policy distinguishes are one entry, which applies to each of them. ",
        byKind() ? "" : "Namespaces are drawn as one; double-click opens them."));
    return;
  }
  if (chosen.to) paintPair(box);
  else paintChosen(box);
}

function paintPair(box) {
  box.append(element("h2", {}, `${chosen.title} → ${chosen.toTitle}`));
  const cells = new Map();
  for (const from of chosen.from) {
    for (const to of chosen.to) {
      const cell = reach(from, to);
      if (cell >= 0) cells.set(cell, [...(cells.get(cell) ?? []), [from, to]]);
    }
  }
  if (!cells.size) box.append(element("p", { class: "faint" }, "Not evaluated."));
  for (const [cell, pairs] of [...cells].sort((a, b) => classes[b[0]] - classes[a[0]])) {
    const lines = pairs.slice(0, 30).map(([from, to]) => element("li", {}, element("button", { type: "button", onclick: () => choose({ from: [from], to: [to], title: kinds[from].label, toTitle: kinds[to].label }) },
      `${kinds[from].label} → ${kinds[to].label}`)));
    if (pairs.length > 30) lines.push(element("li", { class: "faint" }, `and ${pairs.length - 30} more`));
    box.append(element("div", { class: "sort" }, chips(cell), cells.size > 1 ? element("ul", {}, lines) : null));
  }
  const [from, to] = [kinds[chosen.from[0]], kinds[chosen.to[0]]];
  if (cells.size && chosen.from.length === 1 && chosen.to.length === 1) {
    const source = from.members[0], target = to.members.find((it) => it !== source) ?? to.members[0];
    box.append(element("h3", {}, "Which rule decides"), element("pre", {}, element("code", {}, `palisade explain -f … ${typed(source)} ${typed(target)}${wanted ? " " + $("port").value.trim() : ""}`)));
  }
  box.append(element("h3", {}, "More"), element("ul", {},
    item(`Everything of ${chosen.title}`, null, () => choose({ from: chosen.from, to: null, title: chosen.title })),
    chosen.toTitle === chosen.title ? null : item(`Everything of ${chosen.toTitle}`, null, () => choose({ from: chosen.to, to: null, title: chosen.toTitle }))));
}

// A query names a network by one of its addresses.
function typed(member) {
  return data.addresses[member] ?? data.members[member];
}

function paintChosen(box) {
  const members = chosen.from.flatMap((it) => kinds[it].members);
  box.append(element("h2", {}, chosen.title));
  const alike = members.filter((it) => it !== chosen.member);
  if (members.length > 1) {
    const names = alike.slice(0, 8).map((it) => data.members[it]).join(", ") + (alike.length > 8 ? ` and ${alike.length - 8} more` : "");
    const lead = chosen.from.length > 1 ? `${many(members.length, "endpoint")}: ` : chosen.member === undefined ? `${many(members.length, "endpoint")} that no policy distinguishes: ` : "No policy distinguishes it from ";
    box.append(element("p", { class: "faint" }, lead + names));
  }
  if (chosen.space !== undefined && !byKind() && spaces[chosen.space].kinds.length > 1) {
    const isOpen = opened.has(chosen.space);
    box.append(element("p", {}, element("button", { type: "button", class: "link", onclick: () => {
      if (isOpen) opened.delete(chosen.space);
      else opened.add(chosen.space);
      drawUnits();
      paint();
    } }, isOpen ? "Draw it as one" : "Draw its endpoints")));
  }
  if (data.note && members.some((it) => data.sorts[it] === "n")) box.append(element("p", { class: "faint" }, data.note[0].toUpperCase() + data.note.slice(1) + "."));
  const pick = (name, words) => element("button", { type: "button", role: "tab", "aria-selected": String(tab === name), onclick: () => { tab = name; paintDetail(); } }, words);
  box.append(element("div", { class: "tabs", role: "tablist" }, pick("reaches", "Reaches"), pick("reached", "Reached by")));
  const outwards = tab === "reaches";
  const sorts = new Map();
  for (const other of kinds) {
    const cells = new Set(chosen.from.map((it) => (outwards ? reach(it, other.id) : reach(other.id, it))).filter((it) => it >= 0));
    for (const cell of cells) sorts.set(cell, [...(sorts.get(cell) ?? []), other.id]);
  }
  const closed = [...sorts.keys()].filter((it) => classes[it] === CLOSED);
  const others = [...sorts].filter(([cell]) => classes[cell] !== CLOSED).sort((a, b) => classes[b[0]] - classes[a[0]] || b[1].length - a[1].length);
  if (!others.length) box.append(element("p", {}, outwards ? "It reaches no endpoint." : "No endpoint reaches it."));
  for (const [cell, list] of others) box.append(element("div", { class: "sort" }, chips(cell), listed(list, outwards)));
  const denied = new Set(closed.flatMap((it) => sorts.get(it)));
  for (const [, list] of others) for (const it of list) denied.delete(it);
  if (denied.size) box.append(element("div", { class: "sort" }, element("div", { class: "chips" }, element("span", { class: "chip none" }, "denied")), listed([...denied], outwards)));
}

// Kinds as buttons; a complete namespace is one line.
function listed(list, outwards) {
  const has = new Set(list), lines = [];
  const own = new Set(chosen.from.length === 1 ? chosen.from : []);
  for (const space of spaces) {
    const its = space.kinds.filter((it) => has.has(it.id));
    const rest = space.kinds.filter((it) => !has.has(it.id) && !own.has(it.id));
    const pair = (to, title) => outwards
      ? { from: chosen.from, to, title: chosen.title, toTitle: title }
      : { from: to, to: chosen.from, title, toTitle: chosen.title };
    if (its.length > 2 && !rest.length) {
      const size = sum(its.map((it) => it.members.length));
      lines.push(item(`all of ${space.label}`, many(size, "endpoint"), () => choose(pair(its.map((it) => it.id), space.label))));
    } else {
      for (const kind of its) {
        lines.push(item(kind.label, null, () => choose(pair([kind.id], kind.label))));
      }
    }
  }
  const more = lines.length - MOST_LISTED;
  const box = element("ul", {}, lines.slice(0, MOST_LISTED));
  if (more > 0) {
    const show = element("button", { type: "button", class: "link", onclick: () => box.replaceChildren(...lines) }, `and ${more} more`);
    box.append(element("li", {}, show));
  }
  return box;
}
