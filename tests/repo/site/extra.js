// What the theme leaves out for those who use a keyboard or a screen reader.
const mend = () => {
  // Buttons at a block of code are no navigation.
  document.querySelectorAll("nav.md-code__nav:not([role])").forEach((nav) => nav.setAttribute("role", "presentation"));
  // What scrolls can be scrolled by keys.
  document.querySelectorAll(".md-typeset__scrollwrap, .highlight > pre, p:has(> img[src$='.svg'])").forEach((box) => {
    box.tabIndex = 0;
  });
};
mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
