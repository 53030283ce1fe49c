//! What the page that stands alone promises of its markup.

/// Elements that have no end.
const WITHOUT_END: [&str; 2] = ["meta", "br"];

/// Holds a page to what it promises: well formed, and nothing in it that would be fetched or run.
#[track_caller]
pub fn assert_stands_alone(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("a tag that ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        assert!(!tag.contains('<'), "<{tag}>");
        let name = tag
            .trim_start_matches('/')
            .split_whitespace()
            .next()
            .unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop(),
                Some(closed),
                "</{closed}> before {}",
                &rest[..rest.len().min(200)]
            );
        } else if !WITHOUT_END.contains(&name) {
            open.push(name);
        }
        assert!(
            !["script", "link", "img", "iframe", "object", "base"].contains(&name),
            "<{tag}>"
        );
        for (name, value) in attributes(tag) {
            let fetches =
                name == "src" || name == "srcdoc" || name.ends_with("href") && !value.starts_with('#');
            assert!(!fetches && !name.starts_with("on"), "{name}={value:?} in <{tag}>");
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!page.contains("url(") && !page.contains("@import"));
}

/// The attributes of a tag, as they are written: names with what stands between their quotes.
#[track_caller]
fn attributes(tag: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let Some((_, mut rest)) = tag.split_once(|letter: char| letter.is_ascii_whitespace()) else {
        return found;
    };
    loop {
        rest = rest.trim_ascii_start().trim_start_matches('/');
        let end = rest.find(|letter: char| letter == '=' || letter.is_ascii_whitespace());
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        if name.is_empty() {
            return found;
        }
        let Some(value) = after.strip_prefix("=\"") else {
            assert!(!after.starts_with('='), "a value without quotes in <{tag}>");
            found.push((name, ""));
            rest = after;
            continue;
        };
        let (value, after) = value.split_once('"').expect("a value that ends");
        found.push((name, value));
        rest = after;
    }
}
