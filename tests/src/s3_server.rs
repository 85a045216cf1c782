//! An S3 server in the test's process, its objects in a temporary folder.

use std::net::{Ipv4Addr, SocketAddr};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder as Connections;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// A server on this machine, until it is dropped. It checks signatures.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    // Dropped before the folder it serves.
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl S3Server {
    /// The only bucket.
    pub const BUCKET: &str = "checkpoints";
    /// The only access key.
    pub const KEY: &str = "key-of-tests";
    /// Its secret.
    pub const SECRET: &str = "secret-of-tests";

    /// Starts a server with an empty bucket on a free port.
    ///
    /// # Panics
    /// If it cannot.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join(Self::BUCKET)).expect("a bucket");
        let mut service =
            S3ServiceBuilder::new(FileSystem::new(folder.path()).expect("a folder to serve"));
        service.set_auth(SimpleAuth::from_single(Self::KEY, Self::SECRET));
        let service = service.build();

        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread for the server");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("its own address");
        runtime.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let service = service.clone();
                tokio::spawn(async move {
                    let connections = Connections::new(TokioExecutor::new());
                    // A client that hangs up is no matter of the test.
                    connections.serve_connection(TokioIo::new(socket), service).await.ok();
                });
            }
        });
        Self { address, _runtime: runtime, _folder: folder }
    }

    /// Where it listens, as a client's endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}
