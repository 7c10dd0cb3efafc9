/** The demo in six steps: a strip above the page, in a store that `recalld demo` has filled. It stays closed once it was;
 * a button in the head of the frame opens it again. */
import { html, useState } from "../ui.js";
import { go, to } from "../route.js";
import { Icon } from "./text.js";
import { useKnown } from "./scope.js";

const KEPT = "recalld.tour";
export const TOUR = "The demo in six steps";
/** The model of the story's agents, which no other store has. */
const STORY_MODEL = "a script, no model";
/** Before Mira moved. */
const BEFORE_DAYS = 40;

const before = () => new Date(Date.now() - BEFORE_DAYS * 86_400_000).toISOString().slice(0, 10);
const MIRA = { user_id: "mira", agent_id: "" };

/** @type {{ title: string, says: string, href: () => string }[]} */
const STEPS = [
  { title: "Who is Mira now?", says: "She moved, bought an e-bike and changed her job. What holds now stands beside what it replaced; each line leads to the words that were said.",
    href: () => to("owners", ["users", "mira"], MIRA) },
  { title: "Where did she live before?", says: "Facts have a time. This is what was true on a day six weeks ago: move the slider to the right and she moves to Bergedorf.",
    href: () => to("owners", ["users", "mira", "facts"], { ...MIRA, as_of: before() }) },
  { title: "What did a session leave behind?", says: "Beside each turn stands what was made of it. All of it can be undone, and then what it replaced comes back.",
    href: () => to("sessions", ["mira-has-moved"], MIRA) },
  { title: "Why did it say that?", says: "The desk asked after a Kestrel that nobody had named that day. This is the prompt behind the answer, built again: each entry with the turn that it comes from, and what was left out and why.",
    href: () => to("prompt", [], { session_id: "mira-has-moved", turn: 2, user_id: "mira", agent_id: "front-desk" }) },
  { title: "What contradicts itself?", says: "Jonas's order has another address than the one that he gave. Both stand side by side, with what each choice does; nothing changes until somebody decides.",
    href: () => to("findings", [], { user_id: "jonas", agent_id: "" }) },
  { title: "Is it healthy?", says: "How much is stored, what was recalled lately, whether the jobs run, and how fast it answers.",
    href: () => to("overview", [], { user_id: "", agent_id: "" }) },
];

/** Whether the store holds the demo's story. @returns {boolean} */
export const useIsDemo = () => useKnown().agents.some((agent) => agent.model === STORY_MODEL);

/** Whether the strip is shown, and a function that opens or closes it. @returns {[boolean, (open: boolean) => void]} */
export function useTour() {
  const [open, set] = useState(localStorage.getItem(KEPT) !== "closed");
  return [open, (wanted) => {
    localStorage.setItem(KEPT, wanted ? "open" : "closed");
    set(wanted);
  }];
}

/** Opens the strip again. @param {{ onOpen: () => void }} props */
export const OpenTour = ({ onOpen }) => (useIsDemo() ? html`<button type="button" class="plain tours" onClick=${onOpen}>The demo</button>` : null);

/** @param {{ onClose: () => void }} props */
export function Tour({ onClose }) {
  const [step, set] = useState(-1);
  const demo = useIsDemo();
  if (!demo) return null;
  // The address is read before the strip draws again: the link of the next step has another one by then.
  const open = (/** @type {number} */ index) => (/** @type {Event} */ event) => {
    event.preventDefault();
    go(STEPS[index].href());
    set(index);
  };
  const next = STEPS[step + 1];
  return html`<section class="tour" aria-label=${TOUR}>
    <p role="status"><span class="brief">${step < 0 ? "Demo with invented people, six steps" : `Demo, step ${step + 1} of ${STEPS.length}`}. </span><span class="says">${step < 0 ? "This store holds a story: a bicycle workshop's memory of eight weeks, everybody in it invented. Six steps show what it knows." : STEPS[step].says} </span>
      ${next && html`<a href=${next.href()} onClick=${open(step + 1)}>${step < 0 ? "Begin" : `Next: ${next.title}`}</a>`}</p>
    <ol>${STEPS.map((one, index) => html`<li key=${one.title}><a href=${one.href()} aria-current=${index === step ? "step" : undefined} onClick=${open(index)}>${one.title}</a></li>`)}</ol>
    <button type="button" class="bare" aria-label="Close" onClick=${onClose}><${Icon} of="x" /></button></section>`;
}
