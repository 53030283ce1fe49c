//! The page's types of the analysis: `viewer/types/analysis.d.ts`, made of the Rust types as they stand in the sources.
//!
//! `UPDATE_DECLARATIONS=1 cargo test -p gputrace-analyzer --test analyzer declarations` writes the file again. `tsc -p viewer` then
//! says where the page does not fit it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::support::Build;
use gputrace_analyzer::{CATALOGUE, Options, PARTS, analyze, by_step, compare};
use serde_json::Value;

/// What the page gets: everything else is found from these.
const ROOTS: [&str; 5] = ["Analysis", "Comparison", "RankCells", "RankOverview", "WhatIf"];

/// A member of an object: what it is, its name, and its Rust type; a flattened one has no name.
#[derive(Clone, Debug)]
struct Member {
    doc: String,
    name: Option<String>,
    rust: String,
}

#[derive(Clone, Debug)]
enum Shape {
    Object(Vec<Member>),
    /// One of these texts.
    Words(Vec<String>),
    /// The code of each, with what it has beside it: an adjacently tagged enum.
    Tagged {
        tag: String,
        content: String,
        variants: Vec<(String, String, Vec<Member>)>,
    },
}

#[derive(Clone, Debug)]
struct Type {
    doc: String,
    shape: Shape,
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// What stands between the quotes after `key = `.
fn quoted<'a>(attribute: &'a str, key: &str) -> Option<&'a str> {
    attribute.split_once(&format!("{key} = \""))?.1.split('"').next()
}

/// Reads what rustfmt makes of `pub struct` and `pub enum` with `Serialize`; panics at what it does not know.
fn types_of(source: &str, found: &mut BTreeMap<String, Type>) {
    let lines: Vec<&str> = source.lines().collect();
    let (mut doc, mut attributes) = (String::new(), String::new());
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if let Some(text) = line.strip_prefix("///") {
            writeln!(doc, "{}", text.trim()).expect("a string grows");
        } else if line.starts_with("#[") {
            attributes += line;
        } else {
            let heading = line.strip_suffix(" {").and_then(|line| {
                line.strip_prefix("pub struct ")
                    .map(|name| (name, false))
                    .or_else(|| line.strip_prefix("pub enum ").map(|name| (name, true)))
            });
            if let Some((name, is_enum)) = heading
                && attributes.contains("Serialize")
            {
                let end = at + lines[at..].iter().position(|line| *line == "}").expect("an end");
                let shape = if is_enum {
                    variants(&lines[at..end], &attributes)
                } else {
                    Shape::Object(members(&lines[at..end]))
                };
                let doc = std::mem::take(&mut doc);
                found.insert(name.to_owned(), Type { doc, shape });
                at = end;
            }
            doc.clear();
            attributes.clear();
        }
    }
}

fn members(lines: &[&str]) -> Vec<Member> {
    let mut all = Vec::new();
    let (mut doc, mut attribute) = (String::new(), "");
    for line in lines.iter().map(|line| line.trim()) {
        if let Some(text) = line.strip_prefix("///") {
            writeln!(doc, "{}", text.trim()).expect("a string grows");
        } else if line.starts_with("#[") {
            attribute = line;
        } else if let Some((name, rust)) = line.trim_start_matches("pub ").split_once(": ") {
            let doc = std::mem::take(&mut doc);
            let name = match attribute {
                "" => Some(Some(name.to_owned())),
                "#[serde(flatten)]" => Some(None),
                "#[serde(skip)]" => None,
                // How it is read back says nothing of how it is written.
                read if read == "#[serde(default)]" || read.starts_with("#[serde(deserialize_with = ") => {
                    Some(Some(name.to_owned()))
                }
                other => panic!("{other} is not known here"),
            };
            let rust = rust.trim_end_matches(',').to_owned();
            all.extend(name.map(|name| Member { doc, name, rust }));
            attribute = "";
        } else {
            panic!("{line:?} is no member");
        }
    }
    all
}

