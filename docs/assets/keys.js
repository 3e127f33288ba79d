// Code and tables that are wider than the page can be scrolled by keys too. The theme does this for code, and only with a mouse.
function reach() {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
  }
}
addEventListener("load", reach);
addEventListener("resize", reach);
