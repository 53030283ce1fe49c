//! What is alike but for its name, in the order of the names' texts: neither the order in a file nor that in which names were
//! met may show in a number.

use std::borrow::Cow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Puts neighbours that are `alike` into the order of their names' texts. Each text is put in its place once, however many have
/// it: texts may be long, and alike for long.
pub(crate) fn sort<'t, T, N: Copy + Eq + Ord + Hash>(
    all: &mut [T],
    alike: impl Fn(&T, &T) -> bool,
    name: impl Fn(&T) -> N,
    text: impl Fn(N) -> Cow<'t, str>,
) {
    let differ = |group: &[T]| group.iter().any(|one| name(one) != name(&group[0]));
    let mixed = all.chunk_by(&alike).filter(|group| differ(group));
    let mut names: Vec<N> = mixed.flatten().map(&name).collect();
    if names.is_empty() {
        return;
    }
    names.sort_unstable();
    names.dedup();
    let mut texts: Vec<(Cow<'_, str>, N)> = names.into_iter().map(|name| (text(name), name)).collect();
    texts.sort_unstable();
    // Names with one text have one place.
    let mut places: FxHashMap<N, usize> = FxHashMap::default();
    for same in texts.chunk_by(|(a, _), (b, _)| a == b) {
        let place = places.len();
        places.extend(same.iter().map(|(_, name)| (*name, place)));
    }
    for group in all.chunk_by_mut(&alike).filter(|group| differ(group)) {
        group.sort_by_key(|one| places[&name(one)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn neighbours_are_sorted_as_their_texts_are(all in proptest::collection::vec((0u8..6, 0usize..5), 0..60)) {
            const TEXTS: [&str; 5] = ["b", "a", "c", "a", ""];
            let mut all: Vec<(u8, usize, usize)> =
                all.into_iter().enumerate().map(|(place, (key, name))| (key, name, place)).collect();
            all.sort_by_key(|(key, ..)| *key);
            let mut expected = all.clone();
            expected.sort_by_key(|(key, name, _)| (*key, TEXTS[*name]));
            sort(&mut all, |a, b| a.0 == b.0, |one| one.1, |name| Cow::Borrowed(TEXTS[name]));
            prop_assert_eq!(all, expected);
        }
    }
}
