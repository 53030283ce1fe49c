//! A synthetic language whose entropy is known exactly: the loss that a perfect model would reach.
//!
//! Words follow each other by chance: each may be followed by a few others, with probabilities that depend on it and on
//! the class of the word before it. Who sees only the last word can't tell the class, so attention has something to
//! find: without it the loss stays higher.

use super::{DataSet, Random, copy_rows};

/// Words that can follow in one state.
const FOLLOWERS: usize = 4;
/// Classes of words.
const CLASSES: usize = 2;
/// Most rounds that the stationary distribution is looked for.
const MOST_ROUNDS: usize = 100_000;

/// Which words follow, how probably.
type Followers = Vec<(usize, f64)>;

/// A source of words whose state is the class of the last word but one, and the last word.
struct Chain {
    words: usize,
    classes: usize,
    /// By state: class * words + word. Their probabilities sum to 1.
    followers: Vec<Followers>,
    /// How often each state is met, in the long run.
    stationary: Vec<f64>,
}

fn entropy(probabilities: impl Iterator<Item = f64>) -> f64 {
    probabilities
        .filter(|&probability| probability > 0.0)
        .map(|probability| -probability * probability.ln())
        .sum()
}

impl Chain {
    /// A source with these followers of each state, which begins in any of them.
    fn new(words: usize, classes: usize, followers: Vec<Followers>) -> Self {
        let mut chain = Self {
            words,
            classes,
            followers,
            stationary: Vec::new(),
        };
        chain.stationary = chain.find_stationary();
        chain
    }

    /// A source of so many words, whose followers are drawn by lot.
    fn random(words: usize, random: &mut Random) -> Self {
        // A cycle through all words, in a shuffled order, is part of both classes: every word can be reached.
        let mut cycle: Vec<usize> = (0..words).collect();
        for last in (1..words).rev() {
            cycle.swap(last, random.below(last + 1));
        }
        let mut after = vec![0; words];
        for (place, &word) in cycle.iter().enumerate() {
            after[word] = cycle[(place + 1) % words];
        }
        let count = FOLLOWERS.min(words);
        let mut followers = Vec::with_capacity(CLASSES * words);
        for state in 0..CLASSES * words {
            let mut chosen = vec![after[state % words]];
            while chosen.len() < count {
                let word = random.below(words);
                if !chosen.contains(&word) {
                    chosen.push(word);
                }
            }
            // Squares make some likely and some rare.
            let weights: Vec<f64> = chosen.iter().map(|_| (0.1 + fraction(random)).powi(2)).collect();
            let sum: f64 = weights.iter().sum();
            let probabilities = weights.iter().map(|weight| weight / sum);
            followers.push(chosen.into_iter().zip(probabilities).collect());
        }
        Self::new(words, CLASSES, followers)
    }

    /// The state behind `state` when `word` follows.
    fn next(&self, state: usize, word: usize) -> usize {
        let class = state % self.words % self.classes;
        class * self.words + word
    }

    /// The distribution over states that a step leaves as it is.
    fn find_stationary(&self) -> Vec<f64> {
        let states = self.followers.len();
        let mut now = vec![1.0 / states as f64; states];
        for _ in 0..MOST_ROUNDS {
            // Half of each state's share stays where it is: what is stationary doesn't change, and a source that goes
            // in circles comes to rest as well.
            let mut then: Vec<f64> = now.iter().map(|share| share / 2.0).collect();
            for (state, followers) in self.followers.iter().enumerate() {
                for &(word, probability) in followers {
                    then[self.next(state, word)] += now[state] / 2.0 * probability;
                }
            }
            let change: f64 = now.iter().zip(&then).map(|(a, b)| (a - b).abs()).sum();
            now = then;
            if change < 1e-14 {
                break;
            }
        }
        now
    }

    /// Nats that the next word has for who knows all words before it.
    fn entropy_rate(&self) -> f64 {
        let states = self.stationary.iter().zip(&self.followers);
        states
            .map(|(share, followers)| share * entropy(followers.iter().map(|&(_, probability)| probability)))
            .sum()
    }

    /// Nats that the next word has for who knows the last word only.
    fn first_entropy(&self) -> f64 {
        let mut sum = 0.0;
        for word in 0..self.words {
            let mut next = vec![0.0; self.words];
            let mut share = 0.0;
            for class in 0..self.classes {
                let state = class * self.words + word;
                share += self.stationary[state];
                for &(follower, probability) in &self.followers[state] {
                    next[follower] += self.stationary[state] * probability;
                }
            }
            if share > 0.0 {
                sum += share * entropy(next.iter().map(|joint| joint / share));
            }
        }
        sum
    }

