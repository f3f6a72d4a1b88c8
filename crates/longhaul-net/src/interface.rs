//! The network interface that a connection runs over, as the kernel's routes have it.
//!
//! In: the addresses of a connection. Out: the index of an interface. It asks over a netlink socket
//! (`rtnetlink(7)`), as no file lists the routes of all tables. It must not know lanes.

use std::net::IpAddr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The index of the interface by which packets reach `remote` from `local`. `None` if there is no
/// such way, or the kernel does not say.
pub(crate) fn interface_to(remote: IpAddr, local: Option<IpAddr>) -> Option<u32> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).ok()?;
    send(&socket, &request(remote, local), SendFlags::empty()).ok()?;
    let mut answer = [0u8; ANSWER_BYTES_MAX];
    let (filled, _) = recv(&socket, &mut answer, RecvFlags::empty()).ok()?;
    outgoing(answer.get(..filled)?)
}

/// The question for one route: `nlmsghdr`, `rtmsg`, and an attribute for each address, all in the
/// byte order of this host.
fn request(remote: IpAddr, local: Option<IpAddr>) -> Vec<u8> {
    let (family, bits) = if remote.is_ipv4() { (FAMILY_IPV4, 32) } else { (FAMILY_IPV6, 128) };
    let local = local.filter(|local| local.is_ipv4() == remote.is_ipv4() && !local.is_unspecified());
    let mut message = vec![0u8; HEADER_BYTES];
    message.extend([family, bits, local.map_or(0, |_| bits), 0, 0, 0, 0, 0]);
    message.extend([0; 4]);
    push_address(&mut message, ROUTE_DESTINATION, remote);
    if let Some(local) = local {
        push_address(&mut message, ROUTE_SOURCE, local);
    }
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&GET_ROUTE.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    message
}

fn push_address(message: &mut Vec<u8>, kind: u16, address: IpAddr) {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    message.extend(((ATTRIBUTE_BYTES + bytes.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(bytes);
}

/// The outgoing interface in the kernel's answer. `None` if that is an error.
fn outgoing(answer: &[u8]) -> Option<u32> {
    let len = u32::from_ne_bytes(answer.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let mut rest = answer.get(HEADER_BYTES + ROUTE_BYTES..len).filter(|_| kind == NEW_ROUTE)?;
    while rest.len() >= ATTRIBUTE_BYTES {
        let len = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        if kind == ROUTE_OUTGOING {
            return Some(u32::from_ne_bytes(rest.get(ATTRIBUTE_BYTES..len)?.try_into().ok()?));
        }
        // Attributes begin at multiples of four bytes.
        rest = rest.get(len.max(ATTRIBUTE_BYTES).next_multiple_of(4)..)?;
    }
    None
}

/// Bytes of `nlmsghdr`, `rtmsg` and `rtattr`.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const ATTRIBUTE_BYTES: usize = 4;
/// `RTM_GETROUTE` with `NLM_F_REQUEST`, and its answer, `RTM_NEWROUTE`.
const GET_ROUTE: u16 = 26;
const REQUEST: u16 = 1;
const NEW_ROUTE: u16 = 24;
/// `RTA_DST`, `RTA_SRC` and `RTA_OIF`.
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_SOURCE: u16 = 2;
const ROUTE_OUTGOING: u16 = 4;
/// `AF_INET` and `AF_INET6`.
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
/// An answer has some hundred bytes.
const ANSWER_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_over_its_loopback_interface() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        assert_eq!(interface_to(loopback, None), Some(1));
        assert_eq!(interface_to(loopback, Some(loopback)), Some(1));
        assert_eq!(interface_to(loopback, Some([0, 0, 0, 0].into())), Some(1), "any address is no address");
    }

    #[test]
    fn an_answer_without_an_interface_and_one_that_is_cut_off_say_nothing() {
        let mut answer = request([10, 0, 0, 1].into(), None);
        answer[4..6].copy_from_slice(&NEW_ROUTE.to_ne_bytes());
        assert_eq!(outgoing(&answer), None);
        answer.extend(8u16.to_ne_bytes());
        answer.extend(ROUTE_OUTGOING.to_ne_bytes());
        answer.extend(7u32.to_ne_bytes());
        let len = answer.len() as u32;
        answer[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(outgoing(&answer), Some(7));
        (0..answer.len()).for_each(|cut| assert_eq!(outgoing(&answer[..cut]), None, "{cut}"));
        answer[4..6].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(outgoing(&answer), None, "an error");
    }
}
