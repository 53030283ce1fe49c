//! What CUPTI has told of the layouts of its user-defined records so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::layout::Plans;
use crate::complain::complain;

/// A leaf lock, held for a comparison, and for a copy when something is new.
static PLANS: Mutex<Option<Arc<Plans>>> = Mutex::new(None);

/// Takes in the layouts that came with a buffer. Gives those by which it is read: its own, and those of kinds that earlier
/// buffers told of. They go with the buffer, since later ones may change them before it is read.
pub(super) fn learn(plans: &Plans) -> Arc<Plans> {
    let mut known = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if !known.knows(plans) {
        Arc::make_mut(known).learn(plans);
    }
    Arc::clone(known)
}

/// Writes user-defined records as they were delivered, and beside them how they are read, into the folder for dumps; the
/// structs that are made of them are dumped like those of the first way.
pub(crate) fn dump(records: &[u8], plans: &Plans) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some(folder) = crate::dump::folder() else {
        return;
    };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("user-defined-{}-{number}.bin", std::process::id()));
    let written = std::fs::write(&path, records)
        .and_then(|()| std::fs::write(path.with_extension("plans"), plans.describe()));
    if let Err(error) = written {
        complain(&format!("{}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::kind;
    use crate::user_defined::layout::fields_of;

    /// A layout of streams with the fields one after another, behind so many bytes of padding.
    fn streams(padding: usize) -> Plans {
        let fields = fields_of(kind::STREAM).expect("recorded so");
        let mut offset = 4 + padding;
        let mut entries = vec![(0, 0, 4)];
        for field in fields.fields {
            entries.push((field.id, offset, field.bytes));
            offset += field.bytes;
        }
        Plans::of(&[(kind::STREAM, offset, entries)])
    }

    #[test]
    fn a_buffer_is_read_by_the_layouts_that_it_came_with() {
        let first = learn(&streams(0));
        let second = learn(&streams(8));
        assert!(first.knows(&streams(0)) && second.knows(&streams(8)));
        assert!(!first.knows(&streams(8)) && !second.knows(&streams(0)));
        assert!(Arc::ptr_eq(&second, &learn(&Plans::default())), "nothing new");
    }
}
