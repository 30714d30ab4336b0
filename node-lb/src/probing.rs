//! Probes every API server over a connection that is kept between probes.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use daemon::{Scope, error_chain};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::balancer::Balancer;
use crate::http_client::{HttpClient, HttpError};
use crate::members::ProbeOutcome;
use crate::random::jittered;
use crate::tls::Tls;

/// Interval between probes of an API server, a quarter more or less.
pub const PROBE_EVERY: Duration = Duration::from_secs(2);

/// Longest wait for the answer to a probe, TCP and TLS included.
pub const PROBE_MAX: Duration = Duration::from_secs(1);

/// Shortest pause between two probes of an API server.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// A probe whose time was noticed later than this says more about this host than about the API server.
const LATE_MAX: Duration = Duration::from_millis(300);

/// Largest answer to a probe. Real ones are smaller.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The end of one question, with the connection for the next one.
struct Answer {
    outcome: ProbeOutcome,
    client: Option<HttpClient>,
    /// The reason why the certificate was not accepted.
    fault: Option<String>,
}

/// The probes of one API server.
struct Prober {
    address: SocketAddr,
    tls: Tls,
    scope: Scope,
    kept: Option<HttpClient>,
    /// The fault that was logged last.
    fault: Option<String>,
}

/// Probes every API server that is known, until the process ends.
pub async fn run(balancer: Balancer, tls: Tls, scope: Scope) {
    let mut changed = balancer.subscribe();
    let mut probed: HashSet<SocketAddr> = HashSet::new();
    loop {
        let known: HashSet<SocketAddr> = balancer.addresses().into_iter().collect();
        for address in known.difference(&probed) {
            let prober =
                Prober { address: *address, tls: tls.clone(), scope: scope.clone(), kept: None, fault: None };
            scope.spawn_background(prober.run(balancer.clone()));
        }
        probed = known;
        if changed.changed().await.is_err() {
            return;
        }
    }
}

impl Prober {
    /// Probes until the API server is no longer known.
    async fn run(mut self, balancer: Balancer) {
        let mut requests = balancer.probe_requests();
        let mut changed = balancer.subscribe();
        while balancer.has(self.address) {
            requests.mark_unchanged();
            self.probe(&balancer).await;
            sleep(PAUSE_MIN).await;
            let requested = async {
                while requests.changed().await.is_ok() {
                    if *requests.borrow_and_update() != Some(self.address) {
                        return;
                    }
                }
                futures::future::pending().await
            };
            let gone = async { while changed.changed().await.is_ok() && balancer.has(self.address) {} };
            // All arms are cancel-safe: they only wait.
            tokio::select! {
                () = sleep(jittered(PROBE_EVERY).saturating_sub(PAUSE_MIN)) => {}
                () = requested => {}
                () = gone => {}
            }
        }
    }

    /// Probes once, and again at once after a miss. The first question may still be answered then.
    async fn probe(&mut self, balancer: &Balancer) {
        let mut questions = FuturesUnordered::new();
        let kept = self.kept.take();
        questions.push(self.question(kept));
        loop {
            let began = Instant::now();
            let answer = timeout(PROBE_MAX, first_answer(&mut questions)).await;
            let outcome = match answer {
                Ok(Some(answer)) => {
                    self.kept = answer.client;
                    self.report_fault(answer.fault);
                    answer.outcome
                }
                // The kept connection was closed, which says nothing.
                Ok(None) => {
                    questions.push(self.question(None));
                    continue;
                }
                Err(_) if began.elapsed() > PROBE_MAX + LATE_MAX => {
                    debug!(api_server = %self.address, "this host is too busy for a probe to count");
                    continue;
                }
                Err(_) => ProbeOutcome::Missed,
            };
            if !balancer.probed(self.address, outcome, began) {
                return;
            }
            questions.push(self.question(None));
        }
    }

    /// Asks on the kept connection, or else on a new one. `None` if the kept one was closed.
    fn question(&self, kept: Option<HttpClient>) -> BoxFuture<'static, Option<Answer>> {
        let (address, identity, scope) = (self.address, self.tls.current(), self.scope.clone());
        async move {
            if let Some(mut kept) = kept.filter(|kept| kept.is_made_with(&identity)) {
                return match ask(&mut kept).await {
                    Ok(outcome) => Some(Answer { outcome, client: Some(kept), fault: None }),
                    Err(_) => None,
                };
            }
            let answer = match HttpClient::connect(address, &identity, &scope).await {
                Ok(mut client) => match ask(&mut client).await {
                    Ok(outcome) => Answer { outcome, client: Some(client), fault: None },
                    Err(error) => failed(&error),
                },
                Err(error) => failed(&error),
            };
            Some(answer)
        }
        .boxed()
    }

    /// Logs the reason why a certificate is not accepted when it is another one than before.
    fn report_fault(&mut self, fault: Option<String>) {
        if let Some(fault) = fault.as_ref().filter(|fault| self.fault.as_ref() != Some(fault)) {
            warn!(api_server = %self.address, fault, "an API server's certificate is not accepted, so nothing is relayed to it");
        }
        self.fault = fault;
    }
}

/// The first answer to one of the questions. `None` if all have ended without one.
async fn first_answer(
    questions: &mut FuturesUnordered<BoxFuture<'static, Option<Answer>>>,
) -> Option<Answer> {
    while let Some(answer) = questions.next().await {
        if answer.is_some() {
            return answer;
        }
    }
    None
}

async fn ask(client: &mut HttpClient) -> Result<ProbeOutcome, HttpError> {
    let asked = Instant::now();
    let (status, _) = client.get(api_servers::readiness::READYZ, ANSWER_BYTES_MAX).await?;
    // A busy API server is no distant one, so the kernel's figure counts.
    let round_trip = client.round_trip().unwrap_or_else(|| asked.elapsed());
    Ok(ProbeOutcome::Answered { is_ready: api_servers::is_ready(status), round_trip })
}

/// The outcome of a new connection that failed.
fn failed(error: &HttpError) -> Answer {
    let (outcome, fault) = match error {
        HttpError::Untrusted(_) => (ProbeOutcome::Foreign, Some(error_chain(error).to_string())),
        HttpError::Dial(source) => (dial_failed(source), None),
        HttpError::Connection(_) | HttpError::Http(_) | HttpError::TooLarge => (ProbeOutcome::Missed, None),
    };
    Answer { outcome, client: None, fault }
}

/// The outcome of a dial that the system has refused.
#[must_use]
pub fn dial_failed(error: &io::Error) -> ProbeOutcome {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        ProbeOutcome::Refused
    } else {
        ProbeOutcome::Unreachable
    }
}
