/// The style and script that all pages share.
enum PageAssets {
  static let style: StaticString = #"""
    :root {
      color-scheme: light dark;
      --page: #f6f7f9; --panel: #ffffff; --raised: #eef1f4; --line: #d5dbe1; --text: #1a1f26; --soft: #545d68;
      --accent: #0a5bc4; --good: #18733a; --warn: #7d5200; --bad: #b3202c;
      --good-tint: #e3f4e8; --warn-tint: #fcf1d9; --bad-tint: #fdeaeb; --accent-tint: #e4eefb; --soft-tint: #e9ecef;
      --check-a: #ffffff; --check-b: #d9dde2; --shadow: 0 1px 2px rgb(20 30 45 / .08), 0 2px 8px rgb(20 30 45 / .05);
      --mono: ui-monospace, "SFMono-Regular", "Cascadia Code", "Liberation Mono", Menlo, Consolas, monospace;
    }
    @media (prefers-color-scheme: dark) {
      :root {
        --page: #0e1116; --panel: #161b22; --raised: #1f262f; --line: #303843; --text: #e7ebf0; --soft: #a0aab7;
        --accent: #74b3ff; --good: #56cf7b; --warn: #e5b04a; --bad: #ff8a8f;
        --good-tint: #132b1c; --warn-tint: #2f2510; --bad-tint: #3a171b; --accent-tint: #14273f; --soft-tint: #232a33;
        --check-a: #5a626c; --check-b: #434a53; --shadow: 0 1px 2px rgb(0 0 0 / .4);
      }
    }
    *, *::before, *::after { box-sizing: border-box; }
    html { -webkit-text-size-adjust: 100%; }
    body {
      margin: 0; background: var(--page); color: var(--text);
      font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
    }
    .wrap { max-width: 1280px; margin: 0 auto; padding: 0 24px; }
    header.wrap, main.wrap { padding-top: 20px; }
    main.wrap { padding-bottom: 48px; }
    h1 { font-size: 26px; line-height: 1.25; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere; }
    h2 { font-size: 18px; line-height: 1.3; margin: 0 0 12px; }
    h3 { font-size: 15px; margin: 0 0 6px; }
    p { margin: 0 0 8px; }
    a { color: var(--accent); text-underline-offset: 2px; }
    code, .mono { font-family: var(--mono); font-size: .9em; overflow-wrap: anywhere; }
    .soft { color: var(--soft); }
    .panel {
      background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
      box-shadow: var(--shadow);
    }
    :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
    button, input, select {
      font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: 7px;
      padding: 6px 10px; min-height: 34px;
    }
    input::placeholder { color: var(--soft); opacity: 1; }
    button { cursor: pointer; }
    button:hover { background: var(--raised); }
    button[aria-pressed="true"] { background: var(--accent-tint); border-color: var(--accent); color: var(--accent); }
    table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
    th, td { text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
    th { font-weight: 600; color: var(--soft); font-size: 13px; }
    tbody tr:last-child > * { border-bottom: 0; }
    td.n, th.n { text-align: right; white-space: nowrap; }
    .scroll { overflow-x: auto; }
    .pill {
      display: inline-block; border-radius: 99px; padding: 1px 10px; font-size: 13px; font-weight: 600;
      background: var(--soft-tint); color: var(--soft); white-space: nowrap;
    }
    .pill.good { background: var(--good-tint); color: var(--good); }
    .pill.warn { background: var(--warn-tint); color: var(--warn); }
    .pill.bad { background: var(--bad-tint); color: var(--bad); }
    .pill.accent { background: var(--accent-tint); color: var(--accent); }
    .skip { position: absolute; left: -9999px; top: 8px; background: var(--panel); padding: 8px 14px; z-index: 20; }
    .skip:focus { left: 8px; }
    .unseen {
      position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
    }
    kbd {
      font-family: var(--mono); font-size: 12px; border: 1px solid var(--line); border-bottom-width: 2px;
      border-radius: 4px; padding: 0 5px; background: var(--raised);
    }

    .pair {
      --at: 50%; position: relative; overflow: hidden; border-radius: 8px; touch-action: pan-y; user-select: none;
      background: var(--raised);
    }
    .pair[data-background="checker"], .tile[data-background="checker"], img.checker {
      background: repeating-conic-gradient(var(--check-b) 0 25%, var(--check-a) 0 50%) 0 0 / 20px 20px;
    }
    .pair[data-background="white"] { background: #ffffff; }
    .pair[data-background="grey"] { background: #808080; }
    .pair[data-background="black"] { background: #000000; }
    .pair img { display: block; width: 100%; height: auto; object-fit: contain; }
    .pair img + img { position: absolute; inset: 0; height: 100%; }
    .pair:has(.handle) { cursor: ew-resize; }
    .pair:has(.handle) .before { clip-path: inset(0 calc(100% - var(--at)) 0 0); }
    .pair:has(.handle) .after { clip-path: inset(0 0 0 var(--at)); }
    .pair .handle {
      position: absolute; top: 0; bottom: 0; left: var(--at); width: 32px; margin-left: -16px; cursor: ew-resize;
    }
    .pair .handle::before {
      content: ""; position: absolute; top: 0; bottom: 0; left: 15px; width: 2px; background: #ffffff;
      box-shadow: 0 0 0 1px rgb(0 0 0 / .45);
    }
    .pair .handle::after {
      content: "‹ ›"; position: absolute; top: 50%; left: 2px; width: 28px; height: 28px; margin-top: -14px;
      border-radius: 50%; background: #ffffff; color: #1a1f26; text-align: center; font: 700 15px/25px sans-serif;
      letter-spacing: 1px; box-shadow: 0 0 0 1px rgb(0 0 0 / .35), 0 2px 6px rgb(0 0 0 / .3);
    }
    .pair .handle:focus-visible { outline: none; }
    .pair .handle:focus-visible::after { outline: 3px solid var(--accent); outline-offset: 2px; }
    .pair .side {
      position: absolute; top: 8px; left: 8px; padding: 1px 8px; border-radius: 99px; font-size: 11px; font-weight: 600;
      background: rgb(0 0 0 / .72); color: #ffffff; pointer-events: none;
    }
    .pair .side.end { left: auto; right: 8px; }
    .pair .missing {
      position: absolute; inset: 0; margin: 0; padding: 12px; display: flex; align-items: center;
      justify-content: center; text-align: center; color: var(--soft); font-size: 13px; overflow-wrap: anywhere;
    }
    .pair.none { min-height: 96px; border: 1px dashed var(--line); }
    @media (max-width: 640px) {
      .wrap { padding: 0 14px; }
      .panel { padding: 14px; }
      h1 { font-size: 22px; }
    }
    @media (prefers-reduced-motion: reduce) {
      * { transition: none !important; animation: none !important; scroll-behavior: auto !important; }
    }
    @media print { .skip, .tools { display: none; } .panel { box-shadow: none; break-inside: avoid; } }
    """#

  /// Moves the handles of all pairs, also of those that a page's own script makes later with `pages.pair`.
  static let script: StaticString = #"""
    "use strict";
    const pages = (() => {
      const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
      const code = sign => "⟨U+" + sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩";
      /* Text without signs that hide or turn round what stands beside them. */
      const visible = text => String(text).replace(hidden, code);

      /* An element; text always as text, attributes never as handlers. */
      const make = (name, attributes, ...children) => {
        const element = document.createElement(name);
        for (const key in attributes || {}) {
          const value = attributes[key];
          if (value === null || value === undefined || value === false) continue;
          if (key === "class") element.className = value;
          else if (!key.startsWith("on")) element.setAttribute(key, value === true ? "" : visible(value));
        }
        for (const child of children.flat()) {
          if (child === null || child === undefined) continue;
          element.append(child instanceof Node ? child : visible(child));
        }
        return element;
      };

      const move = (pair, percent) => {
        const at = Math.max(0, Math.min(100, Math.round(percent)));
        const handle = pair.querySelector(".handle");
        pair.style.setProperty("--at", at + "%");
        handle.setAttribute("aria-valuenow", at);
        handle.setAttribute("aria-valuetext", at + " % before");
        return at;
      };

      /* Two pictures with a handle; each is { src, width, height } or null. */
      const pair = (before, after, label, background, placeholder) => {
        const image = (picture, side) => make("img", {
          class: side, src: picture.src, width: picture.width, height: picture.height, alt: label + ", " + side,
          decoding: "async", draggable: "false"
        });
        const box = make("div", { class: "pair", "data-background": background || "checker" });
        if (after) box.append(image(after, "after"));
        if (before) box.append(image(before, "before"));
        if (before && after) {
          box.append(
            make("div", {
              class: "handle", role: "slider", tabindex: "0", "aria-label": "Before and after: " + label,
              "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 50, "aria-valuetext": "50 % before",
              "aria-orientation": "horizontal"
            }),
            make("span", { class: "side", "aria-hidden": "true" }, "Before"),
            make("span", { class: "side end", "aria-hidden": "true" }, "After"));
        } else if (before || after) {
          box.append(make("span", { class: before ? "side" : "side end" }, before ? "Before" : "After"));
        } else {
          box.classList.add("none");
          delete box.dataset.background;
          box.append(make("p", { class: "missing" }, placeholder || "no picture"));
        }
        return box;
      };

      let dragged = null;
      const follow = event => {
        const box = dragged.getBoundingClientRect();
        if (box.width > 0) move(dragged, (event.clientX - box.left) / box.width * 100);
      };
      document.addEventListener("pointerdown", event => {
        if (event.button !== 0) return;
        const box = event.target.closest && event.target.closest(".pair");
        const handle = box && box.querySelector(".handle");
        if (!handle) return;
        dragged = box;
        handle.focus({ preventScroll: true });
        box.setPointerCapture(event.pointerId);
        follow(event);
        event.preventDefault();
      });
      document.addEventListener("pointermove", event => { if (dragged) follow(event); });
      for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { dragged = null; });
      document.addEventListener("keydown", event => {
        const handle = event.target.closest && event.target.closest(".pair .handle");
        if (!handle || event.altKey || event.ctrlKey || event.metaKey) return;
        const now = Number(handle.getAttribute("aria-valuenow"));
        const step = event.shiftKey ? 10 : 2;
        const next = {
          ArrowLeft: now - step, ArrowDown: now - step, ArrowRight: now + step, ArrowUp: now + step,
          PageDown: now - 10, PageUp: now + 10, Home: 0, End: 100
        }[event.key];
        if (next === undefined) return;
        move(handle.closest(".pair"), next);
        event.preventDefault();
        event.stopPropagation();
      });
      return { visible, make, pair, move };
    })();
    """#
}
