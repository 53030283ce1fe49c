//! Parts in collectives as they stand in a file, without who did them: what many have in common is there once.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::collective_parts::{Common, Part, PartKernel, Participant};

#[derive(Serialize, Deserialize)]
struct Stored {
    common: Vec<Common>,
    parts: Vec<Row>,
}

/// Its place among what is common; place in the communicator, number, bytes, kernel, row, operations in the kernel, time.
#[derive(Serialize, Deserialize)]
struct Row(
    u32,
    u32,
    Option<u64>,
    Option<u64>,
    Option<(u32, u32, i64, i64)>,
    Option<u32>,
    u32,
    i64,
);

/// Writes them.
pub(crate) fn serialize<S: Serializer>(parts: &[Part], to: S) -> Result<S::Ok, S::Error> {
    let mut stored = Stored {
        common: Vec::new(),
        parts: Vec::with_capacity(parts.len()),
    };
    let mut places: FxHashMap<*const Common, u32> = FxHashMap::default();
    for part in parts {
        let place = *places.entry(Arc::as_ptr(&part.common)).or_insert_with(|| {
            stored.common.push((*part.common).clone());
            u32::try_from(stored.common.len() - 1).unwrap_or(u32::MAX)
        });
        let kernel = part.kernel;
        stored.parts.push(Row(
            place,
            part.participant.place,
            part.sequence,
            part.bytes,
            kernel.map(|kernel| (kernel.device, kernel.row, kernel.start, kernel.end)),
            part.row,
            part.shared,
            part.enqueued,
        ));
    }
    stored.serialize(to)
}

/// Reads them.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Part>, D::Error> {
    let stored = Stored::deserialize(from)?;
    let common: Vec<Arc<Common>> = stored.common.into_iter().map(Arc::new).collect();
    let part = |row: Row| {
        let Row(place, in_communicator, sequence, bytes, kernel, row, shared, enqueued) = row;
        let common = common.get(place as usize);
        let common = common.ok_or_else(|| D::Error::custom("a part of nothing"))?;
        Ok(Part {
            participant: Participant {
                process: 0,
                place: in_communicator,
            },
            rank: None,
            common: common.clone(),
            sequence,
            bytes,
            kernel: kernel.map(|(device, row, start, end)| PartKernel {
                device,
                row,
                start,
                end,
            }),
            row,
            shared,
            enqueued,
        })
    };
    stored.parts.into_iter().map(part).collect()
}
