use std::fs;

use proptest::prelude::*;

use super::*;
use crate::checkpoint::{State, write};

/// A state of so many parameters that differs in every step.
pub(crate) fn state(step: u64, parameters: usize) -> State {
    let values = |seed: f32| (0..parameters).map(|index| seed + index as f32).collect();
    State {
        step,
        taken: step / 2,
        shape: "shape".to_owned(),
        seed: 17,
        scale: 1024.0,
        good_steps: 3,
        parameters: values(step as f32),
        moments: vec![values(0.25), values(0.5)],
    }
}

/// All of a checkpoint.
pub(crate) fn read(path: &Path, shape: &str) -> Result<State, Error> {
    let mut reader = Reader::open(path, shape)?;
    let mut state = reader.header.empty_state();
    let count = reader.header.parameters as usize;
    state.parameters = from_bytes(&reader.read(count)?).collect();
    for moment in &mut state.moments {
        *moment = from_bytes(&reader.read(count)?).collect();
    }
    reader.finish()?;
    Ok(state)
}

fn written(state: &State) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a");
    write(&path, state).expect("writes");
    (folder, path)
}

/// What is said of a file with these contents.
fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a");
    fs::write(&path, bytes).expect("writes");
    let text = read(&path, "shape").expect_err("refused").to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    assert!(
        text.contains(&path.display().to_string()),
        "names the file: {text}"
    );
    text
}

#[test]
fn each_fault_has_a_line_of_its_own() {
    let (_folder, path) = written(&state(5, 20));
    let bytes = fs::read(&path).expect("reads");
    let line = bytes.iter().position(|&byte| byte == b'\n').expect("a line");
    assert!(refusal(b"").contains("not a checkpoint"));
    assert!(refusal(b"\x7fELF and so on\n").contains("not a checkpoint"));
    assert!(refusal(b"{\"format\":\"something else\"}\n").contains("not a checkpoint"));
    assert!(refusal(b"[1, 2]\n").contains("not a checkpoint"));
    assert!(refusal(&vec![b'a'; 1 << 20]).contains("not a checkpoint"));
    for cut in [1, 20, line] {
        assert!(refusal(&bytes[..cut]).contains("cut short"), "cut at {cut}");
    }
    for cut in [line + 1, bytes.len() - 1] {
        let expected = format!("cut short: {cut} of {} bytes", bytes.len());
        assert!(refusal(&bytes[..cut]).contains(&expected), "cut at {cut}");
    }
    assert!(refusal(&[&bytes[..], b"xy"].concat()).contains("2 bytes behind its end"));
    let mut flipped = bytes.clone();
    flipped[line + 9] ^= 4;
    assert!(refusal(&flipped).contains("checksum"));
    let replaced = |from: &str, to: &str| {
        let text = String::from_utf8_lossy(&bytes[..line]).replace(from, to);
        refusal(&[text.as_bytes(), &bytes[line..]].concat())
    };
    assert!(
        replaced("\"version\":1", "\"version\":2").contains("version 2, but this program reads version 1")
    );
    assert!(replaced("\"seed\":17", "\"seed\":18").contains("checksum"));
    assert!(replaced("\"seed\":17", "\"seed\":true").contains("damaged"));
    assert!(replaced("\"parameters\":20", "\"parameters\":9223372036854775807").contains("damaged"));
    assert!(replaced("\"parameters\":20", "\"parameters\":99999999999").contains("cut short"));
}

#[test]
fn other_runs_and_missing_files_are_told() {
    let (folder, path) = written(&state(5, 20));
    let text = read(&path, "layers [4, 4], sgd")
        .expect_err("refused")
        .to_string();
    assert!(
        text.contains("is of shape, but this run is of layers [4, 4], sgd"),
        "{text}"
    );
    let reader = Reader::open(&path, "shape").expect("opens");
    assert!(reader.check_parameters(20).is_ok());
    let text = reader.check_parameters(21).expect_err("refused").to_string();
    assert!(text.contains("has 20 parameters, but this run has 21"), "{text}");
    let missing = read(&folder.path().join("b"), "shape")
        .expect_err("missing")
        .to_string();
    assert!(missing.contains("does not exist"), "{missing}");
    assert!(read(folder.path(), "shape").is_err(), "a folder");
}

fn vectors() -> impl Strategy<Value = (Vec<f32>, Vec<Vec<f32>>)> {
    // Any bits but those of NaN, which equals nothing.
    let value = any::<f32>();
    (0usize..300, 0usize..3).prop_flat_map(move |(count, moments)| {
        let vector = prop::collection::vec(value, count);
        (vector.clone(), prop::collection::vec(vector, moments))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_state_comes_back(
        (parameters, moments) in vectors(),
        (step, taken, seed, good_steps) in any::<(u64, u64, u64, u64)>(),
        scale in 1f32..1e30,
        shape in ".{0,60}",
    ) {
        let state = State { step, taken, shape, seed, scale, good_steps, parameters, moments };
        let (_folder, path) = written(&state);
        prop_assert_eq!(read(&path, &state.shape).expect("reads"), state);
    }

    #[test]
    fn any_damage_is_noticed((parameters, moments) in vectors(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let (folder, path) = written(&State { parameters, moments, ..state(5, 0) });
        let mut bytes = fs::read(&path).expect("reads");
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        let damaged = folder.path().join("b");
        fs::write(&damaged, &bytes).expect("writes");
        prop_assert!(read(&damaged, "shape").is_err());
        bytes.truncate(at);
        fs::write(&damaged, &bytes).expect("writes");
        prop_assert!(read(&damaged, "shape").is_err());
    }
}
