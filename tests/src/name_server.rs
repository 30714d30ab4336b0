//! A DNS server that knows one name, for pods: they have no `/etc/hosts` of ours.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Any query that is longer is not answered. Those of resolvers have one question and a few options.
const QUERY_BYTES_MAX: usize = 512;
/// The length of the header of each message (RFC 1035, 4.1.1).
const HEADER_BYTES: usize = 12;
/// The types and the class that are known (RFC 1035, 3.2.2; RFC 3596).
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
/// A response, with recursion desired and available.
const RESPONSE: u16 = 0x8180;
/// The response code for names that do not exist.
const NAME_ERROR: u16 = 3;

/// A running server; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct NameServer {
    task: JoinHandle<()>,
}

impl NameServer {
    /// Serves at an address by UDP. `name` has this IPv4 address, and no other name exists.
    ///
    /// # Errors
    /// If the address is taken.
    pub async fn start(at: SocketAddr, name: &str, address: Ipv4Addr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at).await?;
        let name = name.to_owned();
        let task = tokio::spawn(async move {
            let mut query = [0; QUERY_BYTES_MAX];
            // A client that is gone is no reason to end.
            loop {
                let Ok((length, client)) = socket.recv_from(&mut query).await else { continue };
                if let Some(response) = response(&query[..length], &name, address) {
                    let _ = socket.send_to(&response, client).await;
                }
            }
        });
        Ok(Self { task })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The response to a query of one question, or `None` for anything else.
fn response(query: &[u8], name: &str, address: Ipv4Addr) -> Option<Vec<u8>> {
    let (header, rest) = query.split_at_checked(HEADER_BYTES)?;
    if u16::from_be_bytes([header[4], header[5]]) != 1 {
        return None;
    }
    let (labels, name_bytes) = labels(rest)?;
    let question = rest.get(..name_bytes + 4)?;
    let [.., kind_high, kind_low, class_high, class_low] = *question else { return None };
    let is_known = labels.eq_ignore_ascii_case(name);
    let is_address = u16::from_be_bytes([kind_high, kind_low]) == TYPE_A
        && u16::from_be_bytes([class_high, class_low]) == CLASS_IN;
    let has_answer = is_known && is_address;
    let flags = if is_known { RESPONSE } else { RESPONSE | NAME_ERROR };
    let counts = [1, u16::from(has_answer), 0, 0];
    let mut response = header[..2].to_vec();
    response.extend(flags.to_be_bytes());
    response.extend(counts.into_iter().flat_map(u16::to_be_bytes));
    response.extend(question);
    if has_answer {
        // The name of the question, by its offset.
        response.extend([0xc0, HEADER_BYTES as u8]);
        response.extend([TYPE_A, CLASS_IN].into_iter().flat_map(u16::to_be_bytes));
        response.extend(1_u32.to_be_bytes()); // seconds for which it may be cached
        response.extend(4_u16.to_be_bytes());
        response.extend(address.octets());
    }
    Some(response)
}

/// The name at the beginning of a question, and its length in bytes.
fn labels(question: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(question.get(at..at + length)?).into_owned());
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::response;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// A query as resolvers send it, with an option behind the question.
    fn query(kind: u8) -> Vec<u8> {
        let header = [7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        [&header[..], b"\x07Gateway\x07example\x00", &[0, kind, 0, 1], &[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]]
            .concat()
    }

    #[test]
    fn one_name_has_an_ipv4_address_and_no_other_name_exists() {
        let found = response(&query(1), "gateway.example", ADDRESS).unwrap();
        assert_eq!(found[..12], [7, 8, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert!(found.ends_with(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 192, 0, 2, 1]), "{found:?}");

        let without_v6 = response(&query(28), "gateway.example", ADDRESS).unwrap();
        assert_eq!(without_v6[2..12], [0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);

        let unknown = response(&query(1), "other.example", ADDRESS).unwrap();
        assert_eq!(unknown[2..12], [0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(response(&query(1)[..20], "gateway.example", ADDRESS), None);
    }
}
