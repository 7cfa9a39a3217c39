// Runs before the first paint, so that a chosen theme or density does not flash in after the other one.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const chosen = localStorage.getItem("octavo-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
    if (localStorage.getItem("octavo-density") === "compact") root.dataset.density = "compact";
  } catch { /* Without storage, use the theme of the system and the normal density. */ }
})();
