//! ClientHellos in pieces and unusual certificate chains: no daemon panics, spins or does extra work, and
//! others still connect.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::{StreamExt as _, stream};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, SanType,
};
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use tests::caller::{GATEWAY, SOON};
use tests::cpu_time::cpu_time;
use tests::dial::{config, dial_name};
use tests::pki::Issued;
use tests::rig::{GROUP, Rig, ask};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
/// A record's head (RFC 8446, section 5.1).
const RECORD_HEAD_BYTES: usize = 5;
const AT_ONCE: usize = 16;

/// CPU that a complete handshake may take the server, signature and key exchange included; a chain that is
/// never built costs less.
const CPU_PER_HANDSHAKE: Duration = Duration::from_millis(100);

/// A connection that ends in the middle of one is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hello_is_read_wherever_it_is_split() {
    let mut rig = Rig::start().await;
    let hello = client_hello(&rig);
    let body = &hello[RECORD_HEAD_BYTES..];

    let split = stream::iter(1..body.len()).map(|at| {
        let (first, second) = body.split_at(at);
        let pieces = match at % 2 {
            0 => vec![record(HANDSHAKE, first), record(HANDSHAKE, second)],
            // One record, of which the first bytes come alone.
            _ => vec![hello[..at].to_vec(), hello[at..].to_vec()],
        };
        let gateway = rig.gateway();
        async move { (at, answered(gateway, &pieces).await) }
    });
    let split: Vec<_> = split.buffer_unordered(AT_ONCE).collect().await;
    for (at, answer) in &split {
        assert_eq!(*answer, Some(HANDSHAKE), "split at {at} of {}", body.len());
    }
    // In as many records as it has bytes.
    let bytes: Vec<Vec<u8>> = body.iter().map(|byte| record(HANDSHAKE, &[*byte])).collect();
    let answer = answered(rig.gateway(), &[bytes.concat()]).await;
    assert!(matches!(answer, Some(HANDSHAKE | ALERT) | None), "{answer:?}");

    let closing = record(ALERT, &[1, 0]);
    let ended = stream::iter((0..hello.len()).step_by(7)).map(|at| {
        let (gateway, begun) = (rig.gateway(), hello[..at].to_vec());
        let more = if at % 2 == 0 { closing.clone() } else { Vec::new() };
        async move { ends(gateway, &[begun, more].concat()).await }
    });
    ended.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    for more in [closing.clone(), closing.repeat(1000), record(HANDSHAKE, &[]).repeat(1000), hello.clone()] {
        ends(rig.gateway(), &[hello.clone(), more].concat()).await;
    }
    is_well(&mut rig).await;
}

