//! The command `tombolo`: what a person types.

mod admin;
mod agents;
mod args;
mod attestation;
mod ca;
mod cluster;
mod clusters;
mod completion;
mod dial_tokens;
mod doctor;
mod explain;
mod files;
mod kubeconfig;
mod names;
mod passthrough;
mod pem;
mod print;
mod proxy;
mod rbac;
mod revocations;
mod runtime;
mod served;
mod settings;
mod tls;
mod tokens;
mod users;
mod verification;
mod vip;

use std::error::Error;
use std::process::ExitCode;

use args::{
    Agent, Audit, Ca, Cluster, Command, DialToken, DoctorOutput, Issue, Policy, Token, UserToken, Users,
};

fn main() -> ExitCode {
    let invocation = args::parse();
    match run(invocation) {
        Ok(code) => code,
        Err(error) => {
            print::failure(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

fn run(invocation: args::Invocation) -> Result<ExitCode, Box<dyn Error>> {
    match invocation.command {
        Command::Ca(Ca::Init(order)) => print::lines(&ca::init(&order)?)?,
        Command::Ca(Ca::Intermediate(order)) => print::lines(&ca::intermediate(&order)?)?,
        Command::Ca(Ca::Rotate(order)) => print::lines(&ca::rotate(&order)?)?,
        Command::Ca(Ca::Issue(Issue::Server(order))) => print::lines(&ca::issue_server(&order)?)?,
        Command::Ca(Ca::Issue(Issue::Agent(order))) => print::lines(&ca::issue_agent(&order)?)?,
        Command::Ca(Ca::Issue(Issue::Caller(order))) => print::lines(&ca::issue_caller(&order)?)?,
        Command::Ca(Ca::Issue(Issue::Proxy(order))) => print::lines(&ca::issue_proxy(&order)?)?,
        Command::Ca(Ca::Issue(Issue::Admin(order))) => print::lines(&ca::issue_admin(&order)?)?,
        Command::Ca(Ca::Show(order)) => print::lines(&ca::show(&order)?)?,
        Command::Kubeconfig(order) => match kubeconfig::write(order)? {
            kubeconfig::Written::Document(text) => print::document(&text)?,
            kubeconfig::Written::File(lines) => print::lines(&lines)?,
        },
        Command::Proxy(order) => proxy::serve(order)?,
        Command::Passthrough(order) => print::lines(&passthrough::write(&order)?)?,
        Command::Vip(order) => print::lines(&vip::write(&order)?)?,
        Command::Rbac(order) => print::document(&rbac::manifest(&order)?)?,
        Command::Clusters(order) | Command::Cluster(Cluster::List(order)) => clusters::show(&order)?,
        Command::Cluster(Cluster::Create(order)) => print::lines(&cluster::create(order)?)?,
        Command::Cluster(Cluster::Label(order)) => print::lines(&cluster::label(order)?)?,
        Command::Cluster(Cluster::Update(order)) => print::lines(&cluster::update(order)?)?,
        Command::Cluster(Cluster::Delete(order)) => print::lines(&cluster::delete(&order)?)?,
        Command::Cluster(Cluster::Check(order)) => {
            let (lines, is_reached) = cluster::check(&order)?;
            print::lines(&lines)?;
            if !is_reached {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Cluster(Cluster::Attestation(order)) => print::lines(&attestation::run(order)?)?,
        Command::Agent(Agent::List(order)) => print::lines(&agents::list(&order)?)?,
        Command::Agent(Agent::Revoke(order)) => print::lines(&agents::revoke(order)?)?,
        Command::Doctor(order) => {
            let output = order.output;
            let report = doctor::examine(order)?;
            match output {
                None => print::lines(&report.lines())?,
                Some(DoctorOutput::Json) => print::lines(&[report.json()])?,
            }
            if report.is_failed() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Policy(Policy::Check(order)) => explain::check(&order)?,
        Command::Policy(Policy::Explain(order)) => return Ok(explain::explain(*order)),
        Command::Audit(Audit::Verify(order)) => return Ok(verification::say(order)),
        Command::Token(Token::Create(order)) => print::document(&tokens::create(&order)?)?,
        Command::Token(Token::List(order)) => print::lines(&tokens::list(&order)?)?,
        Command::Token(Token::Revoke(order)) => print::lines(&tokens::revoke(&order)?)?,
        Command::User(Users::Token(UserToken::Create(order))) => print::lines(&[users::create(&order)?])?,
        Command::User(Users::Token(UserToken::Hash(order))) => print::lines(&users::hash(&order)?)?,
        Command::User(Users::DialToken(DialToken::Create(order))) => {
            print::lines(&dial_tokens::create(order)?)?;
        }
        Command::User(Users::DialToken(DialToken::Kubeconfig(order))) => {
            print::lines(&dial_tokens::kubeconfig::write(&order)?)?;
        }
        Command::User(Users::DialToken(DialToken::List(order))) => print::lines(&dial_tokens::list(&order)?)?,
        Command::User(Users::DialToken(DialToken::Revoke(order))) => {
            print::lines(&dial_tokens::revoke(&order)?)?;
        }
        Command::User(Users::Revoke(order)) => print::lines(&revocations::revoke(order)?)?,
        Command::User(Users::List(order)) => print::lines(&revocations::list(&order)?)?,
        Command::User(Users::Restore(order)) => print::lines(&revocations::restore(order)?)?,
        Command::Completion(order) => print::document(&completion::script(order.shell, invocation.program)?)?,
        Command::Version => print::lines(&[concat!("tombolo ", env!("CARGO_PKG_VERSION")).to_owned()])?,
    }
    Ok(ExitCode::SUCCESS)
}
