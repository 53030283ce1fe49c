//! What SECURITY.md says of our own code.

use std::path::Path;

/// Rust sources below a folder.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// Blocks, functions, implementations and foreign declarations that are unsafe.
fn unsafe_parts(text: &str) -> usize {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let counted = code.map(|line| {
        let after = line.split("unsafe ").skip(1);
        after
            .filter(|rest| {
                ["{", "fn", "impl", "extern"]
                    .iter()
                    .any(|word| rest.starts_with(word))
            })
            .count()
    });
    counted.sum()
}

#[test]
fn crates_have_no_more_unsafe_code_than_is_said() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("SECURITY.md")).expect("it is there");
    let rows = text.lines().filter_map(|line| {
        let (name, most) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((name, most.trim_end_matches(" |").parse::<usize>().ok()?))
    });
    let rows: Vec<(&str, usize)> = rows.collect();
    assert_eq!(rows.len(), 8, "a row for each crate: {rows:?}");
    for (name, most) in rows {
        let folder = if name == "src" {
            root.join("src")
        } else {
            root.join(name).join("src")
        };
        let mut files = Vec::new();
        sources(&folder, &mut files);
        let count: usize = files.iter().map(|file| unsafe_parts(file)).sum();
        println!("{name}: {count} of at most {most}");
        assert!(
            count <= most,
            "{name}: {count}, and SECURITY.md says at most {most}"
        );
    }
    assert_eq!(
        unsafe_parts("unsafe { x } // unsafe { y }\nunsafe impl Send for T {}\n#![forbid(unsafe_code)]"),
        2
    );
}

#[test]
fn the_python_package_has_the_programs_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("pyproject.toml", format!("version = \"{version}\"\n")),
        ("gputrace/__init__.py", format!("__version__ = \"{version}\"\n")),
    ] {
        let text = std::fs::read_to_string(root.join(file)).expect(file);
        assert!(text.contains(&line), "{file}: {line}");
    }
}
