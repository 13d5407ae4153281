"""Style sheet and script of the page: for screens of any width, light and dark, with and without a mouse."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --paper: #f6f6f4; --card: #fff; --ink: #1d1d1b; --soft: #5d5d58; --line: #e0e0da;
  --grid: #e8e8e3; --accent: #c22f1e; --weights: #0072b2; --values: #b36b00; --cached: #c9c9c1; --c0: #0072b2;
  --c1: #b36b00; --c2: #007d5a; --c3: #a5487f; --c4: #6a5fc8; --bound: #55554f; --faint: #a8a8a0; }
@media (prefers-color-scheme: dark) { :root { --paper: #161615; --card: #1f1f1e; --ink: #ececea; --soft: #a9a9a3;
  --line: #373735; --grid: #2e2e2c; --accent: #ff7a66; --weights: #56b4e9; --values: #e6a23c; --cached: #4d4d4a;
  --c0: #56b4e9; --c1: #e6a23c; --c2: #3fc59a; --c3: #d98bb9; --c4: #a79df5; --bound: #b5b5ae; --faint: #77776f; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 64px; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 56px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0 0 4px; } h3 { font-size: 15px; margin: 20px 0 4px; }
p { margin: 0 0 12px; max-width: 72ch; } a { color: var(--weights); } code { font-size: 13px; overflow-wrap: anywhere; }
.whole { white-space: nowrap; }
.note, figcaption, footer, dt, caption { color: var(--soft); font-size: 13.5px; }
caption { text-align: left; padding-bottom: 4px; }
.lead { font-size: 17px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 20px 22px;
  margin-top: 18px; }
.bar { position: sticky; top: 0; z-index: 1; background: var(--paper); border-bottom: 1px solid var(--line); }
.bar > div { max-width: 1080px; margin: 0 auto; padding: 8px 20px; display: flex; flex-wrap: wrap; gap: 2px 16px;
  align-items: center; }
nav { display: flex; gap: 16px; overflow-x: auto; white-space: nowrap; flex: 1 1 auto; min-width: 0; }
nav a { text-decoration: none; padding: 4px 0; }
fieldset { border: 0; margin: 0; padding: 0; display: flex; gap: 12px; align-items: center; }
legend { float: left; padding: 0 12px 0 0; color: var(--soft); }
label { display: inline-flex; gap: 6px; align-items: center; min-height: 32px; }
body:has(#batch-1:checked) .of-64, body:has(#batch-64:checked) .of-1 { display: none; }
:focus-visible { outline: 3px solid var(--weights); outline-offset: 2px; border-radius: 3px; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 16px 0 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
dd { margin: 0; font-variant-numeric: tabular-nums; } dd b { font-size: 24px; font-weight: 650; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid var(--line); white-space: nowrap;
  vertical-align: top; font-weight: 400; }
thead th { font-weight: 600; font-size: 13px; color: var(--soft); } .word, .text { text-align: left; }
.text { white-space: normal; min-width: 22ch; } th.word { overflow-wrap: anywhere; }
tr.best th, tr.best td { font-weight: 650; } tr.bound th, tr.bound td { color: var(--soft); }
.times { list-style: none; margin: 12px 0 0; padding: 0; }
.times li { display: grid; grid-template-columns: minmax(120px, 30%) 1fr 16ch; gap: 2px 12px; padding: 5px 0;
  align-items: center; border-bottom: 1px solid var(--line); }
.times .layer { overflow-wrap: anywhere; line-height: 1.3; } .times .layer small { color: var(--soft); display: block; }
.times .figures { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.track { position: relative; height: 16px; display: flex; }
.track i { display: block; height: 100%; } .track .time { background: var(--weights); }
.track .clock { position: absolute; top: -3px; width: 3px; height: 22px; background: var(--accent); }
.weights { background: var(--weights); } .values { background: var(--values); } .cached { background: var(--cached); }
.key { display: inline-flex; align-items: center; gap: 6px; margin-right: 16px; font-size: 13.5px; }
.key i { width: 14px; height: 14px; display: inline-block; border-radius: 2px; } .key .clock { width: 3px;
  background: var(--accent); } .key .time { background: var(--weights); }
.slider { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; margin: 8px 0; }
.slider input { flex: 1 1 220px; min-width: 160px; height: 32px; accent-color: var(--accent); }
.levels { list-style: none; margin: 10px 0 0; padding: 0; }
.levels button { all: unset; box-sizing: border-box; width: 100%; cursor: pointer; padding: 6px 8px; display: grid;
  grid-template-columns: minmax(110px, 26%) 1fr 20ch; gap: 2px 12px; align-items: center;
  border-left: 4px solid transparent; }
.levels button:focus-visible { outline: 3px solid var(--weights); }
.levels button[aria-pressed=true] { border-left-color: var(--accent); background: var(--paper); }
.levels small { color: var(--soft); display: block; } .levels .figures { text-align: right; font-variant-numeric:
  tabular-nums; }
.panel[hidden] { display: none; }
svg { width: 100%; height: auto; display: block; font: 13px system-ui, sans-serif; }
svg.narrow { display: none; }
.grid { stroke: var(--grid); } .tick, .axis { fill: var(--soft); } .mark { stroke: var(--faint);
  stroke-dasharray: 2 3; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .roof { fill: none; stroke: var(--faint);
  stroke-width: 1.4; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .best { stroke: var(--accent); stroke-width: 2.6; }
.bound { stroke: var(--bound); stroke-dasharray: 6 4; stroke-width: 1.4; }
.dotted { stroke: var(--bound); stroke-dasharray: 1.5 4; stroke-width: 1.6; stroke-linecap: round; }
.certified { stroke: var(--ink); stroke-width: 1.4; } .faint { stroke: var(--faint); stroke-width: 1.2; }
.name { fill: var(--ink); paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.dot { fill: var(--weights); fill-opacity: .75; stroke: var(--card); }
.model { max-height: 70vh; overflow: auto; } .model svg { width: auto; max-width: none; }
.edge { fill: none; stroke: var(--faint); } .model rect { fill: var(--card); stroke: var(--faint); }
.model text { fill: var(--ink); } .taken rect { stroke: var(--weights); stroke-width: 2.5; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 24px; } figure { margin: 0; }
.pair img { width: 100%; max-width: 440px; aspect-ratio: 1; border: 1px solid var(--line); image-rendering: pixelated; }
@media (prefers-color-scheme: dark) { .pair img { filter: invert(.88); } }
details { margin-top: 10px; } summary { cursor: pointer; min-height: 32px; }
footer { margin-top: 24px; }
@media (max-width: 700px) { main { padding: 16px 12px 40px; } section { padding: 16px 14px; }
  .bar > div { padding: 4px 12px; } .pair { grid-template-columns: 1fr; }
  .times li, .levels button { grid-template-columns: 1fr auto; } .times .track, .levels .track { grid-row: 2;
  grid-column: 1 / -1; } th.word { white-space: normal; min-width: 12ch; }
  .stack thead { display: none; } .stack tr, .stack th, .stack td { display: block; text-align: left; border: 0; }
  .stack tr { border-bottom: 1px solid var(--line); padding: 6px 0; } .stack th { font-weight: 650; }
  .stack td::before { content: attr(data-label) ": "; color: var(--soft); }
  svg.wide { display: none; } svg.narrow { display: block; } html { scroll-padding-top: 88px; } }
@media print { .bar { position: static; } section { break-inside: avoid; } .panel[hidden] { display: block; } }
"""

SCRIPT: Final = """
const slider = document.getElementById('level');
if (slider) {
  const panels = [...document.querySelectorAll('.panel')], buttons = [...document.querySelectorAll('.levels button')];
  const named = document.getElementById('level-name');
  const show = place => {
    panels.forEach((panel, at) => { panel.hidden = at !== place; });
    buttons.forEach(button => button.setAttribute('aria-pressed', String(Number(button.dataset.level) === place)));
    slider.value = place;
    const name = panels[place].dataset.name;
    named.textContent = name;
    slider.setAttribute('aria-valuetext', name);
  };
  slider.addEventListener('input', () => show(Number(slider.value)));
  buttons.forEach(button => button.addEventListener('click', () => show(Number(button.dataset.level))));
  show(panels.length - 1);
}
"""
"""Shows the level that the slider is at; without it all levels are shown."""
