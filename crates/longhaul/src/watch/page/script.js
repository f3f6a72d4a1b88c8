// Fetches the page again every few seconds and puts its main part in place of this one. Without it
// the page is as good: it is then loaded again by hand.
"use strict";
(() => {
  const every = 5000;
  const button = document.getElementById("pause");
  const told = document.getElementById("told");
  let paused = false;
  let busy = false;
  let lost = false;

  // Only what changes is said, so that a screen reader is not disturbed every few seconds.
  const say = (text) => {
    if (told.textContent !== text) {
      told.textContent = text;
    }
  };

  const isRead = () => {
    const selection = document.getSelection();
    const main = document.getElementById("main");
    return selection !== null && !selection.isCollapsed && main.contains(selection.anchorNode);
  };

  const refresh = async () => {
    if (paused || busy || document.hidden || isRead()) {
      return;
    }
    busy = true;
    try {
      const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(every) });
      if (!answer.ok) {
        throw new Error(String(answer.status));
      }
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (next === null) {
        throw new Error("no page");
      }
      if (!paused) {
        document.getElementById("main").replaceChildren(...next.childNodes);
      }
      if (lost) {
        say("The daemon answers again.");
      }
      lost = false;
    } catch {
      lost = true;
      say("The daemon does not answer: these figures are old.");
    } finally {
      busy = false;
    }
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    say(paused ? "Paused." : "");
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, every);
})();
