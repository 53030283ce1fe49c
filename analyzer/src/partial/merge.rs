//! Partials put together: whatever is in them side by side, in an order of its own.

use std::collections::BTreeMap;

use gputrace_trace::alignment::Alignment;

use super::parts::{Base, Part, Partial, Wrong};

/// Puts partials together, each with the name of its file.
///
/// # Errors
/// When they are of different runs, or two of them have the same rank.
pub fn merge(partials: Vec<(String, Partial)>) -> Result<Partial, Wrong> {
    let mut merged: Vec<(Base, Vec<(String, Part)>)> = Vec::new();
    let mut clocks: Option<(String, Option<Alignment>)> = None;
    for (name, partial) in partials {
        for (base, parts) in partial.bases.into_iter().zip(partial.parts) {
            let own = &base.recording.clocks;
            match &clocks {
                None => clocks = Some((name.clone(), own.clone())),
                Some((first, known)) if known != own => {
                    return Err(Wrong(format!(
                        "{name}: its clocks were set otherwise than those of {first}: make both with the same --clocks"
                    )));
                }
                Some(_) => {}
            }
            let own: Vec<(String, Part)> = parts.into_iter().map(|part| (name.clone(), part)).collect();
            let same = merged
                .iter_mut()
                .find(|(known, _)| known.recording.path == base.recording.path);
            match same {
                Some((known, parts)) => {
                    if is_other(known, &base) {
                        return Err(Wrong(format!(
                            "{name}: {} was another recording, or was still written, when this was made of it: make all of its \
                             partials again",
                            base.recording.path.display()
                        )));
                    }
                    parts.extend(own);
                }
                None => merged.push((base, own)),
            }
        }
    }
    refuse_twice(&merged)?;
    for (_, parts) in &mut merged {
        parts.sort_by(|(_, a), (_, b)| a.folder.cmp(&b.folder));
    }
    let (bases, parts): (Vec<Base>, Vec<Vec<(String, Part)>>) = merged.into_iter().unzip();
    let parts = parts.into_iter();
    let mut merged = Partial {
        bases,
        parts: parts
            .map(|parts| parts.into_iter().map(|(_, part)| part).collect())
            .collect(),
    };
    merged.sort();
    Ok(merged)
}

/// Whether two of one path are not the same.
fn is_other(a: &Base, b: &Base) -> bool {
    let (one, other) = (&a.recording, &b.recording);
    a.fingerprint != b.fingerprint
        || a.processes != b.processes
        || one.manifest != other.manifest
        || one.losses != other.losses
        || one.notes != other.notes
        || one.unaligned != other.unaligned
}

fn refuse_twice(merged: &[(Base, Vec<(String, Part)>)]) -> Result<(), Wrong> {
    let mut ranks: BTreeMap<u32, (usize, &str)> = BTreeMap::new();
    let mut world: Option<(u32, &str, usize)> = None;
    for (number, (base, parts)) in merged.iter().enumerate() {
        let mut folders: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, part) in parts {
            if part.header.rank.is_none() && merged.len() > 1 && base.recording.manifest.device == "imported"
            {
                return Err(Wrong(format!(
                    "{name}: {} says no rank, which the order of all files' names would give it: make one partial of all of them",
                    part.folder
                )));
            }
            if let Some(before) = folders.insert(&part.folder, name) {
                return Err(Wrong(format!(
                    "{name}: holds {}, as {before} does: name it once",
                    part.folder
                )));
            }
            if let Some(rank) = part.header.rank {
                let (known, before) = *ranks.entry(rank).or_insert((number, name));
                if known != number {
                    return Err(Wrong(format!(
                        "{name}: holds rank {rank}, as {before} does: they are two runs; put together one at a time"
                    )));
                }
            }
            if let Some(size) = part.header.world_size {
                let (known, before, of) = *world.get_or_insert((size, name, number));
                if known != size && of != number {
                    return Err(Wrong(format!(
                        "{name}: is of a run of {size} ranks, and {before} of one of {known}: put together one run at a time"
                    )));
                }
            }
        }
    }
    Ok(())
}
