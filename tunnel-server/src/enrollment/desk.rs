//! The service `tombolo.enrollment.v1.Enrollment` for one connection: tokens and proofs in, certificates out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::chain;
use proto::ClusterId;
use proto::enrollment::{
    Credential, EnrollRequest, EnrollResponse, RenewRequest, RenewResponse, enrollment_server,
};
use proto::spiffe::AgentId;
use tonic::{Request, Response, Status, async_trait};
use tracing::{error, info, warn};
use trust::proof::{EXPORTER_BYTES, Proof, Purpose};
use trust::{Order, ProvenKey, Serial, SignError, Subject};

use super::{Inner, source};
use crate::directory::{
    self, Agent, Answer, Bearer, Entitled, NotRenewed, Outcome, TokenRefused, UnixSeconds,
};
use crate::metrics;

/// Bytes of an instance's name, which are twice as many hexadecimal digits.
const INSTANCE_BYTES: usize = 8;

/// One connection's.
pub(super) struct Desk {
    pub(super) door: Arc<Inner>,
    pub(super) peer: SocketAddr,
    pub(super) exporter: [u8; EXPORTER_BYTES],
}

#[async_trait]
impl enrollment_server::Enrollment for Desk {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        self.listen()?;
        let EnrollRequest { token, cluster, certificate_request } = request.into_inner();
        let key = self.key(&certificate_request)?;
        // The text of a token that is none is not logged: it may be one with a slip of the pen.
        let bearer: Bearer =
            token.trim().parse().map_err(|_| self.refused("enroll", "it is not a token", ""))?;
        let id = bearer.id();
        let answer = match self.enrolled(bearer, &cluster, key).await {
            Ok(answer) => answer,
            Err(NotEnrolled::Refused(TokenRefused::Store(error))) => return Err(unavailable(&error)),
            Err(NotEnrolled::Refused(reason)) => {
                return Err(self.refused("enroll", &reason.to_string(), &id));
            }
            Err(NotEnrolled::NotSigned(error)) => return Err(not_issued(&error)),
        };
        Ok(Response::new(EnrollResponse { credential: Some(self.credential(&answer)) }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        self.listen()?;
        let request = request.into_inner();
        let key = self.key(&request.certificate_request)?;
        let agent = request.cluster.parse::<ClusterId>().ok();
        let agent = agent.and_then(|cluster| AgentId::new(cluster, &request.instance));
        let serial = <[u8; 16]>::try_from(request.serial.as_slice()).ok().map(Serial::from);
        let (Some(agent), Some(serial)) = (agent, serial) else {
            return Err(Status::invalid_argument("the request names no agent, or no serial number"));
        };
        let answer = self.renewed(&agent, serial, key, &request.proof).await?;
        Ok(Response::new(RenewResponse { credential: Some(self.credential(&answer)) }))
    }
}

impl Desk {
    async fn enrolled(&self, bearer: Bearer, believed: &str, key: ProvenKey) -> Result<Answer, NotEnrolled> {
        let (directory, now) = (&self.door.directory, SystemTime::now());
        let pin = key.pin().to_string();
        let cluster = match directory.entitled(bearer.clone(), pin.clone(), now).await? {
            Entitled::ToTheSame(answer) => return Ok(answer),
            Entitled::ToOne(cluster) if cluster.as_str() == believed => cluster,
            Entitled::ToOne(_) => return Err(TokenRefused::OtherCluster.into()),
        };
        let (instance, id) = (instance().ok_or(SignError::Randomness)?, bearer.id());
        let agent = AgentId::new(cluster, &instance).ok_or(TokenRefused::Unknown)?;
        let issued = self.issue(&agent, key, now).await?;
        let answer = directory.enroll(bearer, pin, agent.instance().to_owned(), issued, now).await?;
        info!(%agent, token = id, from = %self.peer, "an agent was enrolled");
        metrics::enrolled("enrolled");
        Ok(answer)
    }

