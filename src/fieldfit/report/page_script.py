"""The script of all pages: tables that sort, charts that say their values.

Written by hand, without a library.  A page is complete without it; with it

- the headings of sortable tables become buttons, which work with the keyboard and say the order by
  ``aria-sort``; a second press turns the order round, and empty cells stay at the end;
- a chart shows its values under the pointer, and for the arrow keys when it has the focus.

Pages name the digest of this text in their content security policy, so that a browser runs it and
nothing else, whatever a label is called.
"""

from __future__ import annotations

import base64
import hashlib

__all__ = ["SCRIPT", "SCRIPT_POLICY"]

SCRIPT = """
"use strict";
(() => {
  /* -- tables -- */
  const key = (row, column) => {
    const cell = row.cells[column];
    const given = cell.dataset.value;
    return given !== undefined ? given : cell.textContent.trim();
  };
  const compare = (a, b, sign) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const x = Number(a), y = Number(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return sign * (x - y);
    return sign * a.localeCompare(b, undefined, { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      if (heading.textContent.trim() === "") return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const body = table.tBodies[0], rows = [...body.rows];
        const before = heading.getAttribute("aria-sort");
        const first = rows.map((row) => key(row, column)).find((value) => value !== "");
        const numbers = first !== undefined && !Number.isNaN(Number(first));
        const falling = before ? before === "ascending" : numbers;
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
        rows.sort((a, b) => compare(key(a, column), key(b, column), falling ? -1 : 1));
        body.append(...rows);
      });
    });
  }

  /* -- charts -- */
  for (const chart of document.querySelectorAll(".chart[data-series]")) {
    const series = JSON.parse(chart.dataset.series);
    const svg = chart.querySelector("svg"), box = svg.viewBox.baseVal;
    const places = [...new Set(series.flatMap((line) => line.points.map((point) => point[0])))];
    places.sort((a, b) => a - b);
    const cursor = document.createElementNS(svg.namespaceURI, "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", chart.dataset.top);
    cursor.setAttribute("y2", chart.dataset.bottom);
    const label = document.createElement("div");
    label.className = "value";
    label.setAttribute("role", "status");
    label.hidden = true;
    chart.append(label);
    let current = -1;

    const hide = () => { label.hidden = true; cursor.remove(); current = -1; };
    const show = (index) => {
      if (index === current) return;
      current = index;
      const x = places[index], rows = [];
      for (const line of series) {
        const point = line.points.find((candidate) => candidate[0] === x);
        if (!point) continue;
        if (!rows.length) {
          const head = document.createElement("b");
          head.textContent = chart.dataset.x + " " + point[2];
          rows.push(head);
        }
        const row = document.createElement("div"), mark = document.createElement("i");
        mark.style.background = line.color;
        row.append(mark, line.name + " " + point[3]);
        rows.push(row);
      }
      label.replaceChildren(...rows);
      label.hidden = false;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      svg.append(cursor);
      const frame = svg.getBoundingClientRect(), outer = chart.getBoundingClientRect();
      const middle = frame.left - outer.left + (x / box.width) * frame.width;
      const right = middle + 14, left = middle - 14 - label.offsetWidth;
      const fits = right + label.offsetWidth <= outer.width;
      label.style.left = Math.max(0, fits ? right : left) + "px";
      label.style.top = frame.top - outer.top + 8 + "px";
    };
    const nearest = (event) => {
      const frame = svg.getBoundingClientRect();
      const x = ((event.clientX - frame.left) / frame.width) * box.width;
      let best = 0;
      places.forEach((place, index) => {
        if (Math.abs(place - x) < Math.abs(places[best] - x)) best = index;
      });
      show(best);
    };
    if (!places.length) continue;
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("focus", () => { if (current < 0) show(places.length - 1); });
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const last = places.length - 1, stride = event.shiftKey ? 10 : 1;
      const to = { ArrowLeft: current - stride, ArrowRight: current + stride, Home: 0, End: last };
      if (event.key === "Escape") hide();
      if (!(event.key in to)) return;
      event.preventDefault();
      show(Math.min(last, Math.max(0, to[event.key])));
    });
  }
})();
"""

#: What a content security policy calls the script.
SCRIPT_POLICY = f"'sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
