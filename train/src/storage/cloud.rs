//! Object stores by address: S3 and its like, Google's and Azure's.

use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{Error, ObjectStore, ObjectStoreScheme};

use super::{ObjectStorage, Storage};

/// The storage at `url`, with what the environment says of it.
pub(super) fn open(url: &url::Url) -> Result<Arc<dyn Storage>, Error> {
    // One implementation of the ciphers for the process; whoever has chosen one before is right.
    rustls::crypto::ring::default_provider().install_default().ok();
    let (scheme, root) = ObjectStoreScheme::parse(url)?;
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => {
            Arc::new(AmazonS3Builder::from_env().with_url(url.as_str()).build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            Arc::new(GoogleCloudStorageBuilder::from_env().with_url(url.as_str()).build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            Arc::new(MicrosoftAzureBuilder::from_env().with_url(url.as_str()).build()?)
        }
        other => {
            panic!("storage::cloud: scheme of {url} is {other:?}, needed one that was asked for")
        }
    };
    Ok(Arc::new(ObjectStorage::new(store, root, url.as_str())))
}
