"use strict";
(() => {
  const tip = document.getElementById("tip");
  const near = (x, y) => {
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
    tip.style.top = (y - box.height - 12 < 4 ? y + 18 : y - box.height - 12) + "px";
  };
  const short = (v, unit) => {
    if (v === null || v === undefined) return "none";
    if (unit === "share") return +(v * 100).toFixed(1) + "%";
    const text = v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(2) : String(+v.toPrecision(4));
    return unit ? text + " " + unit : text;
  };

  // The numbers under the pointer.
  const numbers = new WeakMap();
  const plot = (svg) => {
    if (!numbers.has(svg)) numbers.set(svg, JSON.parse(svg.dataset.plot));
    return numbers.get(svg);
  };
  const leave = () => {
    tip.hidden = true;
    document.querySelectorAll(".cursor").forEach((line) => (line.style.visibility = "hidden"));
    document.querySelectorAll(".chosen").forEach((token) => token.classList.remove("chosen"));
  };
  const point = (event, svg) => {
    const { x, p, s, u, a } = plot(svg);
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) * svg.viewBox.baseVal.width) / box.width;
    let best = 0;
    p.forEach((place, index) => { if (Math.abs(place - at) < Math.abs(p[best] - at)) best = index; });
    const line = svg.querySelector(".cursor");
    line.setAttribute("x1", p[best]); line.setAttribute("x2", p[best]);
    line.setAttribute("y1", 12); line.setAttribute("y2", svg.viewBox.baseVal.height - 34);
    line.style.visibility = "visible";
    tip.textContent = [a + " " + x[best]].concat(s.map((one) => {
      const bare = u === "share" ? u : "", unit = u === one.n ? "" : u;
      const band = one.l && one.l[best] !== null ? ", " + short(one.l[best], bare) + " to " + short(one.h[best], bare) : "";
      return one.n + ": " + short(one.v[best], unit) + band;
    })).join("\n");
    near(event.clientX, event.clientY);
  };

  // What is known of a sampled token.
  const signed = (v) => (v > 0 ? "+" : "") + v;
  const token = (event, span) => {
    const [behaviour, trainer, advantage, version] = span.dataset.token.split(",");
    const gap = behaviour && trainer ? signed((trainer - behaviour).toPrecision(3)) : "unknown: not trained";
    tip.textContent = ["when sampled  " + (behaviour || "unknown"), "trainer       " + (trainer || "unknown"), "gap           " + gap,
      "advantage     " + (advantage ? signed(advantage) : "none"), "version       " + version].join("\n");
    document.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
    span.classList.add("chosen");
    near(event.clientX, event.clientY);
  };
  const look = (event) => {
    const svg = event.target.closest("svg[data-plot]"), span = event.target.closest("[data-token]");
    if (svg) point(event, svg); else if (span) token(event, span); else leave();
  };
  addEventListener("pointermove", look);
  addEventListener("pointerdown", look);
  addEventListener("scroll", leave, { passive: true });

  // Settings that hold a word.
  const filter = (input) => {
    const word = input.value.toLowerCase();
    document.querySelectorAll("#" + input.dataset.filter + " tr").forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(word)));
  };
  addEventListener("input", (event) => { if (event.target.dataset.filter) filter(event.target); });

  // While it is served: take over what is new, and leave what a reader has opened or written as it is.
  const every = Number(document.body.dataset.refresh);
  let known = "";
  const sent = {};
  document.querySelectorAll("header, section").forEach((part) => (sent[part.id] = part.outerHTML));
  const renewed = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    let last = document.querySelector("header");
    fresh.querySelectorAll("header, section").forEach((part) => {
      const old = document.getElementById(part.id), same = sent[part.id] === part.outerHTML;
      if (old && same) { last = old; return; }
      sent[part.id] = part.outerHTML;
      part.querySelectorAll("details[id]").forEach((one) => {
        const before = document.getElementById(one.id);
        if (before) one.open = before.open;
      });
      part.querySelectorAll("input[data-filter]").forEach((one) => {
        const before = document.querySelector("input[data-filter=" + one.dataset.filter + "]");
        if (before) one.value = before.value;
      });
      if (old) old.replaceWith(part); else if (last.tagName === "HEADER") document.querySelector("main").prepend(part); else last.after(part);
      part.querySelectorAll("input[data-filter]").forEach(filter);
      last = part;
    });
  };
  const ask = async () => {
    try {
      const answer = await fetch("newest", { headers: known ? { "If-None-Match": known } : {}, cache: "no-store" });
      if (answer.status === 200) { known = answer.headers.get("ETag") || ""; renewed(await answer.text()); }
    } catch { /* the server has ended; what is here stays */ }
    setTimeout(ask, every * 1000);
  };
  if (every) setTimeout(ask, every * 1000);
})();
