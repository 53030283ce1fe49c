//! Encryption, for a server that other machines reach: by a certificate that is given, or by one made for this start.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client_stream::ClientStream;

/// Which certificate a server shows.
#[derive(Clone, Debug)]
pub enum Tls {
    /// One that is made at the start and lives in memory alone, for these names.
    Made(Vec<String>),
    /// Files in PEM, as `openssl` and certificate authorities give them.
    Given {
        /// The certificate, and those that lead to its authority.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}

/// What every connection begins with.
#[derive(Clone)]
pub(super) struct Encryption {
    acceptor: TlsAcceptor,
    /// SHA-256 of the certificate, as browsers show it.
    pub(super) fingerprint: String,
}

/// A client that has not said what encryption needs after so long is left.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A certificate that is made is good from so long before now, since clocks differ...
const BEFORE: Duration = Duration::from_secs(24 * 3600);
/// ... and for so long.
const VALID: Duration = Duration::from_secs(365 * 24 * 3600);
/// Who speaks plain HTTP has so long to read why that is wrong.
const TOLD: Duration = Duration::from_secs(1);

impl Encryption {
    /// Reads or makes the certificate.
    ///
    /// # Errors
    /// One line: a file that can't be read, or a key that is not the certificate's.
    pub(super) fn new(tls: &Tls) -> Result<Self, String> {
        let (chain, key, named) = match tls {
            Tls::Made(names) => {
                let made = make(names).map_err(|error| format!("no certificate could be made: {error}"));
                let (certificate, key) = made?;
                (vec![certificate], key, "the certificate that was made".to_owned())
            }
            Tls::Given { certificate, key } => (
                read_chain(certificate)?,
                read_key(key)?,
                certificate.display().to_string(),
            ),
        };
        let first = chain
            .first()
            .ok_or_else(|| format!("{named}: no certificate in it"))?;
        let fingerprint = fingerprint(first);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("no encryption: {error}"))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| format!("{named}: can't be used with its key: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            fingerprint,
        })
    }

    /// Agrees with a client on how to encrypt; nothing where that can't be.
    pub(super) async fn begin(&self, wire: ClientStream) -> Option<TlsStream<ClientStream>> {
        let agreed = async {
            match wire.first_byte().await {
                // All methods of HTTP begin with a letter, and what opens a TLS connection never does.
                Ok(Some(byte)) if byte.is_ascii_alphabetic() => {
                    drop(tokio::time::timeout(TOLD, refuse(wire)).await);
                    None
                }
                Ok(Some(_)) => self.acceptor.accept(wire).await.ok(),
                Ok(None) | Err(_) => None,
            }
        };
        tokio::time::timeout(HANDSHAKE, agreed).await.ok().flatten()
    }
}

/// Answers somebody who speaks plain HTTP.
async fn refuse(mut wire: ClientStream) {
    let text = "this port speaks TLS: open the address with https:// in front\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    // It is shorter than any buffer, so that it goes out at once or not at all.
    let written = std::future::poll_fn(|context| Pin::new(&mut wire).poll_write(context, answer.as_bytes()));
    if written.await.is_err() {
        return;
    }
    drop(std::future::poll_fn(|context| Pin::new(&mut wire).poll_shutdown(context)).await);
    // What is left unread when a connection is closed takes the answer away from the client.
    let mut bytes = [0; 4096];
    loop {
        let mut buffer = ReadBuf::new(&mut bytes);
        let read = std::future::poll_fn(|context| Pin::new(&mut wire).poll_read(context, &mut buffer)).await;
        if read.is_err() || buffer.filled().is_empty() {
            return;
        }
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: pem::Error| format!("{}: no certificate can be read: {error}", path.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect();
    let chain = chain.map_err(wrong)?;
    if chain.is_empty() {
        return Err(format!(
            "{}: no certificate in it: expected PEM, with -----BEGIN CERTIFICATE-----",
            path.display()
        ));
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| format!("{}: no private key can be read: {error}", path.display()))
}

fn make(names: &[String]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "gputrace");
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + VALID).into();
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((certificate.der().clone(), key.into()))
}

/// The names that a certificate has to be for: those that browsers reach the server by.
#[must_use]
pub fn names_for(listen: IpAddr, host_names: &[String], host: &str) -> Vec<String> {
    let mut names = host_names.to_vec();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    if !host.is_empty() && host.bytes().all(is_plain) {
        names.push(host.to_owned());
    }
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    if !listen.is_unspecified() {
        names.push(listen.to_string());
    }
    names.sort();
    names.dedup();
    names
}

/// SHA-256 of a certificate, as browsers and `openssl x509 -fingerprint -sha256` show it.
fn fingerprint(certificate: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let pairs: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}
