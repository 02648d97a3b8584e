//! The program `tollgate`.
