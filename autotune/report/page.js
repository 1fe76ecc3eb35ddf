// Fills the page: each filter offers what is left by those before it, and every change draws the charts and tables of what is chosen.
const unpacked = (_, value) =>
  value?.$keys ? value.$rows.map((row) => Object.fromEntries(value.$keys.map((key, at) => [key, row[at]]))) : value;
const { series, charts, colours, most_labelled: mostLabelled } = JSON.parse(document.getElementById("report").textContent, unpacked);
const form = document.getElementById("filters");
const USUAL_DTYPE = "float32";
const FACETS = ["device", "operation", "dtype", "protocol"];
const facet = (row, name) => (name === "protocol" ? `${row.protocol}, rule ${row.protocol_rule}` : row[name]);
let turn = 0;

const element = (name, attributes = {}, ...children) => {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
};
const byId = (id) => document.getElementById(id);
const percent = (value) => (value == null ? "" : `${(100 * value).toFixed(1)} %`);
const micro = (value) =>
  value == null ? "" : value >= 1000 ? Math.round(value).toLocaleString("en") : value >= 1 || !value ? value.toFixed(2) : String(+value.toPrecision(3));
const times = (value) => (value == null ? "" : value < 10 ? value.toFixed(3) : value.toFixed(1));
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

function offer(select, values, wanted) {
  select.replaceChildren(...values.map((value) => element("option", { value, textContent: value })));
  if (values.includes(wanted)) select.value = wanted;
  select.parentElement.classList.toggle("alone", values.length < 2 && !["device", "dtype", "size"].includes(select.name));
}

function chosenSeries() {
  let left = series;
  for (const name of FACETS) {
    const select = form.elements[name];
    const values = [...new Set(left.map((row) => facet(row, name)))];
    offer(select, values, values.includes(select.value) ? select.value : USUAL_DTYPE);
    left = left.filter((row) => facet(row, name) === select.value);
  }
  return left[0];
}

