//! Files of a crate do not import each other in a circle: what two of them need lies in a third.
//!
//! `use` declarations and paths through modules count, followed through re-exports to the file that has the item. What tests
//! import does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Circles that are left, a line each: the folder and the files in it, without `.rs`. None may be added, and one that is
/// untied goes from the list.
const KNOWN: &str = "\
simgpu/src: clock config/mod
simgpu/src: cupti/attributes cupti/callbacks cupti/delivery cupti/exports cupti/graphs cupti/in_flight \
    cupti/memory cupti/mod cupti/records cupti/user_defined/delivery cupti/user_defined/exports \
    cupti/user_defined/mod cupti/user_defined/selection device/busy device/links device/mod device/model \
    device/pool device/stream device/traffic driver/context driver/entry driver/graph/capture driver/graph/mod \
    driver/graph/run driver/launch driver/module driver/stream kernels/mod nvml/board truth
simgpu/src: nccl/errors nccl/network
simgpu/src: nccl/group nccl/plan
simgpu/src: nccl/mesh nccl/timing
simgpu/src: nccl/model/launch nccl/model/mod nccl/model/tuning
simgpu/src: nccl/operation nccl/reduce
workloads/src: checkpoint/options checkpoint/save/mod
workloads/src: comm/library comm/mod
workloads/src: devices launch
workloads/src: gpu/blas gpu/launch gpu/mod
workloads/src: model/attention model/block model/dense model/edges model/embedding model/head model/linear \
    model/mod
workloads/src: options train/fsdp train/measure train/plan train/reducer train/replicated
workloads/src: puzzlers/collectives puzzlers/contest
workloads/src: store/meeting store/mod
analyzer/src: hangs/mod hangs/words
viewer/src: report/bars report/mod report/steps report/timeline/drawing report/timeline/mod
viewer/src: server/api/analysis server/api/info server/api/mod server/api/parameters server/api/pictures server/api/ranks \
    server/api/slices server/assets server/auth server/connections server/entry server/exports server/fair_queue \
    server/following server/library/mod server/loaded server/mod server/preview server/read_queue \
    server/sessions server/write_timeout
viewer/src: timeline/base timeline/collectives timeline/counters timeline/mod timeline/rows timeline/series \
    timeline/tile
viewer/src: timeline/lanes timeline/slices/mod timeline/slices/summary
viewer/src: timeline/pieces timeline/store
src: analyze export/html export/mod
src: doctor/cupti doctor/mod doctor/sandbox
";

/// An absolute path within a crate, by segments, without `crate`.
type Place = Vec<String>;

/// What is needed of a source file.
#[derive(Default)]
struct Source {
    /// All but `use` declarations.
    tokens: Vec<String>,
    /// Names that `use` declarations bring in, with what they are.
    bound: BTreeMap<String, Place>,
    /// What `use` declarations end in, but for what is handed on only.
    used: Vec<Place>,
}

/// The modules of a crate that are files, by their paths.
type Modules = BTreeMap<Place, (String, Source)>;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A file without its tests, which stand at its end.
fn without_tests(text: &str) -> &str {
    let mut from = 0;
    while let Some(found) = text[from..].find("\n#[cfg(test)]\nmod ") {
        let end = from + found;
        let rest = &text[end + "\n#[cfg(test)]\n".len()..];
        if rest.lines().next().is_some_and(|line| line.ends_with('{')) {
            return &text[..end];
        }
        from = end + 1;
    }
    text
}

/// Words and single characters; `::` is one. Comments and what is quoted are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(quoted) = rest.strip_prefix("r#\"") {
            quoted.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|letter| {
                let ends = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\'") {
            3
        } else if rest.starts_with("'\\") {
            4
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let length = if is_word(first) {
                rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push(rest[..length].to_owned());
            length
        };
        rest = &rest[length..];
    }
    found
}

/// What a path that stands in `module` leads to, if that is within the crate.
fn absolute(
    path: &[String],
    module: &Place,
    modules: &Modules,
    bound: &BTreeMap<String, Place>,
) -> Option<Place> {
    let (first, rest) = path.split_first()?;
    let mut place = match first.as_str() {
        "crate" => Place::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        name => {
            let mut child = module.clone();
            child.push(name.to_owned());
            if modules.contains_key(&child) {
                child
            } else {
                bound.get(name)?.clone()
            }
        }
    };
    for segment in rest {
        match segment.as_str() {
            "super" => drop(place.pop()?),
            "self" => {}
            _ => place.push(segment.clone()),
        }
    }
    Some(place)
}

