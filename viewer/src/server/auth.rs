//! Who may ask: the rules that every request passes before anything else looks at it.
//!
//! A page of another site must not reach this server through the visitor's browser. A name that an attacker's DNS points to
//! 127.0.0.1 shows in `Host`, so that is checked first. Then nothing is said without the token, which a script sends as
//! `Authorization: Bearer`. A browser shows it once and gets a secret of its own for it, as a cookie that it sends from our
//! own pages alone.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, Uri};

use super::fair_queue::Client;
use super::sessions::Sessions;

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
pub struct Auth {
    token: String,
    /// Browsers that were let in.
    sessions: Sessions,
    /// Whether what it says is encrypted.
    is_encrypted: bool,
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
    /// It may be answered, on behalf of this client.
    Pass(Client),
    /// It brought the token in its URL: the browser gets a secret of its own as a cookie and asks again without the token.
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

impl Auth {
    /// Rules for a server that listens at `addresses`, for whoever has `token`.
    #[must_use]
    pub fn new(token: String, host_names: &[String], addresses: &[IpAddr], is_encrypted: bool) -> Self {
        Self {
            token,
            sessions: Sessions::default(),
            is_encrypted,
            names: host_names.iter().map(|name| plain_name(name)).collect(),
            addresses: addresses.to_vec(),
            once: Mutex::default(),
        }
    }

    /// From now on `token` opens too, once and for a minute.
    pub fn add_one_time_token(&self, token: String) {
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

    /// Judges a request by its head, and by where it came from.
    #[must_use]
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap, peer: Option<IpAddr>) -> Verdict {
        let Some(host) = only_host(uri, headers) else {
            return Verdict::Refuse(StatusCode::MISDIRECTED_REQUEST, NOT_HERE);
        };
        let Some((name, port)) = split_port(host) else {
            return Verdict::Refuse(StatusCode::MISDIRECTED_REQUEST, NOT_HERE);
        };
        if !self.is_ours(name) {
            return Verdict::Refuse(StatusCode::MISDIRECTED_REQUEST, NOT_HERE);
        }
        // Cookies know no ports: two servers that one browser sees would take each other's. One of the first name is taken
        // by browsers from nobody but the encrypted server of this name itself.
        let (prefix, secure) = if self.is_encrypted {
            ("__Host-", "; Secure")
        } else {
            ("", "")
        };
        let cookie = format!("{prefix}gputrace-{port}");
        let session = self.sessions.find(cookies(headers, &cookie), Instant::now());
        if let Some(given) = token_in(uri) {
            let right = self.opens(given);
            let cookie = match (session, right) {
                (Some(_), _) => None,
                (None, false) => return Verdict::Refuse(StatusCode::UNAUTHORIZED, WRONG_TOKEN),
                (None, true) => match self.sessions.begin(Instant::now()) {
                    Some(secret) => Some(format!(
                        "{cookie}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}"
                    )),
                    None => return Verdict::Refuse(StatusCode::INTERNAL_SERVER_ERROR, NO_RANDOM),
                },
            };
            let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            return Verdict::Enter {
                location: without_token(uri),
                cookie,
                from_elsewhere: matches!(site, Some(b"cross-site" | b"same-site")),
            };
        }
        let client = match session {
            Some(number) => Client::Session(number),
            None if self.has_bearer(headers) => Client::Scripts(peer),
            None => return Verdict::Refuse(StatusCode::UNAUTHORIZED, NO_TOKEN),
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
            let own = origin
                .and_then(|origin| origin.split_once("://"))
                .is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host));
            if !own {
                return Verdict::Refuse(StatusCode::FORBIDDEN, FOREIGN);
            }
        }
        Verdict::Pass(client)
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
const NO_RANDOM: &str = "no random numbers for a session\n";
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
pub(super) fn same(given: &str, token: &str) -> bool {
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

    fn auth() -> Auth {
        Auth::new(
            TOKEN.to_owned(),
            &["Node7.Example.".to_owned()],
            &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            false,
        )
    }

    fn check(auth: &Auth, method: &Method, path: &str, headers: &[(&str, &str)]) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        auth.check(method, &path.parse().unwrap(), &map, None)
    }

    fn status(verdict: &Verdict) -> u16 {
        match verdict {
            Verdict::Pass(_) => 200,
            Verdict::Enter { .. } => 303,
            Verdict::Refuse(status, _) => status.as_u16(),
        }
    }

