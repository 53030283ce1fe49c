//! Who may ask: the rules that every request passes before anything else looks at it.
//!
//! A page of another site must not reach this server through the visitor's browser. A name that an attacker's DNS points to
//! 127.0.0.1 shows in `Host`, so that is checked first. Then nothing is said without the token, which a browser carries as
//! a cookie that it sends from our own pages alone, and a script as `Authorization: Bearer`.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, Uri};

/// Random bytes of a token that we make.
const TOKEN_BYTES: usize = 24;
/// The shortest token that is taken from the environment.
const LEAST_TOKEN: usize = 16;
/// The longest.
const MOST_TOKEN: usize = 256;
/// How long a token that opens once waits for its browser.
const ONCE: Duration = Duration::from_secs(60);

/// A token of 192 random bits, in hexadecimal.
///
/// # Errors
/// When the operating system has no random numbers.
pub fn random_token() -> Result<String, String> {
    let mut bytes = [0u8; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers for a token: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a token that was given to us can be one: long enough not to be guessed, and the same in a URL, a cookie and a
/// header.
///
/// # Errors
/// One line that says what is wrong with it.
pub fn check_token(token: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if !(LEAST_TOKEN..=MOST_TOKEN).contains(&token.len()) || !token.bytes().all(plain) {
        return Err(format!(
            "GPUTRACE_TOKEN must have {LEAST_TOKEN} to {MOST_TOKEN} characters, each a letter, a digit or one of - . _ ~"
        ));
    }
    Ok(())
}

/// The rules of one server.
pub struct Gate {
    token: String,
    /// Names beside `localhost` that it is known by, in lower case.
    names: Vec<String>,
    /// The addresses that it listens at.
    addresses: Vec<IpAddr>,
    /// A token that opens once, and until when: command lines, which browsers are started with, can be seen by others.
    once: Mutex<Option<(String, Instant)>>,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be answered.
    Pass,
    /// It brought the token in its URL: the browser keeps it as a cookie and asks again without.
    Enter {
        /// The same without the token.
        location: String,
        /// The value of `Set-Cookie`; nothing where the browser had it already.
        cookie: Option<String>,
        /// The browser came here from another site's page. It will not send a strict cookie when that navigation is
        /// redirected, so that it has to begin one of its own.
        from_elsewhere: bool,
    },
    /// It may not.
    Refuse(StatusCode, &'static str),
}

impl Gate {
    /// Rules for a server that listens at `addresses`, for whoever has `token`.
    #[must_use]
    pub fn new(token: String, host_names: &[String], addresses: &[IpAddr]) -> Self {
        Self {
            token,
            names: host_names.iter().map(|name| plain_name(name)).collect(),
            addresses: addresses.to_vec(),
            once: Mutex::default(),
        }
    }

    /// From now on `token` opens too, once and for a minute.
    pub fn let_in_once(&self, token: String) {
        *self.once.lock().unwrap_or_else(PoisonError::into_inner) = Some((token, Instant::now() + ONCE));
    }

    fn opens(&self, given: &str) -> bool {
        if same(given, &self.token) {
            return true;
        }
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        let opens = once
            .as_ref()
            .is_some_and(|(token, until)| same(given, token) && Instant::now() < *until);
        if opens {
            *once = None;
        }
        opens
    }

    /// Judges a request by its head.
    #[must_use]
    pub fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let Some(host) = only_host(uri, headers) else {
            return Verdict::Refuse(StatusCode::MISDIRECTED_REQUEST, NOT_HERE);
        };
        let Some((name, port)) = split_port(host) else {
            return Verdict::Refuse(StatusCode::MISDIRECTED_REQUEST, NOT_HERE);
        };
        if !self.is_ours(name) {
            return Verdict::Refuse(StatusCode::MISDIRECTED_REQUEST, NOT_HERE);
        }
        // Cookies know no ports: two servers that one browser sees would take each other's.
        let cookie = format!("gputrace-{port}");
        let has_cookie = cookies(headers, &cookie).any(|value| same(value, &self.token));
        if let Some(given) = token_in(uri) {
            let right = self.opens(given);
            if !right && !has_cookie {
                return Verdict::Refuse(StatusCode::UNAUTHORIZED, WRONG_TOKEN);
            }
            let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            return Verdict::Enter {
                location: without_token(uri),
                cookie: right.then(|| format!("{cookie}={}; Path=/; HttpOnly; SameSite=Strict", self.token)),
                from_elsewhere: matches!(site, Some(b"cross-site" | b"same-site")),
            };
        }
        if !has_cookie && !self.has_bearer(headers) {
            return Verdict::Refuse(StatusCode::UNAUTHORIZED, NO_TOKEN);
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
            let own = origin
                .and_then(|origin| origin.split_once("://"))
                .is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host));
            if !own {
                return Verdict::Refuse(StatusCode::FORBIDDEN, FOREIGN);
            }
        }
        Verdict::Pass
    }

    fn is_ours(&self, name: &str) -> bool {
        let name = plain_name(name);
        let address = name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        match address {
            Ok(address) => {
                // A name that was rebound is no address: whoever writes the address of this machine means it.
                let anywhere = self.addresses.iter().any(IpAddr::is_unspecified);
                address.is_loopback() || anywhere || self.addresses.contains(&address)
            }
            Err(_) => name == "localhost" || self.names.contains(&name),
        }
    }

    fn has_bearer(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(AUTHORIZATION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .filter_map(|value| value.split_once(' '))
            .any(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && same(token.trim(), &self.token))
    }
}

const NOT_HERE: &str = "this server is not known by that name: gputrace view --host-name NAME adds one\n";
const NO_TOKEN: &str = "open the address that gputrace printed, with its token\n";
const WRONG_TOKEN: &str = "that is not this server's token: open the address that it printed\n";
const FOREIGN: &str = "only this server's own pages may change anything\n";

/// The one host that a request names; nothing where it names none or two.
fn only_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    let in_uri = uri.authority().map(Authority::as_str);
    (hosts.next().is_none() && in_uri.is_none_or(|authority| authority == host)).then_some(host)
}

