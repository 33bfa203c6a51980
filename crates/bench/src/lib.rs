//! Seeded Kubernetes manifests for measurements and long test runs, and the fuzz targets.

pub mod fuzz;
pub mod generate;