/// Reads the tree of a `use` declaration from `at` on: each path that it ends in, with its name there.
fn use_tree(tokens: &[String], at: &mut usize, prefix: &[String], ends: &mut Vec<(Place, String)>) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                while tokens.get(*at).is_some_and(|token| token != "}" && token != ";") {
                    use_tree(tokens, at, &path, ends);
                    if tokens.get(*at).is_some_and(|token| token == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "as" => {
                ends.push((path, tokens[*at].clone()));
                *at += 1;
                return;
            }
            "," | ";" | "}" => {
                *at -= 1;
                break;
            }
            _ => path.push(token.clone()),
        }
    }
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) = path.last().cloned() {
        ends.push((path, name));
    }
}

/// The file that has what is at a place, by way of re-exports, and its name there.
fn owner(place: &Place, modules: &Modules, depth: usize) -> Option<(String, String)> {
    let (length, (file, source)) = (0..=place.len())
        .rev()
        .find_map(|length| Some((length, modules.get(&place[..length])?)))?;
    let re_exported = place.get(length).and_then(|name| source.bound.get(name));
    if let Some(target) = re_exported.filter(|_| depth < 8) {
        let target: Place = target.iter().chain(&place[length + 1..]).cloned().collect();
        if target != *place {
            return owner(&target, modules, depth + 1);
        }
    }
    Some((file.clone(), place.get(length).cloned().unwrap_or_default()))
}

fn read(root: &Path, source: &Path) -> Modules {
    let mut found = Vec::new();
    files(source, &mut found);
    let mut modules = Modules::new();
    for file in found {
        let inner = file
            .strip_prefix(source)
            .expect("a file of the crate")
            .with_extension("");
        let mut place: Place = inner
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let name = place.last().expect("a name").clone();
        if name == "tests" || name == "testing" {
            continue;
        }
        if matches!(name.as_str(), "lib" | "main" | "mod") {
            place.pop();
        }
        let text = fs::read_to_string(&file).expect("a text");
        let name = file
            .strip_prefix(root)
            .expect("a file of ours")
            .to_string_lossy()
            .into_owned();
        let tokens = tokens(without_tests(&text));
        modules.insert(
            place,
            (
                name,
                Source {
                    tokens,
                    ..Source::default()
                },
            ),
        );
    }
    let mut uses = Vec::new();
    for (module, (_, source)) in &modules {
        let (mut body, mut ends) = (Vec::new(), Vec::new());
        let tokens = &source.tokens;
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] == "use" && tokens.get(at + 1).is_some_and(|next| next != "<") {
                let is_handed_on = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
                let mut found = Vec::new();
                at += 1;
                use_tree(tokens, &mut at, &[], &mut found);
                ends.extend(found.into_iter().map(|(path, name)| (path, name, is_handed_on)));
            } else if tokens[at] == "mod" && tokens.get(at + 2).is_some_and(|next| next == ";") {
                // A module may be called like something in it.
                at += 3;
            } else if tokens[at..].len() > 2 && tokens[at..at + 3] == ["#", "[", "derive"] {
                at += 3;
            } else {
                body.push(tokens[at].clone());
                at += 1;
            }
        }
        let nothing = BTreeMap::new();
        let ends = ends.into_iter().filter_map(|(path, name, is_handed_on)| {
            let is_bare = path.len() == 1 && name == path[0];
            let place = absolute(&path, module, &modules, &nothing).filter(|_| !is_bare)?;
            let is_used = !is_handed_on || body.contains(&name);
            Some((name, place, is_used))
        });
        let ends: Vec<_> = ends.collect();
        uses.push((module.clone(), body, ends));
    }
    for (module, body, ends) in uses {
        if let Some((_, source)) = modules.get_mut(&module) {
            source.tokens = body;
            let used = ends.iter().filter(|(.., is_used)| *is_used);
            source.used = used.map(|(_, place, _)| place.clone()).collect();
            let bound = ends.into_iter().filter(|(name, ..)| name != "*");
            source.bound = bound.map(|(name, place, _)| (name, place)).collect();
        }
    }
    modules
}

