//! What is true of the recording as a whole, on a track of its own: what it is of, what was lost, and that GPUs were simulated.

use std::io;

use gputrace_trace::Recording;

use super::arguments::{Arguments, Key};
use super::categories::Category;
use super::names::Names;
use super::packets::Packets;
use super::tracks::{Track, Uuids};

/// Writes the track, on the current sequence.
pub(super) fn write(
    recording: &Recording,
    (first_ns, last_ns): (i64, i64),
    shift_ns: i64,
    names: &mut Names<'_>,
    uuids: &mut Uuids,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let simulated = recording.is_simulated();
    let uuid = uuids.take("recording");
    Track {
        uuid,
        parent: None,
        name: if simulated {
            "recording (simulated GPUs)"
        } else {
            "recording"
        },
        place: 0,
        description: "The recording as a whole, what was lost, and notes.",
    }
    .write(packets)?;
    packets.set_track(uuid)?;
    let title = match recording.manifest.device.as_str() {
        _ if simulated => "simulated GPUs: device times are a model's",
        "imported" => "imported trace",
        _ => "recording",
    };
    let manifest = &recording.manifest;
    let name = names.text(title, packets)?;
    let has_arguments = packets.has_arguments();
    packets.begin(first_ns, name, Category::About, |fields| {
        if !has_arguments {
            return;
        }
        let mut arguments = Arguments::new(fields);
        arguments.some_text(Key::Version, &manifest.gputrace);
        arguments.some_text(Key::Device, &manifest.device);
        arguments.some_text(Key::Command, &manifest.command.join(" "));
        arguments.some_text(Key::Host, &manifest.host);
        arguments.int(Key::Started, manifest.started_ns);
        arguments.maybe_int(Key::Ended, manifest.ended_ns);
        arguments.maybe_int(Key::ExitStatus, manifest.exit_status);
        if shift_ns != 0 {
            arguments.int(Key::Shift, shift_ns);
        }
    })?;
    // Within the slice, so that losses are seen with it.
    for loss in &recording.losses {
        let name = names.text(&format!("lost: {}", loss.what), packets)?;
        packets.instant(first_ns, None, name, Category::About, |arguments| {
            arguments.maybe_uint(Key::Count, loss.count);
            arguments.some_text(Key::Affects, &loss.affects);
        })?;
    }
    // The offset of each clock, in the middle of the time over which it was compared.
    for (number, clock) in recording
        .clocks
        .iter()
        .flat_map(|alignment| alignment.clocks.iter().enumerate())
    {
        let at = clock.course.at(i64::midpoint(clock.from_ns, clock.to_ns));
        let name = names.text("clock", packets)?;
        packets.instant(first_ns, None, name, Category::About, |arguments| {
            arguments.uint(Key::Clock, number as u64);
            arguments.some_text(Key::Host, &clock.host);
            arguments.uint(Key::ClockReference, clock.reference);
            arguments.int(Key::ClockOffset, at.offset_ns);
            arguments.int(Key::ClockError, at.half_width_ns);
            arguments.uint(Key::Collectives, clock.collectives);
        })?;
    }
    let notes = recording.notes.iter().chain(&recording.unaligned);
    for note in notes {
        let name = names.text("note", packets)?;
        packets.instant(first_ns, None, name, Category::About, |arguments| {
            arguments.text(Key::Text, note);
        })?;
    }
    packets.end(last_ns)
}
