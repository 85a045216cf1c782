//! Files that are written whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::{DataError, Result, store::parent_of};

/// Writes a file beside its place and renames it there as the last act.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = parent_of(path)?;
    let refused = DataError::io("create a file in", folder.as_path());
    let mut file = temporary_in(&folder).map_err(refused)?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .map_err(DataError::io("write", path))?;
    file.persist(path).map_err(|error| DataError::io("write", path)(error.error))?;
    Ok(())
}

/// A file with the rights of an ordinary one; temporary ones are private.
fn temporary_in(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The user's mask takes away from it what it takes from every file.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
