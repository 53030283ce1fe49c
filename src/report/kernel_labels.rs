//! Kernels' names for a table: short ones, and what tells those apart that are the same in short.

use std::collections::BTreeMap;

use gputrace_analyzer::{demangled, short_name};

use crate::text::shorten;

/// Characters of what tells two names apart: a type and its size.
const WIDEST_DIFFERENCE: usize = 32;

/// A kernel's name in two columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    pub short: String,
    /// What its whole name has that others with the same short name have not; empty where there is no such other.
    pub difference: String,
}

/// A label for each of these whole names. Equal names get equal labels, others different ones.
pub fn labels(names: &[&str]) -> Vec<Label> {
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let same = alike.entry(short_name(name)).or_default();
        if !same.contains(name) {
            same.push(name);
        }
    }
    let mut by_name: BTreeMap<&str, Label> = BTreeMap::new();
    for (short, whole) in alike {
        for (name, difference) in whole.iter().zip(differences(&whole)) {
            let short = short.clone();
            by_name.insert(name, Label { short, difference });
        }
    }
    names.iter().map(|name| by_name[name].clone()).collect()
}

/// The words of a name but for its namespaces, each once, in their order.
fn words(text: &str) -> Vec<&str> {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut words = Vec::new();
    let mut parts = text.split("::").peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let without_namespace = part.trim_end_matches(is_of_word);
        let kept = if is_last { part } else { without_namespace };
        for word in kept.split(|letter| !is_of_word(letter)) {
            if !word.is_empty() && !words.contains(&word) {
                words.push(word);
            }
        }
    }
    words
}

/// What each of several different names has for its own: the words that fewest of the others have, as many as fit. Nothing of
/// a single name.
fn differences(whole: &[&str]) -> Vec<String> {
    if whole.len() < 2 {
        return vec![String::new(); whole.len()];
    }
    let texts: Vec<String> = whole
        .iter()
        .map(|name| demangled(name).replace("(anonymous namespace)", ""))
        .collect();
    let all: Vec<Vec<&str>> = texts.iter().map(|text| words(text)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in all.iter().flatten() {
        *counts.entry(word).or_default() += 1;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    all.iter()
        .map(|words| {
            let own = own_words(words, &counts, whole.len());
            let times = seen.entry(own.clone()).or_default();
            *times += 1;
            match *times {
                1 => own,
                // The same words, or equal as far as the column is wide.
                times => format!("{own} #{times}"),
            }
        })
        .collect()
}

/// The words of one name that not all of `names` have. `counts`: how many have each word.
fn own_words(words: &[&str], counts: &BTreeMap<&str, usize>, names: usize) -> String {
    let mut own: Vec<(bool, usize, usize)> = words
        .iter()
        .enumerate()
        .map(|(place, word)| {
            let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
            (is_number, counts[word], place)
        })
        .filter(|(_, count, _)| *count < names)
        .collect();
    own.sort_unstable();
    let mut room = WIDEST_DIFFERENCE;
    let mut places: Vec<usize> = own
        .iter()
        .map(|(_, _, place)| *place)
        .enumerate()
        .take_while(|(taken, place)| {
            let width = words[*place].chars().count() + 1;
            let fits = width <= room + 1 || *taken == 0;
            room = room.saturating_sub(width);
            fits
        })
        .map(|(_, place)| place)
        .collect();
    places.sort_unstable();
    let text: Vec<&str> = places.iter().map(|&place| words[place]).collect();
    if text.is_empty() {
        return "-".to_owned();
    }
    shorten(&text.join(" "), WIDEST_DIFFERENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences_of(names: &[&str]) -> Vec<String> {
        labels(names).into_iter().map(|label| label.difference).collect()
    }

    #[test]
    fn one_of_a_kind_needs_no_difference() {
        let found = labels(&["void f<int>(int*)", "g", "g"]);
        let of = |short: &str| Label {
            short: short.to_owned(),
            difference: String::new(),
        };
        assert_eq!(found, [of("f"), of("g"), of("g")]);
    }

    #[test]
    fn those_alike_are_told_apart_by_whole_words() {
        let found = differences_of(&[
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
        ]);
        assert_eq!(found, ["CUDAFunctor_add 3ul", "FillFunctor 1ul"]);
        let found = differences_of(&["void f<float>()", "void f<double>()", "void g<int>()"]);
        assert_eq!(found, ["float", "double", ""]);
        assert_eq!(differences_of(&["void f()", "void f(int)"]), ["-", "int"]);
    }

    #[test]
    fn what_is_equal_as_far_as_it_is_shown_gets_numbers() {
        let long = "x".repeat(80);
        let names = [
            format!("void f<{long}1>()"),
            format!("void f<{long}2>()"),
            format!("void f<y{long}>()"),
        ];
        let found = differences_of(&names.each_ref().map(String::as_str));
        assert_eq!(found[1], format!("{} #2", found[0]));
        assert!(found[2].starts_with('y'));
    }
}
