use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const OURS: &str = "ours: ";

fn is_ours(file: &File) -> bool {
    let mut text = String::new();
    let mut file = file;
    file.read_to_string(&mut text).is_ok() && text.starts_with(OURS)
}

fn forced(path: &Path) -> Target {
    Target {
        existing: Existing::IsReplaced,
        ..Target::new(path)
    }
}

fn write(target: &Target, text: &str) -> io::Result<()> {
    target.write_file(&is_ours, |mut file| write!(file, "{OURS}{text}"))
}

fn fill(target: &Target, text: &str) -> io::Result<()> {
    target.write_folder(|folder| {
        folder.file("a.txt", |mut file| file.write_all(text.as_bytes()))?;
        folder.file("b/c/d.txt", |mut file| file.write_all(b"d"))
    })
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// How many things are in a folder, those with hidden names too.
fn count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// The refusal, which names the path.
fn why(target: &Target, written: io::Result<()>) -> String {
    let error = written.unwrap_err();
    let line = refusal(&error).unwrap_or_else(|| panic!("{error}")).to_string();
    assert!(
        line.starts_with(&format!("{}: ", target.path.display())),
        "{line}"
    );
    line
}

#[test]
fn what_is_there_is_replaced_only_when_asked_and_ours() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x");
    write(&Target::new(&path), "one").unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        why(&Target::new(&path), write(&Target::new(&path), "two")).ends_with("exists already: name another")
    );
    assert_eq!(read(&path), "ours: one");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    write(&forced(&path), "two").unwrap();
    assert_eq!(read(&path), "ours: two");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let failed = forced(&path).write_file(&is_ours, |_| Err::<(), _>(io::Error::other("no")));
    assert_eq!(failed.unwrap_err().to_string(), "no");
    assert_eq!(read(&path), "ours: two");

    fs::write(&path, "mine").unwrap();
    assert!(
        why(&forced(&path), write(&forced(&path), "three"))
            .contains("does not begin as what gputrace writes")
    );
    assert_eq!(read(&path), "mine");
    fs::write(&path, "").unwrap();
    write(&forced(&path), "three").unwrap();
    assert_eq!(read(&path), "ours: three");
    assert!(why(&forced(&path), fill(&forced(&path), "x")).contains("no folder"));
    assert_eq!(count(place.path()), 1);
}

#[test]
fn a_folder_is_replaced_when_an_export_wrote_all_of_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("out");
    fill(&Target::new(&path), "one").unwrap();
    for (entry, mode) in [("", 0o700), ("b/c", 0o700), ("a.txt", 0o600), (MARK_FILE, 0o600)] {
        let found = path.join(entry).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{entry}");
    }
    assert!(
        why(&Target::new(&path), fill(&Target::new(&path), "two")).ends_with("exists already: name another")
    );
    fill(&forced(&path), "two").unwrap();
    assert_eq!(read(&path.join("a.txt")), "two");
    let failed = forced(&path).write_folder(|folder| {
        folder.file("b/new", |_| Ok(()))?;
        Err::<(), _>(io::Error::other("no"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    // One that was removed is missed by nobody.
    fs::remove_file(path.join("b/c/d.txt")).unwrap();
    fill(&forced(&path), "three").unwrap();
    assert_eq!(read(&path.join("a.txt")), "three");
    assert_eq!(read(&path.join("b/c/d.txt")), "d");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    let empty = place.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fill(&Target::new(&empty), "one").unwrap();
    assert_eq!(count(place.path()), 2, "nothing is left beside them");
    assert!(why(&forced(&path), write(&forced(&path), "x")).contains("is a folder"));
}

#[test]
fn the_first_thing_in_the_way_is_named() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 9] = [
        (|path| fs::write(path.join("mine.txt"), "x").unwrap(), "mine.txt"),
        (|path| fs::write(path.join("b/c/mine"), "x").unwrap(), "b/c/mine"),
        (|path| fs::create_dir(path.join("empty")).unwrap(), "empty"),
        (
            |path| symlink("/etc/passwd", path.join("b/link")).unwrap(),
            "b/link",
        ),
        (
            |path| fs::write(path.join("a.txt"), "longer now").unwrap(),
            "a.txt in it was changed",
        ),
        (
            |path| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                fs::write(path.join("a.txt"), "two").unwrap();
            },
            "a.txt in it was changed",
        ),
        (
            |path| {
                fs::remove_dir_all(path.join("b")).unwrap();
                fs::create_dir(path.join("elsewhere")).unwrap();
                symlink("elsewhere", path.join("b")).unwrap();
            },
            "it holds b,",
        ),
        (|path| fs::remove_file(path.join(MARK_FILE)).unwrap(), "no mark"),
        (|path| fs::write(path.join(MARK_FILE), "{").unwrap(), "damaged"),
    ];
    for (change, said) in changes {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("out");
        fill(&Target::new(&path), "one").unwrap();
        change(&path);
        let before: Vec<_> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let line = why(&forced(&path), fill(&forced(&path), "new"));
        assert!(line.contains(said), "{line}");
        assert!(before.iter().all(|path| path.symlink_metadata().is_ok()));
        assert_eq!(count(place.path()), 1);
    }
}

