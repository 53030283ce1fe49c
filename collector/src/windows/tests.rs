use proptest::prelude::*;

use super::*;

fn step(number: u64) -> Event {
    Event::Step {
        word: StepWord::Step,
        number: Some(number),
        thread: 1,
    }
}

fn scheduled(wait: u64, warmup: u64, active: u64, repeat: u64) -> CollectorOptions {
    CollectorOptions {
        schedule: Some(Schedule {
            wait,
            warmup,
            active,
            repeat,
        }),
        ..CollectorOptions::default()
    }
}

/// Runs steps of 10 ns from moment 100 on, ends at `100 + 10 * steps`, and gives the windows.
fn windows_of(options: &CollectorOptions, steps: u64) -> Vec<Window> {
    let mut machine = Machine::new(options, TimeNs(50), true);
    for number in 0..steps {
        machine.apply(TimeNs(100 + 10 * number.cast_signed()), step(number));
    }
    machine.end(TimeNs(100 + 10 * steps.cast_signed()));
    machine.take_ended()
}

fn window(start: i64, end: i64, first_step: u64, repeat: Option<u64>) -> Window {
    Window {
        start: TimeNs(start),
        end: TimeNs(end),
        is_warm_up: false,
        first_step: Some(first_step),
        repeat,
    }
}

fn warm_up(start: i64, end: i64, first_step: u64) -> Window {
    Window {
        is_warm_up: true,
        ..window(start, end, first_step, None)
    }
}

#[test]
fn a_schedule_waits_warms_up_and_records_as_often_as_it_says() {
    assert_eq!(
        windows_of(&scheduled(1, 1, 3, 2), 20),
        [
            warm_up(110, 120, 1),
            window(120, 150, 2, Some(0)),
            warm_up(160, 170, 6),
            window(170, 200, 7, Some(1)),
        ]
    );
    // For ever, and repeats that follow each other at once are windows of their own.
    assert_eq!(
        windows_of(&scheduled(0, 0, 2, 0), 5),
        [
            window(100, 120, 0, Some(0)),
            window(120, 140, 2, Some(1)),
            window(140, 150, 4, Some(2))
        ]
    );
    assert_eq!(windows_of(&scheduled(1, 1, 0, 0), 5), []);
    assert_eq!(windows_of(&scheduled(u64::MAX, 1, 1, 1), 5), []);
}

#[test]
fn steps_that_were_asked_for_are_recorded_and_blocks_alternate() {
    let only = CollectorOptions {
        steps: Some((2, 3)),
        ..CollectorOptions::default()
    };
    assert_eq!(windows_of(&only, 10), [window(120, 140, 2, None)]);
    let alternate = CollectorOptions {
        measure_overhead_steps: Some(2),
        ..CollectorOptions::default()
    };
    let before_the_first = Window {
        first_step: None,
        ..window(50, 120, 0, None)
    };
    assert_eq!(
        windows_of(&alternate, 7),
        [before_the_first, window(140, 160, 4, None)]
    );
}

#[test]
fn ranges_of_the_name_are_one_window_however_they_nest() {
    let options = CollectorOptions {
        range: Some("train".to_owned()),
        ..CollectorOptions::default()
    };
    let mut machine = Machine::new(&options, TimeNs(0), true);
    for (at, event) in [
        (10, Event::RangeBegins),
        (20, Event::RangeBegins),
        (30, Event::RangeEnds),
        (40, Event::RangeEnds),
        (50, Event::RangeEnds),
        (60, Event::RangeBegins),
    ] {
        machine.apply(TimeNs(at), event);
    }
    assert_eq!(machine.phase(), Phase::Active);
    machine.end(TimeNs(70));
    let found: Vec<(i64, i64)> = machine
        .take_ended()
        .iter()
        .map(|window| (window.start.0, window.end.0))
        .collect();
    assert_eq!(found, [(10, 40), (60, 70)]);
    for (at, is_in) in [
        (9, false),
        (10, true),
        (39, true),
        (40, false),
        (59, false),
        (60, true),
        (70, false),
    ] {
        assert_eq!(machine.window_at(TimeNs(at)).is_some(), is_in, "at {at}");
    }
}

#[test]
fn only_the_asked_steps_within_the_asked_range_while_switched_on() {
    let options = CollectorOptions {
        range: Some("train".to_owned()),
        steps: Some((1, 2)),
        profiler_calls: true,
        ..CollectorOptions::default()
    };
    let mut machine = Machine::new(&options, TimeNs(0), false);
    for (at, event) in [
        (1, Event::Switch(true)),
        (2, Event::Profiler(true)),
        (3, step(0)),
        (4, Event::RangeBegins),
        (5, step(1)),
        (6, Event::Switch(false)),
        (7, Event::Switch(true)),
        (8, Event::Profiler(false)),
    ] {
        machine.apply(TimeNs(at), event);
    }
    let found: Vec<(i64, i64)> = machine
        .take_ended()
        .iter()
        .map(|window| (window.start.0, window.end.0))
        .collect();
    assert_eq!(found, [(5, 6), (7, 8)]);
}

