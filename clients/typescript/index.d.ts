import type { Client, ClientOptions } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type Schemas = components["schemas"];
export interface Options extends Omit<ClientOptions, "baseUrl"> {
  url?: string;
  key?: string;
}
/** A typed client: `await recalld({ url, key }).POST("/v1/memories/search", { body })` answers `{ data, error }`. */
export function recalld(options?: Options): Client<paths>;