#[test]
fn a_mark_that_leads_elsewhere_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let precious = place.path().join("precious");
    fs::write(&precious, "x").unwrap();
    let path = place.path().join("out");
    for name in ["../precious", "/etc/passwd", "b//c", "./a", ""] {
        fs::create_dir(&path).unwrap();
        let mark = serde_json::json!({"format": "gputrace.export", "version": 1, "files": {name: 1}});
        fs::write(path.join(MARK_FILE), mark.to_string()).unwrap();
        assert!(why(&forced(&path), fill(&forced(&path), "new")).contains("is not one that this gputrace"));
        fs::remove_dir_all(&path).unwrap();
    }
    assert_eq!(read(&precious), "x");
}

#[test]
fn links_stay_and_so_does_what_they_lead_to() {
    let place = tempfile::tempdir().unwrap();
    let (link, file) = (place.path().join("link"), place.path().join("file"));
    let folder = place.path().join("folder");
    write(&Target::new(&file), "one").unwrap();
    fill(&Target::new(&folder), "one").unwrap();
    for leads_to in [file.as_path(), &folder, Path::new("nowhere")] {
        symlink(leads_to, &link).unwrap();
        assert!(why(&forced(&link), write(&forced(&link), "two")).contains("is a link"));
        assert!(why(&forced(&link), fill(&forced(&link), "two")).contains("is a link"));
        assert!(why(&Target::new(&link), fill(&Target::new(&link), "two")).contains("is a link"));
        assert_eq!(fs::read_link(&link).unwrap(), leads_to);
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(read(&file), "ours: one");
    assert_eq!(read(&folder.join("a.txt")), "one");
    assert_eq!(count(place.path()), 2);
}

#[test]
fn what_is_read_recordings_and_their_folders_stay() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("out");
    fill(&Target::new(&path), "one").unwrap();
    let with_source = |path: &Path, source: &Path| Target {
        sources: vec![source.to_owned()],
        ..forced(path)
    };
    // Itself by another way, one in it, one around it.
    let same = path.join("../out");
    assert!(why_folder(&with_source(&path, &same)).contains("is what is read"));
    assert!(why_folder(&with_source(&path, &path.join("b/c/d.txt"))).contains("it holds"));
    let inner = path.join("inner");
    fill(&Target::new(&inner), "one").unwrap();
    assert!(why_folder(&with_source(&inner, &path)).contains("is inside"));
    fs::remove_dir_all(&inner).unwrap();
    // A second name of a file.
    let (file, second) = (place.path().join("file"), place.path().join("second"));
    write(&Target::new(&file), "one").unwrap();
    fs::hard_link(&file, &second).unwrap();
    let target = with_source(&second, &file);
    assert!(why(&target, write(&target, "two")).contains("is what is read"));

    // A recording that is marked as an export, by whomever.
    let manifest = r#"{"format": "gputrace.recording"}"#;
    for name in ["manifest.json", "manifest-host-7.json", "process/process.json"] {
        let recording = place.path().join("recording");
        let target = Target::new(&recording);
        target
            .write_folder(|folder| folder.file(name, |mut file| file.write_all(manifest.as_bytes())))
            .unwrap();
        assert!(
            why_folder(&forced(&recording)).contains("is a recording"),
            "{name}"
        );
        let inside = recording.join("x");
        let line = why(&forced(&inside), write(&forced(&inside), "two"));
        assert!(line.contains("inside the recording"), "{name}: {line}");
        let deep = Target {
            parents: true,
            ..Target::new(&recording.join("new/folder/x"))
        };
        assert!(why(&deep, write(&deep, "two")).contains("inside the recording"));
        assert!(!recording.join("new").exists());
        fs::remove_dir_all(&recording).unwrap();
    }
    fill(&forced(&path), "two").unwrap();
}