fn variants(lines: &[&str], attributes: &str) -> Shape {
    assert_eq!(
        quoted(attributes, "rename_all"),
        Some("snake_case"),
        "{attributes}"
    );
    let Some((tag, content)) = quoted(attributes, "tag").zip(quoted(attributes, "content")) else {
        let names = lines.iter().map(|line| line.trim().trim_end_matches(','));
        let names = names.filter(|line| !line.starts_with("///"));
        return Shape::Words(names.map(snake).collect());
    };
    let (mut all, mut doc, mut at) = (Vec::new(), String::new(), 0);
    while at < lines.len() {
        let line = lines[at].trim();
        at += 1;
        if let Some(text) = line.strip_prefix("///") {
            writeln!(doc, "{}", text.trim()).expect("a string grows");
            continue;
        }
        let name = line.strip_suffix(" {").expect("a variant with members");
        let end = at
            + lines[at..]
                .iter()
                .position(|line| line.trim() == "},")
                .expect("an end");
        all.push((snake(name), std::mem::take(&mut doc), members(&lines[at..end])));
        at = end + 1;
    }
    Shape::Tagged {
        tag: tag.to_owned(),
        content: content.to_owned(),
        variants: all,
    }
}

/// All types of the sources that may be in an analysis, and those that macros make.
fn all_types() -> BTreeMap<String, Type> {
    let mut found = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = [
        "src",
        "src/operators",
        "src/diff",
        "src/baseline",
        "src/rank_steps",
    ]
    .into_iter()
    .flat_map(|folder| fs::read_dir(root.join(folder)).expect("our sources"));
    let own = own.map(|entry| entry.expect("an entry").path());
    let own = own.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    for path in own.chain([
        root.join("src/graph/path.rs"),
        root.join("src/graph/whatif.rs"),
        root.join("src/graph/rank_times.rs"),
        root.join("../trace/src/hang.rs"),
    ]) {
        types_of(&fs::read_to_string(&path).expect("a source"), &mut found);
    }
    // Of the manifest's types only this one is in an analysis.
    let manifest = fs::read_to_string(root.join("../trace/src/manifest.rs")).expect("a source");
    let name = manifest.find("pub struct LossEntry").expect("what a loss is");
    let begin = manifest[..name].rfind("\n\n").expect("its comment");
    let end = name + manifest[name..].find("\n}").expect("its end") + 2;
    types_of(&manifest[begin..end], &mut found);
    let loss = found.remove("LossEntry").expect("what a loss is");
    found.insert("Loss".to_owned(), loss);
    let member = |name: &str, rust: &str, doc: &str| Member {
        doc: doc.to_owned(),
        name: Some(name.to_owned()),
        rust: rust.to_owned(),
    };
    let mut add = |name: &str, doc: &str, members: Vec<Member>| {
        let doc = doc.to_owned();
        let shape = Shape::Object(members);
        found.insert(name.to_owned(), Type { doc, shape });
    };
    let measures = CATALOGUE.iter().map(|measure| {
        let rust = match measure.unit().name() {
            "ns" => "i64",
            _ => "Option<f64>",
        };
        member(measure.name, rust, measure.definition)
    });
    add(
        "Measures",
        "The measures of one device over a window.",
        measures.collect(),
    );
    let parts = PARTS.iter().map(|part| member(part.name, "i64", part.definition));
    add(
        "Parts",
        "Parts of a stretch of time, in nanoseconds. Each moment is in one of them.",
        parts.collect(),
    );
    let of_measure = [
        ("name", "Its name wherever programs read it."),
        ("unit", "\"ns\" or \"ratio\"."),
        ("label", "Its name in tables that people read."),
        ("definition", "What it is, in a line."),
    ];
    let of_measure = of_measure.map(|(name, doc)| member(name, "String", doc));
    add("Measure", "One measure of the catalogue.", of_measure.to_vec());
    found
}

/// What is between the brackets of `NAME<...>`.
fn argument<'a>(rust: &'a str, name: &str) -> Option<&'a str> {
    rust.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>')
}

