// Joins the parts, and handles input.

function paintLegend() {
  const box = $("legend");
  box.replaceChildren();
  const entry = (state, words) => view === "map"
    ? element("label", {}, element("input", { type: "checkbox", checked: shown[state] ? "" : null, onchange: (event) => { shown[state] = event.target.checked; paintMap(); } }), element("i", { class: CLASS[state] }), words)
    : element("span", {}, element("i", { class: CLASS[state] }), words);
  if (!wanted) box.append(entry(OPEN, "every port"));
  box.append(entry(SOME, wanted ? `${$("port").value.trim()} allowed` : "some ports"), entry(MIXED, "mixed or unknown"));
  if (view === "matrix") {
    box.append(element("span", {}, element("i", { class: "none" }), "denied"), element("span", {}, element("i", { class: "unasked" }), "not evaluated"));
  }
  if (data.note) box.append(element("span", {}, data.note[0].toUpperCase() + data.note.slice(1) + "."));
  if (chosen) box.append(element("button", { type: "button", class: "link", onclick: () => choose(null) }, "Show everything"));
  if (opened.size) {
    box.append(element("button", { type: "button", class: "link", onclick: () => { opened.clear(); drawUnits(); paint(); } }, "Close all namespaces"));
  }
}

function paint() {
  $("map").hidden = view !== "map";
  $("matrix").hidden = view !== "matrix";
  $("show-map").setAttribute("aria-pressed", String(view === "map"));
  $("show-matrix").setAttribute("aria-pressed", String(view === "matrix"));
  paintLegend();
  if (view === "map") paintMap();
  else {
    measureMatrix();
    paintMatrix();
  }
  paintDetail();
  paintSide();
}

function show(name) {
  view = name;
  paint();
}

function start() {
  $("facts").textContent = data.facts;
  $("show-map").addEventListener("click", () => show("map"));
  $("show-matrix").addEventListener("click", () => show("matrix"));
  $("find").addEventListener("input", paintSide);
  $("tools").addEventListener("submit", (event) => event.preventDefault());
  $("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") $("side").querySelector("li button:not(.whole)")?.click();
  });
  $("port").addEventListener("input", () => {
    const port = parsePort($("port").value);
    $("port-note").textContent = port === undefined ? "such as tcp/443, udp/53, icmp" : "";
    if (port === undefined) return;
    wanted = port;
    classify();
    drawUnits();
    paint();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !typing) {
      event.preventDefault();
      $("find").focus();
    } else if (event.key === "Escape") choose(null);
  });
  useMatrix();
  classify();
  drawUnits();
  if (kinds.length > MOST_KINDS && spaces.length > MOST_ON_MAP) view = "matrix";
  paint();
  window.addEventListener("resize", () => requestAnimationFrame(paint));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
}

start();