fn why_folder(target: &Target) -> String {
    why(target, fill(target, "new"))
}

#[test]
fn folders_that_hold_where_we_are_stay() {
    for path in ["/", "..", ".", "a/.."] {
        let target = forced(Path::new(path));
        assert!(
            why_folder(&target).contains("names no new file or folder"),
            "{path}"
        );
    }
    // By their names, and with a mark as an attacker would leave it.
    let here = std::env::current_dir().unwrap();
    let looked = |path: &Path| {
        let place = disk::open_place(folder_of(path)).unwrap();
        let seen = disk::look(&place, path.file_name().unwrap()).unwrap().unwrap();
        never::reason(path, &seen, &[]).unwrap()
    };
    // A checkout can be a file system of its own, which is another reason.
    let stays = |reason: &str| reason.contains("current folder") || reason.contains("mounted");
    assert!(stays(&looked(&here)));
    assert!(stays(&looked(here.parent().unwrap())));
    let home = std::env::home_dir().unwrap().canonicalize().unwrap();
    if home.parent().is_some() && !here.starts_with(&home) {
        assert!(looked(&home).contains("home folder"));
    }
    assert!(looked(Path::new("/proc")).contains("mounted"));
}

#[test]
fn missing_folders_are_made_when_told() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("no/such/x");
    assert!(why(&Target::new(&path), write(&Target::new(&path), "x")).contains("--parents"));
    assert!(
        Target::new(&path)
            .check_folder()
            .unwrap_err()
            .to_string()
            .contains("--parents")
    );
    assert_eq!(count(place.path()), 0);
    let told = Target {
        parents: true,
        ..Target::new(&path)
    };
    told.check_folder().unwrap();
    assert_eq!(count(place.path()), 0, "asking makes nothing");
    let full = |_: &File| Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull));
    assert!(told.write_file(&|_| true, full).is_err());
    assert_eq!(count(place.path()), 0, "nothing was written, and nothing stays");
    write(&told, "x").unwrap();
    assert_eq!(read(&path), "ours: x");
}

#[test]
fn pipes_are_written_into_and_disks_are_not() {
    let place = tempfile::tempdir().unwrap();
    let pipe = place.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let link = place.path().join("link");
    symlink(&pipe, &link).unwrap();
    for way in [&pipe, &link] {
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&Target::new(way), "through").unwrap();
        assert_eq!(reader.join().unwrap(), "ours: through");
    }
    let socket = place.path().join("socket");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(why(&forced(&socket), write(&forced(&socket), "x")).contains("disk or a socket"));
    assert!(why_folder(&forced(&pipe)).contains("no folder"));
}

