//! A testbed that another process started, found by its directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::api::user_kubeconfig;
use crate::authority::Authority;
use crate::binaries::available;
use crate::cluster::{kubectl, load_image};
use crate::error::{Error, Result, at};
use crate::home::Home;
use crate::remove::remove;

/// A testbed that keeps running without its starter.
#[derive(Debug)]
pub struct Instance {
    home: Home,
}

impl Instance {
    /// The testbed of a directory.
    pub fn open(directory: &Path) -> Result<Instance> {
        let home = Home::open(directory)?;
        Ok(Instance { home })
    }

    /// Its processes, and whether each still runs.
    pub fn processes(&self) -> Vec<(String, i32, bool)> {
        let processes = self.home.processes().into_iter();
        let seen = processes.map(|(name, it)| (name, it.pid, it.is_alive()));
        seen.collect()
    }

    /// A kubeconfig of a cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.file("admin.kubeconfig")
    }

    /// A kubeconfig for any user.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.home.file("url");
        let url = fs::read_to_string(&path).map_err(at("read", &path))?;
        let authority = Authority::open("ca", &self.home.file("pki"));
        user_kubeconfig(&self.home, &authority, &url, user, groups)
    }

    /// The pinned kubectl, in a namespace from which the server is reachable.
    pub fn kubectl(&self) -> Result<Command> {
        Ok(kubectl(&self.home, &available()?))
    }

    /// The log of a process.
    pub fn log(&self, name: &str) -> Result<PathBuf> {
        let is_known = self.home.processes().iter().any(|(it, _)| it == name);
        if !is_known {
            return Err(Error::Refused(format!("process `{name}` not found")));
        }
        Ok(self.home.file(&format!("logs/{name}.log")))
    }

    /// Loads an archive of images into all nodes.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        load_image(&self.home, archive)
    }

    /// Ends and removes everything.
    pub fn down(self) -> Result<()> {
        remove(&self.home)
    }
}
