// Live updates and keyboard shortcuts. Without this script every page still works: the filter is a form, sorting and paging
// are links.
//
// load() fetches the page at an address and morphs its <main> into the current one, which preserves focus, scroll position
// and typed text. The filter, links, the event stream and the timer all call it. The latest call wins.
(() => {
  "use strict";
  const BEAT_MISSED_AFTER = 16_000; // The stream beats every 5 s.
  const POLL_EVERY = 5_000;
  const AGES_EVERY = 10_000; // A confirmation alone is not a change and sends no event.
  const ANSWER_WITHIN = 10_000;
  const TYPING = 200;

  const main = () => document.getElementById("main");
  const live = document.getElementById("live");
  const banner = document.getElementById("banner");
  const form = () => document.getElementById("filter");

  // Connection state.
  let stream = null;
  let lastBeat = 0;
  let lostSince = null;
  let lastLoad = performance.now();
  let rendered = performance.now();
  let under_way = null;

  function show(how) {
    const words = { live: "Live", polling: "Polling", lost: "Disconnected" };
    if (live.dataset.how === how) return;
    live.dataset.how = how;
    live.textContent = words[how];
  }

  function connected() {
    if (lostSince !== null) {
      lostSince = null;
      banner.hidden = true;
      document.documentElement.classList.remove("lost");
    }
    show(stream && stream.readyState === EventSource.OPEN ? "live" : "polling");
  }

  function lost() {
    if (lostSince === null) {
      lostSince = new Date();
      const time = lostSince.toLocaleTimeString();
      document.getElementById("banner-text").textContent =
        `No connection to the aggregator since ${time}. The page shows the data from that time, which may be out of date.`;
      banner.hidden = false;
      document.documentElement.classList.add("lost");
    }
    show("lost");
  }

  // Loads `url`. `history` is "push" or "replace" if the address changes. `body` is the data of a form: an address has no room
  // for the names of a thousand nodes.
  async function load(url, history, body) {
    if (under_way) under_way.abort();
    const mine = new AbortController();
    under_way = mine;
    const late = setTimeout(() => mine.abort("late"), ANSWER_WITHIN);
    lastLoad = performance.now();
    try {
      const how = body ? { method: "POST", body } : {};
      const answer = await fetch(url, { ...how, signal: mine.signal, headers: { Accept: "text/html" } });
      const text = await answer.text();
      if (under_way !== mine) return;
      if (!text.includes('id="main"')) throw new Error(`no page in the answer: ${answer.status}`);
      if (history === "push") window.history.pushState(null, "", url);
      if (history === "replace") window.history.replaceState(null, "", url);
      // The server renders them closed.
      const opened = [...document.querySelectorAll("details[open][id]")].map((one) => one.id);
      await htmx.swap({ text, target: "#main", select: "#main", swap: "outerMorph", sourceElement: document.body });
      for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
      rendered = performance.now();
      // The user may have started another load during the swap.
      if (under_way === mine) settle();
      showPicked();
      rove();
      tick();
      connected();
    } catch (error) {
      if (mine.signal.aborted && mine.signal.reason !== "late") return;
      lost();
    } finally {
      clearTimeout(late);
      if (under_way === mine) under_way = null;
    }
  }

  // A morph does not change the value of a select that the user has changed. Apply the attribute of the new page.
  function settle() {
    for (const select of document.querySelectorAll("#filter select, form[data-stay] select")) {
      const selected = select.querySelector("option[selected]");
      if (select !== document.activeElement && selected && !selected.selected) select.value = selected.value;
      if (select !== document.activeElement && !selected) select.selectedIndex = 0;
    }
  }

  // Updates ages between two loads, and shows times in the local time zone.
  function tick() {
    for (const origin of document.querySelectorAll("[data-origin]"))
      if (origin.textContent !== location.origin) origin.textContent = location.origin;
    const since = performance.now() - rendered;
    for (const age of document.querySelectorAll("[data-age-ms]")) {
      const text = words(Number(age.dataset.ageMs) + since);
      if (age.textContent !== text) age.textContent = text;
    }
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      const today = at.toDateString() === new Date().toDateString();
      const text = today ? at.toLocaleTimeString() : at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // Same format as `format_age` on the server.
  function words(ms) {
    const s = Math.floor(ms / 1000);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 172_800) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86_400)} d`;
  }

  // The stream sends an event for changes, at most once a second; the page then reloads.
  function listen() {
    if (stream) stream.close();
    stream = new EventSource("/live");
    stream.addEventListener("open", () => { lastBeat = performance.now(); connected(); });
    stream.addEventListener("beat", () => { lastBeat = performance.now(); });
    stream.addEventListener("change", () => { lastBeat = performance.now(); refresh(); });
    // If the stream is refused, it closes and the timer polls; if it breaks, the browser reconnects. The next load shows
    // whether the aggregator is reachable.
    stream.addEventListener("error", () => { lastBeat = 0; refresh(); });
  }

  function refresh() {
    // A refresh does not cancel a load that the user started. The outcome of an action stays on the page until the user
    // navigates, because its address alone does not reproduce it.
    if (document.querySelector("[data-still]")) return;
    // A page that takes long to build or to send, such as a large map, updates less often.
    const slow = document.querySelector("[data-refresh-ms]");
    if (slow && performance.now() - lastLoad < Number(slow.dataset.refreshMs)) return;
    if (!document.hidden && under_way === null) again();
  }

  // Reloads the current page. A page that answers a form is loaded with the same form data.
  let sent = null;
  const fields = (form, button) => {
    const data = new URLSearchParams();
    for (const [name, value] of new FormData(form, button)) if (value !== "") data.append(name, value);
    return data;
  };
  const again = () => (sent ? load(location.pathname, null, sent) : load(location.href));

  setInterval(() => {
    if (document.hidden) return;
    tick();
    const now = performance.now();
    const streaming = stream && stream.readyState === EventSource.OPEN && now - lastBeat < BEAT_MISSED_AFTER;
    if (now - lastLoad >= (streaming && lostSince === null ? AGES_EVERY : POLL_EVERY)) {
      if (stream && stream.readyState === EventSource.CLOSED && lostSince === null) retry(now);
      refresh();
    }
  }, 1000);

  let retried = 0;
  function retry(now) {
    if (now - retried > 30_000) { retried = now; listen(); }
  }

  // A hidden page holds no connection: a browser has only six for one origin.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (stream) stream.close();
      stream = null;
    } else {
      listen();
      refresh();
    }
  });
  window.addEventListener("pagehide", () => { if (stream) stream.close(); });
  window.addEventListener("pageshow", (event) => { if (event.persisted) { listen(); refresh(); } });
  window.addEventListener("popstate", again);

  // Filter while the user types.
  function filtered() {
    const data = new URLSearchParams();
    for (const [name, value] of new FormData(form())) if (value !== "") data.append(name, value);
    const query = data.toString();
    return query ? `/nodes?${query}` : "/nodes";
  }
  let typing = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.matches("#filter [name=search]")) return;
    clearTimeout(typing);
    typing = setTimeout(() => load(filtered(), "replace"), TYPING);
  });
  // An incomplete label selector is invalid, so this field waits for the change event.
  document.addEventListener("change", (event) => {
    if (!event.target.matches("#filter select, #filter [name=selector]")) return;
    clearTimeout(typing);
    load(filtered(), "push");
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "filter") return;
    event.preventDefault();
    clearTimeout(typing);
    load(filtered(), "push");
  });
  // A form that only selects what the page shows: the page stays, and the address contains the selection.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-stay]");
    if (form) stay(form);
  });
  function stay(form, button) {
    const data = fields(form, button);
    if (form.method === "post") {
      sent = data;
      load(location.pathname, null, sent);
      return;
    }
    load(data.size ? `${location.pathname}?${data}` : location.pathname, "push");
  }
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-stay]")) return;
    // A button that performs an action submits the form normally.
    const button = event.submitter;
    if (button && button.name === "do") return;
    event.preventDefault();
    // A changed field has already started a load.
    if (under_way === null || (button && button.name)) stay(event.target, button);
  });
  // Links that only change what the page shows.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-stay]");
    if (link && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)) {
      event.preventDefault();
      load(link.href, "push");
    }
  });

  // Selected nodes. The selection survives refreshes, filters, paging and visits to a node page.
  const PICKED = "octavo-picked";
  const boxes = () => [...document.querySelectorAll(".pick[name=node]")];
  let picked = new Set();
  try { picked = new Set(JSON.parse(sessionStorage.getItem(PICKED) || "[]")); } catch { /* No stored selection. */ }
  function pick(names, on) {
    for (const name of names) if (on) picked.add(name); else picked.delete(name);
    try { sessionStorage.setItem(PICKED, JSON.stringify([...picked])); } catch { /* Without storage, the selection lasts until the next page. */ }
    document.getElementById("announcement").textContent = showPicked();
  }
  // Selected nodes that are not listed are submitted as hidden fields.
  function showPicked() {
    const words = document.getElementById("picked");
    if (!words) return "";
    const here = boxes();
    for (const box of here) box.checked = picked.has(box.value);
    const on = here.filter((box) => box.checked).length;
    const all = document.getElementById("pick-all");
    all.checked = on > 0 && on === here.length;
    all.indeterminate = on > 0 && on < here.length;
    for (const group of document.querySelectorAll(".pick-group")) {
      const its = [...group.closest("tbody").querySelectorAll(".pick[name=node]")];
      const count = its.filter((box) => box.checked).length;
      group.checked = count > 0 && count === its.length;
      group.indeterminate = count > 0 && count < its.length;
    }
    const shown = new Set(here.map((box) => box.value));
    const elsewhere = [...picked].filter((name) => !shown.has(name));
    document.getElementById("picked-elsewhere").replaceChildren(...elsewhere.map((name) => {
      const field = document.createElement("input");
      Object.assign(field, { type: "hidden", name: "node", value: name });
      return field;
    }));
    const nodes = picked.size === 1 ? "1 node selected" : `${picked.size} nodes selected`;
    const text = picked.size === 0 ? "No nodes selected"
      : elsewhere.length === 0 ? nodes : `${nodes}, ${elsewhere.length} not listed here`;
    if (words.textContent !== text) words.textContent = text;
    document.getElementById("selection").classList.toggle("some", picked.size > 0);
    return text;
  }
  document.addEventListener("change", (event) => {
    if (event.target.id === "pick-all") pick(boxes().map((box) => box.value), event.target.checked);
    else if (event.target.matches(".pick-group"))
      pick([...event.target.closest("tbody").querySelectorAll(".pick[name=node]")].map((box) => box.value), event.target.checked);
    else if (event.target.matches(".pick[name=node]")) pick([event.target.value], event.target.checked);
  });
  document.addEventListener("click", (event) => {
    if (event.target.id === "pick-none") pick([...picked], false);
  });

  // Copy buttons. Without TLS there is no clipboard API, but the text can be selected and copied with execCommand.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    const done = document.execCommand("copy");
    document.getElementById("announcement").textContent = done ? "Copied" : "Selected: press Ctrl+C to copy";
    button.textContent = done ? "Copied" : "Selected";
  });

  // Themes and density.
  const density = document.getElementById("density");
  function theme(name) {
    const root = document.documentElement;
    if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
    try { localStorage.setItem("octavo-theme", name); } catch { /* Without storage, the theme is not remembered. */ }
    pressed();
  }
  function pressed() {
    const now = document.documentElement.dataset.theme || "auto";
    for (const button of document.querySelectorAll(".theme button"))
      button.setAttribute("aria-pressed", String(button.value === now));
    density.setAttribute("aria-pressed", String(document.documentElement.dataset.density === "compact"));
  }
  document.querySelector(".theme").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) theme(button.value);
  });
  density.addEventListener("click", () => {
    const root = document.documentElement;
    if (root.dataset.density) delete root.dataset.density; else root.dataset.density = "compact";
    try { localStorage.setItem("octavo-density", root.dataset.density || ""); } catch { /* Without storage, it is not remembered. */ }
    pressed();
  });

  // The map is one Tab stop, and arrow keys move between its cells.
  const cells = () => [...document.querySelectorAll("#map a.cell")];
  let stop = "";
  function rove() {
    const all = cells();
    const now = all.find((cell) => cell === document.activeElement) || all.find((cell) => cell.href === stop) || all[0];
    for (const cell of all) {
      const index = cell === now ? 0 : -1;
      if (cell.tabIndex !== index) cell.tabIndex = index;
    }
  }
  function toCell(from, key) {
    const all = cells();
    const at = all.indexOf(from);
    let to = { ArrowRight: all[at + 1], ArrowLeft: all[at - 1], Home: all[0], End: all[all.length - 1] }[key];
    if (key === "ArrowUp" || key === "ArrowDown") {
      const here = from.getBoundingClientRect();
      let least = Infinity;
      for (const cell of all) {
        const box = cell.getBoundingClientRect();
        const down = key === "ArrowDown" ? box.top - here.bottom : here.top - box.bottom;
        const far = 3 * down + Math.abs(box.left - here.left);
        if (down > -1 && far < least) [least, to] = [far, cell];
      }
    }
    if (to) to.focus();
    return true;
  }
  document.addEventListener("focusin", (event) => {
    document.documentElement.classList.remove("quiet-tips");
    if (!event.target.matches("#map a.cell")) return;
    stop = event.target.href;
    rove();
  });
  document.addEventListener("mouseover", (event) => {
    if (event.target.matches("#map a.cell")) document.documentElement.classList.remove("quiet-tips");
  });

  // Keys.
  const dialog = document.getElementById("keys");
  const rows = () => [...document.querySelectorAll("[data-row]")];
  function move(by) {
    const all = rows();
    if (all.length === 0) return false;
    const row = document.activeElement.closest("tr");
    const at = all.indexOf((row && row.querySelector("[data-row]")) || document.activeElement);
    const to = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    all[to].focus();
    return true;
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const typed = event.target.matches("input:not([type=checkbox]), select, textarea");
    // Not the browser's own Escape, which empties a search field and leaves the list filtered.
    if (event.key === "Escape" && typed) { event.preventDefault(); event.target.blur(); return; }
    if (typed) return;
    const onRow = event.target.matches("[data-row]");
    const moves = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key);
    if (event.key === "Escape") document.documentElement.classList.add("quiet-tips");
    let done = true;
    if (event.key === "/") {
      const field = document.getElementById("find");
      field.focus();
      field.select();
    } else if (event.key === "f") {
      const field = document.querySelector("form.filter [name=search]");
      done = field !== null;
      if (done) { field.focus(); field.select(); }
    } else if (event.key === "?") dialog.showModal();
    else if (event.key === "d") density.click();
    else if (moves && event.target.matches("#map a.cell")) done = toCell(event.target, event.key);
    else if (event.key === "j" || (event.key === "ArrowDown" && onRow)) done = move(1);
    else if (event.key === "k" || (event.key === "ArrowUp" && onRow)) done = move(-1);
    else if (event.key === "x" && event.target.closest("tr")) {
      const box = event.target.closest("tr").querySelector(".pick");
      done = box !== null;
      if (done) box.click();
    } else if (event.key === "g" && document.getElementById("by-group")) {
      const select = document.getElementById("by-group");
      select.value = select.value === "" ? "type" : "";
      load(filtered(), "push");
    } else if (event.key === "p" && document.getElementById("selection")) document.getElementById("selection").requestSubmit();
    else done = false;
    if (done) event.preventDefault();
  });
  document.getElementById("ask").addEventListener("click", () => dialog.showModal());

  const draft = document.querySelector("form[data-stay][method=post]");
  if (draft) sent = fields(draft);
  pressed();
  showPicked();
  rove();
  tick();
  listen();
})();
