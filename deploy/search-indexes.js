// The search indexes of Recalld, the ones that matter most first, for a user who may make them:
//   mongosh "mongodb+srv://…/recalld" deploy/search-indexes.js
// For another embedding model, set `dimensions` to its own. Made by scripts/export_search_indexes.py.
const dimensions = 384;
db.agent_memories.createSearchIndex({
  "name": "agent_memories_vector",
  "definition": {
    "fields": [
      {
        "type": "vector",
        "path": "_r.vector",
        "numDimensions": dimensions,
        "similarity": "cosine"
      },
      {
        "type": "filter",
        "path": "_r.partition"
      },
      {
        "type": "filter",
        "path": "_r.model"
      },
      {
        "type": "filter",
        "path": "base_importance"
      },
      {
        "type": "filter",
        "path": "_r.ranges.event_at"
      },
      {
        "type": "filter",
        "path": "_r.ranges.event_until"
      },
      {
        "type": "filter",
        "path": "_r.ranges.source_said_at"
      },
      {
        "type": "filter",
        "path": "_r.ranges.created_at"
      },
      {
        "type": "filter",
        "path": "_r.ranges.expires_at"
      },
      {
        "type": "filter",
        "path": "_r.ranges.valid_from"
      },
      {
        "type": "filter",
        "path": "_r.ranges.valid_until"
      },
      {
        "type": "filter",
        "path": "_r.ranges.due_from"
      },
      {
        "type": "filter",
        "path": "_r.ranges.trust"
      },
      {
        "type": "filter",
        "path": "tenant_id"
      },
      {
        "type": "filter",
        "path": "_r.absent"
      },
      {
        "type": "filter",
        "path": "memory_type"
      },
      {
        "type": "filter",
        "path": "status"
      },
      {
        "type": "filter",
        "path": "tags"
      },
      {
        "type": "filter",
        "path": "metadata_terms"
      },
      {
        "type": "filter",
        "path": "source.session_id"
      },
      {
        "type": "filter",
        "path": "standing"
      },
      {
        "type": "filter",
        "path": "always"
      }
    ]
  },
  "type": "vectorSearch"
});
db.agent_memories.createSearchIndex({
  "name": "agent_memories_text",
  "definition": {
    "mappings": {
      "dynamic": false,
      "fields": {
        "_r": {
          "type": "document",
          "fields": {
            "partition": {
              "type": "number"
            },
            "model": {
              "type": "number"
            },
            "ranges": {
              "type": "document",
              "fields": {
                "event_at": {
                  "type": "number"
                },
                "event_until": {
                  "type": "number"
                },
                "source_said_at": {
                  "type": "number"
                },
                "created_at": {
                  "type": "number"
                },
                "expires_at": {
                  "type": "number"
                },
                "valid_from": {
                  "type": "number"
                },
                "valid_until": {
                  "type": "number"
                },
                "due_from": {
                  "type": "number"
                },
                "trust": {
                  "type": "number"
                }
              }
            },
            "absent": {
              "type": "token"
            },
            "words": {
              "type": "string",
              "analyzer": "lucene.whitespace",
              "indexOptions": "freqs"
            }
          }
        },
        "base_importance": {
          "type": "number"
        },
        "tenant_id": {
          "type": "token"
        },
        "memory_type": {
          "type": "token"
        },
        "status": {
          "type": "token"
        },
        "tags": {
          "type": "token"
        },
        "metadata_terms": {
          "type": "token"
        },
        "source": {
          "type": "document",
          "fields": {
            "session_id": {
              "type": "token"
            }
          }
        },
        "standing": {
          "type": "token"
        },
        "always": {
          "type": "token"
        }
      }
    }
  },
  "type": "search"
});
db.action_logs.createSearchIndex({
  "name": "action_logs_vector",
  "definition": {
    "fields": [
      {
        "type": "vector",
        "path": "_r.vector",
        "numDimensions": dimensions,
        "similarity": "cosine"
      },
      {
        "type": "filter",
        "path": "_r.partition"
      },
      {
        "type": "filter",
        "path": "_r.model"
      },
      {
        "type": "filter",
        "path": "base_importance"
      },
      {
        "type": "filter",
        "path": "_r.ranges.timestamp"
      },
      {
        "type": "filter",
        "path": "tenant_id"
      },
      {
        "type": "filter",
        "path": "_r.absent"
      },
      {
        "type": "filter",
        "path": "action_type"
      },
      {
        "type": "filter",
        "path": "event_type"
      },
      {
        "type": "filter",
        "path": "outcome"
      },
      {
        "type": "filter",
        "path": "entities"
      },
      {
        "type": "filter",
        "path": "tags"
      },
      {
        "type": "filter",
        "path": "entity_keys"
      },
      {
        "type": "filter",
        "path": "tag_keys"
      },
      {
        "type": "filter",
        "path": "mentions"
      },
      {
        "type": "filter",
        "path": "session_id"
      },
      {
        "type": "filter",
        "path": "task_id"
      }
    ]
  },
  "type": "vectorSearch"
});
db.action_logs.createSearchIndex({
  "name": "action_logs_text",
  "definition": {
    "mappings": {
      "dynamic": false,
      "fields": {
        "_r": {
          "type": "document",
          "fields": {
            "partition": {
              "type": "number"
            },
            "model": {
              "type": "number"
            },
            "ranges": {
              "type": "document",
              "fields": {
                "timestamp": {
                  "type": "number"
                }
              }
            },
            "absent": {
              "type": "token"
            },
            "words": {
              "type": "string",
              "analyzer": "lucene.whitespace",
              "indexOptions": "freqs"
            }
          }
        },
        "base_importance": {
          "type": "number"
        },
        "tenant_id": {
          "type": "token"
        },
        "action_type": {
          "type": "token"
        },
        "event_type": {
          "type": "token"
        },
        "outcome": {
          "type": "token"
        },
        "entities": {
          "type": "token"
        },
        "tags": {
          "type": "token"
        },
        "entity_keys": {
          "type": "token"
        },
        "tag_keys": {
          "type": "token"
        },
        "mentions": {
          "type": "token"
        },
        "session_id": {
          "type": "token"
        },
        "task_id": {
          "type": "token"
        }
      }
    }
  },
  "type": "search"
});
db.facts.createSearchIndex({
  "name": "facts_vector",
  "definition": {
    "fields": [
      {
        "type": "vector",
        "path": "_r.vector",
        "numDimensions": dimensions,
        "similarity": "cosine"
      },
      {
        "type": "filter",
        "path": "_r.partition"
      },
      {
        "type": "filter",
        "path": "_r.model"
      },
      {
        "type": "filter",
        "path": "confidence"
      },
      {
        "type": "filter",
        "path": "_r.ranges.valid_from"
      },
      {
        "type": "filter",
        "path": "_r.ranges.valid_until"
      },
      {
        "type": "filter",
        "path": "_r.ranges.known_from"
      },
      {
        "type": "filter",
        "path": "_r.ranges.known_until"
      },
      {
        "type": "filter",
        "path": "_r.ranges.trust"
      },
      {
        "type": "filter",
        "path": "tenant_id"
      },
      {
        "type": "filter",
        "path": "_r.absent"
      },
      {
        "type": "filter",
        "path": "subject_key"
      },
      {
        "type": "filter",
        "path": "predicate_key"
      },
      {
        "type": "filter",
        "path": "object_type"
      },
      {
        "type": "filter",
        "path": "standing"
      },
      {
        "type": "filter",
        "path": "always"
      }
    ]
  },
  "type": "vectorSearch"
});
db.facts.createSearchIndex({
  "name": "facts_text",
  "definition": {
    "mappings": {
      "dynamic": false,
      "fields": {
        "_r": {
          "type": "document",
          "fields": {
            "partition": {
              "type": "number"
            },
            "model": {
              "type": "number"
            },
            "ranges": {
              "type": "document",
              "fields": {
                "valid_from": {
                  "type": "number"
                },
                "valid_until": {
                  "type": "number"
                },
                "known_from": {
                  "type": "number"
                },
                "known_until": {
                  "type": "number"
                },
                "trust": {
                  "type": "number"
                }
              }
            },
            "absent": {
              "type": "token"
            },
            "words": {
              "type": "string",
              "analyzer": "lucene.whitespace",
              "indexOptions": "freqs"
            }
          }
        },
        "confidence": {
          "type": "number"
        },
        "tenant_id": {
          "type": "token"
        },
        "subject_key": {
          "type": "token"
        },
        "predicate_key": {
          "type": "token"
        },
        "object_type": {
          "type": "token"
        },
        "standing": {
          "type": "token"
        },
        "always": {
          "type": "token"
        }
      }
    }
  },
  "type": "search"
});
db.procedures.createSearchIndex({
  "name": "procedures_vector",
  "definition": {
    "fields": [
      {
        "type": "vector",
        "path": "_r.vector",
        "numDimensions": dimensions,
        "similarity": "cosine"
      },
      {
        "type": "filter",
        "path": "_r.partition"
      },
      {
        "type": "filter",
        "path": "_r.model"
      },
      {
        "type": "filter",
        "path": "base_importance"
      },
      {
        "type": "filter",
        "path": "_r.ranges.success_rate"
      },
      {
        "type": "filter",
        "path": "_r.ranges.trust"
      },
      {
        "type": "filter",
        "path": "_r.ranges.created_at"
      },
      {
        "type": "filter",
        "path": "tenant_id"
      },
      {
        "type": "filter",
        "path": "_r.absent"
      },
      {
        "type": "filter",
        "path": "status"
      },
      {
        "type": "filter",
        "path": "tags"
      }
    ]
  },
  "type": "vectorSearch"
});
db.procedures.createSearchIndex({
  "name": "procedures_text",
  "definition": {
    "mappings": {
      "dynamic": false,
      "fields": {
        "_r": {
          "type": "document",
          "fields": {
            "partition": {
              "type": "number"
            },
            "model": {
              "type": "number"
            },
            "ranges": {
              "type": "document",
              "fields": {
                "success_rate": {
                  "type": "number"
                },
                "trust": {
                  "type": "number"
                },
                "created_at": {
                  "type": "number"
                }
              }
            },
            "absent": {
              "type": "token"
            },
            "words": {
              "type": "string",
              "analyzer": "lucene.whitespace",
              "indexOptions": "freqs"
            }
          }
        },
        "base_importance": {
          "type": "number"
        },
        "tenant_id": {
          "type": "token"
        },
        "status": {
          "type": "token"
        },
        "tags": {
          "type": "token"
        }
      }
    }
  },
  "type": "search"
});
