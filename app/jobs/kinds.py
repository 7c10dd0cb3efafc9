"""Jobs that layers above run; those below queue them by these names alone."""

POST_CONVERSATION = "post_conversation"
SUMMARIZE = "summarize"
CONSOLIDATION = "consolidation"
UNDO = "undo"
