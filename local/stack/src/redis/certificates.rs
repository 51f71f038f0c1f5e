//! Certificates for a child Redis with TLS: an authority made for this stack, and its certificate for this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Paths of PEM files.
#[derive(Clone, Debug)]
pub(super) struct Certificates {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificates {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        // The two names must differ. Otherwise the certificate looks self-signed.
        authority.distinguished_name.push(DnType::CommonName, "Tidemark local authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let key = KeyPair::generate()?;
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut certificate = CertificateParams::new(names)?;
        certificate.distinguished_name.push(DnType::CommonName, "Tidemark local Redis");
        let certificate = certificate.signed_by(&key, &Issuer::new(authority, authority_key))?;
        let [authority_path, certificate_path, key_path] =
            ["authority.pem", "server.pem", "server.key"].map(|name| folder.join(name));
        let files = Self { authority: authority_path, certificate: certificate_path, key: key_path };
        for (path, pem) in
            [(&files.authority, authority_pem), (&files.certificate, certificate.pem()), (&files.key, key.serialize_pem())]
        {
            std::fs::write(path, pem).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(files)
    }
}