/// A Rust type in TypeScript; types of ours are noted in `used`.
fn typescript(rust: &str, used: &mut BTreeSet<String>) -> String {
    let list = argument(rust, "Vec").or_else(|| rust.strip_prefix("&'static [")?.strip_suffix(']'));
    if let Some(inner) = argument(rust, "Option") {
        format!("{} | null", typescript(inner, used))
    } else if let Some(inner) = list {
        match typescript(inner, used) {
            choice if choice.contains(" | ") => format!("({choice})[]"),
            one => format!("{one}[]"),
        }
    } else if let Some(inner) = argument(rust, "BTreeMap") {
        let value = inner.strip_prefix("String, ").expect("members have names");
        format!("Record<string, {}>", typescript(value, used))
    } else if let Some(inner) = rust.strip_prefix('(').and_then(|rust| rust.strip_suffix(')')) {
        let parts: Vec<String> = inner.split(", ").map(|part| typescript(part, used)).collect();
        format!("[{}]", parts.join(", "))
    } else {
        match rust {
            "i32" | "i64" | "u64" | "u32" | "usize" | "f64" | "CellValue" => "number".to_owned(),
            "String" | "&'static str" | "Word" | "Cow<'static, str>" => "string".to_owned(),
            "bool" => "boolean".to_owned(),
            "TimeNs" => "Stamp".to_owned(),
            ours => {
                used.insert(ours.to_owned());
                ours.to_owned()
            }
        }
    }
}

fn comment(text: &mut String, indent: &str, doc: &str) {
    // Links are for rustdoc alone.
    let doc = doc.trim().replace("[`", "`").replace("`]", "`");
    match doc.split('\n').collect::<Vec<_>>().as_slice() {
        [""] => {}
        [line] => writeln!(text, "{indent}/** {line} */").expect("a string grows"),
        lines => {
            let lines: Vec<String> = lines
                .iter()
                .map(|line| format!("{indent} * {line}").trim_end().to_owned())
                .collect();
            writeln!(text, "{indent}/**\n{}\n{indent} */", lines.join("\n")).expect("a string grows");
        }
    }
}

fn write_members(text: &mut String, indent: &str, members: &[Member], used: &mut BTreeSet<String>) {
    for member in members {
        if let Some(name) = &member.name {
            comment(text, indent, &member.doc);
            writeln!(text, "{indent}{name}: {};", typescript(&member.rust, used)).expect("a string grows");
        }
    }
}

/// The whole file.
fn declarations(types: &BTreeMap<String, Type>) -> String {
    let mut text = "// Made of the analyzer's types by analyzer/tests/declarations.rs, which also says how to make it again.\n\n\
         /** A moment: nanoseconds since the epoch, or in the answers of the page's server since the recording's origin. */\n\
         export type Stamp = number;\n"
        .to_owned();
    let mut wanted: BTreeSet<String> = ROOTS.iter().map(|&root| root.to_owned()).collect();
    let mut done = BTreeSet::new();
    while let Some(name) = wanted.difference(&done).next().cloned() {
        let of = types
            .get(&name)
            .unwrap_or_else(|| panic!("no type {name} in the sources"));
        done.insert(name.clone());
        text.push('\n');
        comment(&mut text, "", &of.doc);
        match &of.shape {
            Shape::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                writeln!(text, "export type {name} = {};", words.join(" | ")).expect("a string grows");
            }
            Shape::Object(members) => {
                let flat: Vec<String> = members
                    .iter()
                    .filter(|member| member.name.is_none())
                    .map(|member| typescript(&member.rust, &mut wanted))
                    .collect();
                let flat: String = flat.iter().map(|name| format!("{name} & ")).collect();
                writeln!(text, "export type {name} = {flat}{{").expect("a string grows");
                write_members(&mut text, "  ", members, &mut wanted);
                text += "};\n";
            }
            Shape::Tagged {
                tag,
                content,
                variants,
            } => {
                write!(text, "export type {name} =").expect("a string grows");
                for (code, doc, members) in variants {
                    text.push('\n');
                    comment(&mut text, "  ", doc);
                    write!(text, "  | {{\n    {tag}: {code:?};\n    {content}: {{\n")
                        .expect("a string grows");
                    write_members(&mut text, "      ", members, &mut wanted);
                    text += "    };\n  }";
                }
                text += ";\n";
            }
        }
    }
    text
}

