use std::ffi::CString;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A folder with a root `in` and something outside of it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        std::fs::create_dir_all(place.at("in/deep/deeper")).unwrap();
        std::fs::create_dir_all(place.at("out/folder")).unwrap();
        std::fs::write(place.at("in/deep/deeper/file"), "inside").unwrap();
        std::fs::write(place.at("out/folder/file"), "secret").unwrap();
        name(&place.at("in"));
        place
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn link(&self, target: impl AsRef<Path>, link: &str) {
        symlink(target, self.at(link)).unwrap();
    }

    /// What is read by the kernel's rule, and what is read where there is none.
    fn read(&self, path: &str) -> [Result<String, String>; 2] {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let path = self.at(path);
        let by_rule = read(&path).map(text).map_err(|error| error.to_string());
        let (root, rest) = find(&path).unwrap();
        let walked = root.walk(&rest, Wanted::Bytes).and_then(|opened| {
            let mut bytes = Vec::new();
            File::from(opened).read_to_end(&mut bytes)?;
            Ok(text(bytes))
        });
        [by_rule, walked.map_err(|error| error.to_string())]
    }
}

fn both(text: &str) -> [Result<String, String>; 2] {
    [Ok(text.to_owned()), Ok(text.to_owned())]
}

fn neither() -> [Result<String, String>; 2] {
    [
        Err(Refused::LeadsOut.to_string()),
        Err(Refused::LeadsOut.to_string()),
    ]
}

#[test]
fn no_link_leads_out_at_any_depth() {
    let place = Place::new();
    for (number, folder) in ["in", "in/deep", "in/deep/deeper"].into_iter().enumerate() {
        let up = "../".repeat(number + 1);
        place.link(place.at("out/folder/file"), &format!("{folder}/absolute"));
        place.link(format!("{up}out/folder/file"), &format!("{folder}/relative"));
        place.link("/etc/passwd", &format!("{folder}/passwd"));
        place.link("/proc/self/environ", &format!("{folder}/proc"));
        place.link("/proc/self/cwd/Cargo.toml", &format!("{folder}/magic"));
        place.link(place.at("out/folder"), &format!("{folder}/folder"));
        place.link(place.at("out"), &format!("{folder}/above"));
        for link in [
            "absolute",
            "relative",
            "passwd",
            "proc",
            "magic",
            "folder/file",
            "above/folder/file",
        ] {
            assert_eq!(
                place.read(&format!("{folder}/{link}")),
                neither(),
                "{folder}/{link}"
            );
        }
    }
    // A link to a link, and a folder that is a link to a folder with a link.
    place.link("relative", "in/again");
    assert_eq!(place.read("in/again"), neither());
    place.link("deep", "in/same");
    assert_eq!(place.read("in/same/absolute"), neither());
    for path in [
        "in/../out/folder/file",
        "in/deep/../../out/folder/file",
        "in/folder/../out/folder/file",
    ] {
        assert_eq!(place.read(path), neither(), "{path}");
    }
}

