//! Files that are written whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::{DataError, Result};

/// Writes a file beside its place and renames it there as the last act.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder).map_err(DataError::io("create folder", folder))?;
    let mut file = tempfile::Builder::new()
        .permissions(readable())
        .tempfile_in(folder)
        .map_err(DataError::io("create a file in", folder))?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .map_err(DataError::io("write", path))?;
    file.persist(path).map_err(|error| DataError::io("write", path)(error.error))?;
    Ok(())
}

/// The rights of an ordinary file, less the user's mask; temporary ones are private.
#[cfg(unix)]
fn readable() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o666)
}
