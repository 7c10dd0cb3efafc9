/* Opens the API page on the document of this service. Swagger UI keeps a key in memory only. */
/* global SwaggerUIBundle */
"use strict";
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  tryItOutEnabled: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