/// Of each file, which others it imports, and what of them.
type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn imports(modules: &Modules) -> Imports {
    let mut edges = Imports::new();
    for (module, (file, source)) in modules {
        let tokens = &source.tokens;
        let mut places: Vec<Place> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let begins = tokens.get(at + 1).is_some_and(|next| next == "::")
                && (at == 0 || !matches!(tokens[at - 1].as_str(), "::" | "." | "in"));
            if !begins {
                at += 1;
                continue;
            }
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && tokens.get(at + 2).is_some_and(|next| {
                    next.chars()
                        .all(|letter| letter.is_alphanumeric() || letter == '_')
                })
            {
                at += 2;
                path.push(tokens[at].clone());
            }
            at += 1;
            // A group of a `use` declaration is among `used`.
            if tokens.get(at).is_none_or(|next| next != "::") {
                places.extend(absolute(&path, module, modules, &source.bound));
            }
        }
        // A module that is brought in is used by the paths that begin with its name.
        places.extend(
            source
                .used
                .iter()
                .filter(|place| !modules.contains_key(*place))
                .cloned(),
        );
        let of_file = edges.entry(file.clone()).or_default();
        for place in places.iter().filter(|place| !modules.contains_key(*place)) {
            if let Some((target, item)) = owner(place, modules, 0).filter(|(target, _)| target != file) {
                of_file.entry(target).or_default().insert(item);
            }
        }
    }
    edges
}

/// Groups of files that import each other in circles.
fn circles(edges: &Imports) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut reached: BTreeSet<&String> = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for next in edges.get(file).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        edges.keys().map(|file| (file, reached(file))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, others) in &reached {
        if others.contains(file) {
            let circle = others.iter().filter(|other| reached[*other].contains(file));
            found.insert(circle.map(|file| (*file).clone()).collect());
        }
    }
    found.into_iter().collect()
}

#[test]
fn files_of_a_crate_do_not_import_each_other_in_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = [
        "trace",
        "collector",
        "simgpu",
        "workloads",
        "interchange",
        "analyzer",
        "daemon",
        "viewer",
        "",
    ];
    let files = |line: &str| -> Option<Vec<String>> {
        let (folder, files) = line.split_once(": ")?;
        Some(
            files
                .split_whitespace()
                .map(|file| format!("{folder}/{file}.rs"))
                .collect(),
        )
    };
    let mut known: BTreeSet<Vec<String>> = KNOWN.lines().filter_map(files).collect();
    let mut wrong = String::new();
    for name in crates {
        let source = root.join(name).join("src");
        let edges = imports(&read(root, &source));
        assert!(edges.len() > 5, "{}: no files", source.display());
        for circle in circles(&edges) {
            if known.remove(&circle) {
                continue;
            }
            wrong += &format!("{} files:\n", circle.len());
            for file in &circle {
                for (to, items) in edges[file].iter().filter(|(to, _)| circle.contains(to)) {
                    let items: Vec<&str> = items.iter().map(String::as_str).collect();
                    wrong += &format!("    {file} -> {to}: {}\n", items.join(", "));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "files that import each other in circles, and what of each other:\n{wrong}"
    );
    assert!(
        known.is_empty(),
        "circles that are there no more: take them off the list: {known:?}"
    );
}

#[test]
fn a_circle_is_found_through_re_exports_and_none_where_there_is_none() {
    let folder = std::env::temp_dir().join(format!("imports-{}", std::process::id()));
    let source = folder.join("src");
    fs::create_dir_all(source.join("inner")).expect("a folder");
    let write = |name: &str, text: &str| fs::write(source.join(name), text).expect("a file");
    write(
        "lib.rs",
        "mod inner;\nmod other;\nmod leaf;\npub use other::run;\n",
    );
    // By way of what `inner` hands on, of a path in a function, and of a group.
    write("inner/mod.rs", "mod deep;\npub(crate) use deep::Deep;\n");
    write(
        "inner/deep.rs",
        "use crate::{leaf::LEAF, other::run as go};\npub struct Deep;\n",
    );
    write(
        "other.rs",
        "pub fn run() { let _ = crate::inner::Deep; }\n#[cfg(test)]\nmod tests { use crate::nothing; }\n",
    );
    write("leaf.rs", "pub const LEAF: u8 = 1; // crate::other::run\n");
    let found = circles(&imports(&read(&folder, &source)));
    assert_eq!(found, [["src/inner/deep.rs", "src/other.rs"].map(str::to_owned)]);
    write("inner/deep.rs", "use crate::leaf::LEAF;\npub struct Deep;\n");
    assert!(circles(&imports(&read(&folder, &source))).is_empty());
    fs::remove_dir_all(&folder).expect("it goes");
}
