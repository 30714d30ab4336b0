//! The layout of connection IDs, fixed from the first release, so that balancers and peers may rely on it.
//!
//! 16 bytes:
//!
//! | byte | holds |
//! |---|---|
//! | 0 | steers to an endpoint of the same process: modulo the number of endpoints it is the endpoint's index |
//! | 1–2 | the server's number, masked |
//! | 3 | the epoch of the key, 0 so far |
//! | 4–15 | random |
//!
//! The mask is HMAC-SHA256 over the bytes around it, under a key that is persisted. A reader with the key
//! sees the server's number; all others see noise, and two IDs of one connection have nothing in common (RFC
//! 9000, section 5.1).

use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;

/// Length of every connection ID, in bytes.
pub(crate) const CID_BYTES: usize = 16;

const NUMBER: std::ops::Range<usize> = 1..3;
const EPOCH: usize = 3;
const RANDOM: std::ops::Range<usize> = 4..CID_BYTES;

/// The only key epoch so far.
const EPOCH_NOW: u8 = 0;

/// Makes the connection IDs of one endpoint, and recognizes them, also those of an earlier process with the
/// same key.
pub(crate) struct Generator {
    key: hmac::Key,
    server: u16,
}

impl Generator {
    pub(crate) fn new(key: hmac::Key, server: u16) -> Self {
        Self { key, server }
    }

    fn mask(&self, cid: &[u8; CID_BYTES]) -> [u8; 2] {
        let mut around = *cid;
        around[NUMBER].fill(0);
        let tag = hmac::sign(&self.key, &around);
        [tag.as_ref()[0], tag.as_ref()[1]]
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut cid = [0; CID_BYTES];
        // If the system's generator fails, IDs are unique only by luck, but the trait allows no error. The
        // keys could not have been made in that state either, so the process would not have come this far.
        let _ = rand::fill(&mut cid[RANDOM]);
        // One endpoint: every value of the steering byte leads to it.
        cid[0] = cid[RANDOM.start] ^ cid[RANDOM.end - 1];
        cid[EPOCH] = EPOCH_NOW;
        let mask = self.mask(&cid);
        for ((byte, number), mask) in cid[NUMBER].iter_mut().zip(self.server.to_be_bytes()).zip(mask) {
            *byte = number ^ mask;
        }
        ConnectionId::new(&cid)
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        let cid: &[u8; CID_BYTES] = cid[..].try_into().map_err(|_| InvalidCid)?;
        let mask = self.mask(cid);
        let number = u16::from_be_bytes([cid[1] ^ mask[0], cid[2] ^ mask[1]]);
        if cid[EPOCH] == EPOCH_NOW && number == self.server { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        CID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndpointKeys;

    #[test]
    fn a_restarted_endpoint_recognizes_its_ids() {
        let keys = EndpointKeys::generate().unwrap();
        let before = Generator::new(keys.connection_id_key(), 7).generate_cid();
        let after =
            Generator::new(EndpointKeys::from_bytes(&keys.to_bytes()).unwrap().connection_id_key(), 7);
        assert!(after.validate(&before).is_ok());
    }

    #[test]
    fn ids_of_another_server_key_or_length_are_not_recognized() {
        let keys = EndpointKeys::generate().unwrap();
        let mut ours = Generator::new(keys.connection_id_key(), 7);
        let theirs = Generator::new(keys.connection_id_key(), 8).generate_cid();
        let foreign_keys = EndpointKeys::generate().unwrap();
        // Two bytes under a foreign key agree by chance once in 65,536; three IDs in a row practically never.
        let mut foreign = Generator::new(foreign_keys.connection_id_key(), 7);
        let foreign: Vec<_> = (0..3).map(|_| foreign.generate_cid()).collect();
        assert!(ours.validate(&theirs).is_err());
        assert!(foreign.iter().any(|cid| ours.validate(cid).is_err()));
        let shorter = ConnectionId::new(&ours.generate_cid()[..15]);
        assert!(ours.validate(&shorter).is_err());
    }

    #[test]
    fn the_servers_number_does_not_show() {
        let keys = EndpointKeys::generate().unwrap();
        let mut generator = Generator::new(keys.connection_id_key(), 0);
        let shown: std::collections::HashSet<[u8; 2]> = (0..64)
            .map(|_| {
                let cid = generator.generate_cid();
                [cid[1], cid[2]]
            })
            .collect();
        assert!(shown.len() > 32, "{} different values in 64 IDs", shown.len());
    }
}