/// The chains are long, deep, large, or have the same certificate several times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_certificate_chains_admit_nobody_and_cost_one_handshake() {
    const TIMES: u32 = 10;
    let mut rig = Rig::start().await;
    let chains = [
        ("a hundred that vouch for nobody", unrelated(100)),
        ("a hundred deep", deep(100)),
        ("sixty of one name that each could have signed each", alike(60)),
        ("a leaf of 40 kB", large(1_000)),
    ];
    let shake = async |identity: Option<&Issued>| {
        let shaken = dial_name(rig.gateway(), GATEWAY, &rig.server_ca(), &["http/1.1"], identity).await;
        let Ok(mut stream) = shaken else { return String::new() };
        // In TLS 1.3 the server's judgement comes behind the caller's own end of the handshake.
        let asked = b"GET /clusters HTTP/1.1\r\nHost: gateway.test\r\nConnection: close\r\n\r\n";
        let mut answer = Vec::new();
        if stream.write_all(asked).await.is_ok() && stream.flush().await.is_ok() {
            // An alert is an end, too.
            let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("an end");
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    for (name, identity) in &chains {
        let before = used_by(&rig);
        for _ in 0..TIMES {
            let answer = shake(Some(identity)).await;
            assert!(answer.is_empty(), "{name}: {answer}");
        }
        let each = (used_by(&rig) - before) / TIMES;
        eprintln!("{name}: {each:?} of CPU each");
        assert!(each < CPU_PER_HANDSHAKE, "{name}: {each:?} of CPU each");
    }
    is_well(&mut rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_is_as_long_as_it_may_be_and_not_one_certificate_longer() {
    const CHAIN_CERTIFICATES_MAX: usize = 5;
    let rig = Rig::start().await;
    let alice = rig.caller_until("alice", &[GROUP], SystemTime::now() + Duration::from_secs(600));
    let others = unrelated(CHAIN_CERTIFICATES_MAX).certificate_pem;
    let others: Vec<&str> = others.split_inclusive("-----END CERTIFICATE-----\n").collect();
    for (count, is_taken) in [(CHAIN_CERTIFICATES_MAX, true), (CHAIN_CERTIFICATES_MAX + 1, false)] {
        let certificate_pem = [alice.certificate_pem.clone(), others[1..count].concat()].concat();
        let chain = Issued { certificate_pem, ..alice.clone() };
        let answer = ask(rig.gateway(), &rig.server_ca(), Some(&chain), "GET", "/clusters", &[]).await;
        assert_eq!(answer.is_ok_and(|answer| answer.status == 200), is_taken, "{count} certificates");
    }
}

/// One that the gateway answers, in one record.
fn client_hello(rig: &Rig) -> Vec<u8> {
    let mut config = config(&rig.server_ca(), None).expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(GATEWAY).expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("a Vec takes all");
    let length = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
    assert_eq!((hello[0], hello.len()), (HANDSHAKE, RECORD_HEAD_BYTES + length), "one record");
    hello
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a short record").to_be_bytes();
    [&[kind, 3, 1][..], &length, body].concat()
}

/// The type of the first record that comes back; `None` of an end.
async fn answered(gateway: std::net::SocketAddr, pieces: &[Vec<u8>]) -> Option<u8> {
    let answered = async {
        let mut socket = TcpStream::connect(gateway).await.ok()?;
        socket.set_nodelay(true).ok()?;
        for piece in pieces {
            socket.write_all(piece).await.ok()?;
            // Lets the piece leave before the next is written; together they are right, too.
            tokio::task::yield_now().await;
        }
        socket.read_u8().await.ok()
    };
    timeout(SOON, answered).await.expect("an answer or an end")
}

/// Sends these bytes and no more, and waits until the gateway has let go.
async fn ends(gateway: std::net::SocketAddr, bytes: &[u8]) {
    let ended = async {
        let mut socket = TcpStream::connect(gateway).await.expect("the gateway listens");
        // Who is refused early may find it closed.
        let _ = socket.write_all(bytes).await;
        let _ = socket.shutdown().await;
        let _ = socket.read_to_end(&mut Vec::new()).await;
    };
    timeout(SOON, ended).await.expect("an end");
}

/// Others can connect, nothing has panicked, and nothing spins.
async fn is_well(rig: &mut Rig) {
    for _ in 0..5 {
        assert_eq!(rig.ask_with_token("GET", "/clusters", &[]).await.status, 200);
    }
    let log = rig.server_log();
    assert!(!log.contains("panicked"), "{log}");
    const WATCHED: Duration = Duration::from_secs(2);
    let before = used_by(rig);
    sleep(WATCHED).await;
    let used = used_by(rig) - before;
    assert!(used < WATCHED / 2, "{used:?} of CPU in {WATCHED:?} without a caller");
}

/// The CPU time that the server has used.
fn used_by(rig: &Rig) -> Duration {
    cpu_time(rig.server_id()).expect("it runs")
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn leaf() -> CertificateParams {
    let mut params = named("mallory");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

/// Signs a leaf and appends the rest of the chain.
fn behind_a_leaf(params: &CertificateParams, issuer: &Issuer<'_, KeyPair>, chain: &[String]) -> Issued {
    let own = key();
    let certificate = params.signed_by(&own, issuer).expect("it can be signed").pem();
    Issued { certificate_pem: [certificate, chain.concat()].concat(), key_pem: own.serialize_pem() }
}

fn unrelated(count: usize) -> Issued {
    let chain: Vec<String> = (0..count)
        .map(|n| authority(&format!("other {n}")).self_signed(&key()).expect("it signs itself").pem())
        .collect();
    behind_a_leaf(&leaf(), &Issuer::new(authority("nobody"), key()), &chain)
}

/// Each signed by the next.
fn deep(count: usize) -> Issued {
    let mut issuer = Issuer::new(authority("top"), key());
    let mut chain = Vec::new();
    for n in 0..count {
        let (params, own) = (authority(&format!("level {n}")), key());
        chain.insert(0, params.signed_by(&own, &issuer).expect("it can be signed").pem());
        issuer = Issuer::new(params, own);
    }
    behind_a_leaf(&leaf(), &issuer, &chain)
}

/// Certificates of one name that are issued by the same name. A search for the issuer has to try all of them,
/// for each of them.
fn alike(count: usize) -> Issued {
    let issuer = Issuer::new(authority("one"), key());
    let chain: Vec<String> = (0..count)
        .map(|_| authority("one").signed_by(&key(), &issuer).expect("it can be signed").pem())
        .collect();
    behind_a_leaf(&leaf(), &Issuer::new(authority("one"), key()), &chain)
}

fn large(names: usize) -> Issued {
    let mut params = leaf();
    params.subject_alt_names = (0..names)
        .map(|n| SanType::DnsName(format!("{n}.{}.test", "n".repeat(30)).try_into().expect("ASCII")))
        .collect();
    behind_a_leaf(&params, &Issuer::new(authority("nobody"), key()), &[])
}
