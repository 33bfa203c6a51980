// Elements, and the list of endpoints with its search.

/* ---- making elements ---- */

function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawn(name, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((it) => it !== null && it !== undefined && it !== false));
  return made;
}

const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

/* ---- the list ---- */

function matches(kind, words) {
  const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
  if (fits(kind.label)) return { kind, members: [] };
  const members = kind.members.filter((it) => fits(data.members[it]));
  return members.length ? { kind, members } : null;
}

const folded = new Map(); // spaces that the user opened or closed

function paintSide() {
  const words = $("find").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const side = $("side"), buttons = () => [...side.querySelectorAll("button, summary")];
  const focus = buttons().indexOf(document.activeElement), scroll = side.scrollTop;
  side.replaceChildren();
  let left = MOST_LISTED * 4, found = 0;
  for (const space of spaces) {
    const whole = words.length === 0 || words.every((word) => space.label.toLowerCase().includes(word));
    const hits = whole ? space.kinds.map((kind) => ({ kind, members: [] })) : space.kinds.map((it) => matches(it, words)).filter(Boolean);
    if (!hits.length) continue;
    found += hits.length;
    if (left <= 0) continue;
    const list = element("ul");
    const fill = () => {
      if (list.childElementCount) return;
      if (space.kinds.length > 1) list.append(item(`all of ${space.label}`, null, () => chooseSpace(space.id), chosen?.space === space.id && !chosen.to, "whole"));
      for (const { kind, members } of hits.slice(0, MOST_LISTED)) {
        const current = chosen && !chosen.to && chosen.space === undefined && chosen.from[0] === kind.id;
        if (!members.length) list.append(item(kind.label, null, () => chooseKind(kind.id), current && chosen.member === undefined));
        for (const member of members.slice(0, 20)) {
          list.append(item(data.members[member], null, () => chooseKind(kind.id, member), current && chosen.member === member));
        }
      }
      if (hits.length > MOST_LISTED) list.append(element("li", { class: "whole" }, `and ${hits.length - MOST_LISTED} more`));
    };
    const isChosenHere = chosen && chosen.from.some((it) => kinds[it].space === space.id);
    const open = words.length > 0 || (folded.get(space.id) ?? (byKind() || isChosenHere));
    const box = element("details", { open: open ? "" : null, ontoggle: fill },
      element("summary", { onclick: () => folded.set(space.id, !box.open) }, space.label, " ", element("small", {}, String(space.size))), list);
    if (open) {
      fill();
      left -= hits.length;
    }
    side.append(box);
  }
  // The keyboard focus stays where it was.
  side.scrollTop = scroll;
  if (focus >= 0) buttons()[focus]?.focus({ preventScroll: true });
  if (!found) side.append(element("p", { class: "whole" }, "No endpoint has such a name."));
  else if (left <= 0) side.append(element("p", { class: "whole" }, "More endpoints match: type more of the name."));
}

function item(label, note, act, current, style) {
  return element("li", {}, element("button", { type: "button", onclick: act, class: style, "aria-current": current ? "true" : null },
    label, note ? " " : null, note ? element("small", {}, note) : null));
}
