// Elements of the page.  The one file that makes them: text goes in as text, so nothing that a prompt or a model wrote
// is ever read as markup.  Styles come from the sheets; only custom properties and sizes are set from here.

const SVG = "http://www.w3.org/2000/svg"; // a name, not an address

/** An element.  `props`: `class`, `text`, `on` (event → listener), `vars` (custom CSS properties), else attributes. */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for a drawing. */
export function svgEl(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/** In the place of what `parent` held. */
export function show(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null));
}

/** Hands `text` to the person as a file. */
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be reading it
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "vars") for (const [key, val] of Object.entries(value)) node.style.setProperty(key, val);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
