// Live pages: the server sends parts of the page when they have changed.
const source = document.querySelector("[data-events]");
if (source) {
  const status = document.querySelector(".live");
  const say = (text) => { if (status) status.textContent = text; };
  const stream = new EventSource(source.dataset.events);
  stream.addEventListener("open", () => say("live"));
  stream.addEventListener("error", () => say(stream.readyState === EventSource.CLOSED ? "" : "connection lost, trying again"));
  stream.addEventListener("end", () => { stream.close(); say("the run has ended"); });
  stream.addEventListener("update", (event) => {
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const part = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
      if (part) replace(part, html);
    }
  });
}

// What was open stays open, and what had the focus keeps it.
function replace(part, html) {
  const key = (element) => element.closest("[data-key]")?.dataset.key ?? element.querySelector("summary")?.textContent;
  const open = new Set([...part.querySelectorAll("details[open]")].map(key));
  const focused = part.contains(document.activeElement) ? key(document.activeElement.closest("details") ?? document.activeElement) : null;
  part.innerHTML = html;
  enhance(part);
  for (const details of part.querySelectorAll("details")) {
    if (open.has(key(details))) details.open = true;
    if (focused && key(details) === focused) details.querySelector("summary").focus({ preventScroll: true });
  }
}

// Keys of the drops browser: / searches, n and p turn pages.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const target = { "/": "input[type=search]", n: "a[rel=next]", p: "a[rel=prev]" }[event.key];
  const element = target && document.querySelector(target);
  if (!element) return;
  event.preventDefault();
  if (event.key === "/") element.focus(); else element.click();
});
