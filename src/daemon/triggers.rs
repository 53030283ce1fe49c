//! `gputrace triggers`: the rules, what they found, and what they would have found.

use gputrace_trace::daemon::Ask;
use serde_json::Value;

use super::client::{document, text};
use crate::cli::TriggersArgs;
use crate::failure::Failure;
use crate::print_json::print_json;

/// Lists them.
pub fn run(args: &TriggersArgs) -> Result<i32, Failure> {
    let job = args.what.as_ref().map(|what| what.to_string_lossy().into_owned());
    let document = document(&args.socket, Ask::Triggers { job })?;
    if args.json {
        print_json(&document)?;
        return Ok(0);
    }
    print(&document);
    Ok(0)
}

fn print(document: &Value) {
    let fired: Vec<&Value> = document["fired"].as_array().into_iter().flatten().collect();
    if fired.is_empty() {
        anstream::println!("nothing has fired");
    }
    for fired in fired {
        anstream::println!("{} {}: {}", text(&fired["job"]), text(&fired["trigger"]), text(&fired["title"]));
    }
}
