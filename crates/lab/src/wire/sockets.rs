//! The sockets of the lab, which send and receive packets.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::thread;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn6, bind, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::network::rtnl::Mac;
use crate::network::{LinkSide, mac};
use crate::packet::read::{ReceivedPacket, read, read_carried};
use crate::topology::Location;

const ETHERNET: usize = 14;
/// All protocols, in network byte order.
const EVERY_PROTOCOL: i32 = 0x0003_u16.to_be() as i32;
/// The protocol of sockets that only send, packets with their own IP header.
const WITH_HEADER: i32 = 255;
/// More than any packet that a socket can receive.
const LONGEST: usize = 65_536 + ETHERNET;
/// The receive buffer of a socket. The kernel reduces it to what it allows.
const BUFFER: usize = 8 << 20;

/// The number of sockets that are opened or closed at once.
// The kernel waits for each of them, and these times overlap.
pub(crate) const WAITING: usize = 32;

/// The raw sockets that packets are sent from.
#[derive(Debug)]
pub(crate) struct RawSender {
    ipv4: Socket,
    ipv6: Option<Socket>,
}

impl RawSender {
    /// Opens the sockets in the calling thread's namespace. Their packets go through the output
    /// path, as any program's packets do.
    pub(crate) fn open(ipv6: bool) -> io::Result<RawSender> {
        let open = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(WITH_HEADER)));
        Ok(RawSender {
            ipv4: open(Domain::IPV4)?,
            ipv6: ipv6.then(|| open(Domain::IPV6)).transpose()?,
        })
    }

    pub(crate) fn send(&self, packet: &[u8], destination: IpAddr) -> io::Result<()> {
        let socket = match destination {
            IpAddr::V4(_) => Some(&self.ipv4),
            IpAddr::V6(_) => self.ipv6.as_ref(),
        };
        let to = SocketAddr::new(destination, 0).into();
        socket
            .ok_or(io::ErrorKind::Unsupported)?
            .send_to(packet, &to)?;
        Ok(())
    }
}

/// The form of the data that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameForm {
    /// Begins with an Ethernet header.
    Frame,
    /// Begins with an IPv4 header.
    Ipv4,
    /// Begins after the IPv6 header, and is of this protocol.
    InIpv6(u8),
}

/// A socket that receives packets.
#[derive(Debug)]
pub(crate) struct CaptureSocket {
    socket: Socket,
    location: Location,
    form: FrameForm,
}

impl CaptureSocket {
    /// Opens a socket that receives every frame to a pod, and sends frames from it.
    pub(crate) fn of_pod(index: usize) -> io::Result<CaptureSocket> {
        // Binding takes milliseconds, in which the kernel waits until no processor can use the
        // socket unbound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(EVERY_PROTOCOL.into()))?;
        socket.attach_filter(&incoming_only())?;
        // Safe code can get such an address from the kernel only.
        let eth0 = getifaddrs()?
            .filter(|interface| interface.interface_name == "eth0")
            .find_map(|interface| Some(*interface.address?.as_link_addr()?))
            .ok_or(io::ErrorKind::NotFound)?;
        bind(socket.as_raw_fd(), &eth0)?;
        CaptureSocket::new(socket, Location::Pod(index), FrameForm::Frame)
    }

    /// Opens a socket that receives the packets of one protocol to the calling thread's namespace
    /// itself.
    pub(crate) fn of_host(place: Location, ipv6: bool, protocol: u8) -> io::Result<CaptureSocket> {
        // A raw socket receives packets behind the input path, after its rules; a packet socket
        // would receive them before.
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let number = Protocol::from(i32::from(protocol));
        let socket = Socket::new(domain, Type::RAW, Some(number))?;
        let form = if ipv6 {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            FrameForm::InIpv6(protocol)
        } else {
            FrameForm::Ipv4
        };
        CaptureSocket::new(socket, place, form)
    }

    fn new(socket: Socket, place: Location, form: FrameForm) -> io::Result<CaptureSocket> {
        socket.set_nonblocking(true)?;
        socket.set_recv_buffer_size(BUFFER)?;
        Ok(CaptureSocket {
            socket,
            location: place,
            form,
        })
    }

    /// Sends a packet as a frame from a pod to a hardware address of its link.
    pub(crate) fn send_frame(&self, pod: usize, to: Mac, packet: &[u8]) -> io::Result<()> {
        let kind: [u8; 2] = match packet.first().map(|byte| byte >> 4) {
            Some(6) => [0x86, 0xdd],
            _ => [0x08, 0x00],
        };
        let from = mac(LinkSide::Pod, pod);
        self.socket.send_vectored(&[
            IoSlice::new(&to),
            IoSlice::new(&from),
            IoSlice::new(&kind),
            IoSlice::new(packet),
        ])?;
        Ok(())
    }