    /// Draws so many words from the middle of an endless text.
    fn draw(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let mut state = pick(self.stationary.iter().copied().enumerate(), random);
        let mut text = Vec::with_capacity(count);
        for _ in 0..count {
            text.push(state % self.words);
            state = self.next(state, pick(self.followers[state].iter().copied(), random));
        }
        text
    }
}

/// Uniform in 0..1.
fn fraction(random: &mut Random) -> f64 {
    (f64::from(random.symmetric(1.0)) + 1.0) / 2.0
}

/// One of several, by their probabilities.
fn pick(choices: impl Iterator<Item = (usize, f64)>, random: &mut Random) -> usize {
    let mut left = fraction(random);
    let mut last = 0;
    for (choice, probability) in choices {
        // Rounding may leave a rest behind the last that is possible.
        if probability > 0.0 {
            last = choice;
            if left < probability {
                break;
            }
        }
        left -= probability;
    }
    last
}

/// Samples of `context` words (i32), each with the word that follows it as its target.
pub(crate) struct Language {
    samples: usize,
    context: usize,
    /// By sample: `context + 1` words.
    inputs: Vec<u8>,
    targets: Vec<u8>,
    entropy_floor_nats: f64,
}

impl Language {
    /// A language of so many words, and that many samples of it, each from another place.
    pub(crate) fn new(samples: usize, context: usize, vocabulary: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let chain = Chain::random(vocabulary, &mut random);
        let bytes = samples * context * size_of::<i32>();
        let (mut inputs, mut targets) = (Vec::with_capacity(bytes), Vec::with_capacity(bytes));
        for _ in 0..samples {
            let text = chain.draw(context + 1, &mut random);
            let put = |to: &mut Vec<u8>, words: &[usize]| {
                to.extend(words.iter().flat_map(|&word| (word as i32).to_ne_bytes()));
            };
            put(&mut inputs, &text[..context]);
            put(&mut targets, &text[1..]);
        }
        // A sample's first word comes without the class of the one before it.
        let floor = (chain.first_entropy() + (context as f64 - 1.0) * chain.entropy_rate()) / context as f64;
        Self {
            samples,
            context,
            inputs,
            targets,
            entropy_floor_nats: floor,
        }
    }

    /// The mean cross entropy in nats that no model can be below, on samples that it has not seen.
    pub(crate) fn entropy_floor_nats(&self) -> f64 {
        self.entropy_floor_nats
    }
}

impl DataSet for Language {
    fn samples(&self) -> usize {
        self.samples
    }

    fn input_bytes(&self) -> usize {
        self.context * size_of::<i32>()
    }

    fn target_bytes(&self) -> usize {
        self.context * size_of::<i32>()
    }

