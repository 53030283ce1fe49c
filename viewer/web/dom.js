// @ts-check
/** Makes elements. Text reaches the page as text nodes only: names of kernels are strangers' input. */

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Sets what `properties` says: functions under `on...` listen, `class`, `dataset`, `style` (an object; through the
 * object model, as the page's policy allows no style attributes), booleans switch attributes, others are attributes.
 * @param {Element} element
 * @param {Record<string, any> | null | undefined} properties
 */
export function assign(element, properties) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on") && typeof value === "function") {
      element.addEventListener(key.slice(2).toLowerCase(), value);
    } else if (key === "style") {
      for (const [name, text] of Object.entries(value)) {
        if (text !== null && text !== undefined) /** @type {HTMLElement} */ (element).style.setProperty(name, String(text));
      }
    } else if (key === "dataset") {
      for (const [name, text] of Object.entries(value)) /** @type {HTMLElement} */ (element).dataset[name] = String(text);
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
}

/**
 * @param {Node} parent
 * @param {Child[]} children
 */
function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * An element of HTML.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  assign(element, properties);
  append(element, children);
  return element;
}

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  assign(element, properties);
  append(element, children);
  return element;
}

/**
 * Puts `children` in the place of everything in `parent`.
 * @param {Element} parent
 * @param {...Child} children
 */
export function replace(parent, ...children) {
  parent.textContent = "";
  append(parent, children);
}
