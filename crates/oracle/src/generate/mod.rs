//! Random clusters.
