//! What somebody may do: one table, and the function that reads it. Pure.
//!
//! Objects that somebody may not see do not exist for him: [`Verdict::Hide`] is answered like an object that is not
//! there. What he sees and may not do is [`Verdict::Forbid`]. Want of a role or scope is told *before* any object is
//! looked at, so that a refusal tells nothing about objects either.

use crate::principal::{TokenScope, TokenScopes, UserRole};

/// What a route does. Every route declares one; one that does not is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthOperation {
    /// To know who one is and which server this is. Also the entrance to calls that ask for the rest themselves.
    Identify,
    /// The list of workflows, workers, events and groups, which holds what one may see.
    ListVisible,
    CreateWorkflow,
    /// To make a workflow that belongs to somebody else.
    CreateForOthers,
    ReadWorkflow,
    /// Its jobs, files, data, settings; starting, resetting, archiving it.
    ChangeWorkflow,
    /// To decide about failures of a workflow as an agent: within the workflow's policy, and never in place of a person.
    DecideAsAgent,
    CancelWorkflow,
    DeleteWorkflow,
    /// To say which groups share it.
    ShareWorkflow,
    /// To see the values of secrets in environments.
    ReadSecrets,
    /// To claim, start and complete jobs of a workflow.
    RunJobs,
    /// To add jobs from inside a job.
    SpawnJobs,
    /// To write the user data of a workflow.
    ChangeUserData,
    /// To introduce a worker.
    IntroduceWorker,
    ReadWorker,
    /// To speak as a worker. It quotes its secret besides.
    SpeakAsWorker,
    /// To drain or retire a worker.
    ManageWorker,
    /// To set nodes aside, which concerns everybody who has workers there.
    ManageNodes,
    /// To submit a request, or to add to the catalog what it reads.
    CreateRequest,
    /// To read the commands of a request, its failures with what jobs printed, and where its logs are. That a request is
    /// there and how far it is may be read by all.
    ReadRequestDetails,
    /// Its priority, its steps; stopping and releasing it.
    ChangeRequest,
    /// To end a request for good.
    CancelRequest,
    /// To drain, enable or ban sites, to say how many requests run at once, to forget datasets: it concerns everybody.
    ManageSites,
    ReadGroup,
    CreateGroup,
    /// To say who is in a group.
    ChangeGroup,
    DeleteGroup,
    ReadTokens,
    /// To make and revoke tokens.
    ChangeTokens,
    /// Figures about the server as a whole.
    Metrics,
    /// Reloading, the audit trail, statistics of use.
    Administer,
    /// Statements of one's own on the database: offered to nobody.
    Sql,
}

impl AuthOperation {
    /// All that there are.
    #[rustfmt::skip] // One line each would be longer than the table.
    pub const ALL: [Self; 33] = [
        Self::Identify, Self::ListVisible, Self::CreateWorkflow, Self::CreateForOthers, Self::ReadWorkflow,
        Self::ChangeWorkflow, Self::DecideAsAgent, Self::CancelWorkflow, Self::DeleteWorkflow,
        Self::ShareWorkflow, Self::ReadSecrets, Self::RunJobs, Self::SpawnJobs, Self::ChangeUserData,
        Self::IntroduceWorker, Self::ReadWorker, Self::SpeakAsWorker, Self::ManageWorker,
        Self::ManageNodes, Self::ReadRequestDetails, Self::CreateRequest, Self::ChangeRequest,
        Self::CancelRequest, Self::ManageSites, Self::ReadGroup, Self::CreateGroup, Self::ChangeGroup,
        Self::DeleteGroup, Self::ReadTokens, Self::ChangeTokens, Self::Metrics, Self::Administer, Self::Sql,
    ];
}

/// What an object is to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectRelation {
    /// His workflow, his worker, his token; a group that he manages. Also where no object is concerned.
    Own,
    /// A workflow of a group that he is in; a group that he is in.
    Shared,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessDecision {
    Allow,
    /// 403: the credential is good for less than this.
    ForbidScope,
    /// 403: his role, or what the object is to him, is not enough.
    ForbidRole,
    /// 404: for him there is no such object.
    Hide,
}

/// Who may do something to whose objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// One of these is needed.
    pub scopes: TokenScopes,
    /// With objects of one's own.
    pub own: MinimumRole,
    /// With objects that are shared with him; who may not still sees them.
    pub shared: MinimumRole,
    /// With objects of others. Below operator they are not seen at all.
    pub other: MinimumRole,
}

/// The least role that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinimumRole {
    AtLeast(UserRole),
    Never,
}

impl MinimumRole {
    fn admits(self, role: UserRole) -> bool {
        matches!(self, Self::AtLeast(least) if role >= least)
    }
}

