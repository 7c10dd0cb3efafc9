/**
 * What runs first, before the modules of the frame are there: it asks for the modules of the page that the address names, all
 * at once and with all that they import, and who the caller is. `imports` of the document has what each module imports.
 */
import { filesOf } from "./pages/index.js";
import { parse } from "./route.js";

/** Names modules of the page to the browser, which fetches them without running them. @param {string[]} files */
function preload(files) {
  /** @type {Record<string, string[]>} */
  const imports = JSON.parse(document.getElementById("imports")?.textContent ?? "{}");
  const named = new Set(Array.from(document.querySelectorAll("link[rel=modulepreload]"), (link) => /** @type {HTMLLinkElement} */ (link).href));
  for (const file of files) {
    for (const module of imports[`pages/${file}`] ?? []) {
      const { href } = new URL(module, import.meta.url);
      if (!named.has(href)) document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));
      named.add(href);
    }
  }
}

preload(filesOf(parse(location.hash)));
import("./api.js").catch(() => {}); // which asks who the caller is; the frame reports what fails