    fn gather(&self, indices: &[usize], inputs: &mut [u8], targets: &mut [u8]) {
        copy_rows(&self.inputs, self.input_bytes(), indices, inputs);
        copy_rows(&self.targets, self.target_bytes(), indices, targets);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn assert_near(got: f64, want: f64, tolerance: f64) {
        assert!((got - want).abs() <= tolerance, "{got} instead of {want}");
    }

    #[test]
    fn a_chain_of_two_words_has_the_entropy_computed_by_hand() {
        // Word 0 is followed by 1 in 1 of 10 cases, word 1 by 0 in 4 of 10: 0 is met in 4 of 5 cases.
        let chain = Chain::new(2, 1, vec![vec![(0, 0.9), (1, 0.1)], vec![(0, 0.4), (1, 0.6)]]);
        assert_near(chain.stationary[0], 0.8, 1e-12);
        assert_near(chain.stationary[1], 0.2, 1e-12);
        // 0.8 * (0.9 ln(1/0.9) + 0.1 ln(10)) + 0.2 * (0.4 ln(1/0.4) + 0.6 ln(1/0.6))
        let by_hand = 0.8 * (0.094_824_464_1 + 0.230_258_509_3) + 0.2 * (0.366_516_292_7 + 0.306_495_374_3);
        assert_near(chain.entropy_rate(), by_hand, 1e-9);
        // With one class the last word says all that there is to know.
        assert_near(chain.first_entropy(), chain.entropy_rate(), 1e-12);
    }

    #[test]
    fn a_chain_that_needs_two_words_has_the_entropy_computed_by_hand() {
        // After word 0 the last word comes again, after word 1 the other one: who knows two words knows the next. The
        // texts are 0 0 0 0.. and 1 1 0 1 1 0..; begun anywhere, each of the four states is met equally often.
        let always = |word| vec![(word, 1.0)];
        let chain = Chain::new(2, 2, vec![always(0), always(1), always(1), always(0)]);
        assert_near(chain.entropy_rate(), 0.0, 1e-12);
        // Either word is followed by itself as often as by the other.
        assert_near(chain.first_entropy(), 2f64.ln(), 1e-9);
    }

    #[test]
    fn a_circle_comes_to_rest() {
        let chain = Chain::new(3, 1, vec![vec![(1, 1.0)], vec![(2, 1.0)], vec![(0, 1.0)]]);
        for share in &chain.stationary {
            assert_near(*share, 1.0 / 3.0, 1e-9);
        }
        let text = chain.draw(9, &mut Random::new(4));
        assert!(text.windows(2).all(|two| two[1] == (two[0] + 1) % 3), "{text:?}");
    }

    /// Conditional entropy of the next word, as counted: given what `of` makes of the words before.
    fn counted(texts: &[Vec<usize>], of: impl Fn(&[usize]) -> usize) -> f64 {
        let mut counts: HashMap<usize, HashMap<usize, f64>> = HashMap::new();
        let mut all = 0.0;
        for text in texts {
            for three in text.windows(3) {
                *counts
                    .entry(of(&three[..2]))
                    .or_default()
                    .entry(three[2])
                    .or_default() += 1.0;
                all += 1.0;
            }
        }
        counts
            .values()
            .map(|next| {
                let sum: f64 = next.values().sum();
                sum / all * entropy(next.values().map(|count| count / sum))
            })
            .sum()
    }

    #[test]
    fn a_long_text_has_the_entropy_that_is_promised() {
        for seed in 1..4 {
            let mut random = Random::new(seed);
            let chain = Chain::random(24, &mut random);
            let texts: Vec<_> = (0..200).map(|_| chain.draw(2000, &mut random)).collect();
            let known = counted(&texts, |two| two[0] % CLASSES * 24 + two[1]);
            let last_word = counted(&texts, |two| two[1]);
            let (rate, first) = (chain.entropy_rate(), chain.first_entropy());
            assert!((known / rate - 1.0).abs() < 0.02, "{known} instead of {rate}");
            assert!(
                (last_word / first - 1.0).abs() < 0.02,
                "{last_word} instead of {first}"
            );
            // Looking back one more word must be worth it.
            assert!(rate < 0.85 * first, "{rate} with two words, {first} with one");
        }
    }

    #[test]
    fn targets_are_the_next_words_and_the_floor_is_between_the_entropies() {
        let (context, vocabulary) = (16, 10);
        let language = Language::new(50, context, vocabulary, 6);
        let mut inputs = vec![0; 2 * language.input_bytes()];
        let mut targets = vec![0; 2 * language.target_bytes()];
        language.gather(&[31, 4], &mut inputs, &mut targets);
        let words = |bytes: &[u8]| -> Vec<i32> {
            let four = bytes.as_chunks().0.iter();
            four.map(|&four| i32::from_ne_bytes(four)).collect()
        };
        let (inputs, targets) = (words(&inputs), words(&targets));
        for sample in 0..2 {
            let rows = sample * context..(sample + 1) * context;
            let (inputs, targets) = (&inputs[rows.clone()], &targets[rows]);
            assert_eq!(inputs[1..], targets[..context - 1]);
        }
        assert!(
            inputs
                .iter()
                .chain(&targets)
                .all(|word| (0..vocabulary as i32).contains(word))
        );
        let floor = language.entropy_floor_nats();
        assert!(
            floor > 0.3 && floor < (FOLLOWERS as f64 * CLASSES as f64).ln(),
            "{floor}"
        );
    }

    #[test]
    fn few_words_are_a_language_too() {
        for vocabulary in 1..6 {
            let language = Language::new(3, 4, vocabulary, 1);
            assert!(language.entropy_floor_nats() <= (vocabulary as f64).ln() + 1e-12);
        }
    }
}
