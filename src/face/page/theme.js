// Light or dark, before anything is drawn: as the system has it, or as the person chose on this computer.
"use strict";
(() => {
  const kThemes = ["auto", "light", "dark"];
  const read = () => {
    try {
      const kept = localStorage.getItem("tessera.theme");
      return kThemes.includes(kept) ? kept : "auto";
    } catch {
      return "auto";  // a browser that keeps nothing
    }
  };
  const apply = (theme) => { document.documentElement.dataset.theme = theme; };
  apply(read());
  // The next theme; returns its name.
  window.tesseraNextTheme = () => {
    const next = kThemes[(kThemes.indexOf(document.documentElement.dataset.theme) + 1) % kThemes.length];
    apply(next);
    try {
      localStorage.setItem("tessera.theme", next);
    } catch {
      // It holds until the page is left.
    }
    return next;
  };
})();
