/** The frame of the console: menu, whose memory, finding, key, theme, and the page that the address names. */
import { Component, html, render, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";
import { Problem, asProblem, key, may, unauthorized, useModule, whoami } from "./api.js";
import { PAGES, choices, filesOf, load } from "./pages/index.js";
import { Dialog, ProblemBox, ToastArea, useAction } from "./parts/feedback.js";
import { KnownOwners, ScopeChoice } from "./parts/scope.js";
import { OpenTour, TOUR, Tour, useTour } from "./parts/tour.js";
import { Icon } from "./parts/text.js";
import { parse, to } from "./route.js";

/** @typedef {{ route: import("./route.js").Route, caller: import("./api.js").Caller }} PageProps */
/** @typedef {(props: PageProps) => any} Page */

const THEME = "recalld.theme";
const THEMES = /** @type {const} */ (["auto", "light", "dark"]);

/** @returns {[string, (theme: string) => void]} */
function useTheme() {
  const [theme, set] = useState(localStorage.getItem(THEME) ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(THEME, theme);
    dispatchEvent(new Event("theme"));
  }, [theme]);
  return [theme, set];
}

/** @param {{ theme: string, set: (theme: string) => void }} props */
function Theme({ theme, set }) {
  return html`<label class="theme">Theme <select value=${theme}
    onChange=${(/** @type {any} */ event) => set(event.target.value)}>
    ${THEMES.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>`;
}

/** Asks for a key, tries it and keeps it in this tab. @param {{ onDone: () => void, wrong?: Problem }} props */
function KeyForm({ onDone, wrong }) {
  const [given, set] = useState("");
  const enter = useAction(async () => {
    key.set(given.trim());
    try {
      await whoami();
    } catch (error) {
      key.set("");
      throw error;
    }
    onDone();
  });
  return html`<form class="key" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); enter.start(); }}>
    <h1>Recalld</h1>
    <p>This service has API keys. Enter one; it is kept in this tab until you close it.</p>
    <label>API key <input type="password" autocomplete="off" required value=${given} placeholder="rk_…"
      onInput=${(/** @type {any} */ event) => set(event.target.value)} /></label>
    <${ProblemBox} problem=${enter.error ?? (given ? undefined : wrong)} />
    <p><button type="submit" class="main" disabled=${enter.busy}>Open</button></p>
    <p class="quiet small">Make one on the machine of the service: <code>recalld keys create --tenant default --name console</code>. It reads and decides; with <code>--verbs read</code> it only reads.</p>
  </form>`;
}

/** Catches what a page throws while it draws, so that the menu stays. @extends {Component<{ children: any }, { error?: Problem }>} */
class Guard extends Component {
  state = /** @type {{ error?: Problem }} */ ({});

  /** @param {unknown} error */
  componentDidCatch(error) {
    this.setState({ error: asProblem(error) });
  }

  render() {
    return this.state.error ? html`<${ProblemBox} problem=${this.state.error} />` : this.props.children;
  }
}

/** @param {PageProps} props */
function View({ route, caller }) {
  const entry = PAGES.find((page) => page.name === route.page);
  return entry ? html`<${Entry} entry=${entry} route=${route} caller=${caller} />`
    : html`<p>There is no page “${route.page}”. <a href=${to("overview")}>Overview</a></p>`;
}

/** @param {PageProps & { entry: typeof PAGES[number] }} props */
function Entry({ entry, ...props }) {
  const { data: module, error, loading } = useModule(entry.file);
  useLayoutEffect(() => { document.title = `${entry.title} · Recalld`; }, [entry]);
  if (loading) return html`<p class="quiet" role="status">Loading…</p>`;
  return module ? html`<${Guard} key=${entry.name}><${module.default} ...${props} /></${Guard}>` : html`<${ProblemBox} problem=${error} />`;
}

const SHORTCUTS = [["⌘K", "Find people, pages, sessions and memories; Ctrl+K, too"], ["/", "Go to the search of the page"], ["?", "Show this list"], ["Esc", "Close a dialog"]];

/** Keys of the whole console: ⌘K or Ctrl+K finds, `/` search, `?` help, `1` to `9` pages.
 * @param {(open: boolean) => void} showHelp @param {(open: boolean) => void} showFind */