#[test]
fn links_that_stay_are_followed() {
    let place = Place::new();
    place.link("deep/deeper/file", "in/relative");
    place.link("../deep/deeper", "in/deep/around");
    place.link(place.at("in/deep/deeper/file"), "in/absolute");
    place.link(place.at("in/deep"), "in/folder");
    place.link("../in/deep/deeper/file", "in/by_its_own_name");
    for path in [
        "relative",
        "deep/around/file",
        "absolute",
        "folder/deeper/file",
        "by_its_own_name",
    ] {
        assert_eq!(place.read(&format!("in/{path}")), both("inside"), "{path}");
    }
    let (root, rest) = find(&place.at("in/loop")).unwrap();
    place.link("loop", "in/loop");
    assert!(read(&place.at("in/loop")).is_err() && root.walk(&rest, Wanted::Bytes).is_err());
    place.link("nothing", "in/dangling");
    let error = read(&place.at("in/dangling")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn what_is_named_may_be_led_to() {
    let place = Place::new();
    place.link(place.at("out/folder"), "in/link");
    assert_eq!(place.read("in/link/file"), neither());
    name(&place.at("out"));
    assert_eq!(place.read("in/link/file"), both("secret"));
    // A link that is named itself is followed, and what it leads to is what is read from then on.
    let other = Place::new();
    other.link(other.at("out/folder"), "named");
    name(&other.at("named"));
    assert_eq!(read(&other.at("named/file")).unwrap(), b"secret");
    std::fs::remove_file(other.at("named")).unwrap();
    other.link("/etc", "named");
    assert_eq!(read(&other.at("named/file")).unwrap(), b"secret");
    assert!(read(&other.at("named/passwd")).is_err());
}

#[test]
fn nobody_waits_for_a_pipe() {
    let place = Place::new();
    let pipe = place.at("in/pipe");
    let path = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let socket = std::os::unix::net::UnixListener::bind(place.at("in/socket")).unwrap();
    assert_eq!(refused(&open(&pipe).unwrap_err()), Some(Refused::Special));
    assert_eq!(
        refused(&open(&place.at("in/deep")).unwrap_err()),
        Some(Refused::Special)
    );
    assert!(open(&place.at("in/socket")).is_err());
    drop(socket);
    // One that no root is around is no different.
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("pipe");
    std::fs::rename(&pipe, &path).unwrap();
    assert_eq!(refused(&open(&path).unwrap_err()), Some(Refused::Special));
    // Who names one wants it to be waited for.
    name(&path);
    assert_eq!(stat(&path).unwrap().kind, Kind::Special);
    assert!(!exists(&path.join("beneath")));
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::write(path, "late")
    });
    assert_eq!(read(&path).unwrap(), b"late");
    writer.join().unwrap().unwrap();
}

#[test]
fn a_folder_is_listed_with_what_is_in_it() {
    let place = Place::new();
    place.link("deep", "in/link");
    place.link(place.at("out"), "in/out");
    place.link("nothing", "in/dangling");
    std::fs::write(place.at("in/file"), "123").unwrap();
    let mut found: Vec<(String, Kind, u64)> = entries(&place.at("in"))
        .unwrap()
        .into_iter()
        .map(|entry| {
            let name = entry.path.file_name().unwrap().to_string_lossy().into_owned();
            let is_file = entry.stat.kind == Kind::File;
            (name, entry.stat.kind, if is_file { entry.stat.bytes } else { 0 })
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("dangling", Kind::Broken, 0),
        ("deep", Kind::Folder, 0),
        ("file", Kind::File, 3),
        ("link", Kind::Folder, 0),
        ("out", Kind::LeadsOut, 0),
    ];
    assert_eq!(
        found,
        expected.map(|(name, kind, bytes)| (name.to_owned(), kind, bytes))
    );
    assert!(entries(&place.at("in/out")).is_err() && !exists(&place.at("in/out/folder")));
    assert!(is_folder(&place.at("in/link")) && is_file(&place.at("in/file")));
    assert_eq!(bytes(&place.at("in/file")), 3);
}

#[test]
fn a_link_that_is_swapped_in_never_leads_out() {
    let place = Place::new();
    std::fs::create_dir(place.at("in/a")).unwrap();
    std::fs::write(place.at("in/a/file"), "inside").unwrap();
    place.link(place.at("out/folder"), "in/b");
    let ends = AtomicBool::new(false);
    let mut inside = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b, aside) = (place.at("in/a"), place.at("in/b"), place.at("in/c"));
            while !ends.load(Ordering::Relaxed) {
                std::fs::rename(&a, &aside).unwrap();
                std::fs::rename(&b, &a).unwrap();
                std::fs::rename(&a, &b).unwrap();
                std::fs::rename(&aside, &a).unwrap();
            }
        });
        for _ in 0..20_000 {
            for read in place.read("in/a/file").into_iter().flatten() {
                assert_eq!(read, "inside");
                inside += 1;
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(inside > 0, "it was never there");
}

#[test]
fn a_named_pipe_is_read_while_somebody_writes_into_it() {
    let place = Place::new();
    let pipe = place.at("in/pipe");
    let path = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a zero byte and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    name(&pipe);
    let error = open(&pipe).unwrap_err();
    assert_eq!(error.to_string(), "a pipe into which nobody writes");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = File::create(&pipe).unwrap();
            // A writer that says nothing for longer than one that does not come is waited for.
            std::thread::sleep(std::time::Duration::from_secs(4));
            writer.write_all(b"late").unwrap();
        });
        assert_eq!(read(&pipe).unwrap(), b"late");
    });
}