/// The rule of an operation: this is the table.
pub const fn access_rule(operation: AuthOperation) -> AccessRule {
    use AuthOperation as O;
    const VIEWER: MinimumRole = MinimumRole::AtLeast(UserRole::Viewer);
    const USER: MinimumRole = MinimumRole::AtLeast(UserRole::User);
    const OPERATOR: MinimumRole = MinimumRole::AtLeast(UserRole::Operator);
    const ADMIN: MinimumRole = MinimumRole::AtLeast(UserRole::Admin);
    const NOBODY: MinimumRole = MinimumRole::Never;
    const READ: TokenScopes = TokenScopes::READ;
    const CREATE: TokenScopes = TokenScopes::NONE.with(TokenScope::Create);
    const MODIFY: TokenScopes = TokenScopes::NONE.with(TokenScope::Modify);
    const CANCEL: TokenScopes = TokenScopes::NONE.with(TokenScope::Cancel);
    const DECIDE: TokenScopes = TokenScopes::NONE.with(TokenScope::Decide).with(TokenScope::Modify);
    const WORK: TokenScopes = TokenScopes::NONE.with(TokenScope::Work);
    const ADMINISTER: TokenScopes = TokenScopes::NONE.with(TokenScope::Admin);
    const JOB: TokenScopes = TokenScopes::JOB;
    const IN_ALLOCATION: TokenScopes = TokenScopes::ALLOCATION;
    const READ_BOUND: TokenScopes = READ.union(JOB).union(IN_ALLOCATION);

    #[rustfmt::skip] // Columns are read more easily than lines that were broken to fit.
    let (scopes, own, shared, other) = match operation {
        //                                         scope                own       shared    other
        O::Identify                             => (READ_BOUND,         VIEWER,   VIEWER,   VIEWER),
        O::ListVisible | O::Metrics                    => (READ,               VIEWER,   VIEWER,   VIEWER),
        O::ReadWorkflow                         => (READ_BOUND,         VIEWER,   VIEWER,   OPERATOR),
        O::ReadWorker | O::ReadGroup            => (READ,               VIEWER,   VIEWER,   OPERATOR),
        O::CreateWorkflow                       => (CREATE,             USER,     USER,     USER),
        O::CreateForOthers                      => (CREATE,             OPERATOR, OPERATOR, OPERATOR),
        O::ChangeWorkflow                       => (MODIFY,             USER,     USER,     OPERATOR),
        O::DecideAsAgent                        => (DECIDE,             USER,     USER,     OPERATOR),
        O::CancelWorkflow                       => (CANCEL,             USER,     USER,     OPERATOR),
        O::DeleteWorkflow | O::ShareWorkflow | O::ManageWorker | O::ChangeRequest
                                                => (MODIFY,             USER,     OPERATOR, OPERATOR),
        O::ManageNodes | O::ManageSites         => (MODIFY,             OPERATOR, OPERATOR, OPERATOR),
        O::ReadRequestDetails                   => (READ,               VIEWER,   OPERATOR, OPERATOR),
        O::CreateRequest                        => (CREATE,             USER,     OPERATOR, OPERATOR),
        O::CancelRequest                        => (CANCEL,             USER,     OPERATOR, OPERATOR),
        O::ReadSecrets                          => (MODIFY,             USER,     NOBODY,   NOBODY),
        O::RunJobs                                 => (WORK.union(MODIFY),   USER,     USER,     OPERATOR),
        O::SpawnJobs | O::ChangeUserData        => (WORK.union(MODIFY).union(JOB),
                                                                        USER,     USER,     OPERATOR),
        O::IntroduceWorker                      => (WORK.union(IN_ALLOCATION),
                                                                        USER,     USER,     USER),
        O::SpeakAsWorker                        => (WORK.union(IN_ALLOCATION),
                                                                        USER,     OPERATOR, OPERATOR),
        O::CreateGroup | O::DeleteGroup | O::Administer
                                                => (ADMINISTER,         ADMIN,    ADMIN,    ADMIN),
        O::ChangeGroup                          => (MODIFY,             USER,     ADMIN,    ADMIN),
        O::ReadTokens                           => (READ,               VIEWER,   ADMIN,    ADMIN),
        O::ChangeTokens                         => (MODIFY,             VIEWER,   ADMIN,    ADMIN),
        O::Sql                                  => (ADMINISTER,         NOBODY,   NOBODY,   NOBODY),
    };
    AccessRule { scopes, own, shared, other }
}

