//! `tombolo`, the command-line tool for administrators and callers.

mod admin;
mod agents;
mod args;
mod attestation;
mod audit_verify;
mod ca;
mod certificate_names;
mod cluster;
mod clusters;
mod completion;
mod dial_tokens;
mod doctor;
mod files;
mod kubeconfig;
mod names;
mod passthrough;
mod pem;
mod policies;
mod print;
mod proxy;
mod rbac;
mod revocations;
mod runtime;
mod settings;
mod tls;
mod tokens;
mod user_tokens;
mod vip;

use std::error::Error;
use std::process::ExitCode;

use args::{
    AgentCommand, AuditCommand, CaCommand, ClusterCommand, Command, DialTokenCommand, DoctorOutput,
    IssueCommand, PolicyCommand, TokenCommand, UserCommand, UserTokenCommand,
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
        Command::Ca(CaCommand::Init(args)) => print::lines(&ca::init(&args)?)?,
        Command::Ca(CaCommand::Intermediate(args)) => print::lines(&ca::intermediate(&args)?)?,
        Command::Ca(CaCommand::Rotate(args)) => print::lines(&ca::rotate(&args)?)?,
        Command::Ca(CaCommand::Issue(IssueCommand::Server(args))) => print::lines(&ca::issue_server(&args)?)?,
        Command::Ca(CaCommand::Issue(IssueCommand::Agent(args))) => print::lines(&ca::issue_agent(&args)?)?,
        Command::Ca(CaCommand::Issue(IssueCommand::Caller(args))) => print::lines(&ca::issue_caller(&args)?)?,
        Command::Ca(CaCommand::Issue(IssueCommand::Proxy(args))) => print::lines(&ca::issue_proxy(&args)?)?,
        Command::Ca(CaCommand::Issue(IssueCommand::Admin(args))) => print::lines(&ca::issue_admin(&args)?)?,
        Command::Ca(CaCommand::Show(args)) => print::lines(&ca::show(&args)?)?,
        Command::Kubeconfig(args) => match kubeconfig::write(args)? {
            kubeconfig::KubeconfigOutput::Text(text) => print::document(&text)?,
            kubeconfig::KubeconfigOutput::File(lines) => print::lines(&lines)?,
        },
        Command::Proxy(args) => proxy::serve(args)?,
        Command::Passthrough(args) => print::lines(&passthrough::write(&args)?)?,
        Command::Vip(args) => print::lines(&vip::write(&args)?)?,
        Command::Rbac(args) => print::document(&rbac::manifest(&args)?)?,
        Command::Clusters(args) | Command::Cluster(ClusterCommand::List(args)) => clusters::show(&args)?,
        Command::Cluster(ClusterCommand::Create(args)) => print::lines(&cluster::create(args)?)?,
        Command::Cluster(ClusterCommand::Label(args)) => print::lines(&cluster::label(args)?)?,
        Command::Cluster(ClusterCommand::Update(args)) => print::lines(&cluster::update(args)?)?,
        Command::Cluster(ClusterCommand::Delete(args)) => print::lines(&cluster::delete(&args)?)?,
        Command::Cluster(ClusterCommand::Check(args)) => {
            let (lines, is_reached) = cluster::check(&args)?;
            print::lines(&lines)?;
            if !is_reached {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Cluster(ClusterCommand::Attestation(args)) => print::lines(&attestation::run(args)?)?,
        Command::Agent(AgentCommand::List(args)) => print::lines(&agents::list(&args)?)?,
        Command::Agent(AgentCommand::Revoke(args)) => print::lines(&agents::revoke(args)?)?,
        Command::Doctor(args) => {
            let output = args.output;
            let report = doctor::examine(args)?;
            match output {
                None => print::lines(&report.lines())?,
                Some(DoctorOutput::Json) => print::lines(&[report.json()])?,
            }
            if report.is_failed() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Policy(PolicyCommand::Check(args)) => policies::check(&args)?,
        Command::Policy(PolicyCommand::Explain(args)) => return Ok(policies::explain(*args)),
        Command::Audit(AuditCommand::Verify(args)) => return Ok(audit_verify::verify_and_print(args)),
        Command::Token(TokenCommand::Create(args)) => print::document(&tokens::create(&args)?)?,
        Command::Token(TokenCommand::List(args)) => print::lines(&tokens::list(&args)?)?,
        Command::Token(TokenCommand::Revoke(args)) => print::lines(&tokens::revoke(&args)?)?,
        Command::User(UserCommand::Token(UserTokenCommand::Create(args))) => {
            print::lines(&[user_tokens::create(&args)?])?
        }
        Command::User(UserCommand::Token(UserTokenCommand::Hash(args))) => {
            print::lines(&user_tokens::hash(&args)?)?
        }
        Command::User(UserCommand::DialToken(DialTokenCommand::Create(args))) => {
            print::lines(&dial_tokens::create(args)?)?;
        }
        Command::User(UserCommand::DialToken(DialTokenCommand::Kubeconfig(args))) => {
            print::lines(&dial_tokens::kubeconfig::write(&args)?)?;
        }
        Command::User(UserCommand::DialToken(DialTokenCommand::List(args))) => {
            print::lines(&dial_tokens::list(&args)?)?
        }
        Command::User(UserCommand::DialToken(DialTokenCommand::Revoke(args))) => {
            print::lines(&dial_tokens::revoke(&args)?)?;
        }
        Command::User(UserCommand::Revoke(args)) => print::lines(&revocations::revoke(args)?)?,
        Command::User(UserCommand::List(args)) => print::lines(&revocations::list(&args)?)?,
        Command::User(UserCommand::Restore(args)) => print::lines(&revocations::restore(args)?)?,
        Command::Completion(args) => print::document(&completion::script(args.shell, invocation.program)?)?,
        Command::Version => print::lines(&[concat!("tombolo ", env!("CARGO_PKG_VERSION")).to_owned()])?,
    }
    Ok(ExitCode::SUCCESS)
}
