"use strict";
/* Shows what the checker found when the page was made. It judges nothing, and writes names as text only. */
(() => {
  const cases = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const GROUPS = { given: "Given", matrix: "Matrix", edges: "Real edges" };
  const SVG = "http://www.w3.org/2000/svg";
  const shown = { case: cases[0], plans: [], plan: null, step: 0, listening: false };

  // Elements -----------------------------------------------------------------------------------

  const fill = (node, ...children) => {
    node.replaceChildren(...children.flat().filter((child) => child !== null));
    return node;
  };
  const made = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return fill(node, ...children);
  };
  const el = (name, attributes = {}, ...children) =>
    made(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) =>
    made(document.createElementNS(SVG, name), attributes, children);
  const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

  // What is shown ------------------------------------------------------------------------------

  const plansOf = (item) => [
    ...Object.entries(item.runs).map(([name, run]) => ({
      key: name,
      name,
      run,
      contract: item.contract,
    })),
    ...item.mutants.map((mutant) => ({
      key: mutant.key,
      name: mutant.name,
      run: mutant.run,
      contract: mutant.contract ?? item.contract,
      mutant,
    })),
  ];
  const rulesOf = (run) => [...new Set((run.violations ?? []).map((v) => v.rule))];
  const judged = (run) => (run.verdict === "legal" ? "✓ legal" : `✗ ${rulesOf(run).join(", ")}`);
  const stepsOf = (run) => run.steps ?? [];

  const holdingsAt = (run, step) => {
    const held = new Map();
    for (const one of stepsOf(run).slice(0, step + 1))
      for (const h of one.held ?? []) held.set(JSON.stringify([h.endpoint, h.surface]), h);
    return [...held.values()];
  };
  const changedAt = (run, step) =>
    new Set((stepsOf(run)[step]?.held ?? []).map((h) => JSON.stringify([h.endpoint, h.surface])));

  const choose = (item, key, step = 0) => {
    shown.case = item;
    shown.plans = plansOf(item);
    shown.plan =
      shown.plans.find((plan) => plan.key === key) ??
      shown.plans.find((plan) => plan.key === "semantic") ??
      shown.plans[0];
    shown.step = 0;
    drawCase();
    drawPlan();
    go(step, false);
  };
  const go = (step, focus) => {
    const last = Math.max(stepsOf(shown.plan.run).length - 1, 0);
    shown.step = Math.min(Math.max(Number.isInteger(step) ? step : 0, 0), last);
    drawStep(focus);
    if (!shown.listening) return;
    const at = new URLSearchParams({
      case: cases.indexOf(shown.case),
      plan: shown.plan.key,
      step: shown.step,
    });
    history.replaceState(null, "", `#${at}`);
  };

  // Case and plan ------------------------------------------------------------------------------

  const drawCase = () => {
    $("case").value = String(cases.indexOf(shown.case));
    const radio = (plan) => {
      const input = el("input", { type: "radio", name: "plan", value: plan.key });
      input.checked = plan === shown.plan;
      input.addEventListener("change", () => {
        shown.plan = plan;
        drawPlan();
        go(0, false);
      });
      return el(
        "label",
        {},
        input,
        el("span", {}, plan.name),
        el("span", { class: `verdict ${plan.run.verdict}` }, judged(plan.run)),
      );
    };
    fill($("planners"), shown.plans.filter((plan) => !plan.mutant).map(radio));
    fill($("mutants"), shown.plans.filter((plan) => plan.mutant).map(radio));
    $("mutated").hidden = !shown.case.mutants.length;
    fill(
      $("why"),
      shown.case.why.map((sentence) => el("li", {}, sentence)),
    );
  };

  const drawContract = (contract) => {
    const { value, facts = {} } = contract;
    const { type, ...placement } = contract.placement;
    const rows = [
      ["value", `${value.kind} [${value.shape.join(", ")}] ${value.dtype}`],
      ["placement", [type, ...Object.entries(placement).map(([k, v]) => `${k} ${v}`)].join(" ")],
      [
        "demanded",
        contract.consumers
          .filter((c) => c.demanded !== false)
          .map((c) => `${c.id} ← ${c.source}`)
          .join(", ") || "nobody",
      ],
    ];
    for (const [name, fact] of Object.entries(facts)) {
      if (!fact) continue;
      const said = fact.value === undefined ? "" : short(JSON.stringify(fact.value), 300);
      rows.push([
        `${name.replaceAll("_", " ")} (${fact.origin}${fact.by ? `: ${fact.by}` : ""})`,
        said,
      ]);
    }
    fill(
      $("contract"),
      rows.flatMap(([term, text]) => [el("dt", {}, term), text ? el("dd", {}, text) : null]),
    );
  };

  const drawPlan = () => {
    const { run, contract, mutant } = shown.plan;
    drawContract(contract);
    const files = [
      ["contract.json", contract],
      ["plan.json", run.plan],
    ].filter(([, file]) => file);
    const text = files
      .map(([name, file]) => `${name}\n${JSON.stringify(file, null, 1)}`)
      .join("\n\n");
    fill($("files"), mutant ? `${mutant.id}\n${mutant.diff}\n\n${text}` : text);
    const [crossBytes, crosses, localBytes, locals, reductions, ops] = (run.footprint ?? []).map(
      (n) => n.toLocaleString("en"),
    );
    const footprint = `cross ${crossBytes} B in ${crosses}, local ${localBytes} B in ${locals}, ${reductions} reductions, ${ops} ops`;
    fill(
      $("verdict"),
      el(
        "strong",
        { class: run.verdict, id: "shown-verdict" },
        run.verdict === "legal" ? "✓ legal" : "✗ illegal",
      ),
      run.verdict === "legal" ? null : ` for ${rulesOf(run).join(", ")}`,
      mutant ? ` · ${mutant.says}` : null,
      run.footprint ? ` · ${footprint}` : null,
    );
    const labels = stepsOf(run).map((_, i, all) =>
      i === 0
        ? "start"
        : i === all.length - 1
          ? "what the consumers observe"
          : `${i}. ${run.texts[i - 1]}`,
    );
    fill(
      $("steps"),
      labels.map((label, i) => {
        const wrong = stepsOf(run)[i].violations ? "wrong" : "";
        const button = el("button", { type: "button", class: wrong, tabindex: "-1" }, label);
        button.addEventListener("click", () => go(i, true));
        return el("li", {}, button);
      }),
    );
    drawCounterexample(run.counterexample);
  };

  // One step -----------------------------------------------------------------------------------

  const drawStep = (focus) => {
    const { run, contract } = shown.plan;
    const buttons = [...$("steps").querySelectorAll("button")];
    buttons.forEach((button, i) => {
      button.tabIndex = i === shown.step ? 0 : -1;
      if (i === shown.step) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    if (focus) buttons[shown.step]?.focus();
    $("first").disabled = $("back").disabled = shown.step === 0;
    $("last").disabled = $("next").disabled = shown.step >= buttons.length - 1;
    const wrong = buttons.length
      ? (stepsOf(run)[shown.step].violations ?? [])
      : (run.violations ?? []);
    const changed = changedAt(run, shown.step);
    fill(
      $("said"),
      buttons.length
        ? `Step ${shown.step} of ${buttons.length - 1}. Changed: ${names(changed) || "nothing"}. Broken: ${wrong.map((v) => v.rule).join(", ") || "no rule"}.`
        : "The contract is rejected before any plan is looked at.",
    );
    fill(
      $("found"),
      wrong.length
        ? el(
            "ul",
            {},
            wrong.map((v) =>
              el(
                "li",
                {},
                el("strong", {}, v.rule),
                `${v.endpoint ? ` at ${v.endpoint}` : ""}: ${v.message}`,
              ),
            ),
          )
        : null,
    );
    $("holdings").hidden = !buttons.length;
    drawHoldings(contract, holdingsAt(run, shown.step), changed);
    drawPicture(contract, run, shown.step);
  };

  const names = (changed) => [...changed].map((key) => JSON.parse(key).join(" has ")).join(", ");

  const holds = (h, elements) => {
    if (!h.spans) return "whole";
    const spans = h.spans
      .filter(([start, stop]) => start < stop)
      .map(([start, stop]) => `${start}–${stop - 1}`);
    return spans.length ? `elements ${spans.join(", ")} of ${elements}` : "no elements";
  };

  const drawHoldings = (contract, held, changed) => {
    const elements = contract.value.shape.reduce((a, b) => a * b, 1);
    const rows = [];
    const endpoints = [...contract.producers, ...contract.consumers];
    for (const [domain, { stack }] of Object.entries(contract.domains)) {
      const members = endpoints.filter((x) => x.domain === domain);
      if (!members.length) continue;
      rows.push(
        el(
          "tr",
          { class: "group" },
          el("th", { colspan: "6", scope: "rowgroup" }, `${domain} [${stack}]`),
        ),
      );
      for (const x of members) {
        const own = held.filter((h) => h.endpoint === x.id);
        const label = [
          x.id,
          x.source && x.demanded === false ? el("small", {}, " not demanded") : null,
        ];
        if (!own.length)
          rows.push(
            el(
              "tr",
              {},
              el("td", {}, ...label),
              el("td", {}, "–"),
              el("td", { colspan: "4" }, "nothing yet"),
            ),
          );
        own.forEach((h, i) => {
          const fresh = changed.has(JSON.stringify([h.endpoint, h.surface]));
          rows.push(
            el(
              "tr",
              fresh ? { class: "changed" } : {},
              el("td", {}, ...(i === 0 ? label : [])),
              el("td", {}, h.surface, fresh ? el("span", { class: "new" }, " ● new") : null),
              el("td", {}, holds(h, elements)),
              el("td", {}, h.complete === false ? "no, a partial" : "yes"),
              el("td", {}, (h.sources ?? []).join(", ") || "–"),
              el("td", {}, (h.issuers ?? []).join(", ") || "–"),
            ),
          );
        });
      }
    }
    fill($("held").tBodies[0], rows);
  };

  // Counterexample -----------------------------------------------------------------------------

  const KINDS = {
    difference: (s) =>
      `${s.endpoint} ends with other elements of ${s.surface} than the reference gives it:`,
    missing: (s) => `${s.endpoint} ends without ${s.surface ?? "what it asked for"}.`,
    fault: (s) => `Op ${s.op + 1} cannot be carried out: ${s.says}.`,
    condition: (s) =>
      `Run on these values the plan gives what is expected, and breaks a rule all the same. It does not hold that ${s.says}.`,
    rejected: (s) => `The contract is rejected: ${s.says}.`,
  };

  const drawCounterexample = (found) => {
    if (!found) return fill($("counterexample"));
    const { shows } = found;
    const numbers = (label, values, other) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, label),
        values.map((v, i) =>
          el("td", other && other[i] !== v ? { class: "wrong" } : {}, String(v)),
        ),
      );
    const rows = Object.entries(found.tensors).map(([name, values]) => numbers(name, values));
    const tables = [];
    if (rows.length) tables.push(["The producers' values", rows]);
    if (shows.observed)
      tables.push([
        `${shows.surface} at ${shows.endpoint}`,
        [numbers("expected", shows.expected), numbers("observed", shows.observed, shows.expected)],
      ]);
    return fill(
      $("counterexample"),
      el("h3", {}, "Counterexample"),
      el(
        "p",
        {},
        (shows.kind === "rejected" ? "" : `What fails in the SMT model: ${shows.rule}. `) +
          KINDS[shows.kind](shows),
      ),
      tables.flatMap(([title, body]) => [
        el(
          "p",
          { class: "hint" },
          title + (found.elements > 64 ? ` (the first of ${found.elements} elements)` : ""),
        ),
        el(
          "div",
          { class: "wide", tabindex: "0", role: "region", "aria-label": title },
          el("table", {}, el("tbody", {}, body)),
        ),
      ]),
      el(
        "details",
        {},
        el("summary", {}, "The shrunk contract and plan that it runs"),
        el("pre", { tabindex: "0", "aria-label": "Shrunk contract and plan" }, found.drawn),
      ),
    );
  };

  // Picture ------------------------------------------------------------------------------------

  const ROW = 58,
    LEFT = 110,
    RIGHT = 350,
    WIDTH = 460,
    HALF = 42;

  const placed = (contract) => {
    const at = new Map(),
      boxes = [],
      domains = Object.keys(contract.domains);
    let height = 0;
    for (const [x, side] of [
      [LEFT, contract.producers],
      [RIGHT, contract.consumers],
    ]) {
      let y = 20;
      for (const domain of domains) {
        const members = side.filter((one) => one.domain === domain);
        if (!members.length) continue;
        const top = y;
        y += 18;
        for (const one of members) {
          at.set(one.id, { x, y: y + ROW / 2 - 6, one });
          y += ROW;
        }
        boxes.push({
          x,
          top,
          bottom: y - 4,
          label: `${domain} [${contract.domains[domain].stack}]`,
        });
        y += 14;
      }
      height = Math.max(height, y);
    }
    return { at, boxes, height };
  };

  const path = (a, b) => {
    if (a.x !== b.x) {
      const sign = a.x < b.x ? 1 : -1;
      return {
        d: `M${a.x + sign * HALF},${a.y} L${b.x - sign * (HALF + 3)},${b.y}`,
        at: (t) => [a.x + sign * HALF + t * (b.x - a.x - sign * 2 * HALF), a.y + t * (b.y - a.y)],
      };
    }
    const out = a.x === LEFT ? -1 : 1,
      bulge = 34 + 0.1 * Math.abs(b.y - a.y),
      x = a.x + out * HALF;
    return {
      d: `M${x},${a.y} Q${x + out * bulge},${(a.y + b.y) / 2} ${x + out * 3},${b.y}`,
      at: () => [x + (out * bulge) / 2, (a.y + b.y) / 2],
    };
  };

  const linksOf = (op) => {
    switch (op.op) {
      case "send":
        return [[op.src, op.dst]];
      case "broadcast":
        return op.dsts.map((dst) => [op.src, dst]);
      case "all_gather":
        return op.members.slice(1).map((member, i) => [op.members[i], member]);
      case "reduce": {
        const among = [...new Set([...op.sources, ...op.targets])];
        return among.slice(1).map((one, i) => [among[i], one]);
      }
      default:
        return [];
    }
  };

  const drawPicture = (contract, run, step) => {
    const { at, boxes, height } = placed(contract);
    const held = holdingsAt(run, step),
      changed = new Set((stepsOf(run)[step]?.held ?? []).map((h) => h.endpoint));
    const ended = step === stepsOf(run).length - 1;
    const refused = new Set(
      stepsOf(run)
        .slice(0, step + 1)
        .flatMap((s) => s.violations ?? [])
        .map((v) => v.endpoint),
    );
    const drawn = boxes.map(({ x, top, bottom, label }) => [
      svg("rect", { class: "domain", x: x - 104, y: top, width: 208, height: bottom - top, rx: 8 }),
      svg(
        "text",
        {
          class: "small",
          x: x === LEFT ? x - 96 : x + 96,
          y: top + 15,
          "text-anchor": x === LEFT ? "start" : "end",
        },
        short(label, 28),
      ),
    ]);
    (run.plan?.ops ?? []).forEach((op, i) => {
      const when = i + 1 < step ? "past" : i + 1 === step ? "now" : "later",
        local = op.op !== "send";
      const links = linksOf(op).filter(([a, b]) => at.has(a) && at.has(b) && a !== b);
      const parts = [];
      links.forEach(([from, to], j) => {
        const { d, at: along } = path(at.get(from), at.get(to));
        const tips =
          op.op === "all_gather" || op.op === "reduce"
            ? { "marker-start": "url(#tip)", "marker-end": "url(#tip)" }
            : { "marker-end": "url(#tip)" };
        parts.push(svg("path", { class: local ? "op local" : "op", d, ...tips }));
        if (j === 0) parts.push(disc(...along(0.35 + 0.15 * (i % 3)), i + 1));
      });
      if (op.op === "project" && at.has(op.at)) {
        const { x, y } = at.get(op.at);
        parts.push(disc(x + (x === LEFT ? -HALF - 14 : HALF + 14), y, i + 1));
      }
      drawn.push(svg("g", { class: when }, parts));
    });
    for (const [id, { x, y, one }] of at) {
      const own = held.filter((h) => h.endpoint === id && h.surface !== "parameters");
      const idle = one.source && one.demanded === false;
      const state = own
        .map(
          (h) =>
            `${h.surface}${h.spans ? " in part" : ""}${h.complete === false ? " (partial)" : ""}`,
        )
        .join(", ");
      const mark = refused.has(id)
        ? "✗ "
        : ended && run.verdict === "legal" && one.source && !idle
          ? "✓ "
          : "";
      const classes = [
        own.length ? "has" : "",
        idle ? "idle" : "",
        changed.has(id) ? "changed" : "",
        refused.has(id) ? "refused" : "",
      ];
      drawn.push(
        svg(
          "g",
          { class: classes.join(" ") },
          svg("rect", {
            class: "node",
            x: x - HALF,
            y: y - 19,
            width: 2 * HALF,
            height: 38,
            rx: 7,
          }),
          svg("text", { class: "mark", x, y: y - 3, "text-anchor": "middle" }, mark + short(id, 9)),
          svg(
            "text",
            { class: "small", x, y: y + 12, "text-anchor": "middle" },
            short(state || (idle ? "not demanded" : "nothing"), 14),
          ),
          svg("title", {}, `${id}: ${state || "nothing"}`),
        ),
      );
    }
    const tip = svg(
      "marker",
      {
        id: "tip",
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 8,
        markerHeight: 8,
        markerUnits: "userSpaceOnUse",
        orient: "auto-start-reverse",
      },
      svg("path", { class: "tip", d: "M0,0 L8,4 L0,8 z" }),
    );
    fill(
      $("picture"),
      svg(
        "svg",
        {
          viewBox: `0 0 ${WIDTH} ${height}`,
          role: "img",
          "aria-label": `The plan at step ${step}; the table below says the same in words`,
        },
        svg("defs", {}, tip),
        drawn.flat(),
      ),
    );
  };

  const disc = (x, y, number) =>
    svg(
      "g",
      {},
      svg("circle", { class: "disc", cx: x, cy: y, r: 9 }),
      svg("text", { class: "number", x, y: y + 4 }, String(number)),
    );

  // Controls -----------------------------------------------------------------------------------

  const KEYS = {
    ArrowDown: () => shown.step + 1,
    ArrowRight: () => shown.step + 1,
    ArrowUp: () => shown.step - 1,
    ArrowLeft: () => shown.step - 1,
    Home: () => 0,
    End: () => Infinity,
  };

  const listen = () => {
    fill(
      $("case"),
      Object.entries(GROUPS).map(([group, label]) => {
        const members = cases.filter((item) => item.group === group);
        return members.length
          ? el(
              "optgroup",
              { label },
              members.map((item) =>
                el("option", { value: String(cases.indexOf(item)) }, item.name),
              ),
            )
          : null;
      }),
    );
    $("case").addEventListener("change", () =>
      choose(cases[Number($("case").value)], shown.plan.key),
    );
    $("first").addEventListener("click", () => go(0, false));
    $("back").addEventListener("click", () => go(shown.step - 1, false));
    $("next").addEventListener("click", () => go(shown.step + 1, false));
    $("last").addEventListener("click", () => go(Number.MAX_SAFE_INTEGER, false));
    $("steps").addEventListener("keydown", (event) => {
      if (!(event.key in KEYS) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      go(Math.min(KEYS[event.key](), Number.MAX_SAFE_INTEGER), true);
    });
    addEventListener("hashchange", () => fromAddress());
    addEventListener("beforeprint", () =>
      document.querySelectorAll("details:not([open])").forEach((one) => {
        one.open = true;
        one.dataset.printed = "";
      }),
    );
    addEventListener("afterprint", () =>
      document.querySelectorAll("[data-printed]").forEach((one) => {
        one.open = false;
        delete one.dataset.printed;
      }),
    );
  };

  const fromAddress = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const item = asked.has("case") ? cases[Number(asked.get("case"))] : undefined;
    if (!item) return false;
    choose(item, asked.get("plan"), Number(asked.get("step") ?? 0));
    $("explorer").scrollIntoView();
    return true;
  };

  if (!cases.length) return;
  $("app").hidden = false;
  listen();
  if (!fromAddress()) choose(cases.find((one) => one.group === "given") ?? cases[0], "semantic");
  shown.listening = true;
})();
