"""What an erasure under way has to remember, as it is stored."""

from app.storage.collection import Collection

ERASURE_NOTES = Collection(
    name="erasure_notes",
    id_field="note_id",
    fields={"tombstone": "text"},
    indexes=(("tombstone",),),
    opaque=("counts",),
    audited=False,
)
"""Each commit of an erasure adds a note: ids that went (`of` names their collection), and how many of each kind. A run
that goes on after a crash reads them; they are deleted when the erasure is verified."""