/// Whether somebody with this role and these scopes may do this to an object that is this to him.
pub fn decide_access(
    operation: AuthOperation,
    role: UserRole,
    scopes: TokenScopes,
    relation: ObjectRelation,
) -> AccessDecision {
    let rule = access_rule(operation);
    // First what no other token of his would help against.
    if !rule.own.admits(role) {
        return AccessDecision::ForbidRole;
    }
    if !scopes.intersects(rule.scopes) {
        return AccessDecision::ForbidScope;
    }
    let (least, seen) = match relation {
        ObjectRelation::Own => (rule.own, true),
        ObjectRelation::Shared => (rule.shared, true),
        ObjectRelation::Other => (rule.other, role >= UserRole::Operator),
    };
    match (least.admits(role), seen) {
        (true, _) => AccessDecision::Allow,
        (false, true) => AccessDecision::ForbidRole,
        (false, false) => AccessDecision::Hide,
    }
}

/// What would help whoever may not do this; `None`: nothing would.
pub fn suggest_remedy(
    operation: AuthOperation,
    verdict: AccessDecision,
    relation: ObjectRelation,
) -> Option<String> {
    let rule = access_rule(operation);
    let least = match relation {
        ObjectRelation::Own => rule.own,
        ObjectRelation::Shared => rule.shared,
        ObjectRelation::Other => rule.other,
    };
    match (verdict, least) {
        (AccessDecision::ForbidScope, _) => {
            let scope = rule.scopes.smallest_name();
            Some(format!(
                "it takes a token with the scope `{scope}`: `windlass token create --scope {scope}`"
            ))
        }
        (AccessDecision::ForbidRole, MinimumRole::AtLeast(role)) => Some(format!("it takes the role {role}")),
        (AccessDecision::ForbidRole, MinimumRole::Never)
        | (AccessDecision::Allow | AccessDecision::Hide, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AuthOperation as O;

    fn verdicts(operation: AuthOperation, relation: ObjectRelation) -> [AccessDecision; 4] {
        UserRole::ALL.map(|role| decide_access(operation, role, TokenScopes::ALL, relation))
    }

    const A: AccessDecision = AccessDecision::Allow;
    const F: AccessDecision = AccessDecision::ForbidRole;
    const H: AccessDecision = AccessDecision::Hide;

    /// Truths written by hand, not read from the table.
    #[test]
    fn who_may_do_what() {
        //                             viewer user operator admin
        let truths = [
            (O::ReadWorkflow, ObjectRelation::Own, [A, A, A, A]),
            (O::ReadWorkflow, ObjectRelation::Shared, [A, A, A, A]),
            (O::ReadWorkflow, ObjectRelation::Other, [H, H, A, A]),
            (O::ChangeWorkflow, ObjectRelation::Own, [F, A, A, A]),
            (O::ChangeWorkflow, ObjectRelation::Shared, [F, A, A, A]),
            (O::ChangeWorkflow, ObjectRelation::Other, [F, H, A, A]),
            (O::DeleteWorkflow, ObjectRelation::Shared, [F, F, A, A]),
            (O::DeleteWorkflow, ObjectRelation::Other, [F, H, A, A]),
            (O::ReadSecrets, ObjectRelation::Own, [F, A, A, A]),
            (O::ReadSecrets, ObjectRelation::Shared, [F, F, F, F]),
            (O::ReadSecrets, ObjectRelation::Other, [F, H, F, F]),
            (O::SpeakAsWorker, ObjectRelation::Other, [F, H, A, A]),
            (O::SpawnJobs, ObjectRelation::Other, [F, H, A, A]),
            (O::ManageNodes, ObjectRelation::Own, [F, F, A, A]),
            (O::ManageSites, ObjectRelation::Own, [F, F, A, A]),
            (O::ReadRequestDetails, ObjectRelation::Own, [A, A, A, A]),
            (O::ReadRequestDetails, ObjectRelation::Shared, [F, F, A, A]),
            (O::CreateRequest, ObjectRelation::Own, [F, A, A, A]),
            (O::CreateRequest, ObjectRelation::Shared, [F, F, A, A]),
            (O::ChangeRequest, ObjectRelation::Own, [F, A, A, A]),
            (O::ChangeRequest, ObjectRelation::Shared, [F, F, A, A]),
            (O::CancelRequest, ObjectRelation::Shared, [F, F, A, A]),
            (O::Administer, ObjectRelation::Own, [F, F, F, A]),
            (O::ReadTokens, ObjectRelation::Other, [H, H, F, A]),
            (O::Sql, ObjectRelation::Own, [F, F, F, F]),
        ];
        for (operation, relation, expected) in truths {
            assert_eq!(verdicts(operation, relation), expected, "{operation:?} {relation:?}");
        }
    }

    #[test]
    fn a_credential_is_good_for_no_more_than_its_scopes() {
        let may = |operation, scopes| decide_access(operation, UserRole::Admin, scopes, ObjectRelation::Own);
        assert_eq!(may(O::ReadWorkflow, TokenScopes::READ), A);
        assert_eq!(may(O::ChangeWorkflow, TokenScopes::READ), AccessDecision::ForbidScope);
        assert_eq!(may(O::Administer, TokenScopes::WRITE), AccessDecision::ForbidScope);
        assert_eq!(may(O::IntroduceWorker, TokenScopes::WRITE), AccessDecision::ForbidScope);
        assert_eq!(may(O::IntroduceWorker, TokenScopes::WORKER), A);
        assert_eq!(may(O::RunJobs, TokenScopes::WORKER), A);
        assert_eq!(may(O::ChangeWorkflow, TokenScopes::WORKER), AccessDecision::ForbidScope);
        assert_eq!(may(O::CancelWorkflow, TokenScopes::READ.with(TokenScope::Cancel)), A);
        assert_eq!(may(O::ReadWorkflow, TokenScopes::NONE), AccessDecision::ForbidScope);
    }

    #[test]
    fn bound_tokens_allow_what_is_listed_and_nothing_else() {
        let allowed = |scopes| {
            let mut all = AuthOperation::ALL.to_vec();
            all.retain(|operation| {
                decide_access(*operation, UserRole::Admin, scopes, ObjectRelation::Own) == A
            });
            all
        };
        assert_eq!(
            allowed(TokenScopes::JOB),
            [O::Identify, O::ReadWorkflow, O::SpawnJobs, O::ChangeUserData],
            "a job"
        );
        assert_eq!(
            allowed(TokenScopes::ALLOCATION),
            [O::Identify, O::ReadWorkflow, O::IntroduceWorker, O::SpeakAsWorker],
            "the workers of an allocation"
        );
    }

    #[test]
    fn an_agents_token_reads_and_decides_and_does_nothing_else() {
        let may =
            |operation| decide_access(operation, UserRole::Admin, TokenScopes::AGENT, ObjectRelation::Own);
        assert_eq!([O::ListVisible, O::ReadWorkflow, O::DecideAsAgent].map(may), [A; 3]);
        for operation in [
            O::ChangeWorkflow,
            O::CreateWorkflow,
            O::CancelWorkflow,
            O::DeleteWorkflow,
            O::ShareWorkflow,
            O::ReadSecrets,
            O::RunJobs,
            O::IntroduceWorker,
            O::SpeakAsWorker,
            O::ManageWorker,
            O::ManageNodes,
            O::ManageSites,
            O::CreateRequest,
            O::ChangeRequest,
            O::CancelRequest,
            O::ChangeGroup,
            O::ChangeTokens,
            O::Administer,
        ] {
            assert_eq!(may(operation), AccessDecision::ForbidScope, "{operation:?}");
        }
        assert_eq!(
            decide_access(O::DecideAsAgent, UserRole::User, TokenScopes::WRITE, ObjectRelation::Own),
            A
        );
        assert_eq!(
            decide_access(O::DecideAsAgent, UserRole::User, TokenScopes::READ, ObjectRelation::Own),
            AccessDecision::ForbidScope
        );
        assert_eq!(
            decide_access(O::DecideAsAgent, UserRole::User, TokenScopes::AGENT, ObjectRelation::Other),
            H
        );
    }

    #[test]
    fn what_would_help_is_told() {
        let told = |operation, role, scopes, relation| {
            suggest_remedy(operation, decide_access(operation, role, scopes, relation), relation)
                .unwrap_or_default()
        };
        let told_user = |operation, scopes| told(operation, UserRole::User, scopes, ObjectRelation::Own);
        assert!(told_user(O::ChangeWorkflow, TokenScopes::READ).contains("--scope write"));
        assert!(told_user(O::IntroduceWorker, TokenScopes::WRITE).contains("--scope worker"));
        assert_eq!(
            told_user(O::CreateGroup, TokenScopes::WRITE),
            "it takes the role admin",
            "no scope would help"
        );
        assert_eq!(
            told(O::DeleteWorkflow, UserRole::User, TokenScopes::ALL, ObjectRelation::Shared),
            "it takes the role operator"
        );
        assert_eq!(told(O::ReadSecrets, UserRole::Admin, TokenScopes::ALL, ObjectRelation::Shared), "");
    }

    #[test]
    fn a_want_of_scope_says_nothing_about_the_object() {
        for relation in [ObjectRelation::Own, ObjectRelation::Shared, ObjectRelation::Other] {
            let verdict = decide_access(O::ChangeWorkflow, UserRole::User, TokenScopes::READ, relation);
            assert_eq!(verdict, AccessDecision::ForbidScope);
        }
    }
}
