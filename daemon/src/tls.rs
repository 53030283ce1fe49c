//! Certificates: whom we trust, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Where systems keep the certificates that they trust: Debian, Red Hat, SUSE, Alpine.
const USUAL: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Who we are: a certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity<'a> {
    /// The certificate, with those between it and the root behind it.
    pub certificate: &'a Path,
    /// Its key.
    pub key: &'a Path,
}

/// The certificates in a file, or the system's.
fn roots(file: Option<&Path>) -> Result<Arc<RootCertStore>, String> {
    let usual = || {
        let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        named.or_else(|| USUAL.iter().map(PathBuf::from).find(|path| path.is_file()))
    };
    let file = file
        .map(Path::to_owned)
        .or_else(usual)
        .ok_or("this system has no file of trusted certificates: name one with `ca`")?;
    let mut roots = RootCertStore::empty();
    let (count, _) = roots.add_parsable_certificates(chain(&file)?);
    match count {
        0 => Err(format!("{}: no certificate in it", file.display())),
        _ => Ok(Arc::new(roots)),
    }
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    read.map_err(|error| format!("{}: no certificate can be read: {error}", file.display()))
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| format!("{}: no key can be read: {error}", file.display()))
}

/// What calls others: it trusts who has a certificate by `ca`, a file, or by one of the system's; and says who it is.
///
/// # Errors
/// One line: the file, and what is wrong.
pub fn client(ca: Option<&Path>, identity: Option<&Identity<'_>>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no encryption: {error}"))?
        .with_root_certificates(roots(ca)?);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => config
            .with_client_auth_cert(chain(identity.certificate)?, key(identity.key)?)
            .map_err(|error| format!("{}: {error}", identity.certificate.display()))?,
    };
    Ok(Arc::new(config))
}

/// What is called: it is spoken to by those alone who have a certificate by `ca`.
///
/// # Errors
/// As [`client`].
pub fn server(ca: &Path, identity: &Identity<'_>) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots(Some(ca))?, provider.clone())
        .build()
        .map_err(|error| format!("{}: {error}", ca.display()))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no encryption: {error}"))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain(identity.certificate)?, key(identity.key)?)
        .map_err(|error| format!("{}: {error}", identity.certificate.display()))?;
    Ok(Arc::new(config))
}
