//! The search, on made-up machines.

use std::collections::HashMap;

use super::*;

/// A machine: a folder that stands for `/`, with files and variables.
struct Machine {
    root: tempfile::TempDir,
    variables: HashMap<&'static str, OsString>,
    mapped: Vec<PathBuf>,
    programs: Vec<PathBuf>,
}

impl Machine {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().expect("a folder"),
            variables: HashMap::new(),
            mapped: Vec::new(),
            programs: Vec::new(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn file(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a folder around it")).expect("the folder");
        std::fs::write(&path, path.as_os_str().as_encoded_bytes()).expect("the file");
        path
    }

    fn set(&mut self, variable: &'static str, path: &str) {
        self.variables.insert(variable, self.path(path).into_os_string());
    }

    fn find(&self, driver: Option<u32>) -> Found {
        find(
            &Surroundings {
                variable: &|name| self.variables.get(name).cloned(),
                mapped: self.mapped.clone(),
                programs: self.programs.clone(),
                root: self.root.path().to_owned(),
            },
            driver,
        )
    }

    fn usable(&self, driver: Option<u32>) -> Vec<PathBuf> {
        self.find(driver)
            .usable
            .into_iter()
            .map(|candidate| candidate.path)
            .collect()
    }
}

#[test]
fn what_is_mapped_comes_first_under_any_name_and_of_any_generation() {
    let mut machine = Machine::new();
    let bundled = machine.file("venv/lib/python3.11/site-packages/torch/lib/libcupti-eb4b8a44.so.12");
    let named = machine.file("elsewhere/libcupti.so.13");
    machine.set("GPUTRACE_CUPTI", "elsewhere/libcupti.so.13");
    machine.file("usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12");
    machine.mapped = vec![machine.path("lib/libcuptistic.so"), bundled.clone()];
    let found = machine.find(Some(12));
    assert_eq!(found.usable[0].path, bundled);
    assert_eq!(found.usable[0].how, "loaded by the program already");
    // Named by hand: tried though it is of a newer generation than the driver.
    assert_eq!(
        (&found.usable[1].path, found.usable[1].generation),
        (&named, Some(13))
    );
    assert_eq!(found.usable.len(), 3);
    assert_eq!(found.too_new, []);
}

#[test]
fn a_newer_generation_than_the_driver_s_is_left_and_an_equal_one_preferred() {
    let mut machine = Machine::new();
    machine.set("VIRTUAL_ENV", "venv");
    let thirteen = machine.file("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13");
    let twelve = machine.file("usr/local/cuda-12.8/extras/CUPTI/lib64/libcupti.so.12");
    let old = machine.find(Some(12));
    assert_eq!(old.usable.iter().map(|c| &c.path).collect::<Vec<_>>(), [&twelve]);
    assert_eq!(
        old.too_new.iter().map(|c| &c.path).collect::<Vec<_>>(),
        [&thirteen]
    );
    assert_eq!(machine.usable(Some(13)), [thirteen.clone(), twelve.clone()]);
    // In the other order of places: the generation decides.
    let mut machine = Machine::new();
    machine.set("VIRTUAL_ENV", "venv");
    let twelve = machine.file("venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
    let thirteen = machine.file("usr/local/cuda-13.0/extras/CUPTI/lib64/libcupti.so.13");
    assert_eq!(machine.usable(Some(13)), [thirteen.clone(), twelve.clone()]);
    // A driver that does not tell its version: by place alone.
    assert_eq!(machine.usable(None), [twelve, thirteen]);
}

#[test]
fn every_place_is_looked_into() {
    let places = [
        "conda/lib/libcupti.so.12",
        "conda/targets/sbsa-linux/lib/libcupti.so.12",
        "conda/lib/python3.10/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "packages/nvidia/cu12/lib/libcupti.so.12",
        "packages/torch/lib/libcupti-0123abcd.so.12",
        "python/lib/python3.13/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "python/lib64/python3.13/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "python/local/lib/python3.13/dist-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "home/.local/lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "toolkit/extras/CUPTI/lib64/libcupti.so.12",
        "toolkit/targets/x86_64-linux/lib/libcupti.so.12",
        "usr/local/cuda-12.4/targets/x86_64-linux/lib/libcupti.so.12",
        "usr/lib/x86_64-linux-gnu/libcupti.so.12",
        "path/libcupti.so.12",
        "loaded/extras/CUPTI/lib64/libcupti.so.12",
        "loaded/lib64/libcupti.so.12",
    ];
    for place in places {
        let mut machine = Machine::new();
        machine.set("CONDA_PREFIX", "conda");
        machine.set("PYTHONPATH", "packages");
        machine.set("HOME", "home");
        machine.set("CUDA_PATH", "toolkit");
        machine.set("LD_LIBRARY_PATH", "path");
        machine.programs = vec![machine.path("python/bin/python3.13")];
        machine.mapped = vec![machine.path("loaded/lib64/libcudart.so.12")];
        let file = machine.file(place);
        assert_eq!(machine.usable(Some(12)), [file], "{place}");
    }
}

#[test]
fn packages_of_a_mapped_library_come_before_the_machine_s_toolkit() {
    let mut machine = Machine::new();
    let own = machine.file("env/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
    machine.file("usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12");
    machine.mapped =
        vec![machine.path("env/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12")];
    assert_eq!(machine.usable(Some(12))[0], own);
    assert_eq!(
        machine.find(Some(12)).usable[0].how,
        "in the program's Python packages"
    );
}

#[test]
fn one_file_under_several_names_is_one_candidate() {
    let machine = Machine::new();
    let file = machine.file("usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.2024.1.1");
    let link = |from: &str| {
        let from = machine.path(from);
        std::fs::create_dir_all(from.parent().expect("a folder")).expect("the folder");
        std::os::unix::fs::symlink(&file, &from).expect("the link");
    };
    link("usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.12");
    link("usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so");
    link("usr/local/cuda-12.4/targets/x86_64-linux/lib/libcupti.so.12");
    let found = machine.find(Some(12));
    assert_eq!(found.usable.len(), 1, "{found:?}");
    assert_eq!(found.usable[0].generation, Some(12));
}

#[test]
fn a_bare_link_tells_its_generation_by_its_target() {
    let machine = Machine::new();
    let file = machine.file("usr/local/cuda/lib64/libcupti.so.13");
    let link = machine.path("usr/local/cuda/lib64/libcupti.so");
    std::os::unix::fs::symlink(file.file_name().expect("a name"), &link).expect("the link");
    assert_eq!(generation_of(&link), Some(13));
    assert_eq!(
        generation_of(&machine.file("a/libcupti.so.2025.3.1")),
        None,
        "a year is no generation"
    );
}

#[test]
fn nothing_is_found_where_nothing_is() {
    assert_eq!(Machine::new().find(Some(13)), Found::default());
}

#[test]
fn maps_name_each_file_once() {
    let maps = "\
7f00-7f10 r--p 00000000 fd:00 12 /opt/my env/lib/libcudart.so.12\n\
7f10-7f20 r-xp 00010000 fd:00 12 /opt/my env/lib/libcudart.so.12\n\
7f20-7f30 rw-p 00000000 00:00 0 \n\
7f30-7f40 rw-p 00000000 00:00 0 [heap]\n\
7f40-7f50 r--p 00000000 fd:00 13 /opt/a.so\n\
7f50-7f60 r--p 00000000 fd:00 12 /opt/my env/lib/libcudart.so.12\n";
    assert_eq!(
        mapped_files(maps),
        [
            PathBuf::from("/opt/a.so"),
            PathBuf::from("/opt/my env/lib/libcudart.so.12")
        ]
    );
}

#[test]
fn programs_are_found_as_a_shell_finds_them() {
    let machine = Machine::new();
    let python = machine.file("env/bin/python");
    let path = std::env::join_paths([machine.path("bin"), machine.path("env/bin")]).expect("a PATH");
    assert_eq!(
        resolve(Path::new("python"), Some(path.clone())),
        Some(python.clone())
    );
    assert_eq!(resolve(Path::new("python4"), Some(path.clone())), None);
    assert_eq!(resolve(&python, Some(path)), Some(python));
    assert_eq!(resolve(Path::new(""), None), None);
}

#[test]
fn advice_goes_by_the_driver() {
    assert!(how_to_get(Some(12_040)).contains("nvidia-cuda-cupti-cu12"));
    assert!(how_to_get(Some(12_040)).contains("cuda-cupti-12-4"));
    assert!(how_to_get(Some(13_020)).contains("`pip install nvidia-cuda-cupti`"));
    assert!(how_to_get(Some(13_020)).contains("cuda-cupti-13-2"));
    assert!(how_to_get(None).contains("pip install nvidia-cuda-cupti"));
    assert_eq!(generation_of_driver(13_020), Some(13));
    assert_eq!(generation_of_driver(0), None);
}
