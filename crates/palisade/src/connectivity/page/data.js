// The page of `palisade connectivity -o html`: a list, a map, a matrix, and what is selected.
//
// The data has kinds: endpoints that no policy distinguishes, as sources or as destinations. A
// cell has the ports from one kind to another. A unit is what is drawn: a kind, or all kinds of a namespace. Texts
// of users only ever become text nodes.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

/* ---- the data ---- */

const CLOSED = 0, SOME = 1, OPEN = 2, MIXED = 3, NOT_EVALUATED = -1;
const CLASS = { [CLOSED]: "none", [SOME]: "some", [OPEN]: "open", [MIXED]: "mixed", [NOT_EVALUATED]: "unasked" };
const MOST_KINDS = 60; // more than these are drawn by namespace at first
const MOST_ON_MAP = 140; // more units than these are not drawn on the map
const MOST_LISTED = 150;

const kinds = data.kinds.map(([label, space, members], id) => ({ id, label, space, members: unrange(members) }));
const spaces = data.spaces.map((label, id) => ({ id, label, kinds: kinds.filter((it) => it.space === id) }));
for (const space of spaces) space.size = sum(space.kinds.map((it) => it.members.length));
const kindOf = new Int32Array(data.members.length).fill(-1);
for (const kind of kinds) for (const member of kind.members) kindOf[member] = kind.id;
const rows = data.rows.map(unrun);

// Ranges of members, as [first, length, first, length, ...].
function unrange(ranges) {
  const all = [];
  for (let i = 0; i < ranges.length; i += 2) {
    for (let j = 0; j < ranges[i + 1]; j++) all.push(ranges[i] + j);
  }
  return all;
}

// A row of cells, as [cell, count, cell, count, ...].
function unrun(runs) {
  const row = new Int32Array(kinds.length);
  let at = 0;
  for (let i = 0; i < runs.length; i += 2) {
    row.fill(runs[i], at, at + runs[i + 1]);
    at += runs[i + 1];
  }
  return row;
}

function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

// The ports from one kind to another: an index of data.cells, or negative if not evaluated.
function reach(from, to) {
  return rows[data.row[from]][to];
}

/* ---- ports ---- */

let wanted = null; // { protocol, number }

// Parses `tcp/443`, `icmp` or `ip/47`; null is every port, undefined is not a port.
function parsePort(text) {
  const port = text.trim().toLowerCase();
  if (port === "" || port === "any") return null;
  if (port === "icmp" || port === "icmpv6") return { protocol: port };
  const found = /^(tcp|udp|sctp|ip)\/(\d{1,5})$/.exec(port);
  const number = found && Number(found[2]);
  if (!found || number > 65535 || (found[1] === "ip" ? number > 255 : number < 1)) return undefined;
  return { protocol: found[1], number };
}

function covers(words, port) {
  return words.some((word) => {
    const [protocol, range] = word.split("/");
    if (protocol !== port.protocol) return false;
    if (range === undefined || range === "*") return true;
    const [first, last] = range.split("-").map(Number);
    return first <= port.number && port.number <= (last ?? first);
  });
}

let classes = [];
function classify() {
  classes = data.cells.map(([allowed, mixed, unknown, open]) => {
    const others = mixed.concat(unknown);
    if (wanted) return covers(allowed, wanted) ? SOME : covers(others, wanted) ? MIXED : CLOSED;
    return open ? OPEN : allowed.length ? SOME : others.length ? MIXED : CLOSED;
  });
}

function classOf(from, to) {
  const cell = reach(from, to);
  return cell < 0 ? NOT_EVALUATED : classes[cell];
}

/* ---- units: what is drawn ---- */

const opened = new Set(); // namespaces whose kinds are drawn
let peeked = new Set(); // likewise, as long as one of their kinds is selected
let units = [];
let between = []; // between[i][j]: { state, share }

const byKind = () => kinds.length <= MOST_KINDS;

function drawUnits() {
  units = [];
  for (const space of spaces) {
    if (byKind() || opened.has(space.id) || peeked.has(space.id) || space.kinds.length === 1) {
      for (const kind of space.kinds) {
        units.push({ label: kind.label, space: space.id, kinds: [kind.id], size: kind.members.length });
      }
    } else {
      const label = space.label;
      units.push({ label, space: space.id, kinds: space.kinds.map((it) => it.id), size: space.size, whole: true });
    }
  }
  between = units.map(() => new Array(units.length));
}

// The flows from one unit to another: the strongest state of its cells, and the share of its pairs.
function link(i, j) {
  const known = between[i][j];
  if (known) return known;
  let state = NOT_EVALUATED, allowed = 0, total = 0;
  const rank = (it) => [NOT_EVALUATED, CLOSED, MIXED, SOME, OPEN].indexOf(it);
  for (const from of units[i].kinds) {
    for (const to of units[j].kinds) {
      const it = classOf(from, to);
      if (it === NOT_EVALUATED) continue;
      // A template represents several pods, and is evaluated with itself.
      const self = from === to && kinds[to].members.length > 1 ? 1 : 0;
      const pairs = kinds[from].members.length * (kinds[to].members.length - self);
      total += pairs;
      if (it !== CLOSED) allowed += pairs;
      if (rank(it) > rank(state)) state = it;
    }
  }
  return (between[i][j] = { state, share: total ? allowed / total : 0 });
}

/* ---- what is selected ---- */

let chosen = null; // { from: [kinds], to: [kinds] | null, title, toTitle, member }
let view = "map";
let tab = "reaches";
const shown = { [OPEN]: true, [SOME]: true, [MIXED]: true };

const isChosen = (unit) => chosen && unit.kinds.every((it) => chosen.from.includes(it));
const isTarget = (unit) => chosen && chosen.to && unit.kinds.every((it) => chosen.to.includes(it));

function chooseKind(id, member) {
  const kind = kinds[id];
  choose({ from: [id], to: null, title: member === undefined ? kind.label : data.members[member], member });
}

function chooseSpace(id) {
  const space = spaces[id];
  choose({ from: space.kinds.map((it) => it.id), to: null, title: space.label, space: id });
}

function chooseUnit(unit) {
  if (unit.whole) chooseSpace(unit.space);
  else chooseKind(unit.kinds[0]);
}

function choosePair(from, to) {
  choose({ from: from.kinds, to: to.kinds, title: from.label, toTitle: to.label });
}

function choose(what) {
  chosen = what;
  const before = [...peeked].join();
  peeked = new Set([what?.from, what?.to].flatMap((its) => partlyIn(its ?? [])));
  if ([...peeked].join() !== before) drawUnits();
  paint();
  const counted = what && !what.to ? `; reaches ${countReached(what.from, true)}, reached by ${countReached(what.from, false)}` : "";
  $("status").textContent = what ? `${what.title}${what.to ? " to " + what.toTitle : ""}${counted}` : "";
}

// The namespaces of which some kinds are selected, and not all.
function partlyIn(its) {
  const ids = [...new Set(its.map((it) => kinds[it].space))];
  return ids.filter((id) => its.filter((it) => kinds[it].space === id).length < spaces[id].kinds.length);
}

function countReached(from, outwards) {
  let reached = 0;
  for (const other of kinds) {
    const its = from.some((it) => {
      const state = outwards ? classOf(it, other.id) : classOf(other.id, it);
      return state > CLOSED;
    });
    if (its) reached += other.members.length;
  }
  return `${reached} endpoint${reached === 1 ? "" : "s"}`;
}
