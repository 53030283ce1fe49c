//! A recording taken apart and put together is the recording.

use gputrace_analyzer::partial::{Partial, merge};
use gputrace_analyzer::{Options, analyze};
use gputrace_trace::Recording;
use proptest::prelude::*;

use crate::properties::{rank, recording};

fn json(recording: &Recording, options: &Options) -> String {
    serde_json::to_string(&analyze(recording, options)).expect("JSON")
}

/// A partial that went through a file.
fn stored(partial: &Partial, options: &Options) -> Partial {
    let file = tempfile::NamedTempFile::new().expect("a file");
    partial
        .write(&mut file.as_file(), options, "1.2.3", "input")
        .expect("written");
    let (read, read_options) = Partial::read(file.path(), "1.2.3").expect("a partial");
    assert_eq!(&read_options, options);
    assert_eq!(
        Partial::input_of(file.path(), options, "1.2.3").as_deref(),
        Some("input")
    );
    assert!(Partial::read(file.path(), "1.2.4").is_err());
    read
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_order_and_grouping_gives_the_same_bytes(
        ranks in prop::collection::vec(rank(), 1..6),
        groups in prop::collection::vec(0..3usize, 6),
        seed: u64,
        some_steps: bool,
    ) {
        let options = Options { steps: some_steps.then_some((0, 1)), ..Options::default() };
        let recording = recording(&ranks, |index| index as u64);
        let whole = Partial::of(recording.clone(), &options);
        // A partial of each process, and these in groups.
        let of_each = (0..ranks.len()).map(|place| {
            let mut one = whole.clone();
            one.parts[0] = vec![one.parts[0][place].clone()];
            stored(&one, &options)
        });
        let mut grouped: Vec<Vec<(String, Partial)>> = vec![Vec::new(); 3];
        for (place, one) in of_each.enumerate() {
            let group = &mut grouped[groups[place]];
            let at = (seed >> place) as usize % (group.len() + 1);
            group.insert(at, (format!("{place}.partial"), one));
        }
        let mut of_groups: Vec<(String, Partial)> = grouped
            .into_iter()
            .enumerate()
            .filter(|(_, group)| !group.is_empty())
            .map(|(place, group)| (format!("group {place}"), stored(&merge(group).expect("one run"), &options)))
            .collect();
        if seed % 2 == 1 {
            of_groups.reverse();
        }
        let together = merge(of_groups).expect("one run");
        prop_assert!(together.missing().is_empty());
        let (analysis, _) = together.analysis(&options, Vec::new());
        prop_assert_eq!(serde_json::to_string(&analysis).expect("JSON"), json(&recording, &options));
    }
}