    /// The cookie that a browser gets for the token, as it sends it.
    fn let_in(auth: &Auth, port: u16) -> String {
        let host = format!("localhost:{port}");
        let path = format!("/?token={TOKEN}");
        match check(auth, &Method::GET, &path, &[("host", &host)]) {
            Verdict::Enter {
                cookie: Some(cookie), ..
            } => cookie.split(';').next().unwrap().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_host_is_looked_at_before_anything_else() {
        let auth = auth();
        let bearer = format!("Bearer {TOKEN}");
        let asked = |host: &str| {
            let verdict = check(
                &auth,
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
        assert_eq!(status(&check(&auth, &Method::GET, "/", &[])), 421, "no host");
        let two = [
            ("host", "localhost"),
            ("host", "localhost"),
            ("authorization", &bearer),
        ];
        assert_eq!(status(&check(&auth, &Method::GET, "/", &two)), 421, "two hosts");
        let other = [("host", "localhost"), ("authorization", &bearer)];
        assert_eq!(
            status(&check(&auth, &Method::GET, "http://evil.example/", &other)),
            421,
            "the URI names another"
        );
    }

    #[test]
    fn beyond_loopback_its_own_addresses_are_taken() {
        let bearer = format!("Bearer {TOKEN}");
        let asked = |listen: &str, host: &str| {
            let auth = Auth::new(TOKEN.to_owned(), &[], &[listen.parse().unwrap()], false);
            let headers = [("host", host), ("authorization", bearer.as_str())];
            status(&check(&auth, &Method::GET, "/", &headers))
        };
        assert_eq!(asked("10.0.0.5", "10.0.0.5:7007"), 200);
        assert_eq!(asked("10.0.0.5", "10.0.0.6:7007"), 421);
        assert_eq!(asked("0.0.0.0", "10.0.0.6:7007"), 200);
        assert_eq!(asked("0.0.0.0", "node7"), 421, "a name that was not given");
        assert_eq!(asked("::", "[fe80::1]:7007"), 200);
    }

    #[test]
    fn nothing_without_the_token() {
        let auth = auth();
        let asked = |headers: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:7007")];
            all.extend_from_slice(headers);
            status(&check(&auth, &Method::GET, "/api/recordings?x=1", &all))
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
        let cookie = let_in(&auth, 7007);
        assert_eq!(asked(&[("cookie", &format!("a=b; {cookie}; c"))]), 200);
        assert_eq!(
            asked(&[("cookie", &cookie.replace("7007", "7008"))]),
            401,
            "of another server"
        );
        assert_eq!(asked(&[("cookie", "gputrace-7007=")]), 401);
        assert_eq!(asked(&[("cookie", &format!("{cookie}0"))]), 401);
        assert_eq!(
            asked(&[("cookie", &format!("gputrace-7007={TOKEN}"))]),
            401,
            "the token is no cookie"
        );
        let secret = cookie.split_once('=').unwrap().1;
        assert_eq!(asked(&[("authorization", &format!("Bearer {secret}"))]), 401);
    }

    #[test]
    fn the_token_leaves_the_address() {
        let auth = auth();
        let enter = |path: &str| check(&auth, &Method::GET, path, &[("host", "localhost:8000")]);
        let Verdict::Enter {
            location,
            cookie: Some(cookie),
            from_elsewhere: false,
        } = enter(&format!("/?token={TOKEN}"))
        else {
            panic!("it is the token");
        };
        assert_eq!(location, "/");
        assert!(cookie.starts_with("gputrace-8000=") && !cookie.contains(TOKEN));
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"));
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
        let cookie = let_in(&auth, 8000);
        let stale = [("host", "localhost:8000"), ("cookie", cookie.as_str())];
        assert_eq!(
            check(&auth, &Method::GET, "/?token=old&r=1", &stale),
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
        let auth = auth();
        let enter = |path: &str| check(&auth, &Method::GET, path, &[("host", "localhost:7007")]);
        assert_eq!(status(&enter("/?token=fedcba98765432100123")), 401);
        auth.add_one_time_token("fedcba98765432100123".to_owned());
        assert_eq!(status(&enter("/?token=fedcba98765432100124")), 401);
        let Verdict::Enter { cookie, .. } = enter("/?token=fedcba98765432100123") else {
            panic!("it opens");
        };
        assert!(cookie.is_some_and(|cookie| cookie.starts_with("gputrace-7007=") && !cookie.contains(TOKEN)));
        assert_eq!(status(&enter("/?token=fedcba98765432100123")), 401);
    }

    #[test]
    fn each_browser_is_a_client_of_its_own() {
        let auth = auth();
        let client = |headers: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:7007")];
            all.extend_from_slice(headers);
            match check(&auth, &Method::GET, "/", &all) {
                Verdict::Pass(client) => client,
                other => panic!("{other:?}"),
            }
        };
        let (first, second) = (let_in(&auth, 7007), let_in(&auth, 7007));
        assert_ne!(first, second);
        let of = |cookie: &str| client(&[("cookie", cookie)]);
        assert_eq!(of(&first), of(&first));
        assert_ne!(of(&first), of(&second));
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(client(&[("authorization", &bearer)]), Client::Scripts(None));
        // The token again, of a browser that is in: it stays who it is.
        let again = [("host", "localhost:7007"), ("cookie", first.as_str())];
        let path = format!("/?token={TOKEN}");
        let Verdict::Enter { cookie, .. } = check(&auth, &Method::GET, &path, &again) else {
            panic!("it is the token");
        };
        assert_eq!(cookie, None);
    }

    #[test]
    fn a_cookie_that_was_encrypted_stays_so() {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let auth = Auth::new(TOKEN.to_owned(), &[], &loopback, true);
        let path = format!("/?token={TOKEN}");
        let Verdict::Enter {
            cookie: Some(cookie), ..
        } = check(&auth, &Method::GET, &path, &[("host", "localhost:7007")])
        else {
            panic!("it is the token");
        };
        assert!(cookie.starts_with("__Host-gputrace-7007="), "{cookie}");
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Secure"));
        let pair = cookie.split(';').next().unwrap();
        let asked = |cookie: &str| {
            let headers = [("host", "localhost:7007"), ("cookie", cookie)];
            status(&check(&auth, &Method::GET, "/", &headers))
        };
        assert_eq!(asked(pair), 200);
        assert_eq!(asked(pair.trim_start_matches("__Host-")), 401);
    }

    #[test]
    fn other_sites_change_nothing() {
        let auth = auth();
        let cookie = let_in(&auth, 7007);
        let post = |origin: Option<&str>| {
            let mut headers = vec![("host", "localhost:7007"), ("cookie", cookie.as_str())];
            headers.extend(origin.map(|origin| ("origin", origin)));
            status(&check(&auth, &Method::POST, "/api/recordings", &headers))
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
