//! stub
use crate::model::Cluster;
use crate::net::Cidr;
use crate::plan::{Plan, PlanChange};
/// x
#[derive(Clone, Copy, Debug)]
pub struct ObjectKey<'a> {
    /// x
    pub kind: &'static str,
    /// x
    pub namespace: &'a str,
    /// x
    pub name: &'a str,
}
/// x
#[derive(Debug)]
pub struct Live;
/// x
#[derive(Debug)]
pub struct Counts;
impl Counts {
    /// x
    pub fn objects(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }
    /// x
    pub fn kernel_objects(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }
}
impl Live {
    /// x
    pub fn new(_: &str) -> Live {
        Live
    }
    /// x
    pub fn set(&mut self, _: ObjectKey<'_>, _: &Cluster<'_>) -> bool {
        true
    }
    /// x
    pub fn remove(&mut self, _: ObjectKey<'_>) -> bool {
        true
    }
    /// x
    pub fn commit(&mut self) -> PlanChange {
        PlanChange::default()
    }
    /// x
    pub fn plan(&self) -> Plan {
        Plan::default()
    }
    /// x
    pub fn pod_blocks(&self) -> Vec<Cidr> {
        Vec::new()
    }
    /// x
    pub fn counts(&self) -> Counts {
        Counts
    }
}
