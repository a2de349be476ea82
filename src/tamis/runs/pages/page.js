// Sorting by the head of a column; the page is complete without it.
function enhance(root) {
  for (const head of root.querySelectorAll("table.sortable th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => { const cell = row.cells[column]; return cell.dataset.value ?? cell.textContent; };
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b), numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        const order = numbers ? x - y : x.localeCompare(y);
        return down ? -order : order;
      });
      body.append(...rows);
    });
  }
  // A region that scrolls sideways can be reached with the keyboard.
  for (const region of root.querySelectorAll(".wide")) {
    if (region.scrollWidth > region.clientWidth) {
      region.tabIndex = 0;
      region.classList.add("scroll");
      region.setAttribute("role", "region");
      region.setAttribute("aria-label", "table, scrolls sideways");
    }
  }
}
enhance(document);