#[test]
fn a_recording_of_everything_has_no_windows_until_it_is_switched_off() {
    let mut machine = Machine::new(&CollectorOptions::default(), TimeNs(5), true);
    machine.apply(TimeNs(10), Event::Switch(true));
    assert!(!machine.is_partial() && machine.take_ended().is_empty());
    machine.apply(TimeNs(20), Event::Switch(false));
    assert!(machine.is_partial());
    let ended = machine.take_ended();
    assert_eq!(
        (ended[0].start, ended[0].end, ended[0].first_step),
        (TimeNs(5), TimeNs(20), None)
    );
}

#[test]
fn the_step_before_the_first_is_soon() {
    let options = CollectorOptions {
        steps: Some((3, 3)),
        ..CollectorOptions::default()
    };
    let mut machine = Machine::new(&options, TimeNs(0), true);
    let mut phases = vec![machine.phase()];
    for number in 0..5u64 {
        machine.apply(TimeNs(10 + number.cast_signed()), step(number));
        phases.push(machine.phase());
    }
    let off = |soon| Phase::Off { soon };
    assert_eq!(
        phases,
        [
            off(false),
            off(false),
            off(false),
            off(true),
            Phase::Active,
            off(false)
        ]
    );
}

#[test]
fn a_step_that_several_threads_or_words_name_is_one_step() {
    let named = |word, number, thread| Event::Step { word, number, thread };
    let count = |events: &[Event]| {
        let mut machine = Machine::new(&scheduled(0, 0, 1, 0), TimeNs(0), true);
        for (at, event) in (1..).zip(events) {
            machine.apply(TimeNs(at), *event);
        }
        machine.steps.current
    };
    let threads: Vec<Event> = (0..4)
        .flat_map(|number| [2, 1].map(|thread| named(StepWord::Step, Some(number), thread)))
        .collect();
    assert_eq!(count(&threads), Some(3));
    // The profiler's and the program's own name, one in the other; and words without numbers.
    let words: Vec<Event> = (0..4)
        .flat_map(|number| [StepWord::ProfilerStep, StepWord::Step].map(|word| named(word, Some(number), 1)))
        .collect();
    assert_eq!(count(&words), Some(3));
    assert_eq!(count(&[named(StepWord::Iteration, None, 1); 3]), Some(2));
    // A second epoch counts on.
    let epochs: Vec<Event> = [0, 1, 2, 0, 1, 2]
        .map(|number| named(StepWord::Step, Some(number), 1))
        .to_vec();
    assert_eq!(count(&epochs), Some(5));
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<bool>().prop_map(Event::Switch),
        any::<bool>().prop_map(Event::Profiler),
        Just(Event::RangeBegins),
        Just(Event::RangeEnds),
        Just(Event::DetectedStep),
        (0u64..5, 1u32..3).prop_map(|(number, thread)| Event::Step {
            word: StepWord::Step,
            number: Some(number),
            thread
        }),
    ]
}

prop_compose! {
    fn any_options()(
        schedule in prop::option::of((0u64..3, 0u64..3, 0u64..3, 0u64..3)),
        steps in prop::option::of((0u64..5, 0u64..5)),
        range in any::<bool>(),
        profiler_calls in any::<bool>(),
        measure_overhead_steps in prop::option::of(0u64..3),
    ) -> CollectorOptions {
        CollectorOptions {
            schedule: schedule.map(|(wait, warmup, active, repeat)| Schedule { wait, warmup, active, repeat }),
            steps,
            range: range.then(|| "r".to_owned()),
            profiler_calls,
            measure_overhead_steps,
            ..CollectorOptions::default()
        }
    }
}

proptest! {
    /// Whatever comes, windows are those times at which the phase was active: in order, apart, and whole.
    #[test]
    fn windows_are_when_the_phase_was_active(
        options in any_options(), switch in any::<bool>(), events in prop::collection::vec((0i64..4, any_event()), 0..60)
    ) {
        let mut machine = Machine::new(&options, TimeNs(0), switch);
        let mut phases = Vec::new();
        let mut at = 0;
        for (later, event) in events {
            phases.extend((at..at + later).map(|at| (at, machine.phase())));
            at += later;
            machine.apply(TimeNs(at), event);
        }
        phases.extend((at..at + 2).map(|at| (at, machine.phase())));
        machine.end(TimeNs(at + 2));
        for (at, phase) in phases {
            prop_assert_eq!(machine.window_at(TimeNs(at)).is_some(), phase == Phase::Active, "at {}", at);
        }
        let windows = machine.take_ended();
        for window in &windows {
            prop_assert!(window.start < window.end);
        }
        for pair in windows.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
    }
}
