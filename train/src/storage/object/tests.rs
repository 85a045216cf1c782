//! How uploads go: in parts, a few at once, and given up without a trace.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::*;

/// A store in memory that watches its uploads, takes its time, and may fail one part.
#[derive(Debug, Default)]
struct Watched {
    store: InMemory,
    seen: Arc<Seen>,
    fail_part: Option<usize>,
}

#[derive(Debug, Default)]
struct Seen {
    parts: AtomicUsize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    aborted: AtomicUsize,
}

#[derive(Debug)]
struct WatchedUpload {
    upload: Box<dyn MultipartUpload>,
    seen: Arc<Seen>,
    fail_part: Option<usize>,
}

#[async_trait]
impl MultipartUpload for WatchedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.seen.parts.fetch_add(1, Ordering::SeqCst) + 1;
        let (seen, fails) = (self.seen.clone(), self.fail_part == Some(part));
        let put = self.upload.put_part(data);
        Box::pin(async move {
            let now = seen.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most_in_flight.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen.in_flight.fetch_sub(1, Ordering::SeqCst);
            if fails {
                let source = io::Error::from(io::ErrorKind::ConnectionReset).into();
                return Err(Error::Generic { store: "watched", source });
            }
            put.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.seen.aborted.fetch_add(1, Ordering::SeqCst);
        self.upload.abort().await
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("watched")
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.store.put_multipart_opts(location, options).await?;
        let (seen, fail_part) = (self.seen.clone(), self.fail_part);
        Ok(Box::new(WatchedUpload { upload, seen, fail_part }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

fn watched(fail_part: Option<usize>) -> (ObjectStorage, Arc<Seen>) {
    let store = Watched { fail_part, ..Watched::default() };
    let seen = store.seen.clone();
    let storage = ObjectStorage::new(Arc::new(store), Path::from("run"), "watched://run");
    (storage.with_part_bytes(100), seen)
}

#[test]
fn parts_go_out_while_more_is_written_and_never_too_many_at_once() {
    let (storage, seen) = watched(None);
    let storage: &dyn Storage = &storage;
    let bytes: Vec<u8> = (0..2_345_u32).map(|value| value as u8).collect();
    let mut upload = storage.create("step/shard").expect("created");
    for piece in bytes.chunks(37) {
        upload.write_all(piece).expect("written");
    }
    assert!(seen.parts.load(Ordering::SeqCst) >= 19, "full parts do not wait for the end");
    assert_eq!(storage.list("").expect("listed"), [], "not whole, not visible");
    upload.finish().expect("finished");
    assert_eq!(storage.read_all("step/shard").expect("read"), bytes);
    assert_eq!(seen.parts.load(Ordering::SeqCst), 24);
    let most = seen.most_in_flight.load(Ordering::SeqCst);
    assert!((2..=PARTS_IN_FLIGHT).contains(&most), "{most} at once");
    assert_eq!(seen.aborted.load(Ordering::SeqCst), 0);
}

#[test]
fn an_object_of_less_than_a_part_needs_no_parts() {
    let (storage, seen) = watched(None);
    let storage: &dyn Storage = &storage;
    storage.write_all("small", &[7; 99]).expect("written");
    storage.write_all("empty", &[]).expect("written");
    assert_eq!(seen.parts.load(Ordering::SeqCst), 0);
    assert_eq!(storage.read_all("small").expect("read"), [7; 99]);
    assert!(storage.read_all("empty").expect("read").is_empty());
}

#[test]
fn an_upload_that_is_dropped_is_aborted() {
    let (storage, seen) = watched(None);
    let mut upload = storage.create("shard").expect("created");
    upload.write_all(&[1; 250]).expect("written");
    drop(upload);
    assert_eq!(seen.aborted.load(Ordering::SeqCst), 1);
    assert_eq!(storage.list("").expect("listed"), []);
}

#[test]
fn a_part_that_fails_gives_the_upload_up_with_its_cause() {
    let (storage, seen) = watched(Some(2));
    // Found while more is written.
    let mut upload = storage.create("shard").expect("created");
    let error = upload.write_all(&[1; 5_000]).expect_err("the second part fails");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    upload.write_all(b"more").expect_err("given up");
    upload.finish().expect_err("given up");
    assert_eq!(seen.aborted.load(Ordering::SeqCst), 1);

    // Found at the end.
    let (storage, seen) = watched(Some(2));
    let mut upload = storage.create("shard").expect("created");
    upload.write_all(&[1; 250]).expect("on its way");
    let error = upload.finish().expect_err("the second part fails");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    assert_eq!(seen.aborted.load(Ordering::SeqCst), 1);
    assert_eq!(storage.list("").expect("listed"), []);
}

#[test]
fn calls_may_come_from_pools_and_from_other_runtimes() {
    use rayon::prelude::*;
    let (storage, _) = watched(None);
    let storage: &dyn Storage = &storage;
    // More tasks than threads here and there.
    let done = (0..40).into_par_iter().map(|index| {
        let name = format!("of-{index:02}");
        storage.write_all(&name, &vec![index as u8; 350])?;
        storage.read(&name, 300..350)
    });
    let read: Vec<_> = done.collect::<io::Result<_>>().expect("written and read");
    assert!(read.iter().enumerate().all(|(index, bytes)| *bytes == [index as u8; 50]));
    let other = Builder::new_current_thread().build().expect("another runtime");
    let listed = other.block_on(async { storage.list("") }).expect("listed");
    assert_eq!(listed.len(), 40);
}
