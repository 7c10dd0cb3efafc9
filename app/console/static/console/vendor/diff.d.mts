export { diffWordsWithSpace } from "diff";
