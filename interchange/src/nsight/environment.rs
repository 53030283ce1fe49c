//! The command and the variables that recording ran with.
//!
//! They are those of the profiler, and of the processes that it started only where no launcher came between.

use std::collections::BTreeMap;

use super::rows::Import;

/// What the file says of how recording was started.
#[derive(Debug, Default)]
pub(super) struct Environment {
    pub(super) command: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
}

/// Reads the command and the variables; older versions have only the variables, and in one text.
pub(super) fn read(import: &mut Import<'_>) -> Environment {
    let mut environment = Environment::default();
    let mut arguments = BTreeMap::new();
    let database = import.database;
    let device = database.each("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |cells| {
        let (Ok(Some(name)), Ok(Some(value))) = (cells.text(0), cells.text(1)) else {
            return;
        };
        if name == "DeviceEnvironment" {
            // Ended by zeros, or joined by semicolons; what is cut wrongly from a value is no variable that we know.
            for variable in value.split(['\0', ';']) {
                environment.set(variable);
            }
        }
    });
    let capture = database.each("META_DATA_CAPTURE", &["name", "value"], |cells| {
        let (Ok(Some(name)), Ok(Some(value))) = (cells.text(0), cells.text(1)) else {
            return;
        };
        let Some(of_process) = name.strip_prefix("PROCESS_0:") else {
            return;
        };
        if of_process == "ENVIRONMENT_VARIABLE" {
            environment.set(&value);
        } else if of_process == "COMMAND" {
            arguments.insert(0, value.into_owned());
        } else if let Some(Ok(number)) = of_process.strip_prefix("ARGUMENT_").map(str::parse::<u16>) {
            arguments.insert(u32::from(number) + 1, value.into_owned());
        }
    });
    for (table, end) in [("TARGET_INFO_SYSTEM_ENV", device), ("META_DATA_CAPTURE", capture)] {
        if end.is_err() {
            import.losses.lose(
                format!("{table} could not be read to its end: the file is cut or damaged"),
                None,
                "host, command and variables",
            );
        }
    }
    environment.command = arguments.into_values().collect();
    environment
}

impl Environment {
    /// Takes `NAME=value`; the value can stand between quotes.
    fn set(&mut self, variable: &str) {
        if let Some((name, value)) = variable.split_once('=') {
            let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            self.variables
                .insert(name.to_owned(), unquoted.unwrap_or(value).to_owned());
        }
    }

    /// The variables that a recording shows; any other could be a secret.
    pub(super) fn shown(&self) -> BTreeMap<String, String> {
        let shown = |name: &str| name.starts_with("NCCL_") || name.starts_with("CUDA_");
        self.variables
            .iter()
            .filter(|(name, _)| shown(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// A variable's number.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.variables.get(name)?.trim().parse().ok()
    }
}
