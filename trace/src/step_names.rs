//! The names by which programs call their training steps.

/// Who calls steps so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepWord {
    /// "iter 3", "iter_3".
    Iter,
    /// "Iteration 3".
    Iteration,
    /// "step 3", "step=3".
    Step,
    /// PyTorch's profiler: "ProfilerStep#3".
    ProfilerStep,
}

impl StepWord {
    const ALL: [Self; 4] = [Self::ProfilerStep, Self::Step, Self::Iteration, Self::Iter];

    /// The word, in lower case.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::ProfilerStep => "profilerstep",
            Self::Step => "step",
            Self::Iteration => "iteration",
            Self::Iter => "iter",
        }
    }
}

/// The word and the number in a step's name; `None` for other names. The number is `None` in a name that is the word alone.
/// Looks at a few bytes of most names that are none: it is asked for each range while the program runs.
#[must_use]
pub fn step_word(name: &[u8]) -> Option<(StepWord, Option<u64>)> {
    let first = name.first()?.to_ascii_lowercase();
    if !matches!(first, b's' | b'p' | b'i') {
        return None;
    }
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (mut word, number) = name.split_at(name.len() - digits);
    while let [rest @ .., b' ' | b'#' | b'_' | b':' | b'='] = word {
        word = rest;
    }
    let word = StepWord::ALL
        .into_iter()
        .find(|known| word.eq_ignore_ascii_case(known.text().as_bytes()))?;
    if number.is_empty() {
        return Some((word, None));
    }
    // Digits only: text, and too many of them are no number.
    Some((word, Some(std::str::from_utf8(number).ok()?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_their_names() {
        let known = |name: &str| step_word(name.as_bytes());
        assert_eq!(known("step 12"), Some((StepWord::Step, Some(12))));
        assert_eq!(known("ProfilerStep#7"), Some((StepWord::ProfilerStep, Some(7))));
        assert_eq!(known("Iteration 3"), Some((StepWord::Iteration, Some(3))));
        assert_eq!(known("iter_0"), Some((StepWord::Iter, Some(0))));
        assert_eq!(known("Step"), Some((StepWord::Step, None)));
        for other in [
            "forward 3",
            "optimizer.step 3",
            "",
            "stepwise",
            "step 3 loss",
            "3",
            "step 99999999999999999999",
        ] {
            assert_eq!(known(other), None, "{other}");
        }
    }
}
