//! The critical path, on a track of its own: it goes from rank to rank.

use std::io;

use gputrace_trace::derived::DerivedPiece;

use super::arguments::{Arguments, Key};
use super::categories::Category;
use super::names::Names;
use super::packets::Packets;
use super::tracks::{Track, Uuids};

/// Writes the track, on the current sequence; nothing where there is no path.
pub(super) fn write(
    pieces: &[DerivedPiece],
    names: &mut Names<'_>,
    uuids: &mut Uuids,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    if pieces.is_empty() {
        return Ok(());
    }
    let uuid = uuids.take("critical path");
    Track {
        uuid,
        parent: None,
        name: "critical path",
        place: 1,
        description: "What the time of the steps was spent on, over all ranks: whatever the next piece was waiting for.",
    }
    .write(packets)?;
    packets.set_track(uuid)?;
    let has_arguments = packets.has_arguments();
    let mut over = i64::MIN;
    for piece in pieces {
        // Pieces follow each other; slices of one track must not overlap, whatever is given.
        let start = piece.start_ns.max(over);
        let end = piece.end_ns.max(start);
        over = end;
        let text = match &*piece.name {
            "" => piece.what.to_owned(),
            name => format!("{} {name}", piece.what),
        };
        let name = names.text(&text, packets)?;
        packets.begin(start, name, Category::CriticalPath, |fields| {
            if has_arguments {
                Arguments::new(fields).maybe_uint(Key::Rank, piece.rank);
            }
        })?;
        packets.end(end)?;
    }
    Ok(())
}
