"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const chosen = { dataset: data.datasets[0], noise: data.noises[0].id, k: 1, measure: "val_clean_top1" };

  // ---- tables -------------------------------------------------------------------------------------------------------

  const element = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // columns: {name, first: the order of the first click, css}; rows: cells {value, text, std, best}, value null if empty
  function fillTable(table, columns, rows, sorted) {
    let { column, order } = sorted;
    const heads = columns.map(({ name, css }, index) => {
      const button = element("button", { type: "button", textContent: name });
      button.addEventListener("click", () => {
        const opposite = { ascending: "descending", descending: "ascending" };
        order = column === index ? opposite[order] : columns[index].first;
        column = index;
        show();
      });
      return element("th", { scope: "col", className: css || "" }, button);
    });
    const body = element("tbody");

    function show() {
      heads.forEach((head, index) => head.setAttribute("aria-sort", index === column ? order : "none"));
      const sign = order === "ascending" ? 1 : -1;
      const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
      const key = (row) => row[column].value;
      const ordered = [...rows].sort((a, b) => {
        if (key(a) === null || key(b) === null) return (key(a) === null) - (key(b) === null); // empty ones are last
        return sign * compare(key(a), key(b));
      });
      body.replaceChildren(...ordered.map((row) => element("tr", {}, ...row.map(tableCell))));
    }

    const tableCell = ({ value, text, std, best }, index) => {
      const cell = element("td", { className: columns[index].css || "" });
      if (value === null) return cell;
      cell.append(best ? element("b", { textContent: text }) : text);
      if (std !== undefined) cell.append(" ", element("small", { textContent: `(${std})` }));
      return cell;
    };
    show();
    table.replaceChildren(element("thead", {}, element("tr", {}, ...heads)), body);
  }

  const number = (mean, std, best) => {
    if (mean === null || mean === undefined) return { value: null };
    return { value: mean, text: mean.toFixed(2), std: std?.toFixed(2), best: mean.toFixed(2) === best };
  };
  const bestOf = (values, pick) => {
    const present = values.filter((value) => value !== null && value !== undefined);
    return present.length ? pick(...present).toFixed(2) : undefined;
  };
  const text = (value) => ({ value, text: value });

  function showLeaderboard() {
    if (!data.leaderboard) return byId("ranks").parentElement.remove();
    const { columns, rows } = data.leaderboard;
    const ours = columns.map((_, i) => bestOf(rows.map((row) => row.ours[i][0]), Math.min));
    const paper = data.paper_columns.map((_, i) => bestOf(rows.map((row) => row.paper && row.paper[i][0]), Math.min));
    fillTable(
      byId("ranks"),
      [
        { name: "loss", first: "ascending" },
        ...columns.map((name) => ({ name, first: "ascending" })),
        ...data.paper_columns.map((name, i) => ({
          name: `paper\n${name}`, first: "ascending", css: i ? "" : "first-of-paper",
        })),
      ],
      rows.map((row) => [
        text(row.loss),
        ...row.ours.map(([mean, std], i) => number(mean, std, ours[i])),
        ...data.paper_columns.map((_, i) => (row.paper ? number(...row.paper[i], paper[i]) : { value: null })),
      ]),
      { column: columns.length, order: "ascending" },
    );
  }

  const results = (dataset, noise) => (data.accuracy[dataset] || {})[noise] || {};

  function showAccuracy() {
    const found = results(chosen.dataset, chosen.noise);
    const losses = data.losses.filter((loss) => loss in found);
    const best = data.ks.map((_, i) => bestOf(losses.map((loss) => found[loss][0][i]), Math.max));
    byId("accuracy-title").textContent = `Test accuracy: ${chosen.dataset}, ${noiseOf(chosen.noise).label}`;
    fillTable(
      byId("accuracy"),
      [
        { name: "loss", first: "ascending" },
        ...data.ks.map((k) => ({ name: `top-${k}`, first: "descending", css: k === chosen.k ? "chosen" : "" })),
      ],
      losses.map((loss) => [
        text(loss), ...data.ks.map((_, i) => number(found[loss][0][i], found[loss][1][i], best[i])),
      ]),
      { column: 1 + data.ks.indexOf(chosen.k), order: "descending" },
    );
  }

  // ---- plots --------------------------------------------------------------------------------------------------------

  const noiseOf = (id) => data.noises.find((noise) => noise.id === id);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const lineColours = () => data.lines[dark.matches ? "dark" : "light"];

  const axis = (title, more = {}) => ({
    title: { text: title, standoff: 8, font: { size: 13 } }, gridcolor: colour("--grid"), linecolor: colour("--line"), zeroline: false,
    automargin: true, ...more,
  });

  function draw(id, traces, layout, reasonIfEmpty) {
    const box = byId(id);
    box.classList.toggle("empty", !traces.length);
    if (!traces.length) {
      Plotly.purge(box);
      box.textContent = reasonIfEmpty;
      return;
    }
    if (!box.data) box.textContent = "";
    Plotly.react(
      box,
      traces,
      {
        height: 420,
        margin: { l: 48, r: 12, t: 34, b: 44 }, // the buttons are at the top
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: colour("--text"), family: "system-ui, sans-serif", size: 13 },
        hoverlabel: { bgcolor: colour("--soft"), bordercolor: colour("--line"), font: { color: colour("--text") } },
        legend: { orientation: "h", x: 0, y: -0.2, yanchor: "top" },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--muted"), activecolor: colour("--text") },
        hovermode: "closest",
        dragmode: touch.matches ? false : "zoom", // a finger on a plot scrolls the page; the buttons zoom
        ...layout,
      },
      {
        responsive: true,
        displaylogo: false,
        displayModeBar: touch.matches ? true : "hover",
        modeBarButtons: [["toImage", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
      },
    );
  }

  // One line per loss: those that stand out in colour and in the legend, the others thin, grey and one legend entry.
  function lossLines(losses, points) {
    const drawn = losses.map((loss) => [loss, points(loss)]).filter(([, line]) => line);
    const others = drawn.map(([loss]) => loss).filter((loss) => !data.highlighted.includes(loss));
    const traces = drawn.map(([loss, line]) => {
      const place = data.highlighted.indexOf(loss);
      const grey = place < 0;
      return {
        type: "scatter", mode: "lines", ...line,
        name: grey && others.length > 1 ? "the others" : loss,
        meta: loss,
        legendgroup: grey ? "others" : loss,
        legendrank: grey ? 2000 : 1000 + place,
        showlegend: !line.xaxis && (!grey || loss === others[0]),
        line: { color: grey ? colour("--others") : lineColours()[place], width: grey ? 1 : 2.25 },
        marker: { size: grey ? 3 : 6 },
        hovertemplate: `${loss}: %{y:.4~g} at %{x}<extra></extra>`,
      };
    });
    const isGrey = (trace) => trace.legendgroup === "others";
    return [...traces.filter(isGrey), ...traces.filter((trace) => !isGrey(trace))]; // grey ones at the back
  }

  function drawRates() {
    const present = data.noises.filter(({ id }) => Object.keys(results(chosen.dataset, id)).length);
    const kinds = [...new Set(present.filter((noise) => noise.has_rate).map(({ kind }) => kind))];
    const i = data.ks.indexOf(chosen.k);
    const traces = [];
    const layout = { yaxis: axis(`test top-${chosen.k}, %`) };
    const width = 1 / Math.max(kinds.length, 1);
    kinds.forEach((kind, panel) => {
      const shown = present.filter((noise) => noise.kind === kind || noise.kind === "clean");
      const line = (loss) => {
        const points = shown
          .map(({ id, rate }) => [rate, (results(chosen.dataset, id)[loss] || [[]])[0][i]])
          .filter(([, value]) => value !== null && value !== undefined);
        if (!points.length) return null;
        const xy = { x: points.map(([rate]) => rate), y: points.map(([, value]) => value), mode: "lines+markers" };
        return { ...xy, ...(panel ? { xaxis: `x${panel + 1}` } : {}) };
      };
      traces.push(...lossLines(data.losses, line));
      const domain = [panel * width + (panel ? 0.02 : 0), (panel + 1) * width - (panel < kinds.length - 1 ? 0.02 : 0)];
      const label = shown.find((noise) => noise.kind === kind).kind_label;
      layout[panel ? `xaxis${panel + 1}` : "xaxis"] = axis(`rate, ${label}`, { domain, rangemode: "tozero" });
    });
    draw("rates", traces, layout, "There are no results with a noise rate.");
  }

  const curvesOf = () => (data.curves[chosen.dataset] || {})[chosen.noise] || {};
  const curve = (values, scale = 1) =>
    values && { x0: data.first_epoch, dx: 1, y: values.map((value) => (value === null ? null : scale * value)) };

  function drawConvergence() {
    const curves = curvesOf();
    const percent = chosen.measure === "train_loss" ? 1 : 100;
    const traces = lossLines(data.losses, (loss) => curve((curves[loss] || {})[chosen.measure], percent));
    const layout = { xaxis: axis("epoch"), yaxis: axis(percent === 100 ? "validation top-1, %" : "training loss") };
    draw("convergence", traces, layout, "There are no traces of this setting.");
  }

  function drawLambda() {
    const curves = curvesOf();
    const withLambda = data.losses.filter((loss) => (curves[loss] || {}).lam_clean);
    const traces = withLambda.flatMap((loss, index) =>
      [["lam_clean", "right label", "solid"], ["lam_flipped", "wrong label", "dash"]]
        .filter(([column]) => curves[loss][column])
        .map(([column, name, dash]) => ({
          type: "scatter", mode: "lines", ...curve(curves[loss][column]), name: `${loss}, ${name}`,
          line: { color: lineColours()[index % lineColours().length], dash, width: 2.25 },
          hovertemplate: `${name}: %{y:.4~g} at %{x}<extra>${loss}</extra>`,
        })),
    );
    const layout = { xaxis: axis("epoch"), yaxis: axis("λ / λ0") };
    draw("lambda", traces, layout, "No loss in this setting has a λ per sample.");
  }

  function drawSeconds() {
    const seconds = data.seconds[chosen.dataset] || {};
    const unit = seconds.ce;
    const losses = Object.keys(seconds).sort((a, b) => seconds[b] - seconds[a]);
    byId("cost-text").textContent =
      "Seconds per epoch of one network, the mean over those of the chosen configurations" +
      (unit ? `, with those of cross entropy as 1 (${Number(unit.toPrecision(3))} s)` : "") +
      ". Networks are trained many at once and each counts its share of the time, so a loss with less to tune, whose stacks are smaller, seems slower, and so do all where several processes share a device.";
    const colours = losses.map((loss) => lineColours()[data.highlighted.indexOf(loss)] || colour("--others"));
    const traces = losses.length
      ? [{
          type: "bar", orientation: "h", y: losses, x: losses.map((loss) => seconds[loss] / (unit || 1)),
          marker: { color: colours }, hovertemplate: "%{y}: %{x:.3f}<extra></extra>",
        }]
      : [];
    const title = unit ? "seconds per epoch, ce = 1" : "seconds per epoch";
    const layout = {
      height: 90 + 21 * losses.length, bargap: 0.35, xaxis: axis(title), yaxis: axis("", { type: "category", dtick: 1 }),
    };
    draw("seconds", traces, layout, "There are no times.");
  }

  // ---- choices ------------------------------------------------------------------------------------------------------

  function show() {
    showAccuracy();
    drawPlots();
  }

  function drawPlots() {
    drawRates();
    drawConvergence();
    drawLambda();
    drawSeconds();
  }

  function offer(name, options) {
    const select = byId("choices").elements[name];
    select.replaceChildren(...options.map(([value, label]) => new Option(label, value)));
    select.addEventListener("change", () => {
      chosen[name] = name === "k" ? Number(select.value) : select.value;
      show();
    });
  }

  offer("dataset", data.datasets.map((name) => [name, name]));
  offer("noise", data.noises.map(({ id, label }) => [id, label]));
  offer("k", data.ks.map((k) => [k, k]));
  byId("measures").measure.addEventListener("change", (event) => {
    chosen.measure = event.target.value;
    drawConvergence();
  });
  dark.addEventListener("change", drawPlots);
  showLeaderboard();
  show();
})();