    async fn renewed(
        &self,
        agent: &AgentId,
        serial: Serial,
        key: ProvenKey,
        proof: &[u8],
    ) -> Result<Answer, Status> {
        let (directory, terms, now) = (&self.door.directory, &self.door.terms, SystemTime::now());
        let refused = |reason: &str| self.refused("renew", reason, &agent.to_string());
        let record = directory.agent(agent).await.map_err(|error| unavailable(&error))?;
        let record = record.ok_or_else(|| refused("it was never enrolled"))?;
        let next = BASE64.encode(key.spki());
        let claim = record
            .claims(&serial.to_string(), &next, now.into(), terms.grace)
            .map_err(|no| refused(&no.to_string()))?;
        let spki = key.spki();
        let said = Proof { purpose: Purpose::Renewal, exporter: &self.exporter, serial, spki: &spki };
        let signer = BASE64.decode(&claim.signer).unwrap_or_default();
        if !said.is_signed(&signer, proof) {
            return Err(refused("its proof is not by the key on record"));
        }
        let credential = directory::Credential { serial: record.serial.clone(), issued: record.issued };
        directory.admits(agent, &credential).map_err(|no| refused(&no.to_string()))?;
        match claim.outcome {
            Outcome::Again(answer) => return Ok(answer),
            Outcome::Replaced => {
                warn!(
                    %agent,
                    from = %self.peer,
                    "somebody holds a key that this agent has replaced since: it was copied, or the agent's state was \
                     put back from a copy; revoke the agent and enroll it again"
                );
                metrics::key_copied();
                return Err(refused("its key was replaced"));
            }
            Outcome::Next => {}
        }
        let issued = self.issue(agent, key, now).await.map_err(|error| not_issued(&error))?;
        let answer =
            directory.renew(agent, serial.to_string(), issued).await.map_err(|error| match error {
                NotRenewed::Changed => Status::aborted("another request was quicker; try again"),
                NotRenewed::Store(error) => unavailable(&error),
            })?;
        info!(%agent, from = %self.peer, "an agent's certificate was renewed");
        metrics::enrolled("renewed");
        Ok(answer)
    }

    /// Has a certificate made, of which nobody knows yet.
    async fn issue(&self, agent: &AgentId, key: ProvenKey, now: SystemTime) -> Result<Agent, SignError> {
        let public_key = BASE64.encode(key.spki());
        let (subject, lasting) = (Subject::Agent(agent.clone()), self.door.terms.lifetime);
        let issued = self.door.signer.issue(Order { subject, key, now, lasting }).await?;
        Ok(Agent {
            public_key,
            serial: issued.serial.to_string(),
            issued: now.into(),
            expires: UnixSeconds(u64::try_from(issued.not_after.unix_timestamp()).unwrap_or_default()),
            answer: Answer::of(&issued.chain),
            previous: None,
        })
    }

    fn credential(&self, answer: &Answer) -> Credential {
        Credential { chain: answer.chain(), trust_bundle: self.door.terms.trust_bundle.borrow().to_vec() }
    }

    fn listen(&self) -> Result<(), Status> {
        if self.door.failures.may_try(source(self.peer), Instant::now()) {
            return Ok(());
        }
        metrics::enrolled("limited");
        Err(Status::resource_exhausted(
            "too many attempts from this address have failed; try again in a minute",
        ))
    }

    fn key(&self, request: &[u8]) -> Result<ProvenKey, Status> {
        ProvenKey::of_csr(request).map_err(|error| {
            self.door.failures.failed(source(self.peer), Instant::now());
            Status::invalid_argument(error.to_string())
        })
    }

    /// One answer for every reason, so that nobody learns by guessing; the log has the reason.
    fn refused(&self, act: &str, reason: &str, whom: &str) -> Status {
        self.door.failures.failed(source(self.peer), Instant::now());
        metrics::enrolled("refused");
        info!(from = %self.peer, act, whom, reason, "somebody was refused a certificate");
        Status::permission_denied(match act {
            "renew" => "this certificate cannot be renewed; enroll the agent again with a new token",
            _ => "this token enrolls nobody; make another one with: tombolo token create --cluster NAME",
        })
    }
}

/// Why nobody was enrolled.
#[derive(Debug, thiserror::Error)]
enum NotEnrolled {
    #[error(transparent)]
    Refused(#[from] TokenRefused),
    #[error(transparent)]
    NotSigned(#[from] SignError),
}

fn not_issued(error: &SignError) -> Status {
    error!(error = %chain(error), "no certificate can be issued");
    Status::unavailable("no certificate can be issued now; try again later")
}

/// A name that no other agent of the cluster has.
fn instance() -> Option<String> {
    let mut bytes = [0; INSTANCE_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unavailable(error: &directory::StoreError) -> Status {
    error!(error = %chain(error), "the directory cannot be asked");
    Status::unavailable("the server cannot look at its records now; try again later")
}
