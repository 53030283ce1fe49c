//! The options of everything that serves pages.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

/// Where to listen.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// The port; it has to be free [default: the first free one from 7007 on]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// The address to listen at: others than 127.0.0.1 can be reached by other machines, by https
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// The certificate to encrypt with [default: one made for this start, whose fingerprint is printed]
    #[arg(long, value_name = "PEM", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key
    #[arg(long, value_name = "PEM", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Encrypt nothing at --listen's address either: behind a proxy that does, say
    #[arg(long, conflicts_with_all = ["tls_certificate", "tls_key"])]
    pub no_tls: bool,
    /// A name that browsers may reach this machine by; may be given several times
    #[arg(long, value_name = "NAME", value_parser = parse_host_name)]
    pub host_name: Vec<String>,
    /// The Perfetto that the page opens traces in: one of your own, where machines reach no others
    #[arg(long, value_name = "URL", value_parser = parse_perfetto_ui, default_value = gputrace_viewer::server::PERFETTO_UI)]
    pub perfetto_ui: String,
}

/// A name alone, as it stands in a browser's address before the port.
fn parse_host_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return Err("expected a name alone, without http:// and port: node7.example".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_perfetto_ui(text: &str) -> Result<String, String> {
    gputrace_viewer::server::check_perfetto_ui(text)?;
    Ok(text.to_owned())
}
