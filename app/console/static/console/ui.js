/** What every module of the console takes from the libraries: Preact, its hooks and htm. */
import { Component, createContext, h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { Component, createContext, render };
export {
  useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState,
} from "./vendor/hooks.mjs";

/** Makes elements: html`<p class="quiet">${text}</p>`. Values become text, never markup. */
export const html = htm.bind(h);
