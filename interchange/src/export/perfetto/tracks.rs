//! Tracks: their numbers, and the descriptors that give them names, parents and an order.

use std::io;

use rustc_hash::FxHashSet;

use super::fields::{counter, track};
use super::packets::Packets;
use super::text::without_nul;
use crate::export::protobuf::ProtoBuffer;

/// Gives tracks numbers that follow from what they are, so that files of several exports can be looked at together.
#[derive(Default)]
pub(super) struct Uuids {
    taken: FxHashSet<u64>,
}

impl Uuids {
    /// The number of the track with this path, of which there is one.
    pub(super) fn take(&mut self, path: &str) -> u64 {
        // FNV-1a. Numbers of more than 63 bits would take a byte more.
        let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut uuid = hash >> 1;
        while uuid == 0 || !self.taken.insert(uuid) {
            uuid = (uuid + 1) & (u64::MAX >> 1);
        }
        uuid
    }
}

/// Asks for processes and threads in the order of their places.
pub(super) fn write_root(packets: &mut Packets<'_>) -> io::Result<()> {
    packets.track(|fields| {
        fields.uint(track::UUID, 0);
        fields.uint(track::PROCESS_ORDERING, 1);
        fields.uint(track::THREAD_ORDERING, 1);
    })
}

/// A track below another.
pub(super) struct Track<'t> {
    pub(super) uuid: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: &'t str,
    /// Its place among its parent's tracks.
    pub(super) place: u32,
    /// What a person is told of it.
    pub(super) description: &'t str,
}

impl Track<'_> {
    fn fields(&self, fields: &mut ProtoBuffer) {
        fields.uint(track::UUID, self.uuid);
        if let Some(parent) = self.parent {
            fields.uint(track::PARENT_UUID, parent);
        }
        fields.text(track::NAME, &without_nul(self.name));
        if !self.description.is_empty() {
            fields.text(track::DESCRIPTION, &without_nul(self.description));
        }
        fields.uint(track::SIBLING_ORDER_RANK, self.place.into());
        // Tracks of one name are tracks of their own: streams of two contexts may well have one number.
        fields.uint(track::SIBLING_MERGE_BEHAVIOR, track::NEVER_MERGED);
    }

    /// Writes its descriptor.
    pub(super) fn write(&self, packets: &mut Packets<'_>) -> io::Result<()> {
        packets.track(|fields| {
            self.fields(fields);
            fields.uint(track::CHILD_ORDERING, track::EXPLICIT);
        })
    }

    /// Writes its descriptor as one of a counter, with what its values are in. Counters with one key share their scale.
    pub(super) fn write_counter(&self, unit: &str, scale: &str, packets: &mut Packets<'_>) -> io::Result<()> {
        packets.track(|fields| {
            self.fields(fields);
            fields.message(track::COUNTER, |fields| {
                if unit == "B" {
                    fields.uint(counter::UNIT, counter::BYTES);
                } else if !unit.is_empty() {
                    fields.text(counter::UNIT_NAME, unit);
                }
                fields.text(counter::Y_AXIS_SHARE_KEY, &without_nul(scale));
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Uuids;

    #[test]
    fn numbers_follow_from_paths_and_are_never_given_twice() {
        let mut first = Uuids::default();
        let mut second = Uuids::default();
        assert_eq!(second.take("b"), first.take("b"));
        let a = first.take("a");
        assert_eq!(a, second.take("a"));
        assert_ne!(a, first.take("a"));
    }
}
