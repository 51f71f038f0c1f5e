//! [`RedisOptions`], and clients for its URLs.

use std::{fmt, path::PathBuf, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, TlsCertificates,
};

use crate::iam::{Handshake, IamLogin};

/// Connection settings of Redis.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://` or `rediss://`, with user and password if the server requires them. For a cluster: the URL of any
    /// node, or several URLs separated by commas.
    pub url: String,
    /// Whether `url` names a cluster.
    pub cluster: bool,
    /// A file of certificates (PEM) that replace the system's.
    pub ca_file: Option<PathBuf>,
    /// A login with IAM. The URL has its user and no password.
    pub iam: Option<IamLogin>,
    /// Whether reads with [`Consistency::Eventual`](crate::Consistency::Eventual) use the replicas of a cluster.
    pub replica_reads: bool,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest wait for a response.
    pub response_timeout: Duration,
    /// Whether bulk work is sent at a pace that leaves the server to readers. Only measurements send it without.
    pub paced: bool,
}

impl RedisOptions {
    /// One node at `url`, with timeouts of 300 ms for a connection and 500 ms for a response.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            cluster: false,
            ca_file: None,
            iam: None,
            replica_reads: false,
            connect_timeout: Duration::from_millis(300),
            response_timeout: Duration::from_millis(500),
            paced: true,
        }
    }

    /// Clients for the URL, or for each URL of a cluster. Fails if a URL or the certificates cannot be read.
    pub fn clients(&self) -> Result<Vec<Client>, RedisError> {
        // The `redis` crate uses rustls without a crypto provider. If there is one already, it remains.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let certificates = self.certificates()?;
        let urls = if self.cluster { self.url.split(',').collect() } else { vec![self.url.as_str()] };
        urls.into_iter().map(|url| open(url.trim().into_connection_info()?, certificates.as_ref())).collect()
    }

    /// The settings of connections of these clients.
    pub(crate) fn handshake(&self, clients: &[Client]) -> Result<Handshake, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        let user = clients.first().and_then(|client| client.get_connection_info().redis_settings().username());
        let none = || RedisError::from((ErrorKind::InvalidClientConfig, "a login with IAM needs a user in the URL"));
        let login = self.iam.clone().map(|iam| Ok::<_, RedisError>((iam, user.ok_or_else(none)?.to_owned())));
        Ok(Handshake::new(config, login.transpose()?))
    }

    pub(crate) fn certificates(&self) -> Result<Option<TlsCertificates>, RedisError> {
        let root_cert = self.ca_file.as_ref().map(std::fs::read).transpose()?;
        Ok(root_cert.map(|root_cert| TlsCertificates { client_tls: None, root_cert: Some(root_cert) }))
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        let Self { url: _, cluster, ca_file, iam, replica_reads, connect_timeout, response_timeout, paced } = self;
        f.debug_struct("RedisOptions")
            .field("cluster", cluster)
            .field("ca_file", ca_file)
            .field("iam", iam)
            .field("replica_reads", replica_reads)
            .field("connect_timeout", connect_timeout)
            .field("response_timeout", response_timeout)
            .field("paced", paced)
            .finish_non_exhaustive()
    }
}

/// A client that trusts these certificates, or those of the system if there are none.
pub(crate) fn open(address: ConnectionInfo, certificates: Option<&TlsCertificates>) -> Result<Client, RedisError> {
    match (certificates, address.addr()) {
        (Some(certificates), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(address, certificates.clone()),
        _ => Client::open(address),
    }
}
