//! Another program on the node that changes tables, with its own netlink code.

use std::io;

use anyhow::{Context as _, Result};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

/// A change by another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interference {
    /// Deletes all rules of a chain.
    FlushChain(String, String),
    /// Deletes all elements of a set.
    FlushSet(String, String),
    /// Deletes a table.
    DeleteTable(String),
    /// Deletes all tables of all programs.
    FlushRuleset,
    /// Inserts a rule that accepts everything at the head of a chain.
    AcceptAll(String, String),
    /// Adds a chain.
    AddChain(String, String),
}

/// The netlink socket of another program.
#[derive(Debug)]
pub struct ForeignProgram(Socket);

const INET: u8 = 1;
const SUBSYSTEM: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const NESTED: u16 = 0x8000;

impl ForeignProgram {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<ForeignProgram> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        Ok(ForeignProgram(socket))
    }

    /// Makes a change. The inner error is the kernel's.
    pub fn change(&mut self, interference: &Interference) -> Result<Result<(), Errno>> {
        let mut bytes = message(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM >> 8, &[]);
        bytes.extend(interference_message(interference));
        bytes.extend(message(BATCH_END, REQUEST, 0, SUBSYSTEM >> 8, &[]));
        self.0.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        // The kernel's responses are queued when sending returns.
        let mut buffer = vec![0; 65_536];
        let mut response = None;
        loop {
            let mut space = buffer.as_mut_slice();
            let length = match self.0.recv(&mut space, 0) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read the kernel's response"),
            };
            let field = |at: usize| {
                let bytes = buffer.get(..length)?.get(at..at + 4)?;
                bytes.first_chunk::<4>().copied()
            };
            // The code of the first error, or of the acknowledgement.
            let code = field(16).map(i32::from_ne_bytes).unwrap_or(0);
            response = response.filter(|it: &i32| *it != 0).or(Some(code));
        }
        Ok(match response.context("the kernel sent no response")? {
            0 => Ok(()),
            code => Err(Errno::from_raw(-code)),
        })
    }
}

fn interference_message(interference: &Interference) -> Vec<u8> {
    let of = |kind: u16, flags: u16, family: u8, body: &[u8]| {
        message(
            SUBSYSTEM | kind,
            REQUEST | ACKNOWLEDGE | flags,
            family,
            0,
            body,
        )
    };
    let table_and =
        |table: &str, second: u16, name: &str| [text(1, table), text(second, name)].concat();
    match interference {
        Interference::FlushChain(table, chain) => of(8, 0, INET, &table_and(table, 2, chain)),
        Interference::FlushSet(table, set) => of(14, 0, INET, &table_and(table, 2, set)),
        Interference::DeleteTable(table) => of(2, 0, INET, &text(1, table)),
        Interference::FlushRuleset => of(2, 0, 0, &[]),
        Interference::AddChain(table, chain) => of(3, CREATE, INET, &table_and(table, 3, chain)),
        Interference::AcceptAll(table, chain) => {
            let verdict = attribute(1, &1_u32.to_be_bytes());
            let data = attribute(2 | NESTED, &attribute(2 | NESTED, &verdict));
            let immediate = [attribute(1, &0_u32.to_be_bytes()), data].concat();
            let expression = [text(1, "immediate"), attribute(2 | NESTED, &immediate)].concat();
            let expressions = attribute(4 | NESTED, &attribute(1 | NESTED, &expression));
            of(
                6,
                CREATE,
                INET,
                &[table_and(table, 2, chain), expressions].concat(),
            )
        }
    }
}

/// A netfilter message.
fn message(kind: u16, flags: u16, family: u8, resource: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((20 + body.len() as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + data.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}
