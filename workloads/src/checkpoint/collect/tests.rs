use proptest::prelude::*;

use super::*;
use crate::checkpoint::exchange::threads::on_ranks;

fn piece(whole: usize, local: usize, count: usize) -> Piece {
    Piece { whole, local, count }
}

/// A part that holds element numbers as values, a million more for each moment; -1 where no piece is.
fn part(pieces: Vec<Piece>, elements: usize, moments: usize) -> Part {
    let values = |vector: usize| {
        let mut values = vec![-1.0; elements];
        for piece in &pieces {
            for offset in 0..piece.count {
                values[piece.local + offset] = (piece.whole + offset + vector * 1_000_000) as f32;
            }
        }
        values
    };
    Part {
        parameters: values(0),
        moments: (1..=moments).map(values).collect(),
        pieces,
    }
}

fn expected(total: usize, moments: usize) -> Whole {
    let values = |vector: usize| {
        (0..total)
            .map(|element| (element + vector * 1_000_000) as f32)
            .collect()
    };
    (values(0), (1..=moments).map(values).collect())
}

/// What each of the ranks gets.
fn collected(parts: &[Option<Part>], total: usize) -> Vec<Result<Option<Whole>, String>> {
    on_ranks(parts.len(), |exchange, rank| {
        collect_over(exchange, parts[rank].as_ref(), total).map_err(|error| error.to_string())
    })
}

#[test]
fn pieces_of_all_ranks_become_the_whole() {
    // Rank 1 has nothing of its own, and rank 2 an element that it doesn't save.
    let parts = [
        Some(part(vec![piece(3, 0, 2), piece(8, 2, 2)], 4, 2)),
        None,
        Some(part(vec![piece(5, 4, 3), piece(0, 0, 3)], 7, 2)),
    ];
    let outcomes = collected(&parts, 10);
    assert_eq!(outcomes, [Ok(Some(expected(10, 2))), Ok(None), Ok(None)]);
}

#[test]
fn one_rank_alone_has_it_all() {
    let parts = [Some(part(vec![piece(0, 0, 5)], 5, 0))];
    assert_eq!(collected(&parts, 5), [Ok(Some(expected(5, 0)))]);
}

#[test]
fn vectors_of_several_chunks_arrive_whole() {
    let total = 2 * CHUNK + 7;
    let middle = CHUNK / 2 + 3;
    let parts = [
        Some(part(vec![piece(0, 0, middle)], middle, 1)),
        Some(part(vec![piece(middle, 0, total - middle)], total - middle, 1)),
    ];
    let outcomes = collected(&parts, total);
    let Ok(Some((parameters, moments))) = &outcomes[0] else {
        panic!("collected")
    };
    let (whole, whole_moments) = expected(total, 1);
    assert!(*parameters == whole && *moments == whole_moments);
}

#[test]
fn what_is_missing_or_there_twice_is_told() {
    let outcome = |pieces: [Vec<Piece>; 2], total: usize| {
        let parts = pieces.map(|pieces| Some(part(pieces, 20, 0)));
        let [first, second] = collected(&parts, total).try_into().expect("two ranks");
        assert!(second.is_err(), "no rank takes it for saved");
        first.expect_err("refused")
    };
    let twice = outcome([vec![piece(0, 0, 6)], vec![piece(5, 0, 5)]], 10);
    assert!(
        twice.contains("element 5") && twice.contains("ranks 0 and 1"),
        "{twice}"
    );
    let gap = outcome([vec![piece(0, 0, 4)], vec![piece(5, 0, 5)]], 10);
    assert!(gap.contains("element 4") && gap.contains("no rank"), "{gap}");
    let short = outcome([vec![piece(0, 0, 4)], vec![]], 10);
    assert!(
        short.contains("element 4") && short.contains("no rank"),
        "{short}"
    );
    let beyond = outcome([vec![piece(0, 0, 10)], vec![piece(10, 0, 1)]], 10);
    assert!(
        beyond.contains("rank 1 saves element 10 of a checkpoint of 10"),
        "{beyond}"
    );
}

#[test]
fn parts_that_contradict_themselves_are_refused() {
    let outside = Part {
        parameters: vec![0.0; 4],
        ..part(vec![piece(0, 0, 5)], 5, 0)
    };
    assert!(collected(&[Some(outside)], 5)[0].is_err());
    let uneven = Part {
        moments: vec![vec![0.0; 4]],
        ..part(vec![piece(0, 0, 5)], 5, 0)
    };
    assert!(collected(&[Some(uneven)], 5)[0].is_err());
    let (sgd, adam) = (part(vec![piece(0, 0, 5)], 5, 0), part(vec![piece(5, 0, 5)], 5, 2));
    assert!(collected(&[Some(sgd), Some(adam)], 10)[0].is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn however_it_is_divided_the_whole_is_the_same(
        cuts in prop::collection::vec((1usize..40, 0usize..4, 0usize..3), 1..60),
        moments in 0usize..3,
        shuffle in any::<u64>(),
    ) {
        // Each cut is a piece of so many elements on some rank, behind a gap in that rank's vector.
        let mut random = crate::data::Random::new(shuffle);
        let (mut total, mut local) = (0, [0; 4]);
        let mut pieces: [Vec<Piece>; 4] = std::array::from_fn(|_| Vec::new());
        for (count, rank, gap) in cuts {
            let at = random.below(pieces[rank].len() + 1);
            pieces[rank].insert(at, piece(total, local[rank] + gap, count));
            total += count;
            local[rank] += count + gap;
        }
        let parts: Vec<_> = pieces
            .into_iter()
            .zip(local)
            .map(|(pieces, elements)| Some(part(pieces, elements, moments)))
            .collect();
        let outcomes = collected(&parts, total);
        prop_assert_eq!(&outcomes[0], &Ok(Some(expected(total, moments))));
    }

    #[test]
    fn parts_of_pieces_are_the_pieces(
        counts in prop::collection::vec(0usize..30, 0..20),
        step in 1usize..40,
    ) {
        let mut pieces = Vec::new();
        let (mut whole, mut local) = (0, 5);
        for count in counts {
            pieces.push(piece(whole, local, count));
            whole += count + 3;
            local += count + 1;
        }
        let elements = |pieces: &mut dyn Iterator<Item = Piece>| {
            pieces
                .flat_map(|piece| (0..piece.count).map(move |o| (piece.whole + o, piece.local + o)))
                .collect::<Vec<_>>()
        };
        let all = elements(&mut pieces.iter().copied());
        let mut seen = Vec::new();
        for start in (0..all.len()).step_by(step) {
            let part = elements(&mut within(&pieces, &(start..start + step)));
            prop_assert_eq!(part.len(), step.min(all.len() - start));
            seen.extend(part);
        }
        prop_assert_eq!(seen, all);
    }
}
