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
mod confirm;
mod credential;
mod dial_tokens;
mod doctor;
mod export;
mod files;
mod https;
mod import;
mod in_force;
mod join;
mod kubeconfig;
mod man;
mod names;
mod node;
mod passthrough;
mod pem;
mod policies;
mod print;
mod proxy;
mod rbac;
mod revocations;
mod runtime;
mod servers;
mod settings;
mod site;
mod summarize;
mod tenant;
mod tls;
mod tokens;
mod user_tokens;
mod vip;
mod yaml;

use std::error::Error;
use std::process::ExitCode;

use args::{
    AgentCommand, AuditCommand, CaCommand, ClusterCommand, Command, DialTokenCommand, DoctorOutput,
    IssueCommand, NodeCommand, PolicyCommand, Program, ServerCommand, TenantCertificatesCommand,
    TenantCommand, TokenCommand, UserCommand, UserTokenCommand,
};
use in_force::RevokeOutput;

fn main() -> ExitCode {
    let done = match args::words_to_complete() {
        Some(words) => complete(&words),
        None => run(args::parse()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            print::failure(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

fn run(invocation: args::Invocation) -> Result<ExitCode, Box<dyn Error>> {
    match invocation.command {
        Command::Ca(command) => print::lines(&run_ca(&command)?)?,
        Command::Credential(args) => print::document(&credential::answer(args)?)?,
        Command::Kubeconfig(args) => match kubeconfig::write(args, invocation.program.file_name())? {
            kubeconfig::KubeconfigOutput::Text(text) => print::document(&text)?,
            kubeconfig::KubeconfigOutput::File(lines) => print::lines(&lines)?,
        },
        Command::Proxy(args) => proxy::serve(args)?,
        Command::Summarize(args) => summarize::show(&args)?,
        Command::Passthrough(args) => print::lines(&passthrough::write(&args)?)?,
        Command::Vip(args) => print::lines(&vip::write(&args)?)?,
        Command::Rbac(args) => print::document(&rbac::manifest(&args)?)?,
        Command::Clusters(args) | Command::Cluster(ClusterCommand::List(args)) => clusters::show(&args)?,
        Command::Cluster(ClusterCommand::Create(args)) => join::create(args)?,
        Command::Cluster(ClusterCommand::Label(args)) => print::lines(&cluster::label(args)?)?,
        Command::Cluster(ClusterCommand::Update(args)) => print::lines(&cluster::update(args)?)?,
        Command::Cluster(ClusterCommand::Delete(args)) => print::lines(&cluster::delete(&args)?)?,
        Command::Cluster(ClusterCommand::Undelete(args)) => print::lines(&cluster::undelete(&args)?)?,
        Command::Cluster(ClusterCommand::Check(args)) => {
            let (lines, is_reached) = cluster::check(&args)?;
            print::lines(&lines)?;
            if !is_reached {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Cluster(ClusterCommand::Attestation(args)) => print::lines(&attestation::run(args)?)?,
        Command::Agent(AgentCommand::List(args)) => print::lines(&agents::list(&args)?)?,
        Command::Agent(AgentCommand::Revoke(args)) => return revoked(&agents::revoke(args)?),
        Command::Agent(AgentCommand::Restore(args)) => print::lines(&agents::restore(args)?)?,
        Command::Doctor(args) => {
            let output = args.output;
            let report = doctor::examine(args)?;
            match output {
                None => print::lines(&report.lines())?,
                Some(DoctorOutput::Json) => print::lines(&[report.json()])?,
            }
            return Ok(ExitCode::from(report.exit_code()));
        }
        Command::Node(NodeCommand::JoinCommand(args)) => node::print_join_command(&args)?,
        Command::Node(NodeCommand::Join(args)) => print::lines(&node::join(&args)?)?,
        Command::Node(NodeCommand::RotateCa(args)) => print::lines(&node::rotate_ca(&args)?)?,
        Command::Node(NodeCommand::Reset(args)) => print::lines(&node::reset(&args)?)?,
        Command::Tenant(command) => return run_tenant(command),
        Command::Server(ServerCommand::List(args)) => print::lines(&servers::list(&args)?)?,
        Command::Server(ServerCommand::Remove(args)) => print::lines(&servers::remove(args)?)?,
        Command::Server(ServerCommand::Export(args)) => print::lines(&export::write(&args)?)?,
        Command::Server(ServerCommand::Import(args)) => print::lines(&import::put(&args)?)?,
        Command::Policy(PolicyCommand::Check(args)) => policies::check(&args)?,
        Command::Policy(PolicyCommand::Explain(args)) => return Ok(policies::explain(*args)),
        Command::Audit(AuditCommand::Verify(args)) => return Ok(audit_verify::verify_and_print(args)),
        Command::Token(TokenCommand::Create(args)) => print::document(&tokens::create(args)?)?,
        Command::Token(TokenCommand::List(args)) => print::lines(&tokens::list(&args)?)?,
        Command::Token(TokenCommand::Revoke(args)) => print::lines(&tokens::revoke(&args)?)?,
        Command::User(command) => return run_user(command),
        Command::Completion(args) => print::document(&completion::script(args.shell, invocation.program)?)?,
        Command::Man(args) => print::lines(&man::write(&args)?)?,
        Command::Version => print::lines(&[concat!("tombolo ", env!("CARGO_PKG_VERSION")).to_owned()])?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers kubectl, which asks for the candidates of a plugin's command line.
fn complete(words: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    // Not as lines for people, where a tab would be escaped.
    let candidates = completion::candidates(args::command(Program::KubectlPlugin), words);
    print::document(&(candidates.join("\n") + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn run_ca(command: &CaCommand) -> Result<Vec<String>, Box<dyn Error>> {
    Ok(match command {
        CaCommand::Init(args) => ca::init(args)?,
        CaCommand::Intermediate(args) => ca::intermediate(args)?,
        CaCommand::Rotate(args) => ca::rotate(args)?,
        CaCommand::Issue(IssueCommand::Server(args)) => ca::issue_server(args)?,
        CaCommand::Issue(IssueCommand::Agent(args)) => ca::issue_agent(args)?,
        CaCommand::Issue(IssueCommand::Caller(args)) => ca::issue_caller(args)?,
        CaCommand::Issue(IssueCommand::Proxy(args)) => ca::issue_proxy(args)?,
        CaCommand::Issue(IssueCommand::Admin(args)) => ca::issue_admin(args)?,
        CaCommand::Issue(IssueCommand::Peer(args)) => ca::issue_peer(args)?,
        CaCommand::Secrets(args) => ca::secrets(args)?,
        CaCommand::Show(args) => ca::show(args)?,
    })
}

fn run_tenant(command: TenantCommand) -> Result<ExitCode, Box<dyn Error>> {
    let lines = match command {
        TenantCommand::Create(args) => tenant::create(&args)?,
        TenantCommand::Bootstrap(args) => tenant::bootstrap(&args)?,
        TenantCommand::List(args) => tenant::list(&args)?,
        TenantCommand::Status(args) => {
            let (lines, is_ready) = tenant::status(&args)?;
            print::lines(&lines)?;
            return Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        TenantCommand::Kubeconfig(args) => {
            print::document(&tenant::kubeconfig(&args)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        TenantCommand::JoinCommand(args) => {
            print::document(&tenant::join_command(&args)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        TenantCommand::Upgrade(args) => tenant::upgrade(&args)?,
        TenantCommand::Certificates(TenantCertificatesCommand::Renew(args)) => tenant::renew(&args)?,
        TenantCommand::Certificates(TenantCertificatesCommand::RotateCa(args)) => tenant::rotate_ca(&args)?,
        TenantCommand::Register(args) => tenant::register(&args)?,
        TenantCommand::Delete(args) => tenant::delete(&args)?,
    };
    print::lines(&lines)?;
    Ok(ExitCode::SUCCESS)
}

fn run_user(command: UserCommand) -> Result<ExitCode, Box<dyn Error>> {
    let lines = match command {
        UserCommand::Token(UserTokenCommand::Create(args)) => vec![user_tokens::create(&args)?],
        UserCommand::Token(UserTokenCommand::Hash(args)) => user_tokens::hash(&args)?,
        UserCommand::DialToken(DialTokenCommand::Create(args)) => dial_tokens::create(args)?,
        UserCommand::DialToken(DialTokenCommand::Kubeconfig(args)) => dial_tokens::kubeconfig::write(&args)?,
        UserCommand::DialToken(DialTokenCommand::List(args)) => dial_tokens::list(&args)?,
        UserCommand::DialToken(DialTokenCommand::Revoke(args)) => dial_tokens::revoke(&args)?,
        UserCommand::Revoke(args) => return revoked(&revocations::revoke(args)?),
        UserCommand::List(args) => revocations::list(&args)?,
        UserCommand::Restore(args) => revocations::restore(args)?,
    };
    print::lines(&lines)?;
    Ok(ExitCode::SUCCESS)
}

/// Says where a revocation is in force. It has failed for a script if that is not everywhere.
fn revoked(output: &RevokeOutput) -> Result<ExitCode, Box<dyn Error>> {
    print::lines(&output.lines)?;
    Ok(if output.is_everywhere { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
