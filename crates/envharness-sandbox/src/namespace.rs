//! Mount namespaces, by which the processes of a run are known whatever they do to their environment.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// A mount namespace, pinned: while this value lives its number cannot pass to another one.
#[derive(Debug, Clone)]
pub struct Namespace {
    pub(crate) inode: u64,
    _pin: Arc<File>,
}

/// Brings a child's namespace to its parent. The child sends it before `exec`: afterwards it may be gone before the
/// parent looks, and what it left behind would be nobody's.
#[derive(Debug)]
pub struct NamespaceChannel {
    parent: UnixDatagram,
    child: UnixDatagram,
}

/// Room for one descriptor in a control message.
const CONTROL: usize = 64;

impl NamespaceChannel {
    /// Makes a channel.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (parent, child) = UnixDatagram::pair()?;
        parent.set_nonblocking(true)?;
        Ok(Self { parent, child })
    }

    /// The end that the child sends to.
    pub fn child_end(&self) -> RawFd {
        self.child.as_raw_fd()
    }

    /// The namespace that was sent; `None` when there was none to send.
    pub fn receive(&self) -> Option<Namespace> {
        let mut byte = 0_u8;
        let mut control = [0_u64; CONTROL / 8];
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: all-zero is a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL;
        // SAFETY: the message points to memory that lives over the call.
        let received = unsafe { libc::recvmsg(self.parent.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if received < 0 {
            return None;
        }
        // SAFETY: the kernel filled `message`; the header is read only when it is there and is of the kind sent.
        let fd = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
                return None;
            }
            libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()
        };
        // SAFETY: the kernel made this descriptor for us in the call above.
        let pin = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Some(Namespace { inode: pin.metadata().ok()?.ino(), _pin: Arc::new(pin) })
    }
}

/// Sends the calling process's mount namespace. For a child between `fork` and `exec`: allocates nothing. A failure
/// leaves the run known by its environment alone.
pub(crate) fn send_own(socket: RawFd) {
    let mut byte = 0_u8;
    let mut control = [0_u64; CONTROL / 8];
    // SAFETY: the path is NUL-terminated; the message points to memory of this frame, which lives over the call; the
    // header lies within `control`, which is large enough for one descriptor and aligned for a header.
    unsafe {
        let fd = libc::open(c"/proc/self/ns/mnt".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return;
        }
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        libc::close(fd);
    }
}
