//! The folders in which people have libcupti.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{NAMES, Surroundings, is_cupti};

/// A folder, and how it was come by.
type Place = (PathBuf, &'static str);

/// All folders to look into, nearest to the program first.
pub(super) fn all(surroundings: &Surroundings<'_>) -> Vec<Place> {
    let variable = |name: &str| (surroundings.variable)(name).filter(|value| !value.is_empty());
    let under_root = |path: &str| surroundings.root.join(path.trim_start_matches('/'));
    let mut places: Vec<Place> = Vec::new();
    let mut add = |folders: Vec<PathBuf>, how| {
        places.extend(folders.into_iter().map(|folder| (folder, how)));
    };
    for file in &surroundings.mapped {
        if let Some(packages) = packages_of(file) {
            add(in_packages(&packages), "in the program's Python packages");
        }
    }
    for file in surroundings.mapped.iter().filter(|file| is_of_cuda(file)) {
        add(beside(file), "beside the CUDA libraries that the program loaded");
    }
    if let Some(paths) = variable("LD_LIBRARY_PATH") {
        add(std::env::split_paths(&paths).collect(), "in LD_LIBRARY_PATH");
    }
    for (name, how) in [
        ("VIRTUAL_ENV", "in the virtual environment (VIRTUAL_ENV)"),
        ("CONDA_PREFIX", "in the conda environment (CONDA_PREFIX)"),
    ] {
        if let Some(prefix) = variable(name) {
            add(in_prefix(Path::new(&prefix)), how);
        }
    }
    if let Some(paths) = variable("PYTHONPATH") {
        for packages in std::env::split_paths(&paths) {
            add(in_packages(&packages), "in PYTHONPATH");
        }
    }
    for program in surroundings.programs.iter().filter(|program| is_python(program)) {
        let prefix = program.parent().and_then(Path::parent);
        add(
            prefix.map(in_prefix).unwrap_or_default(),
            "in the Python that runs the program",
        );
    }
    if let Some(home) = variable("HOME") {
        add(
            in_prefix(&Path::new(&home).join(".local")),
            "in the user's Python packages",
        );
    }
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(toolkit) = variable(name) {
            add(in_toolkit(Path::new(&toolkit)), "in the CUDA toolkit (CUDA_HOME)");
        }
    }
    // The newest last by name, so turned round; the link `cuda` is what the machine's owner chose.
    let local = under_root("usr/local");
    let mut toolkits = children(&local, |name| name.starts_with("cuda-"));
    toolkits.reverse();
    toolkits.insert(0, local.join("cuda"));
    for toolkit in toolkits {
        add(in_toolkit(&toolkit), "in the CUDA toolkit");
    }
    let system = [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/aarch64-linux-gnu",
        "usr/lib64",
        "opt/cuda/extras/CUPTI/lib64",
    ];
    add(system.map(under_root).to_vec(), "among the system's libraries");
    places
}

/// The libcuptis in a folder: under the names that loaders use, else under any that is libcupti's in a folder of
/// CUDA's or PyTorch's own (wheels rename it).
pub(super) fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = NAMES
        .iter()
        .map(|name| folder.join(name))
        .filter(|path| path.is_file())
        .collect();
    if !named.is_empty() || !folder.ends_with("torch/lib") {
        return named;
    }
    children(folder, |name| is_cupti(Path::new(name)))
}

/// What lies in a folder under names that `wanted` accepts, sorted.
fn children(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The folder of Python packages that a file lies in.
fn packages_of(file: &Path) -> Option<PathBuf> {
    file.ancestors()
        .find(|folder| {
            let name = folder.file_name();
            name == Some(OsStr::new("site-packages")) || name == Some(OsStr::new("dist-packages"))
        })
        .map(Path::to_owned)
}

/// Where libcupti lies in a folder of Python packages: NVIDIA's wheels of CUDA 13 share a folder, those of CUDA 12 have
/// one each, and PyTorch's own may bring it along.
fn in_packages(packages: &Path) -> Vec<PathBuf> {
    let nvidia = packages.join("nvidia");
    let mut folders = children(&nvidia, |name| {
        name.strip_prefix("cu")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    folders.reverse();
    folders.push(nvidia.join("cuda_cupti"));
    let mut folders: Vec<PathBuf> = folders.into_iter().map(|folder| folder.join("lib")).collect();
    folders.push(packages.join("torch/lib"));
    folders
}

/// Where libcupti lies in an installation of Python or conda.
fn in_prefix(prefix: &Path) -> Vec<PathBuf> {
    let mut folders = vec![prefix.join("lib")];
    for library in ["lib", "lib64", "local/lib"] {
        for python in children(&prefix.join(library), |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                folders.extend(in_packages(&python.join(packages)));
            }
        }
    }
    // As conda packages lay a toolkit out.
    folders.extend(targets(prefix));
    folders
}

/// Where libcupti lies in a CUDA toolkit.
fn in_toolkit(toolkit: &Path) -> Vec<PathBuf> {
    let mut folders = vec![toolkit.join("extras/CUPTI/lib64"), toolkit.join("lib64")];
    folders.extend(targets(toolkit));
    folders
}

/// `targets/x86_64-linux/lib`, `targets/sbsa-linux/lib`: whichever are there.
fn targets(prefix: &Path) -> Vec<PathBuf> {
    children(&prefix.join("targets"), |_| true)
        .into_iter()
        .map(|target| target.join("lib"))
        .collect()
}

/// Whether a file is one of CUDA's or PyTorch's libraries.
fn is_of_cuda(file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    // Not libcuda: the driver's lies among the system's libraries.
    ["libcudart", "libcublas", "libtorch", "libnvrtc", "libc10_cuda"]
        .iter()
        .any(|library| name.starts_with(library))
}

/// The folder of a CUDA library, and CUPTI's in the toolkit around it.
fn beside(file: &Path) -> Vec<PathBuf> {
    let Some(folder) = file.parent() else {
        return Vec::new();
    };
    let mut folders = vec![folder.to_owned()];
    // From lib64/ and from targets/ARCHITECTURE/lib/.
    folders.extend(
        folder
            .ancestors()
            .skip(1)
            .take(3)
            .map(|toolkit| toolkit.join("extras/CUPTI/lib64")),
    );
    folders
}

fn is_python(program: &Path) -> bool {
    program
        .file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with("python") || name.starts_with("pypy"))
}
