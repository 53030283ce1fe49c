//! The page's files: from the table that was embedded, or from a folder while somebody works on them.

use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH};
use axum::http::{Response, StatusCode};
use gputrace_trace::beneath;

/// Every file of the page by its path under `web/`.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Where the page comes from.
#[derive(Clone, Debug)]
pub enum Assets {
    /// The program itself.
    Embedded,
    /// A folder, canonical: `GPUTRACE_VIEWER_WEB`.
    Folder(PathBuf),
}

impl Assets {
    /// Assets from `folder`, or from the program.
    ///
    /// # Errors
    /// When the folder does not exist.
    pub fn new(folder: Option<&Path>) -> Result<Self, String> {
        match folder {
            None => Ok(Self::Embedded),
            Some(folder) => folder.canonicalize().map(Self::Folder).map_err(|error| {
                format!(
                    "GPUTRACE_VIEWER_WEB: {}: cannot be read: {error}",
                    folder.display()
                )
            }),
        }
    }

    fn find(&self, path: &str) -> Option<Vec<u8>> {
        match self {
            Self::Embedded => EMBEDDED
                .iter()
                .find(|(name, _)| *name == path)
                .map(|(_, bytes)| bytes.to_vec()),
            Self::Folder(folder) => {
                beneath::name_if_none(folder);
                beneath::read(&folder.join(path)).ok()
            }
        }
    }

    /// Answers a request for a file of the page; `path` as it stands in the URL.
    #[must_use]
    pub fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        let path = match path.trim_start_matches('/') {
            "" => "index.html",
            path => path,
        };
        // Our files have plain names: what needs an escape is none of them.
        if path.contains(['%', '\\']) || path.split('/').any(|part| part.starts_with('.')) {
            return None;
        }
        let bytes = self.find(path)?;
        let tag = format!("\"{:016x}\"", super::fingerprint(&bytes));
        let known = headers
            .get(IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let response = Response::builder()
            .header(ETAG, &tag)
            .header(CACHE_CONTROL, "no-cache")
            .header(CONTENT_TYPE, content_type(path));
        let response = if known {
            response.status(StatusCode::NOT_MODIFIED).body(Body::empty())
        } else {
            response.body(Body::from(bytes))
        };
        response.ok()
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let web = folder.path().join("web");
        std::fs::create_dir_all(web.join("panels")).unwrap();
        std::fs::write(web.join("index.html"), "page").unwrap();
        std::fs::write(web.join("panels/a.js"), "script").unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), web.join("link")).unwrap();
        for assets in [Assets::Embedded, Assets::new(Some(&web)).unwrap()] {
            let answer = |path: &str| assets.answer(path, &HeaderMap::new());
            assert!(answer("/").is_some() && answer("/index.html").is_some());
            for path in [
                "/../secret",
                "/%2e%2e/secret",
                "/..%2fsecret",
                "/panels/../../secret",
                "//etc/passwd",
                "/link",
                "/panels",
                "/.git/config",
                "/nothing.js",
            ] {
                assert!(answer(path).is_none(), "{path}");
            }
        }
        let from_folder = Assets::new(Some(&web)).unwrap();
        assert!(from_folder.answer("/panels/a.js", &HeaderMap::new()).is_some());
        assert!(Assets::new(Some(&folder.path().join("no"))).is_err());
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = Assets::Embedded.answer("/", &HeaderMap::new()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        let again = Assets::Embedded.answer("/", &headers).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }
}
