//! Partials that are put together in a random order and grouping, through partials of several.

use std::path::{Path, PathBuf};

use super::random::Random;

/// What is left to be put together. `reduce` puts some together into one more file, in `folder`.
///
/// # Errors
/// Those of `reduce`.
pub fn in_groups<E>(
    mut files: Vec<PathBuf>,
    folder: &Path,
    random: &mut Random,
    mut reduce: impl FnMut(&[PathBuf], &Path) -> Result<(), E>,
) -> Result<Vec<PathBuf>, E> {
    let mut made = 0;
    while files.len() > 2 && random.below(3) > 0 {
        let count = 2 + random.below(files.len() - 2);
        let some: Vec<PathBuf> = (0..count)
            .map(|_| files.swap_remove(random.below(files.len())))
            .collect();
        let output = folder.join(format!("{made}-of-several.partial"));
        made += 1;
        reduce(&some, &output)?;
        files.insert(random.below(files.len()), output);
    }
    for place in 0..files.len() {
        let other = random.below(files.len());
        files.swap(place, other);
    }
    Ok(files)
}
