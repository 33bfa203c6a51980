//! The way to a server, which can be cut, and drips or breaks at random.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A TCP proxy between a client and the server.
pub(crate) struct Wire {
    is_cut: Arc<AtomicBool>,
    /// The number of bytes after which a connection breaks, or 0 for never.
    breaks_after: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    address: SocketAddr,
}

impl Wire {
    pub(crate) fn to(server: SocketAddr) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Wire {
            is_cut: Arc::default(),
            breaks_after: Arc::default(),
            open: Arc::default(),
            address: listener.local_addr().unwrap(),
        };
        let (is_cut, breaks_after) = (Arc::clone(&wire.is_cut), Arc::clone(&wire.breaks_after));
        let open = Arc::clone(&wire.open);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if is_cut.load(Ordering::Acquire) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(server) else {
                    continue;
                };
                let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                open.lock().unwrap().extend(both);
                let budget = breaks_after.load(Ordering::Acquire);
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || carry(near, far, 0));
                thread::spawn(move || carry(far_too, near_too, budget));
            }
        });
        wire
    }

    /// A kubeconfig that uses this proxy.
    pub(crate) fn kubeconfig(&self, of: &Path, url: &str) -> PathBuf {
        let text = std::fs::read_to_string(of).unwrap();
        assert!(text.contains(url), "{url} is not in {text}");
        let text = text.replace(url, &format!("https://{}", self.address));
        let path = of.with_extension("wire");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Breaks everything, until it is mended.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::Release);
    }

    /// Breaks new connections after a number of bytes from the server.
    pub(crate) fn break_after(&self, bytes: u64) {
        self.breaks_after.store(bytes, Ordering::Release);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Carries bytes one way, in small pieces, up to a budget.
fn carry(mut from: TcpStream, mut to: TcpStream, budget: u64) {
    let mut buffer = [0; 1_000];
    let mut carried = 0;
    while let Ok(length) = from.read(&mut buffer) {
        let Some(bytes) = buffer.get(..length).filter(|it| !it.is_empty()) else {
            break;
        };
        carried += length as u64;
        if to.write_all(bytes).is_err() || (budget > 0 && carried > budget) {
            break;
        }
        if budget > 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
