import createClient from "openapi-fetch";

/** A typed client: `await recalld({ url, key }).POST("/v1/memories/search", { body })` answers `{ data, error }`. */
export function recalld({ url = "http://127.0.0.1:8000", key, ...options } = {}) {
  const headers = { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...options.headers };
  return createClient({ ...options, baseUrl: url, headers });
}
