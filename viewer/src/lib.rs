//! A recording in a browser: the server, and the page that it serves.
//!
//! [`timeline`] answers what a picture of a recording needs, at any zoom, and knows no HTTP. [`server`] is what
//! listens: who may ask, which recordings there are, and the answers of `docs/viewer.md`. The page is plain files under
//! `web/`, embedded by `build.rs`. [`report`] writes a page that needs neither.

pub mod report;
pub mod server;
pub mod timeline;
