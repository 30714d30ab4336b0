//! The causes of refusals: the words in `details.causes` of a `Status`, which are the `reason` of the counter
//! of refusals too.

use proto::text_enum;

text_enum! {
    /// The cause of a refusal. [`RefusalCause::ALL`] sets the counters to zero, so that the first refusal is
    /// an increase.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum RefusalCause {
        BrowserRefused = "BrowserRefused",
        AuthenticatorAway = "AuthenticatorAway",
        NotAuthenticated = "NotAuthenticated",
        CredentialRevoked = "CredentialRevoked",
        CredentialExpired = "CredentialExpired",
        PolicyChanged = "PolicyChanged",
        SessionTooOld = "SessionTooOld",
        ServerStale = "ServerStale",
        NotARequest = "NotARequest",
        ForbiddenByPolicy = "ForbiddenByPolicy",
        ForbiddenByHost = "ForbiddenByHost",
        HostAway = "HostAway",
        NotAsserted = "NotAsserted",
        HeadersRefused = "HeadersRefused",
        UpgradeRefused = "UpgradeRefused",
        ParkLimitRefused = "ParkLimitRefused",
        ClusterNeverSeen = "ClusterNeverSeen",
        ClusterDeleted = "ClusterDeleted",
        ClusterNotConnected = "ClusterNotConnected",
        ClusterCrowded = "ClusterCrowded",
        ClusterBusy = "ClusterBusy",
        ClusterLost = "ClusterLost",
        AgentSilent = "AgentSilent",
        LinkSilent = "LinkSilent",
        CallerSilent = "CallerSilent",
        ApiServerUnreachable = "APIServerUnreachable",
        ApiServerSilent = "APIServerSilent",
        ApiServerUntrusted = "APIServerUntrusted",
        ApiServerLost = "APIServerLost",
        ApiServerNotProcessed = "APIServerNotProcessed",
        ApiServerNotHttp = "APIServerNotHTTP",
        AgentWithoutCredential = "AgentWithoutCredential",
        ForbiddenByAgent = "ForbiddenByAgent",
        NoBearerToken = "NoBearerToken",
        AgentBusy = "AgentBusy",
        NeverBegun = "NeverBegun",
        TargetLost = "TargetLost",
        AgentStopping = "AgentStopping",
        AgentGaveUp = "AgentGaveUp",
        RedirectRefused = "RedirectRefused",
        NotHttp = "NotHTTP",
        BrokenBody = "BrokenBody",
        GatewayBusy = "GatewayBusy",
        TooManyFailedLogins = "TooManyFailedLogins",
        CallerBusy = "CallerBusy",
        CallerTooFast = "CallerTooFast",
        ClusterFull = "ClusterFull",
        NotRecorded = "NotRecorded",
        NotWatchedAgain = "NotWatchedAgain",
    }
}