    /// Receives the next packet, or no [`ReceivedPacket`] if it is malformed.
    fn receive(&self, buffers: &mut Buffers) -> io::Result<Option<ReceivedPacket>> {
        match self.form {
            FrameForm::Frame => {
                let length = (&self.socket).read(&mut buffers.bytes)?;
                Ok(buffers.bytes.get(ETHERNET..length).and_then(read))
            }
            FrameForm::Ipv4 => {
                let length = (&self.socket).read(&mut buffers.bytes)?;
                Ok(buffers.bytes.get(..length).and_then(read))
            }
            FrameForm::InIpv6(protocol) => self.receive_in_ipv6(protocol, buffers),
        }
    }

    fn receive_in_ipv6(
        &self,
        protocol: u8,
        buffers: &mut Buffers,
    ) -> io::Result<Option<ReceivedPacket>> {
        let Buffers { bytes, control } = buffers;
        let (length, source, destination) = {
            let mut parts = [IoSliceMut::new(bytes)];
            let message = recvmsg::<SockaddrIn6>(
                self.socket.as_raw_fd(),
                &mut parts,
                Some(control),
                MsgFlags::MSG_DONTWAIT,
            )?;
            let destination = message.cmsgs()?.find_map(|part| {
                if let ControlMessageOwned::Ipv6PacketInfo(info) = part {
                    Some(IpAddr::from(info.ipi6_addr.s6_addr))
                } else {
                    None
                }
            });
            let source = message.address.map(|source| IpAddr::from(source.ip()));
            (message.bytes, source, destination)
        };
        let (Some(source), Some(destination)) = (source, destination) else {
            return Ok(None);
        };
        Ok(bytes
            .get(..length)
            .map(|payload| read_carried(source, destination, protocol, payload)))
    }
}

#[derive(Debug)]
struct Buffers {
    bytes: Vec<u8>,
    control: Vec<u8>,
}

/// All sockets that receive packets.
#[derive(Debug)]
pub(crate) struct CaptureSockets {
    captures: Vec<CaptureSocket>,
    poll: Epoll,
    events: Vec<EpollEvent>,
    buffers: Buffers,
}

impl CaptureSockets {
    pub(crate) fn new() -> io::Result<CaptureSockets> {
        Ok(CaptureSockets {
            captures: Vec::new(),
            poll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            events: vec![EpollEvent::empty(); 256],
            buffers: Buffers {
                bytes: vec![0; LONGEST],
                control: nix::cmsg_space!(nix::libc::in6_pktinfo),
            },
        })
    }

    /// Adds a socket, and returns its index.
    pub(crate) fn add(&mut self, socket: CaptureSocket) -> io::Result<usize> {
        let index = self.captures.len();
        let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        self.poll.add(&socket.socket, event)?;
        self.captures.push(socket);
        Ok(index)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&CaptureSocket> {
        self.captures.get(index)
    }

    /// Hands over received packets, one of each socket that has any. Waits for the first one no
    /// longer than `patience`, and returns whether there was any.
    pub(crate) fn receive(
        &mut self,
        patience: EpollTimeout,
        take: &mut dyn FnMut(Location, ReceivedPacket),
    ) -> io::Result<bool> {
        let count = match self.poll.wait(&mut self.events, patience) {
            Ok(count) => count,
            Err(Errno::EINTR) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        for event in self.events.iter().take(count) {
            let Some(socket) = self.captures.get(event.data() as usize) else {
                continue;
            };
            match socket.receive(&mut self.buffers) {
                Ok(Some(packet)) => take(socket.location, packet),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count > 0)
    }
}

/// Closes the sockets, many at once: the kernel also waits to close a packet socket.
impl Drop for CaptureSockets {
    fn drop(&mut self) {
        let share = self.captures.len().div_ceil(WAITING).max(1);
        thread::scope(|scope| {
            while !self.captures.is_empty() {
                let rest = self.captures.len().saturating_sub(share);
                let some = self.captures.split_off(rest);
                // Without a thread the sockets are closed here.
                let _ = thread::Builder::new().spawn_scoped(scope, move || drop(some));
            }
        });
    }
}

/// Makes a filter against frames that the namespace itself sends: it loads the packet's type, and
/// takes nothing of an outgoing one.
fn incoming_only() -> [SockFilter; 4] {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const PACKET_TYPE: u32 = 0xffff_f004;
    const OUTGOING: u32 = 4;
    [
        SockFilter::new(LOAD, 0, 0, PACKET_TYPE),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, OUTGOING),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
