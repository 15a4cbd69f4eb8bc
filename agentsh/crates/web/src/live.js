// Keeps the pages up to date: when something new is on record, the page is asked for again and its live parts are
// exchanged. Without it every page still says what it said when it was loaded.
"use strict";

// Commands can be copied; a page is also exchanged in parts, so the button is found when it is pressed.
(() => {
  if (!navigator.clipboard) return;
  const show = (root) => {
    for (const button of root.querySelectorAll("button.copy[hidden]")) button.hidden = false;
  };
  show(document);
  new MutationObserver(() => show(document)).observe(document.body, { childList: true, subtree: true });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.firstChild.textContent = "Copied";
  });
})();

(() => {
  const newest = document.body.dataset.newest;
  if (newest === undefined || !window.EventSource) return;
  const said = document.getElementById("live");
  let asking = false;
  let again = false;

  const say = (text) => {
    if (said.textContent !== text) said.textContent = text;
  };

  // What somebody opened stays open, and where he stood he stands.
  const exchange = (before, after) => {
    const inside = before.contains(document.activeElement) ? document.activeElement : null;
    const all = (root) => Array.from(root.querySelectorAll("a, button, summary, pre, input"));
    const place = inside ? all(before).indexOf(inside) : -1;
    const open = Array.from(before.querySelectorAll("details[open] > summary"), (one) => one.textContent);
    for (const summary of after.querySelectorAll("details > summary")) {
      if (open.includes(summary.textContent)) summary.parentElement.open = true;
    }
    before.replaceWith(after);
    if (inside) (all(after)[place] || after.closest("main") || after).focus({ preventScroll: true });
  };

  const refresh = async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin" });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const before of document.querySelectorAll("[data-live]")) {
        const after = page.getElementById(before.id);
        if (after && after.innerHTML !== before.innerHTML) exchange(before, document.importNode(after, true));
      }
      const waiting = document.getElementById("waiting").textContent.trim();
      say(waiting ? "Approvals: " + waiting : "");
    } catch {
      // Said by the stream that broke off.
    } finally {
      asking = false;
      if (again) {
        again = false;
        setTimeout(refresh, 500);
      }
    }
  };

  const stream = new EventSource("/events?after=" + encodeURIComponent(newest));
  stream.addEventListener("news", refresh);
  stream.addEventListener("open", () => say(""));
  stream.addEventListener("error", () => say("No longer up to date: agentsh ui has ended, or does not answer."));
})();
