/// The style and script of the report's page.
enum ReportAssets {
  static let style: StaticString = #"""
    .top { background: var(--panel); border-bottom: 1px solid var(--line); padding: 26px 0 18px; }
    .title { display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: center; }
    .title .pill { font-size: 14px; padding: 3px 12px; }
    .meta { color: var(--soft); margin: 6px 0 14px; display: flex; flex-wrap: wrap; gap: 2px 18px; }
    .bar { display: block; width: 100%; height: 8px; border-radius: 99px; overflow: hidden; background: var(--raised); }
    .fill { fill: var(--soft); } .fill.good { fill: var(--good); } .fill.bad { fill: var(--bad); }
    .fill.warn { fill: var(--warn); } .fill.accent { fill: var(--accent); }
    section { margin: 0 0 32px; scroll-margin-top: 12px; }
    .stats { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0; }
    .stat {
      background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px;
      box-shadow: var(--shadow);
    }
    .stat dt { color: var(--soft); font-size: 13px; }
    .stat dd { margin: 0; }
    .stat b { display: block; font-size: 24px; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
    .stat span { font-size: 13px; }
    b.good { color: var(--good); } b.bad { color: var(--bad); } b.warn { color: var(--warn); }
    b.accent { color: var(--accent); }
    .notice {
      background: var(--warn-tint); border-left: 3px solid var(--warn); border-radius: 6px; padding: 10px 14px;
      margin: 0 0 12px; overflow-wrap: anywhere;
    }
    .failure {
      background: var(--panel); border: 1px solid var(--line); border-left: 4px solid var(--soft); border-radius: 8px;
      margin: 0 0 10px; padding: 10px 16px; overflow-wrap: anywhere;
    }
    .failure.bad { border-left-color: var(--bad); } .failure.warn { border-left-color: var(--warn); }
    .failure summary { cursor: pointer; }
    .failure summary strong { margin-left: 4px; }
    .failure .hint { margin: 10px 0 4px; }
    .failure ul { margin: 8px 0 4px; padding-left: 20px; }
    .times { min-width: 860px; }
    .times tbody th { color: var(--text); font-size: 15px; font-weight: 500; white-space: nowrap; }
    .times .graph { width: 24%; }
    .times .graph svg { display: block; width: 100%; height: 20px; }
    .track { fill: var(--raised); } .whisker { fill: var(--soft); } .box { fill: var(--accent); opacity: .55; }
    .median { fill: var(--text); }
    .legend { margin: 12px 0 0; font-size: 13px; max-width: 90ch; }
    .facts { margin: 0; display: grid; gap: 4px; }
    .facts > div { display: grid; grid-template-columns: minmax(110px, 240px) 1fr; gap: 4px 16px; }
    .facts dt { color: var(--soft); overflow-wrap: anywhere; } .facts dd { margin: 0; overflow-wrap: anywhere; }

    .tools {
      position: sticky; top: 0; z-index: 5; display: flex; flex-wrap: wrap; gap: 8px 10px; align-items: flex-end;
      background: var(--page); padding: 10px 0; border-bottom: 1px solid var(--line);
    }
    .tools button, .tools select, .tools [type=search] { height: 36px; }
    .tools label > span { display: block; font-size: 12px; color: var(--soft); margin-bottom: 2px; }
    .tools .grow { flex: 1 1 180px; } .tools .grow input { width: 100%; }
    .tools .check { min-height: 34px; display: flex; align-items: center; gap: 6px; }
    .tools .check input { min-height: 0; width: 16px; height: 16px; accent-color: var(--accent); }
    #shown { margin: 10px 0; font-size: 13px; }
    #list { position: relative; }
    .card {
      position: absolute; top: 0; left: 0; display: flex; flex-direction: column; overflow: hidden;
      background: var(--panel); border: 1px solid var(--line); border-radius: 10px; box-shadow: var(--shadow);
    }
    .card.bad { border-color: var(--bad); }
    .card .pair { flex: 0 0 196px; border-radius: 0; border: 0; min-height: 0; }
    .card .pair img { position: absolute; inset: 0; width: 100%; height: 100%; }
    .card .text { padding: 9px 12px; min-width: 0; }
    .card .name {
      display: block; width: 100%; min-height: 0; padding: 0; border: 0; background: none; text-align: left;
      font-weight: 600; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; border-radius: 3px;
    }
    .card .name:hover { text-decoration: underline; }
    .card .line {
      font-size: 13px; color: var(--soft); white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
      font-variant-numeric: tabular-nums; margin: 2px 0 0;
    }
    .card .line b { color: var(--text); font-weight: 600; }
    .card .pills { display: flex; gap: 6px; margin-top: 6px; }
    .card .pill { font-size: 12px; padding: 0 8px; }
    .nothing { padding: 40px 0; text-align: center; color: var(--soft); }

    dialog {
      border: 1px solid var(--line); border-radius: 12px; background: var(--panel); color: var(--text);
      padding: 20px 24px; width: min(1040px, calc(100vw - 24px)); max-height: calc(100vh - 32px); overflow: auto;
    }
    dialog::backdrop { background: rgb(0 0 0 / .55); }
    #help { width: min(540px, calc(100vw - 24px)); }
    #help .facts { margin-bottom: 16px; }
    #help .facts > div { grid-template-columns: 120px 1fr; }
    .detail-top { display: flex; gap: 8px; align-items: flex-start; margin-bottom: 12px; }
    .detail-top h2 { flex: 1; margin: 3px 0 0; overflow-wrap: anywhere; }
    .detail-top button { flex: none; }
    .detail-grid { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 4fr); gap: 20px; }
    .detail-grid .pair { height: min(440px, 56vh); }
    .detail-grid .pair img { position: absolute; inset: 0; width: 100%; height: 100%; }
    .detail-grid h3 { margin: 14px 0 4px; }
    .detail-grid h3:first-child { margin-top: 0; }
    .detail-grid ul { margin: 0 0 8px; padding-left: 18px; overflow-wrap: anywhere; }
    .detail-grid .facts > div { grid-template-columns: minmax(80px, 130px) 1fr; font-size: 14px; }
    .choice { display: flex; flex-wrap: wrap; gap: 6px; margin-top: 10px; }
    @media (max-width: 760px) {
      .detail-grid { grid-template-columns: minmax(0, 1fr); }
      .detail-top { flex-wrap: wrap; } .detail-top h2 { flex-basis: 100%; }
      .stats { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
      .stat b { font-size: 20px; }
      .facts > div { grid-template-columns: minmax(0, 1fr); gap: 0; margin-bottom: 6px; }
      .tools { position: static; }
    }
    """#

  static let script: StaticString = #"""
    "use strict";
    /* Files with details call it; see PageStore. */
    let reportDetails;
    (() => {
      const { make, pair, visible } = pages;
      const get = id => document.getElementById(id);
      const settings = JSON.parse(get("settings").textContent);
      const rows = JSON.parse(get("rows").textContent);
      const [INDEX, NAME, STATUS, WARNINGS, TIME, IN, OUT, SCORE, FLAGS, OUTPUTS, WIDTH, HEIGHT, FORMAT, NOTE] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
      const failed = new Set(["failed", "unknown", "deferred"].map(name => settings.statuses.indexOf(name)));

      /* Numbers, as on the rest of the page. */
      const grouped = number => number.toLocaleString("en");
      const bytes = count => {
        if (count < 1000) return count + (count === 1 ? " byte" : " bytes");
        let value = count / 1000, unit = "kB";
        for (const next of ["MB", "GB", "TB", "PB"]) if (value >= 999.5) { value /= 1000; unit = next; }
        return value.toFixed(value < 99.95 ? 1 : 0) + " " + unit;
      };
      const duration = ms => {
        if (ms < 9.95) return ms.toFixed(ms < 0.995 ? 2 : 1) + " ms";
        if (ms < 999.5) return Math.round(ms) + " ms";
        if (ms < 59950) return (ms / 1000).toFixed(ms < 9950 ? 2 : 1) + " s";
        const s = Math.round(ms / 1000);
        return s < 3600 ? Math.floor(s / 60) + " min " + s % 60 + " s"
          : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
      };
      const change = (before, after) => {
        if (!before) return "";
        const percent = Math.round(after / before * 100 - 100);
        return (percent > 0 ? "+" + percent : percent < 0 ? "−" + -percent : "±0") + "\u00a0%";
      };

      /* Small pictures and details: in the page, or in files beside it. */
      const parsed = new Map();
      const block = id => {
        if (!parsed.has(id)) {
          const element = get(id);
          if (!element) return null;
          parsed.set(id, JSON.parse(element.textContent));
        }
        return parsed.get(id);
      };
      const picture = (sequence, side) => {
        if (!(rows[sequence][FLAGS] >> side & 1)) return null;
        if (settings.folder) return { src: settings.folder + "/" + sequence + "-" + side + ".webp" };
        const sources = block("pictures-" + Math.floor(sequence / settings.block));
        if (!sources) return null;
        return { src: sources[sequence % settings.block][side] };
      };
      const waiting = new Map();
      reportDetails = (number, details) => {
        parsed.set("details-" + number, details);
        (waiting.get(number) || []).forEach(call => call(details));
        waiting.delete(number);
      };
      const details = (sequence, call) => {
        const number = Math.floor(sequence / settings.block);
        const use = all => call(all && all[sequence % settings.block]);
        const known = block("details-" + number);
        if (known || !settings.folder) return use(known);
        if (waiting.has(number)) return waiting.get(number).push(use);
        waiting.set(number, [use]);
        const script = document.createElement("script");
        script.src = settings.folder + "/details-" + number + ".js";
        script.onerror = () => {
          (waiting.get(number) || []).forEach(call => call(null));
          waiting.delete(number);
          script.remove();
        };
        document.head.append(script);
      };

      /* Which pictures, in which order. */
      const search = get("search"), status = get("status"), sort = get("sort"), direction = get("direction");
      const warned = get("warned"), background = get("background"), list = get("list"), shown = get("shown");
      const lower = rows.map(row => visible(row[NAME]).toLowerCase());
      const byName = new Intl.Collator("en", { numeric: true }).compare;
      let nameRank = null;
      const rankOfNames = () => {
        if (!nameRank) {
          const order = rows.map((_, index) => index).sort((a, b) => byName(lower[a], lower[b]));
          nameRank = new Int32Array(rows.length);
          order.forEach((sequence, rank) => { nameRank[sequence] = rank; });
        }
        return nameRank;
      };
      const keys = {
        order: sequence => sequence,
        name: sequence => rankOfNames()[sequence],
        time: sequence => -rows[sequence][TIME],
        size: sequence => rows[sequence][OUT] === null ? null : -rows[sequence][OUT],
        saving: sequence => {
          const row = rows[sequence];
          return row[IN] && row[OUT] !== null ? row[OUT] / row[IN] : null;
        },
        score: sequence => rows[sequence][SCORE]
      };
      let view = [];
      const choose = () => {
        const wanted = search.value.trim().toLowerCase();
        const only = status.value === "" ? null : status.value === "failed" ? failed : new Set([Number(status.value)]);
        const found = [];
        for (let sequence = 0; sequence < rows.length; sequence++) {
          const row = rows[sequence];
          if (only && !only.has(row[STATUS])) continue;
          if (warned.checked && row[WARNINGS] === 0) continue;
          if (wanted && !lower[sequence].includes(wanted)) continue;
          found.push(sequence);
        }
        const turned = direction.getAttribute("aria-pressed") === "true" ? -1 : 1;
        const key = keys[sort.value];
        const values = new Map(found.map(sequence => [sequence, key(sequence)]));
        /* What has no such value comes last, whichever way round. */
        found.sort((a, b) => {
          const x = values.get(a), y = values.get(b);
          if (x === null || y === null) return (x === null) - (y === null) || a - b;
          return (x - y) * turned || a - b;
        });
        view = found;
        shown.textContent = view.length === rows.length
          ? grouped(rows.length) + (rows.length === 1 ? " picture" : " pictures")
          : grouped(view.length) + " of " + grouped(rows.length) + " pictures";
        clear();
        lay();
      };

      /* Only the cards near the window exist. */
      const GAP = 16, CARD = 312, LEAST = 248, MOST = 12000000;
      const cards = new Map();
      let columns = 1, width = 0, empty = null;
      const clear = () => {
        cards.forEach(card => card.remove());
        cards.clear();
        if (empty) empty.remove();
        empty = null;
      };
      const lay = () => {
        const whole = list.clientWidth;
        columns = Math.max(1, Math.floor((whole + GAP) / (LEAST + GAP)));
        width = Math.floor((whole - GAP * (columns - 1)) / columns);
        /* Browsers place nothing below some tens of millions of pixels. */
        const most = Math.floor(MOST / (CARD + GAP)) * columns;
        if (view.length > most) {
          shown.textContent += ", of which the first " + grouped(most) + " are below";
          view = view.slice(0, most);
        }
        list.style.height = Math.ceil(view.length / columns) * (CARD + GAP) + "px";
        if (!view.length) {
          list.style.height = "auto";
          empty = make("p", { class: "nothing" }, rows.length ? "No picture is like that." : "There were no pictures.");
          list.append(empty);
        }
        paint(true);
      };
      const paint = again => {
        const top = list.getBoundingClientRect().top;
        const row = CARD + GAP;
        const first = Math.max(0, Math.floor((-top - 400) / row)) * columns;
        const last = Math.min(view.length, Math.max(0, Math.ceil((window.innerHeight - top + 400) / row)) * columns);
        cards.forEach((card, at) => {
          if (at >= first && at < last || card.contains(document.activeElement)) return;
          card.remove();
          cards.delete(at);
        });
        for (let at = first; at < last; at++) {
          let card = cards.get(at);
          if (!card) {
            card = makeCard(at);
            cards.set(at, card);
            list.append(card);
          } else if (!again) continue;
          card.style.width = width + "px";
          card.style.height = CARD + "px";
          card.style.transform =
            "translate(" + at % columns * (width + GAP) + "px," + Math.floor(at / columns) * row + "px)";
        }
      };
      const makeCard = at => {
        const sequence = view[at], row = rows[sequence];
        const kind = settings.kinds[row[STATUS]];
        const sizes = [];
        if (row[WIDTH]) sizes.push(row[WIDTH] + " × " + row[HEIGHT] + " " + row[FORMAT].toUpperCase());
        if (row[OUTPUTS] > 1) sizes.push(row[OUTPUTS] + " results");
        const line = make("p", { class: "line" });
        if (row[IN] !== null && row[OUT] !== null) {
          line.append(bytes(row[IN]) + " → " + bytes(row[OUT]) + "  ", make("b", {}, change(row[IN], row[OUT])));
        } else if (row[OUT] !== null) line.append(bytes(row[OUT]));
        else if (row[IN] !== null) line.append(bytes(row[IN]));
        /* The first result of which there is a picture. */
        let side = 1;
        while (side < 12 && !(row[FLAGS] >> side & 1)) side++;
        const pills = make("p", { class: "pills" },
          make("span", { class: "pill " + kind }, settings.labels[row[STATUS]]),
          row[WARNINGS] ? make("span", { class: "pill warn" },
            row[WARNINGS] + (row[WARNINGS] === 1 ? " warning" : " warnings")) : null,
          row[SCORE] !== null ? make("span", { class: "pill" }, "score " + row[SCORE].toFixed(2)) : null,
          row[TIME] ? make("span", { class: "pill" }, duration(row[TIME])) : null);
        const name = make("button", { class: "name", type: "button", title: row[NAME] }, make("bdi", {}, row[NAME]));
        name.addEventListener("click", () => open(sequence));
        return make("div", {
          class: "card " + (failed.has(row[STATUS]) ? "bad" : ""), role: "listitem", "aria-setsize": view.length,
          "aria-posinset": at + 1
        }, pair(picture(sequence, 0), picture(sequence, side), row[NAME], background.value,
          row[NOTE] || "no picture; open it to see why"),
        make("div", { class: "text" }, name,
          make("p", { class: "line", title: row[NOTE] || null },
            row[NOTE] && !sizes.length ? row[NOTE] : sizes.join(" · ") || " "), line, pills));
      };
      let frame = 0;
      const soon = () => { if (!frame) frame = requestAnimationFrame(() => { frame = 0; paint(false); }); };
      window.addEventListener("scroll", soon, { passive: true });
      new ResizeObserver(() => { if (list.clientWidth) lay(); }).observe(list.parentElement);

      /* One picture with all that is known of it. */
      const dialog = get("detail");
      let current = -1;
      const link = (address, text) => address
        ? make("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, make("bdi", {}, text))
        : make("bdi", { class: "mono" }, text);
      const facts = entries => make("dl", { class: "facts" }, entries.map(([name, value]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, value instanceof Node ? value : make("bdi", {}, value)))));
      const open = sequence => {
        current = sequence;
        details(sequence, detail => { if (current === sequence) fill(sequence, detail); });
        if (!dialog.open) dialog.showModal();
        try { history.replaceState(null, "", "#picture-" + sequence); } catch { /* not everywhere with file:// */ }
      };
      const step = by => {
        const at = view.indexOf(current) + by;
        if (at >= 0 && at < view.length) open(view[at]);
      };
      const fill = (sequence, detail) => {
        const row = rows[sequence];
        const button = (text, label, call) => {
          const made = make("button", { type: "button", "aria-label": label }, text);
          made.addEventListener("click", call);
          return made;
        };
        const top = make("div", { class: "detail-top" },
          make("h2", { id: "detail-name" }, make("bdi", {}, row[NAME])),
          make("span", { class: "pill " + settings.kinds[row[STATUS]] }, settings.labels[row[STATUS]]),
          button("‹", "Previous picture", () => step(-1)), button("›", "Next picture", () => step(1)),
          button("Close", null, () => dialog.close()));
        dialog.replaceChildren(top);
        if (!detail) {
          dialog.append(make("p", { class: "notice" },
            "What is known of this picture is in a file beside the page that cannot be read: keep the folder "
            + (settings.folder || "") + " beside it."));
          return;
        }
        const stage = make("div", {});
        const show = side => {
          const before = picture(sequence, 0), after = picture(sequence, side + 1);
          const notes = [];
          if (!before && detail.note) notes.push("No picture of the input: " + detail.note + ".");
          const output = detail.outputs[side];
          if (output && !after && output.note) notes.push("No picture of the result: " + output.note + ".");
          stage.replaceChildren(
            pair(before, after, row[NAME], background.value, notes.join(" ") || "no picture"),
            ...(before || after ? notes : []).map(note => make("p", { class: "soft" }, note)));
        };
        show(0);
        const left = make("div", {}, stage);
        if (detail.outputs.length > 1) {
          const choice = make("div", { class: "choice", role: "group", "aria-label": "Result that is shown" });
          detail.outputs.forEach((output, side) => {
            const text = output.width + " × " + output.height + " " + output.format;
            const made = make("button", { type: "button", "aria-pressed": side === 0 ? "true" : "false" }, text);
            made.addEventListener("click", () => {
              for (const other of choice.children) other.setAttribute("aria-pressed", String(other === made));
              show(side);
            });
            choice.append(made);
          });
          left.append(choice);
        }
        const right = make("div", {});
        if (detail.error) {
          right.append(make("h3", {}, "Error"), make("p", {}, make("strong", {}, detail.error.message || "")),
            facts([["code", detail.error.code], ["stage", detail.error.stage], ["cause", detail.error.cause],
              ["try", detail.error.hint]].filter(entry => entry[1])));
        } else if (detail.reason) right.append(make("h3", {}, "Reason"), make("p", {}, detail.reason));
        if (detail.warnings) {
          right.append(make("h3", {}, "Warnings"), make("ul", {}, detail.warnings.map(warning =>
            make("li", {}, warning[2] || "", " ", make("span", { class: "soft" },
              "(" + [warning[1], warning[0]].filter(Boolean).join(", ") + ")")))));
        }
        right.append(make("h3", {}, "Files"));
        const size = row[IN] === null ? "" : bytes(row[IN]);
        right.append(facts([["input", make("span", {}, link(detail.link, row[NAME]), " ",
          make("span", { class: "soft" }, size))]].concat(detail.outputs.map((output, at) => [
          detail.outputs.length > 1 ? "result " + (at + 1) : "result",
          make("span", {}, link(output.link, output.text), " ", make("span", { class: "soft" },
            output.width + " × " + output.height + " " + output.format + ", " + bytes(output.bytes)
            + (row[IN] ? ", " + change(row[IN], output.bytes) : "")))]))));
        if (detail.stages.length) {
          right.append(make("h3", {}, "Time: " + duration(row[TIME])),
            facts(detail.stages.map(([name, time]) => [name, duration(time)])));
        }
        if (detail.facts) right.append(make("h3", {}, "Facts"), facts(detail.facts));
        dialog.append(make("div", { class: "detail-grid" }, left, right));
      };
      dialog.addEventListener("close", () => {
        current = -1;
        try { history.replaceState(null, "", "#pictures"); } catch { /* as above */ }
      });
      const follow = () => {
        const match = /^#picture-(\d+)$/.exec(location.hash);
        if (match && Number(match[1]) < rows.length) open(Number(match[1]));
      };
      window.addEventListener("hashchange", follow);

      /* Controls and keys. */
      const help = get("help");
      for (const box of [dialog, help]) {
        box.addEventListener("click", event => {
          if (event.target === box || event.target.closest("[data-close]")) box.close();
        });
      }
      get("keys").addEventListener("click", () => help.showModal());
      search.addEventListener("input", choose);
      for (const control of [status, sort, warned]) control.addEventListener("change", choose);
      direction.addEventListener("click", () => {
        direction.setAttribute("aria-pressed", direction.getAttribute("aria-pressed") === "true" ? "false" : "true");
        choose();
      });
      background.addEventListener("change", () => {
        document.querySelectorAll(".pair[data-background]").forEach(box => {
          box.dataset.background = background.value;
        });
      });
      if ([...failed].some(code => rows.some(row => row[STATUS] === code))) {
        status.append(make("option", { value: "failed" }, "all failures"));
      }
      const go = by => {
        const active = document.activeElement && document.activeElement.closest(".card");
        let at = -1;
        if (active) cards.forEach((card, place) => { if (card === active) at = place; });
        at = Math.max(0, Math.min(view.length - 1, at + by));
        if (!view.length) return;
        const y = list.getBoundingClientRect().top + Math.floor(at / columns) * (CARD + GAP);
        if (y < 90 || y + CARD > window.innerHeight) window.scrollBy(0, y - 90);
        paint(false);
        cards.get(at).querySelector(".name").focus({ preventScroll: true });
      };
      document.addEventListener("keydown", event => {
        if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
        if (dialog.open) {
          if (event.key === "ArrowLeft") step(-1);
          else if (event.key === "ArrowRight") step(1);
          return;
        }
        if (help.open || event.target.closest("input[type=search], select")) return;
        const toggle = value => { status.value = status.value === value ? "" : value; choose(); };
        switch (event.key) {
          case "/": search.focus(); search.select(); break;
          case "f": if (status.querySelector("[value=failed]")) toggle("failed"); break;
          case "w": warned.checked = !warned.checked; choose(); break;
          case "b":
            background.selectedIndex = (background.selectedIndex + 1) % background.options.length;
            background.dispatchEvent(new Event("change"));
            break;
          case "j": go(1); break;
          case "k": go(-1); break;
          case "?": help.showModal(); break;
          default: return;
        }
        event.preventDefault();
      });

      choose();
      performance.mark("report-first-rows");
      const ready = () => {
        /* Pictures inside the page are read after the scripts. */
        if (!settings.folder) { clear(); paint(true); }
        follow();
      };
      if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", ready);
      else ready();
    })();
    """#
}