function table(id, caption, rows, columns) {
  const head = element(
    "tr",
    {},
    ...columns.map(([heading, , number]) =>
      element("th", { scope: "col", textContent: heading, className: number === true ? "number" : "" }),
    ),
  );
  const body = rows.map((row) =>
    element(
      "tr",
      { className: row.chosen ? "chosen" : "" },
      ...columns.map(([, shown, number]) =>
        element("td", { textContent: shown(row) ?? "", className: number === true ? "number" : (number ?? "") }),
      ),
    ),
  );
  const place = byId(id);
  if (place.parentElement.tagName === "DETAILS") place.parentElement.hidden = !rows.length;
  Object.assign(place, { tabIndex: 0, role: "region", ariaLabel: caption });
  place.replaceChildren(
    element("table", {}, element("caption", { textContent: caption }), element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

// A chart's legend names the versions that are in it, and no others.
function limited(spec, there) {
  const versions = Object.keys(colours).filter((version) => there.has(version));
  const scale = { domain: versions, range: versions.map((version) => colours[version]) };
  return JSON.parse(JSON.stringify(spec, (_, value) => (value?.field === "version" && value.scale ? { ...value, scale } : value)));
}

async function draw(place, name, datasets, description, empty, more = {}) {
  const filled = Object.values(datasets).some((rows) => rows.length);
  place.classList.toggle("empty", !filled);
  if (!filled) {
    place.replaceChildren(empty);
    return;
  }
  const there = new Set(Object.values(datasets).flatMap((rows) => rows.map((row) => row.version)));
  const { config } = charts[name];
  const columns = Math.max(3, Math.floor(place.clientWidth / 70));
  more = { ...more, config: { ...config, legend: { ...config.legend, columns } } };
  const spec = { ...limited({ ...charts[name], ...more }, there), datasets, description };
  const { view } = await window.vegaEmbed(place, spec, { actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom" } });
  view.addEventListener("click", (_, item) => item?.datum?.size && chooseSize(item.datum.size));
}

function chooseSize(size) {
  if ([...form.elements.size.options].some((option) => option.value === size)) {
    form.elements.size.value = size;
    show();
  }
}

function figures(shown) {
  const shares = shown.problems.map((row) => row.fraction_of_copy).filter((share) => share != null);
  const failed = shown.failures.reduce((sum, row) => sum + row.count, 0);
  const facts = [
    ["sizes tried", shown.sizes_in_all.toLocaleString("en")],
    ["trials in the file", shown.trials_in_all.toLocaleString("en")],
    ["failed trials", failed.toLocaleString("en")],
  ];
  const raced = shown.problems.filter((row) => row.gap != null);
  if (raced.length)
    facts.push(["bests ahead of their runner-up beyond noise", `${raced.filter((row) => row.beyond_noise).length} of ${raced.length}`]);
  if (shares.length)
    facts.push(
      ["of copy, median over sizes", percent(median(shares))],
      ["sizes at 95 % of copy or more", `${shares.filter((s) => s >= 0.95).length} of ${shares.length}`],
    );
  byId("figures").replaceChildren(
    ...facts.map(([what, value]) => element("div", {}, element("dt", { textContent: what }), element("dd", { textContent: value }))),
  );
}

const crowding = (shown) => [{ name: "crowded", value: shown.problems.length > mostLabelled }];

function sampled(shown) {
  const [drawn, trials] = [shown.problems.length, shown.problems.reduce((sum, row) => sum + row.trials, 0)];
  const note = byId("sampled");
  note.hidden = trials === shown.trials_in_all;
  note.textContent = `Everything below, and the figures above but the first two, is of ${drawn.toLocaleString("en")} of the
    ${plural(shown.sizes_in_all, "size")}, spread evenly over them, with ${trials.toLocaleString("en")} of the
    ${plural(shown.trials_in_all, "trial")}; --device and --dtype choose what goes into a report.`;
}

function drawPlane(shown, size) {
  const problems = shown.problems.filter((row) => row.version).map((row) => ({ ...row, chosen: row.size === size }));
  const wins = {};
  for (const row of problems) wins[row.version] = (wins[row.version] ?? 0) + 1;
  const said = Object.entries(wins)
    .sort((a, b) => b[1] - a[1])
    .map(([version, count]) => `${version} at ${plural(count, "size")}`);
  const caption = said.length ? `Best: ${said.join(", ")}.` : "";
  byId("plane").nextElementSibling.textContent = caption;
  table("plane-table", "The best kernel of each tuned size", problems, [
    ["size", (r) => r.size],
    ["version", (r) => r.version],
    ["configuration", (r) => r.configuration],
    ["time, us", (r) => micro(r.time_us), true],
    ["+-", (r) => percent(r.plus_minus), true],
    ["of copy", (r) => percent(r.fraction_of_copy), true],
    ["state", (r) => r.state],
    ["runner-up", (r) => r.runner_up],
    ["gap", (r) => percent(r.gap), true],
    ["beyond noise", (r) => (r.gap == null ? "" : r.beyond_noise ? "yes" : "no")],
    ["tried", (r) => r.tried, true],
    ["trials in the file", (r) => r.trials, true],
  ]);
  return draw(
    byId("plane"),
    "plane",
    problems.length > 1 ? { plane: shown.plane, problems } : {},
    `Which version wins over the plane of rows and columns. ${caption}`,
    problems.length ? `Only ${problems[0].size} was tuned; from the second size on this shows which version wins where.` : "No size has a right result yet.",
    // A size that never ran right has no disc to put a ring around.
    { params: crowding(shown), layer: charts.plane.layer.filter(({ name }) => name !== "chosen" || problems.some((row) => row.chosen)) },
  );
}

function drawShares(shown, size) {
  const shares = shown.shares.filter((row) => row.share != null).map((row) => ({ ...row, chosen: row.size === size }));
  const best = shares.reduce((most, row) => (row.share > (most?.share ?? 0) ? row : most), null);
  const caption = best ? `Nearest to a copy: ${best.version} at ${best.size} with ${percent(best.share)}.` : "";
  byId("shares").nextElementSibling.textContent = caption;
  table("shares-table", "The best of each version at each size", shares, [
    ["size", (r) => r.size],
    ["version", (r) => r.version],
    ["configuration", (r) => r.configuration],
    ["time, us", (r) => micro(r.time_us), true],
    ["of copy", (r) => percent(r.share), true],
  ]);
  return draw(
    byId("shares"),
    "shares",
    { shares, plane: shares.length ? shown.plane : [] },
    `Share of copy over columns for each version. ${caption}`,
    "No copy was timed on this device, so there is nothing to compare with.",
    { params: crowding(shown) },
  );
}

function drawEffects(chosen) {
  const effects = chosen?.effects ?? [];
  const ordered = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const names = [...new Set(effects.map((row) => row.parameter))];
  const sorted = names.flatMap((name) =>
    effects.filter((row) => row.parameter === name).sort((a, b) => ordered(a.value, b.value) || a.version.localeCompare(b.version)),
  );
  table("effects-table", "Times with each value of each parameter, over the best of all", sorted, [
    ["parameter", (r) => r.parameter],
    ["value", (r) => r.value],
    ["version", (r) => r.version],
    ["best", (r) => times(r.best), true],
    ["median", (r) => times(r.median), true],
    ["configurations", (r) => r.configurations, true],
  ]);
  const versions = [...new Set(effects.map((row) => row.version))].sort((a, b) => a.length - b.length || a.localeCompare(b));
  byId("effects-key").replaceChildren(
    ...versions.map((version) => {
      const dot = element("i");
      dot.style.background = colours[version];
      return element("span", {}, dot, version);
    }),
  );
  const places = names.map((name) => element("figure", {}, element("h3", { textContent: name }), element("div", { className: "chart" })));
  byId("effects").replaceChildren(
    ...(places.length ? places : [element("p", { className: "chart empty", textContent: "Nothing ran right at this size." })]),
  );
  return places.map((place, at) => {
    const effect = sorted.filter((row) => row.parameter === names[at]);
    const highest = Math.max(1.05, ...effect.flatMap((row) => [row.best, row.median])); // a difference of a hundredth fills no chart
    const params = [{ name: "highest", value: highest }];
    return draw(place.lastChild, "effect", { effect }, `Time over the best for each value of ${names[at]}.`, "", { params });
  });
}

function drawConvergence(shown, chosen) {
  const convergence = chosen?.convergence ?? [];
  const others = shown.sizes
    .filter((row) => row !== chosen)
    .slice(0, 60)
    .flatMap((row) => row.convergence.map((step) => ({ ...step, size: row.size })));
  const steps = convergence.filter((step) => step.version);
  const { tried, trials } = shown.problems.find((row) => row.size === chosen?.size) ?? {};
  const near = steps.find((step) => step.slowdown <= 1.01);
  const thinned = tried > trials;
  const caption = [
    near && shown.searched && !thinned ? `Within 1 % of the final best after ${plural(near.trial, "trial")} of ${convergence.at(-1).trial.toLocaleString("en")}.` : "",
    near && !shown.searched ? "These trials were made in a fixed order and not chosen by a search, so how soon the best came says nothing." : "",
    near && thinned ? `${plural(tried, "configuration")} were tried; the curve is of the ${plural(trials, "trial")} in the file.` : "",
  ]
    .filter(Boolean)
    .join(" ");
  byId("convergence").nextElementSibling.textContent = caption;
  table("convergence-table", "Each trial that was faster than all before it", steps, [
    ["trial", (r) => r.trial, true],
    ["version", (r) => r.version],
    ["time, us", (r) => micro(r.time_us), true],
    ["over the final best", (r) => times(r.slowdown), true],
  ]);
  const drawn = convergence.length ? [...convergence, ...others] : [];
  const params = [
    { name: "most", value: drawn.reduce((most, step) => Math.max(most, step.trial), 2) },
    { name: "highest", value: drawn.reduce((most, step) => Math.max(most, step.slowdown), 1.05) },
  ];
  return draw(
    byId("convergence"),
    "convergence",
    { convergence, others: others.length && convergence.length ? others : convergence },
    `Best time so far by trials. ${caption}`,
    "Nothing ran right at this size.",
    { params },
  );
}

function drawFailures(shown) {
  const failed = shown.failures.reduce((sum, row) => sum + row.count, 0);
  byId("failures").nextElementSibling.textContent = failed ? `${plural(failed, "trial")} failed.` : "";
  table("failures-table", "The most common reasons", shown.reasons, [
    ["version", (r) => r.version],
    ["outcome", (r) => r.outcome.replaceAll("_", " ")],
    ["trials", (r) => r.count, true],
    ["what was said", (r) => r.message, "long"],
  ]);
  const { color } = charts.failures.encoding;
  const domain = color.scale.domain.filter((outcome) => shown.failures.some((row) => row.outcome === outcome));
  const range = domain.map((outcome) => color.scale.range[color.scale.domain.indexOf(outcome)]);
  const encoding = { ...charts.failures.encoding, color: { ...color, scale: { domain, range } } };
  const height = 110 + 28 * new Set(shown.failures.map((row) => row.version)).size;
  return draw(byId("failures"), "failures", { failures: shown.failures }, "Failed trials of each version by reason.", "No trial failed.", {
    height,
    encoding,
  });
}

function provenance(shown) {
  byId("method").textContent =
    `Protocol ${shown.protocol}, rule ${shown.protocol_rule}: ${shown.provenance.at(-1)?.protocol_description ?? ""}.` +
    (shown.replayed ? " These times were not measured for this database: they are replayed from another one's measurements." : "");
  table("provenance-table", "What was measured with what", shown.provenance, [
    [
      "measured",
      (r) => (r.first.slice(0, 10) === r.last.slice(0, 10) ? r.first.slice(0, 10) : `${r.first.slice(0, 10)} to ${r.last.slice(0, 10)}`),
    ],
    ["driver", (r) => r.driver],
    ["CUDA", (r) => r.cuda],
    ["compiler", (r) => r.compiler],
    ["PyCUDA", (r) => r.pycuda],
    ["package", (r) => r.package],
    ["system", (r) => r.os],
    ["card", (r) => r.card],
    ["origin", (r) => r.origin],
    ["runs", (r) => r.runs, true],
    ["trials", (r) => r.trials, true],
    ["of older templates or definitions, not shown", (r) => r.of_older_templates, true],
  ]);
}

async function show() {
  const mine = ++turn;
  const shown = chosenSeries();
  if (!shown) {
    byId("shown").textContent = "The database holds no trials.";
    document.body.classList.add("ready");
    return;
  }
  const sizes = shown.sizes.map((row) => row.size);
  const ran = shown.problems.filter((row) => row.version);
  const largest = (ran.length ? ran : shown.problems).reduce((most, row) => (row.rows * row.cols > most.rows * most.cols ? row : most));
  const wanted = [form.elements.size.value, "4096x4096", largest.size].find((size) => sizes.includes(size));
  offer(form.elements.size, sizes, wanted);
  const size = form.elements.size.value;
  const chosen = shown.sizes.find((row) => row.size === size);
  for (const place of document.querySelectorAll("span.size")) place.textContent = size;
  figures(shown);
  sampled(shown);
  provenance(shown);
  await Promise.all(
    [drawPlane(shown, size), drawShares(shown, size), ...drawEffects(chosen), drawConvergence(shown, chosen), drawFailures(shown)].flat(),
  );
  if (mine === turn) {
    byId("shown").textContent = `Shown: ${FACETS.map((name) => facet(shown, name)).join(", ")}, ${size}.`;
    document.body.classList.add("ready");
    document.body.dataset.shown = `${shown.device}|${shown.dtype}|${size}`;
  }
}

form.addEventListener("change", show);
form.addEventListener("submit", (event) => event.preventDefault());
const MOST_PRINTED = 100; // rows: some pages, not a book
const opened = [];
addEventListener("beforeprint", () => {
  const short = [...document.querySelectorAll("details:not([open])")].filter((table) => table.querySelectorAll("tr").length <= MOST_PRINTED);
  opened.push(...short);
  for (const table of opened) table.open = true;
});
addEventListener("afterprint", () => {
  for (const table of opened.splice(0)) table.open = false;
});
show();