/// Writes a folder over an export, with `race` between the look at it and its removal: first before old and new change
/// places, then after.
fn raced(path: &Path, race: &dyn Fn(usize, &Path)) -> io::Result<()> {
    let target = forced(path);
    let spot = target.open_spot()?;
    let (part, folder) = Part::folder(&spot)?;
    let mut files = NewFolder {
        part: &part,
        folder: &folder,
        mark: Mark::new(),
    };
    files.file("new.txt", |_| Ok(()))?;
    files.finish()?;
    let looks = std::cell::Cell::new(0);
    let settled = target.settle(&part, &spot, &|name| {
        let judged = target.judge(&spot, name, Wanted::Folder);
        looks.set(looks.get() + 1);
        race(looks.get(), &path.with_file_name(name));
        judged
    });
    if settled.is_err() {
        part.remove();
    }
    settled
}

#[test]
fn what_comes_between_look_and_removal_is_not_lost() {
    // A file put into it, before and after the places changed.
    for when in [1, 2] {
        for name in ["mine", "b/mine", "a.txt"] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("out");
            fill(&Target::new(&path), "one").unwrap();
            let error = raced(&path, &|look, old| {
                if look == when {
                    fs::write(old.join(name), "precious").unwrap();
                }
            })
            .unwrap_err();
            let line = refusal(&error).unwrap().to_string();
            if when == 1 {
                assert_eq!(read(&path.join(name)), "precious", "{line}");
                assert_eq!(count(place.path()), 1);
            } else {
                let (_, kept) = line.rsplit_once(" in ").unwrap();
                assert_eq!(read(&Path::new(kept).join(name)), "precious", "{line}");
                assert!(path.join("new.txt").exists());
            }
        }
    }
    // Another folder, a link or a file in its place.
    let swaps: [fn(&Path); 3] = [
        |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("mine"), "precious").unwrap();
        },
        |path| {
            let other = path.with_file_name("other");
            fs::create_dir(&other).unwrap();
            fs::write(other.join("mine"), "precious").unwrap();
            symlink(other, path).unwrap();
        },
        |path| fs::write(path, "precious").unwrap(),
    ];
    for swap in swaps {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("out");
        let aside = place.path().join("moved");
        fill(&Target::new(&path), "one").unwrap();
        let error = raced(&path, &|look, old| {
            if look == 1 {
                fs::rename(old, &aside).unwrap();
                swap(old);
            }
        })
        .unwrap_err();
        assert!(refusal(&error).is_some(), "{error}");
        assert_eq!(read(&aside.join("a.txt")), "one");
        let mine = match path.is_dir() {
            true => path.join("mine"),
            false => path.clone(),
        };
        assert_eq!(read(&mine), "precious");
        assert!(!path.join("new.txt").exists());
    }
    // Something where nothing was.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x");
    let error = Target::new(&path)
        .write_file(&is_ours, |_| fs::write(&path, "precious"))
        .unwrap_err();
    assert!(refusal(&error).is_some(), "{error}");
    assert_eq!(read(&path), "precious");
    assert_eq!(count(place.path()), 1);
}

#[test]
fn a_part_that_is_given_up_takes_only_its_own_away() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("out");
    // Names of earlier parts, of whomever, stay.
    let taken = place.path().join(format!(".out.{}.part", std::process::id()));
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("mine"), "precious").unwrap();
    let target = Target::new(&path);
    let spot = target.open_spot().unwrap();
    let (part, folder) = Part::folder(&spot).unwrap();
    part.file_in(&folder, "a/b").unwrap();
    part.remove();
    assert_eq!(count(place.path()), 1);
    let (part, folder) = Part::folder(&spot).unwrap();
    part.file_in(&folder, "a/b").unwrap();
    let own = place.path().join(&part.lock().name);
    fs::write(own.join("a/mine"), "precious").unwrap();
    part.remove();
    assert_eq!(read(&own.join("a/mine")), "precious");
    assert!(!own.join("a/b").exists());
    // Another one under its name.
    let (part, _file) = Part::file(&spot).unwrap();
    let own = place.path().join(&part.lock().name);
    fs::rename(&own, place.path().join("moved")).unwrap();
    fs::write(&own, "precious").unwrap();
    part.remove();
    assert_eq!(read(&own), "precious");
    assert_eq!(read(&taken.join("mine")), "precious");
}
