//! Packets of one sequence: the unit in which Perfetto keeps interned names and defaults.
//!
//! Each process of a recording is a sequence. Events are on the track that was last set as the default, which saves its
//! number in each of them, and have names and categories by numbers that were told before.

use std::io::{self, Write};

use super::arguments::{Arguments, argument_names};
use super::categories::{CATEGORY_NAMES, Category};
use super::fields::{self, defaults, event, interned, packet};
use crate::export::protobuf::ProtoBuffer;

/// Bytes that are gathered before they are written out.
const ROOM_BYTES: usize = 1 << 18;

/// Writes the packets of a trace.
pub(super) struct Packets<'o> {
    out: &'o mut dyn Write,
    buffer: ProtoBuffer,
    /// The current sequence, from 1.
    sequence: u64,
    /// The machine that the sequence is on; 0 is the first, of which packets say nothing.
    machine: u64,
    /// Added to all times, so that none is negative.
    shift_ns: i64,
    arguments: bool,
}

impl<'o> Packets<'o> {
    pub(super) fn new(out: &'o mut dyn Write, shift_ns: i64, arguments: bool) -> Self {
        Self {
            out,
            buffer: ProtoBuffer::with_capacity(ROOM_BYTES + (ROOM_BYTES >> 2)),
            sequence: 0,
            machine: 0,
            shift_ns,
            arguments,
        }
    }

    /// Whether events are to say more than their names and times.
    pub(super) fn has_arguments(&self) -> bool {
        self.arguments
    }

    /// Begins the next sequence, on a machine.
    pub(super) fn begin_sequence(&mut self, machine: u32) -> io::Result<()> {
        self.sequence += 1;
        self.machine = machine.into();
        self.packet(packet::STATE_CLEARED | packet::NEEDS_STATE, |fields| {
            fields.uint(packet::FIRST_ON_SEQUENCE, 1);
            fields.message(packet::INTERNED_DATA, |data| {
                for (iid, name) in (1..).zip(CATEGORY_NAMES) {
                    intern(data, interned::CATEGORIES, iid, name);
                }
            });
        })?;
        if !self.arguments {
            return Ok(());
        }
        self.interned(|data| {
            for (iid, name) in argument_names() {
                intern(data, interned::ANNOTATION_NAMES, iid, name);
            }
        })
    }

    /// A packet with these sequence flags.
    #[inline]
    pub(super) fn packet(&mut self, flags: u64, write: impl FnOnce(&mut ProtoBuffer)) -> io::Result<()> {
        let (sequence, machine) = (self.sequence, self.machine);
        self.buffer.message(fields::PACKET, |fields| {
            fields.uint(packet::SEQUENCE_ID, sequence);
            fields.uint(packet::SEQUENCE_FLAGS, flags);
            if machine != 0 {
                fields.uint(packet::MACHINE_ID, machine);
            }
            write(fields);
        });
        if self.buffer.len() < ROOM_BYTES {
            return Ok(());
        }
        self.buffer.write_to(self.out)
    }

    /// A packet of some moment.
    #[inline]
    pub(super) fn timed(&mut self, time_ns: i64, write: impl FnOnce(&mut ProtoBuffer)) -> io::Result<()> {
        let time_ns = time_ns.saturating_add(self.shift_ns);
        self.packet(packet::NEEDS_STATE, |fields| {
            fields.uint(packet::TIMESTAMP, time_ns.max(0).cast_unsigned());
            write(fields);
        })
    }

    /// A packet of interned data.
    pub(super) fn interned(&mut self, write: impl FnOnce(&mut ProtoBuffer)) -> io::Result<()> {
        self.packet(packet::NEEDS_STATE, |fields| {
            fields.message(packet::INTERNED_DATA, write);
        })
    }

    /// A packet that describes a track.
    pub(super) fn track(&mut self, write: impl FnOnce(&mut ProtoBuffer)) -> io::Result<()> {
        self.packet(packet::NEEDS_STATE, |fields| {
            fields.message(packet::TRACK_DESCRIPTOR, write);
        })
    }

    /// From now on events are on this track.
    pub(super) fn set_track(&mut self, uuid: u64) -> io::Result<()> {
        self.packet(packet::NEEDS_STATE, |fields| {
            fields.message(packet::DEFAULTS, |packet| {
                packet.message(defaults::TRACK_EVENT, |event| {
                    event.uint(defaults::TRACK_UUID, uuid);
                });
            });
        })
    }

    /// The begin of a slice.
    #[inline]
    pub(super) fn begin(
        &mut self,
        time_ns: i64,
        name: u64,
        category: Category,
        more: impl FnOnce(&mut ProtoBuffer),
    ) -> io::Result<()> {
        self.timed(time_ns, |fields| {
            fields.message(packet::TRACK_EVENT, |fields| {
                fields.uint(event::TYPE, event::BEGIN);
                fields.uint(event::NAME_IID, name);
                fields.uint(event::CATEGORY_IIDS, category.iid());
                more(fields);
            });
        })
    }

    /// The end of the slice that began last of those that have not ended.
    #[inline]
    pub(super) fn end(&mut self, time_ns: i64) -> io::Result<()> {
        self.timed(time_ns, |fields| {
            fields.message(packet::TRACK_EVENT, |fields| {
                fields.uint(event::TYPE, event::END);
            });
        })
    }

    /// Something without a length, on the current track or another.
    pub(super) fn instant(
        &mut self,
        time_ns: i64,
        track: Option<u64>,
        name: u64,
        category: Category,
        arguments: impl FnOnce(&mut Arguments<'_>),
    ) -> io::Result<()> {
        let has_arguments = self.arguments;
        self.timed(time_ns, |fields| {
            fields.message(packet::TRACK_EVENT, |fields| {
                fields.uint(event::TYPE, event::INSTANT);
                fields.uint(event::NAME_IID, name);
                fields.uint(event::CATEGORY_IIDS, category.iid());
                if let Some(track) = track {
                    fields.uint(event::TRACK_UUID, track);
                }
                if has_arguments {
                    arguments(&mut Arguments::new(fields));
                }
            });
        })
    }

    /// A sample of the current track's quantity.
    pub(super) fn sample(&mut self, time_ns: i64, value: f64) -> io::Result<()> {
        self.timed(time_ns, |fields| {
            fields.message(packet::TRACK_EVENT, |fields| {
                fields.uint(event::TYPE, event::COUNTER);
                fields.double(event::DOUBLE_COUNTER_VALUE, value);
            });
        })
    }

    /// Writes out what is left.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.buffer.write_to(self.out)?;
        self.out.flush()
    }
}

/// An entry of interned data.
pub(super) fn intern(data: &mut ProtoBuffer, kind: u32, iid: u64, text: &str) {
    data.message(kind, |entry| {
        entry.uint(interned::IID, iid);
        entry.text(interned::TEXT, &super::text::without_nul(text));
    });
}