/// Whether a value of the JSON is what its type says.
fn check(place: &str, value: &Value, rust: &str, types: &BTreeMap<String, Type>) {
    if let Some(inner) = argument(rust, "Option") {
        if !value.is_null() {
            check(place, value, inner, types);
        }
        return;
    }
    let list = argument(rust, "Vec").or_else(|| rust.strip_prefix("&'static [")?.strip_suffix(']'));
    if let Some(inner) = list {
        let list = value
            .as_array()
            .unwrap_or_else(|| panic!("{place}: {value} is no list"));
        list.iter().for_each(|value| check(place, value, inner, types));
    } else if let Some(inner) = argument(rust, "BTreeMap") {
        let value_type = inner.strip_prefix("String, ").expect("members have names");
        let members = value
            .as_object()
            .unwrap_or_else(|| panic!("{place}: {value} is no object"));
        members
            .values()
            .for_each(|value| check(place, value, value_type, types));
    } else if let Some(inner) = rust.strip_prefix('(').and_then(|rust| rust.strip_suffix(')')) {
        let parts = value
            .as_array()
            .unwrap_or_else(|| panic!("{place}: {value} is no list"));
        let kinds: Vec<&str> = inner.split(", ").collect();
        assert_eq!(parts.len(), kinds.len(), "{place}");
        parts
            .iter()
            .zip(kinds)
            .for_each(|(part, kind)| check(place, part, kind, types));
    } else {
        let fits = match typescript(rust, &mut BTreeSet::new()).as_str() {
            "number" | "Stamp" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            name => {
                let members = check_object(place, value, name, types);
                if let (Some(members), Some(object)) = (members, value.as_object()) {
                    let found: BTreeSet<&str> = object.keys().map(String::as_str).collect();
                    let members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
                    assert_eq!(found, members, "{place}: members of {name}");
                }
                true
            }
        };
        assert!(fits, "{place}: {value} is no {rust}");
    }
}

/// Checks the members that a type has; their names, where it is an object.
fn check_object(
    place: &str,
    value: &Value,
    name: &str,
    types: &BTreeMap<String, Type>,
) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let each = |object: &Value, members: &[Member]| {
        let mut names = Vec::new();
        for member in members {
            match &member.name {
                Some(member_name) => {
                    let place = format!("{place}.{member_name}");
                    check(
                        &place,
                        object
                            .get(member_name)
                            .unwrap_or_else(|| panic!("{place} is missing")),
                        &member.rust,
                        types,
                    );
                    names.push(member_name.clone());
                }
                None => names.extend(check_object(place, object, &member.rust, types).expect("an object")),
            }
        }
        names
    };
    match &types[name].shape {
        Shape::Object(members) => names.extend(each(value, members)),
        Shape::Words(words) => {
            assert!(words.iter().any(|word| value == word), "{place}: {value}");
            return None;
        }
        Shape::Tagged {
            tag,
            content,
            variants,
        } => {
            let found = variants.iter().find(|(code, ..)| value[tag] == code.as_str());
            let (_, _, members) = found.unwrap_or_else(|| panic!("{place}: no code {}", value[tag]));
            let inside = each(&value[content], members);
            assert_eq!(
                value[content].as_object().map(serde_json::Map::len),
                Some(inside.len()),
                "{place}"
            );
            names.extend([tag.clone(), content.clone()]);
        }
    }
    Some(names)
}

#[test]
fn the_page_s_declarations_are_those_of_the_types() {
    let made = declarations(&all_types());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../viewer/types/analysis.d.ts");
    if std::env::var_os("UPDATE_DECLARATIONS").is_some() {
        fs::write(&path, &made).expect("the file is written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == kept,
        "viewer/types/analysis.d.ts is out of date: UPDATE_DECLARATIONS=1 cargo test -p gputrace-analyzer --test analyzer declarations"
    );
}

#[test]
fn the_json_is_what_the_declarations_say() {
    let types = all_types();
    let mut build = Build::new(2);
    for rank in [0, 1] {
        build
            .kernel(rank, "gemm", 7, 0, 100, 1)
            .kernel(rank, "ncclDevKernel_AllReduce", 9, 100, 200, 2)
            .kernel(rank, "gemm", 7, 600, 700 + 200 * rank as i64, 3);
        build.collective(rank, 0, 4, 300, 400);
    }
    build.step(1, 0, 500).step(2, 500, 1000).copy(8, 50, 60);
    let analysis = analyze(&build.recording, &Options::default());
    let json = serde_json::to_value(&analysis).expect("JSON");
    assert!(
        !analysis.findings.is_empty()
            && !analysis.collectives.is_empty()
            && !analysis.ranks[0].steps.is_empty()
    );
    check("analysis", &json, "Analysis", &types);
    let (whole, baseline) = by_step(&build.recording, None);
    let comparison = serde_json::to_value(compare((&whole, &baseline), (&whole, &baseline))).expect("JSON");
    check("comparison", &comparison, "Comparison", &types);
}
