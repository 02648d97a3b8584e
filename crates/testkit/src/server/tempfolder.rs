//! A folder that goes with its value.

use std::path::{Path, PathBuf};

/// Short, because the path of a unix socket may have no more than 107 bytes.
#[derive(Debug)]
pub(super) struct TempFolder(PathBuf);

impl TempFolder {
    pub(super) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        use std::sync::atomic::{AtomicU64, Ordering};
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let random = RandomState::new().hash_one((std::process::id(), number));
        let path = std::env::temp_dir().join(format!("tg-{random:016x}"));
        std::fs::create_dir_all(&path).expect("the system's temporary folder is writable");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