/// A host's name and its port, 80 where none is said.
fn split_port(host: &str) -> Option<(&str, u16)> {
    let end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    match host[end..].find(':') {
        None => Some((host, 80)),
        Some(colon) => {
            let (name, port) = host.split_at(end + colon);
            Some((name, port[1..].parse().ok()?))
        }
    }
}

fn plain_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Whether two texts are equal, in a time that does not tell where they differ.
fn same(given: &str, token: &str) -> bool {
    let differ = given
        .bytes()
        .zip(token.bytes())
        .fold(0u8, |differ, (a, b)| differ | (a ^ b));
    given.len() == token.len() && differ == 0
}

fn token_in(uri: &Uri) -> Option<&str> {
    uri.query()?
        .split('&')
        .find_map(|parameter| parameter.strip_prefix("token="))
}

/// The path and query of a request, but for the token.
fn without_token(uri: &Uri) -> String {
    // Two slashes in front would name another host.
    let path = format!("/{}", uri.path().trim_start_matches(['/', '\\']));
    let rest: Vec<&str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|parameter| !parameter.is_empty() && !parameter.starts_with("token="))
        .collect();
    if rest.is_empty() {
        path
    } else {
        format!("{path}?{}", rest.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::http::HeaderName;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";

    fn gate() -> Gate {
        Gate::new(
            TOKEN.to_owned(),
            &["Node7.Example.".to_owned()],
            &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
        )
    }

    fn judge(gate: &Gate, method: &Method, path: &str, headers: &[(&str, &str)]) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        gate.judge(method, &path.parse().unwrap(), &map)
    }

    fn status(verdict: &Verdict) -> u16 {
        match verdict {
            Verdict::Pass => 200,
            Verdict::Enter { .. } => 303,
            Verdict::Refuse(status, _) => status.as_u16(),
        }
    }

    #[test]
    fn the_host_is_looked_at_before_anything_else() {
        let gate = gate();
        let bearer = format!("Bearer {TOKEN}");
        let asked = |host: &str| {
            let verdict = judge(
                &gate,
                &Method::GET,
                "/",
                &[("host", host), ("authorization", &bearer)],
            );
            status(&verdict)
        };
        for host in [
            "127.0.0.1:7007",
            "127.0.0.1",
            "localhost:9",
            "LOCALHOST:65535",
            "localhost.",
            "[::1]:7007",
            "127.8.9.1:1",
            "node7.example:7007",
            "NODE7.example",
        ] {
            assert_eq!(asked(host), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7007",
            "127.0.0.1.evil.example:7007",
            "localhost.evil.example",
            "192.168.0.1:7007",
            "0.0.0.0:7007",
            "",
            "localhost:70000",
            "localhost:7007:1",
            "[::1",
            "user@localhost",
            "localhost:",
        ] {
            assert_eq!(asked(host), 421, "{host}");
        }
        assert_eq!(status(&judge(&gate, &Method::GET, "/", &[])), 421, "no host");
        let two = [
            ("host", "localhost"),
            ("host", "localhost"),
            ("authorization", &bearer),
        ];
        assert_eq!(status(&judge(&gate, &Method::GET, "/", &two)), 421, "two hosts");
        let other = [("host", "localhost"), ("authorization", &bearer)];
        assert_eq!(
            status(&judge(&gate, &Method::GET, "http://evil.example/", &other)),
            421,
            "the URI names another"
        );
    }

    #[test]
    fn beyond_loopback_its_own_addresses_are_taken() {
        let bearer = format!("Bearer {TOKEN}");
        let asked = |listen: &str, host: &str| {
            let gate = Gate::new(TOKEN.to_owned(), &[], &[listen.parse().unwrap()]);
            let headers = [("host", host), ("authorization", bearer.as_str())];
            status(&judge(&gate, &Method::GET, "/", &headers))
        };
        assert_eq!(asked("10.0.0.5", "10.0.0.5:7007"), 200);
        assert_eq!(asked("10.0.0.5", "10.0.0.6:7007"), 421);
        assert_eq!(asked("0.0.0.0", "10.0.0.6:7007"), 200);
        assert_eq!(asked("0.0.0.0", "node7"), 421, "a name that was not given");
        assert_eq!(asked("::", "[fe80::1]:7007"), 200);
    }

    #[test]
    fn nothing_without_the_token() {
        let gate = gate();
        let asked = |headers: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:7007")];
            all.extend_from_slice(headers);
            status(&judge(&gate, &Method::GET, "/api/recordings?x=1", &all))
        };
        assert_eq!(asked(&[]), 401);
        assert_eq!(asked(&[("authorization", &format!("Bearer {TOKEN}"))]), 200);
        assert_eq!(asked(&[("authorization", &format!("bearer  {TOKEN}"))]), 200);
        assert_eq!(asked(&[("authorization", &format!("Basic {TOKEN}"))]), 401);
        assert_eq!(asked(&[("authorization", TOKEN)]), 401);
        assert_eq!(
            asked(&[("authorization", &format!("Bearer {}", &TOKEN[1..]))]),
            401
        );
        assert_eq!(asked(&[("authorization", "Bearer ")]), 401);
        assert_eq!(
            asked(&[("cookie", &format!("a=b; gputrace-7007={TOKEN}; c"))]),
            200
        );
        assert_eq!(
            asked(&[("cookie", &format!("gputrace-7008={TOKEN}"))]),
            401,
            "of another server"
        );
        assert_eq!(asked(&[("cookie", "gputrace-7007=")]), 401);
        assert_eq!(asked(&[("cookie", &format!("gputrace-7007={TOKEN}0"))]), 401);
    }

    #[test]
    fn the_token_leaves_the_address() {
        let gate = gate();
        let enter = |path: &str| judge(&gate, &Method::GET, path, &[("host", "localhost:8000")]);
        assert_eq!(
            enter(&format!("/?token={TOKEN}")),
            Verdict::Enter {
                location: "/".to_owned(),
                cookie: Some(format!(
                    "gputrace-8000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
                )),
                from_elsewhere: false,
            }
        );
        let Verdict::Enter { location, .. } = enter(&format!("/?a=1&token={TOKEN}&b=2&token=x")) else {
            panic!("it is the token");
        };
        assert_eq!(location, "/?a=1&b=2");
        let Verdict::Enter { location, .. } = enter(&format!("//evil.example/x?token={TOKEN}")) else {
            panic!("it is the token");
        };
        assert_eq!(location, "/evil.example/x");
        assert_eq!(status(&enter("/?token=")), 401);
        assert_eq!(status(&enter("/?token=wrong")), 401);
        let cookie = format!("gputrace-8000={TOKEN}");
        let stale = [("host", "localhost:8000"), ("cookie", cookie.as_str())];
        assert_eq!(
            judge(&gate, &Method::GET, "/?token=old&r=1", &stale),
            Verdict::Enter {
                location: "/?r=1".to_owned(),
                cookie: None,
                from_elsewhere: false,
            },
            "an old bookmark"
        );
    }

    #[test]
    fn a_token_for_one_browser_opens_once() {
        let gate = gate();
        let enter = |path: &str| judge(&gate, &Method::GET, path, &[("host", "localhost:7007")]);
        assert_eq!(status(&enter("/?token=fedcba98765432100123")), 401);
        gate.let_in_once("fedcba98765432100123".to_owned());
        assert_eq!(status(&enter("/?token=fedcba98765432100124")), 401);
        let Verdict::Enter { cookie, .. } = enter("/?token=fedcba98765432100123") else {
            panic!("it opens");
        };
        assert!(cookie.is_some_and(|cookie| cookie.starts_with(&format!("gputrace-7007={TOKEN};"))));
        assert_eq!(status(&enter("/?token=fedcba98765432100123")), 401);
    }

    #[test]
    fn other_sites_change_nothing() {
        let gate = gate();
        let cookie = format!("gputrace-7007={TOKEN}");
        let post = |origin: Option<&str>| {
            let mut headers = vec![("host", "localhost:7007"), ("cookie", cookie.as_str())];
            headers.extend(origin.map(|origin| ("origin", origin)));
            status(&judge(&gate, &Method::POST, "/api/recordings", &headers))
        };
        assert_eq!(post(None), 403);
        assert_eq!(post(Some("null")), 403);
        assert_eq!(post(Some("http://evil.example")), 403);
        assert_eq!(post(Some("http://localhost:7008")), 403);
        assert_eq!(post(Some("http://localhost:7007.evil.example")), 403);
        assert_eq!(post(Some("http://localhost:7007")), 200);
    }

    #[test]
    fn tokens_of_the_environment() {
        assert!(check_token(TOKEN).is_ok());
        assert!(check_token("short").is_err());
        assert!(check_token("0123456789abcdef; Path=/").is_err());
        assert!(check_token(&"a".repeat(257)).is_err());
        let (a, b) = (random_token().unwrap(), random_token().unwrap());
        assert!(a != b && a.len() == 48 && check_token(&a).is_ok());
    }
}
