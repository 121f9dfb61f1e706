"""The style sheet of all pages: light and dark, wide and narrow."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5a6472; --line: #d7dce2;
  --card: #ffffff; --page: #f5f6f8; --code: #f0f2f5; --link: #1b5e94;
  --good: #1d6b3c; --bad: #a63a24; --positive: 27 108 168; --negative: 200 85 61;
  --s0: #1b6ca8; --s1: #c8553d; --s2: #2e8555; --s3: #8a5fb0; --s4: #b07d12; --s5: #56707f;
  --s6: #b5487d; --s7: #4b7f8c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #333b46;
  --card: #1b2027; --page: #12161b; --code: #242b34; --link: #7cbcf0;
  --good: #6fce96; --bad: #f09a82; --positive: 74 160 222; --negative: 226 119 94;
  --s0: #58aee8; --s1: #ea8368; --s2: #63c08c; --s3: #b794dc; --s4: #dcae4e; --s5: #9bb4c2;
  --s6: #e084b4; --s7: #82bcca; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.02em;
  overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; letter-spacing: -.01em; }
h3 { font-size: .95rem; margin: 0 0 .5rem; }
p { margin: .6rem 0 .9rem; max-width: 52rem; overflow-wrap: break-word; }
a { color: var(--link); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 4px; }
.soft { color: var(--soft); }
.wide { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }
.card { min-width: 0; padding: 16px; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
.card + .card, .wide + .card, .card + .wide, .wide + .wide { margin-top: 16px; }
.wide > .card + .card { margin-top: 0; }
.card > p:last-child { margin-bottom: 0; }
.card > p.soft { font-size: .85rem; line-height: 1.45; }
.strip { display: grid; grid-template-columns: 190px minmax(0, 1fr); gap: 4px 20px;
  align-items: center; padding: 12px 0; border-bottom: 1px solid var(--line); }
.strip:first-child { padding-top: 0; }
.strip:last-child { padding-bottom: 0; border-bottom: 0; }
.strip > p { margin: 0; font-size: .85rem; line-height: 1.4; color: var(--soft); }
.strip b { display: block; color: var(--ink); font-size: .95rem; }
.tiles { display: grid; grid-template-columns: repeat(10, 1fr); gap: 6px; }
.tiles + .tiles { margin-top: 6px; }
.tiles img { width: 100%; display: block; border-radius: 3px; image-rendering: pixelated; }
.panels { display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fit, minmax(min(140px, 45%), 190px)); }
.panels figure { margin: 0; min-width: 0; }
.panels img { width: 100%; display: block; border-radius: 4px; image-rendering: pixelated;
  border: 1px solid var(--line); }
figcaption { margin-top: 4px; font-size: .85rem; color: var(--soft); }
.scroll { overflow-x: auto; position: relative; }
table { border-collapse: collapse; width: 100%; font-size: .95rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 7px 10px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
tbody tr:last-child > * { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; font-size: .85rem; white-space: normal;
  vertical-align: bottom; }
tbody th { font-size: .95rem; color: var(--ink); font-weight: 400; white-space: nowrap; }
td.words, th.words { text-align: left; white-space: normal; min-width: 12rem;
  overflow-wrap: anywhere; }
.tall { max-height: 26rem; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--card); z-index: 1;
  box-shadow: inset 0 -1px var(--line); }
th button { all: unset; cursor: pointer; color: inherit; font: inherit; position: relative; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px;
  border-radius: 4px; }
th button::after { content: "\\2195"; position: absolute; left: calc(100% + 1px); bottom: 0;
  font-size: .9em; opacity: .55; font-weight: 400; }
th[aria-sort="ascending"] button::after { content: "\\2191"; opacity: 1; }
th[aria-sort="descending"] button::after { content: "\\2193"; opacity: 1; }
table.narrow { max-width: 38rem; }
td.bar { min-width: 7rem; }
td.bar i { display: inline-block; height: .6em; border-radius: 2px; vertical-align: baseline; }
.facts { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr);
  gap: 6px 20px; margin: 0; }
.facts dt { color: var(--soft); overflow-wrap: anywhere; }
.facts dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.tally { display: flex; flex-wrap: wrap; gap: 16px; margin: 16px 0 0; }
.tally > div { flex: 1 1 auto; min-width: min(120px, 40%); max-width: 100%;
  padding: 12px 16px; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; min-width: 0; }
.tally dt { font-size: .85rem; color: var(--soft); line-height: 1.3; }
.tally dd { margin: 2px 0 0; font-size: 1.25rem; letter-spacing: -.01em; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.status { border-left: 4px solid var(--good); margin-top: 16px; }
.status.open { border-left-color: var(--bad); }
.status b { color: var(--good); }
.status.open b { color: var(--bad); }
.status p { margin: 0; }
.contents { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 18px 0 0; padding: 0;
  list-style: none; font-size: .9rem; }
.contents a { display: inline-block; padding: 3px 0; }
.heat { width: auto; border-collapse: separate; border-spacing: 2px; font-size: .85rem; }
.heat th, .heat td { border: 0; padding: 4px 7px; text-align: center; white-space: nowrap; }
.heat th { font-size: .8rem; color: var(--soft); font-weight: 400; vertical-align: bottom; }
.heat tbody th { text-align: right; position: sticky; left: 0; background: var(--card); }
.heat td { border-radius: 3px; min-width: 2.2em; background: var(--code); }
.heat td.none { background: none; color: var(--soft); }
.heat td.marked { box-shadow: inset 0 0 0 2px var(--ink); }
.heat.dense td { min-width: 10px; height: 14px; padding: 0; }
.heat.dense thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left;
  padding: 2px 0; }
.heat.dense tbody th { padding: 0 6px 0 0; }
.map img { width: 100%; max-width: 30rem; display: block; image-rendering: pixelated;
  border: 1px solid var(--line); }
.scale { display: flex; align-items: center; gap: 8px; margin: 10px 0 0; font-size: .8rem;
  color: var(--soft); font-variant-numeric: tabular-nums; }
.scale i { display: inline-block; width: 110px; height: 8px; border-radius: 4px; }
.chart { position: relative; margin: 0; max-width: 620px; }
.chart .value { position: absolute; top: 0; left: 0; z-index: 2; pointer-events: none;
  max-width: 100%; padding: 6px 10px; background: var(--card); border: 1px solid var(--soft);
  border-radius: 6px; font-size: .8rem; line-height: 1.45; font-variant-numeric: tabular-nums;
  box-shadow: 0 2px 10px rgb(0 0 0 / .18); }
.chart .value[hidden] { display: none; }
.chart .value b { display: block; }
.chart .value i { display: inline-block; width: 9px; height: 9px; border-radius: 2px;
  margin-right: 6px; }
.chart .cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); }
.axis { stroke: var(--soft); }
.diagonal { stroke: var(--soft); stroke-dasharray: 4 4; }
.network { max-width: 42rem; margin: 0 auto; }
.network text { font-size: 11px; fill: var(--ink); text-anchor: middle;
  paint-order: stroke; stroke: var(--card); stroke-width: 3px; stroke-linejoin: round; }
.network circle { fill: var(--card); stroke: var(--soft); stroke-width: 1.5; }
.network circle.wrong { stroke: var(--ink); stroke-width: 3; stroke-dasharray: 5 3; }
.network line { stroke: rgb(var(--positive)); stroke-linecap: round; }
.network line.minus { stroke: rgb(var(--negative)); stroke-dasharray: 5 4; }
.network line.plain { stroke: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 0 0 6px; padding: 0;
  list-style: none; font-size: .85rem; color: var(--soft); }
.legend i { display: inline-block; width: 18px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; }
.legend i.box { width: 12px; height: 12px; }
.tokens { line-height: 2.5; margin: 0; max-width: none; }
.token { display: inline-block; line-height: 1.25; padding: 2px 6px 3px; margin: 0 1px;
  border-radius: 5px; vertical-align: middle; text-align: center; }
.token small { display: block; font-size: .68rem; font-variant-numeric: tabular-nums; }
.token.wrong { box-shadow: inset 0 -3px var(--bad); }
.token del { text-decoration-color: var(--bad); }
.example { padding: 12px 0; border-bottom: 1px solid var(--line); }
.example:first-child { padding-top: 0; }
.example:last-child { border-bottom: 0; padding-bottom: 0; }
pre, code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; font-size: .92em; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; overflow-x: auto; font-size: .85rem; line-height: 1.5; }
pre.shell { white-space: pre-wrap; overflow-wrap: anywhere; }
.card > pre { margin: .6rem 0 0; }
.chip { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--soft); }
@media (max-width: 720px) { .strip { grid-template-columns: minmax(0, 1fr); }
  .tiles { gap: 3px; } .tiles + .tiles { margin-top: 3px; } main { padding: 24px 14px 48px; }
  h1 { font-size: 1.5rem; } .card { padding: 14px 12px; } .tally { gap: 10px; }
  .facts { grid-template-columns: minmax(0, 11fr) minmax(0, 12fr); gap: 6px 12px; }
  .chart svg text { font-size: 17px; } .chart .y-name { display: none; }
  .network text { font-size: 17px; } .tally dd { font-size: 1.1rem; }
  th, td { padding: 7px 6px; } td.bar { min-width: 6rem; }
  td:first-child { white-space: normal; overflow-wrap: break-word; min-width: 7.5rem;
  max-width: 12rem; }
  td.words { min-width: 9rem; } }
@media print { body { background: none; } .card { break-inside: avoid; } .tall { max-height: none; }
  th button::after { content: ""; } }
"""
