//! Files below a folder.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::past_cache::PastCache;
use super::{Object, Storage, Upload};

/// A folder on a file system.
#[derive(Debug, Clone)]
pub struct LocalStorage {
    root: PathBuf,
}

impl LocalStorage {
    /// Files below `root`, which is made when the first is written.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(name) }
    }
}

impl Storage for LocalStorage {
    fn locate(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Object>> {
        let mut objects = Vec::new();
        match collect(&self.path(prefix), prefix, &mut objects) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        objects.sort();
        Ok(objects)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        let metadata = fs::metadata(self.path(name))?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(metadata.len())
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path(name))?;
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, name: &str, start: u64, into: &mut [u8]) -> io::Result<()> {
        let mut file = File::open(self.path(name))?;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(into)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = PastCache::new(File::create(&path)?);
        Ok(Box::new(LocalUpload { file, path, root: self.root.clone() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        fs::remove_file(&path)?;
        // Folders go with their last file; one that is not empty stays, with all above it.
        let folders = path.ancestors().skip(1).take_while(|folder| *folder != self.root);
        for folder in folders {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }
}

fn collect(folder: &Path, prefix: &str, objects: &mut Vec<Object>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { file } else { format!("{prefix}/{file}") };
        // A file may be pruned by another process between the list and the question.
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if metadata.is_dir() {
            collect(&entry.path(), &name, objects)?;
        } else {
            objects.push(Object { name, bytes: metadata.len() });
        }
    }
    Ok(())
}

/// A file that is being written.
struct LocalUpload {
    file: PastCache,
    path: PathBuf,
    root: PathBuf,
}

impl Write for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Upload for LocalUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.file.finish()?;
        // The name of a new file is durable once its folder is, and so are the names of folders.
        let folders = self.path.ancestors().skip(1);
        let mut folders = folders.take_while(|folder| folder.starts_with(&self.root));
        folders.try_for_each(|folder| File::open(folder)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_read_and_removed_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let storage: &dyn Storage = &LocalStorage::new(folder.path().join("root"));
        assert_eq!(storage.list("").expect("nothing yet"), []);
        storage.write_all("a/one", b"12345").expect("written");
        storage.write_all("a/b/two", b"").expect("written");
        let names = |prefix: &str| -> Vec<(String, u64)> {
            let objects = storage.list(prefix).expect("listed");
            objects.into_iter().map(|object| (object.name, object.bytes)).collect()
        };
        assert_eq!(names(""), [("a/b/two".into(), 0), ("a/one".into(), 5)]);
        assert_eq!(names("a/b"), [("a/b/two".into(), 0)]);
        assert_eq!(names("other"), []);
        assert_eq!(storage.read("a/one", 1..3).expect("read"), b"23");
        let mut place = [0; 2];
        storage.read_into("a/one", 2, &mut place).expect("read");
        assert_eq!(&place, b"34");
        let error = storage.read_into("a/one", 4, &mut place).expect_err("it ends before");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = storage.read("a/one", 3..6).expect_err("it ends before");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(storage.size("a/none").expect_err("none").kind(), io::ErrorKind::NotFound);
        storage.remove("a/b/two").expect("removed");
        assert_eq!(names(""), [("a/one".into(), 5)]);
        storage.write_all("c/d/three", b"").expect("written");
        storage.remove("c/d/three").expect("removed");
        let left = fs::read_dir(folder.path().join("root")).expect("the root stays");
        assert_eq!(left.count(), 1, "folders go with their last file");
    }
}