function useShortcuts(showHelp, showFind) {
  useEffect(() => {
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !target.closest("dialog")) {
        showFind(true);
        event.preventDefault();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      const page = PAGES[Number(event.key) - 1];
      const search = /** @type {HTMLElement | null} */ (document.querySelector("main input[type=search]"));
      if (event.key === "/") search ? search.focus() : showFind(true);
      else if (event.key === "?") showHelp(true);
      else if (page && !page.hidden) location.hash = to(page.name);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** The route of now; the component draws again when it changes. */
function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}

function Console() {
  const route = useRoute();
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const [caller, setCaller] = useState(/** @type {import("./api.js").Caller | undefined} */ (undefined));
  const [problem, setProblem] = useState(/** @type {Problem | undefined} */ (undefined));
  const [help, showHelp] = useState(false);
  const [finds, showFind] = useState(false);
  const [menu, showMenu] = useState(false);
  const [theme, setTheme] = useTheme();
  const [tour, showTour] = useTour();
  const enter = () => {
    setProblem(undefined);
    whoami().then(setCaller, (error) => setProblem(asProblem(error)));
  };
  const leave = () => { key.set(""); setCaller(undefined); enter(); };
  useLayoutEffect(() => {
    const asked = () => { key.set(""); setCaller(undefined); };
    unauthorized.addEventListener("401", asked);
    enter();
    return () => unauthorized.removeEventListener("401", asked);
  }, []);
  useShortcuts(showHelp, showFind);
  useEffect(() => showMenu(false), [location.hash]);
  if (!caller) {
    if (problem?.status === 401) return html`<main><${KeyForm} onDone=${enter} wrong=${key.get() ? problem : undefined} /></main>`;
    return html`<main>${problem
      ? html`<h1>Recalld</h1><${ProblemBox} problem=${problem} /><p><button type="button" onClick=${leave}>Enter another key</button></p>`
      : html`<p class="quiet" role="status">Loading…</p>`}</main>`;
  }
  const pages = PAGES.filter((page) => !page.hidden && caller.verbs.includes(page.verb));
  const bound = [...(caller.users ?? []), ...(caller.agents ?? [])];
  const commands = [
    ...THEMES.filter((one) => one !== theme).map((one) => ({ group: "Commands", label: `Theme: ${one}`, run: () => setTheme(one) })),
    ...(tour ? [] : [{ group: "Commands", label: TOUR, run: () => showTour(true) }]),
    { group: "Commands", label: "Keyboard shortcuts", run: () => showHelp(true) },
    ...pages.map((page) => ({ group: "Go to", label: page.title, href: to(page.name) })), // they are in the menu, too: what only stands here comes before
  ];
  return html`<${ToastArea}><${KnownOwners} route=${route}>
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the page</a>
    <div class="frame">
      <aside class=${menu ? "side open" : "side"}>
        <div class="brand"><strong>Recalld</strong><button type="button" class="menu" aria-expanded=${menu ? "true" : "false"} aria-controls="menu" onClick=${() => showMenu(!menu)}><${Icon} of="menu" /> Menu</button></div>
        <div class="drawer" id="menu"><nav aria-label="Pages">${pages.map((page, index) => html`${page.group !== pages[index - 1]?.group && html`<div class="group">${page.group}</div>`}
          <a href=${to(page.name)} aria-current=${page.name === route.page ? "page" : undefined}><${Icon} of=${page.icon} />${page.title}</a>`)}</nav>
          <div class="who"><span class="quiet small" title=${`Key ${caller.key_id}, verbs ${caller.verbs.join(", ")}`}>
            ${[caller.tenant, may(caller, "write") ? "" : "read only", caller.key_id === "anonymous" ? "no API keys: this machine only" : "",
              bound.length ? `bound to ${bound.join(", ")}` : ""].filter(Boolean).join(" · ")}</span>
            <${Theme} theme=${theme} set=${setTheme} />
            <span class="row">${key.get() && html`<button type="button" class="small" onClick=${leave}><${Icon} of="log-out" /> Leave</button>`}
            <button type="button" class="small" aria-label="Keyboard shortcuts" onClick=${() => showHelp(true)}><${Icon} of="circle-question-mark" /></button></span></div></div>
      </aside>
      <div class="content">
        <header class="top"><${ScopeChoice} route=${route} caller=${caller} asked=${choices(route)} /><div class="row">${!tour && html`<${OpenTour} onOpen=${() => showTour(true)} />`}
          <button type="button" class="find" onClick=${() => showFind(true)}><span><${Icon} of="search" /> Find…</span> <kbd>⌘K</kbd></button></div></header>
        ${tour && html`<${Tour} onClose=${() => showTour(false)} />`}
        <main id="main" ref=${main} tabindex="-1"><${View} route=${route} caller=${caller} /></main>
      </div>
    </div>
    ${finds && html`<${Find} route=${route} commands=${commands} onClose=${() => showFind(false)} />`}
    ${help && html`<${Dialog} title="Keyboard" onClose=${() => showHelp(false)}><table><tbody>
      ${pages.map((page, index) => html`<tr><th><kbd>${index + 1}</kbd></th><td>${page.title}</td></tr>`)}
      ${SHORTCUTS.map(([name, what]) => html`<tr><th><kbd>${name}</kbd></th><td>${what}</td></tr>`)}</tbody></table></${Dialog}>`}
  </${KnownOwners}></${ToastArea}>`;
}

/** What ⌘K opens, fetched when it is asked for. @param {Parameters<typeof import("./parts/palette.js").default>[0]} props */
function Find(props) {
  const { data: module, error } = useModule("../parts/palette.js");
  return module ? html`<${module.default} ...${props} />` : html`<${ProblemBox} problem=${error} />`;
}

const root = document.getElementById("console");
if (root) {
  // `start.js` has asked for the page's modules together with those of the frame. The frame reports what fails.
  await Promise.allSettled(filesOf(parse(location.hash)).map(load));
  root.replaceChildren();
  render(html`<${Console} />`, root);
}
